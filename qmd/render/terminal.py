"""Text for a terminal: which characters may reach one, and the few sequences that qmd itself sends."""

from __future__ import annotations

import re
from collections.abc import Iterable

_STEERING = (
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
    # before a line feed it is the line break of a file from Windows, which moves nothing else
    "|\r(?!\n)"
)
"""What could steer a terminal: all controls but tab and line feed, the marks that reorder a line of text, and the lone
surrogates that stand for bytes of a file name (0x9b among them is a control to some terminals)."""

_URI = "!#$%&'()*+,/:;=?@[]~"
"""What may stand in the target of a link beside letters, digits and `_.-`; the rest is percent-encoded."""


class Styled(str):
    """Text that is written to a terminal as it is: foreign parts passed `visible`, sequences are qmd's own.

    Joining or formatting it any other way than by `join_styled` makes plain text of it, which is shown with its
    sequences spelled out: a forgotten type costs a colour and lets nothing through.
    """

    __slots__ = ()


ERASE_LINE = Styled("\r\x1b[K")
"""Back to the start of the line, and wipe it."""


def join_styled(parts: Iterable[str]) -> Styled:
    """The parts as one text; those that are not `Styled` are made visible."""
    return Styled("".join(part if isinstance(part, Styled) else visible(part) for part in parts))


def visible(text: str) -> str:
    r"""`text` with every character that could steer a terminal spelled out: `\x1b`, `\u009b`, `\u202e`.

    From 0x7f on in the form of JSON, which spells out only what comes before: JSON stays JSON with the same values.
    """
    return re.sub(_STEERING, _spelled, text)


def visible_name(text: str) -> str:
    r"""`text` as `visible` has it, and on one line: a file name's line feeds and tabs are spelled out as well."""
    return re.sub("[\t\n\r]", _spelled, visible(text))


def _spelled(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x20 else f"\\u{code:04x}"


def without_sequences(text: str) -> str:
    """What of a `Styled` text takes room on the screen."""
    return re.sub(r"\x1b(?:\][^\x07]*\x07|\[[0-9;]*[A-Za-z])", "", text)


def hyperlink(text: str, target: str) -> Styled:
    """`text` as a link (OSC 8) to a URI, in which what could end the sequence early is percent-encoded."""
    from urllib.parse import quote

    # The template of the target may be a project's own.
    address = quote(target, safe=_URI, errors="replace")
    return Styled(f"\x1b]8;;{address}\x07{text if isinstance(text, Styled) else visible(text)}\x1b]8;;\x07")
