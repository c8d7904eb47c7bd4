"""Sequences that qmd sends to a terminal, and the text between them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from qmd.escapes import visible

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


def without_sequences(text: str) -> str:
    """Return `text` without escape sequences."""
    return re.sub(r"\x1b(?:\][^\x07]*\x07|\[[0-9;]*[A-Za-z])", "", text)


def hyperlink(text: str, target: str) -> Styled:
    """Return `text` as a link (OSC 8) to a percent-encoded URI."""
    from urllib.parse import quote

    # A project can choose the template of the target.
    address = quote(target, safe=_URI, errors="replace")
    return Styled(f"\x1b]8;;{address}\x07{text if isinstance(text, Styled) else visible(text)}\x1b]8;;\x07")
