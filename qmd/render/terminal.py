"""Text for a terminal: escapes for control characters, and the sequences that qmd sends."""

from __future__ import annotations

import re
from collections.abc import Iterable

_CONTROLS = (
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
    # before a line feed it is a line break of Windows
    "|\r(?!\n)"
)
"""Characters that control a terminal: control characters except tab and line feed, marks of text direction, and lone
surrogates for bytes of a file name (some terminals read 0x9b among them as a control)."""

_URI = "!#$%&'()*+,/:;=?@[]~"
"""Characters of a link target, besides letters, digits and `_.-`, that are not percent-encoded."""


class Styled(str):
    """Text that is safe for a terminal: foreign parts passed `visible`, sequences are qmd's own.

    Every operation except `join_styled` returns plain text, whose sequences are escaped: a mistake loses a colour and
    is never unsafe.
    """

    __slots__ = ()


ERASE_LINE = Styled("\r\x1b[K")
"""Return to the start of the line, and erase it."""


def join_styled(parts: Iterable[str]) -> Styled:
    """Join parts; escape those that are not `Styled`."""
    return Styled("".join(part if isinstance(part, Styled) else visible(part) for part in parts))


def visible(text: str) -> str:
    r"""Escape every character that controls a terminal: `\x1b`, `\u009b`, `\u202e`.

    From 0x7f on the form is that of JSON, which does not escape them itself: JSON keeps its values.
    """
    return re.sub(_CONTROLS, _escaped, text)


def visible_name(text: str) -> str:
    r"""Escape as `visible` does, and also line feeds and tabs."""
    return re.sub("[\t\n\r]", _escaped, visible(text))


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x20 else f"\\u{code:04x}"


def without_sequences(text: str) -> str:
    """Return `text` without escape sequences."""
    return re.sub(r"\x1b(?:\][^\x07]*\x07|\[[0-9;]*[A-Za-z])", "", text)


def hyperlink(text: str, target: str) -> Styled:
    """Return `text` as a link (OSC 8) to a percent-encoded URI."""
    from urllib.parse import quote

    # A project can choose the template of the target.
    address = quote(target, safe=_URI, errors="replace")
    return Styled(f"\x1b]8;;{address}\x07{text if isinstance(text, Styled) else visible(text)}\x1b]8;;\x07")
