"""Lines of text for a terminal: where they may end, in columns."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.text import Text

_WIDE = (
    "\u1100-\u11ff\u2e80-\u303f\u3040-\ua4cf\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\ufe30-\ufe4f\uff00-\uffef"
    "\U0001f300-\U0003ffff"
)
"""Characters that need no space between them: Chinese, Japanese, Korean, emoji."""

_CLOSING = (
    "\u2019\u201d\u2026\u3001\u3002\u3009\u300b\u300d\u300f\u3011\u3015\u30fb\u30fc\uff01\uff09\uff0c\uff0e\uff1a"
    "\uff1b\uff1f\uff3d\uff5d!),.:;?\\]}"
)
"""What may not begin a line."""

_JOINERS = "\u0300-\u036f\u200d\ufe00-\ufe0f\U0001f3fb-\U0001f3ff"
"""Marks and selectors that belong to the character before."""

_UNBROKEN = rf"[{_WIDE}](?:\u200d[^\s]|[{_JOINERS}])*[{_CLOSING}]*[ ]*|[^\s{_WIDE}]+\s*|\s+"
"""What stays on one line where it can: a word, a character of such a script with what may not begin a line."""


def wrap(text: Text, width: int) -> list[Text]:
    """`text` as lines of at most `width` columns: between words, between characters of scripts without spaces.

    What is longer than a line is cut where the line ends. One line of nothing for an empty text.
    """
    lines = [line for part in text.split("\n", allow_blank=True) for line in part.divide(_borders(part.plain, width))]
    for line in lines:
        line.rstrip()
    return lines or [text]


def shorten(text: Text, width: int) -> Text:
    """`text` in at most `width` columns, with an ellipsis for what is left out at its end."""
    text.truncate(max(width, 1), overflow="ellipsis")
    return text


def _borders(plain: str, width: int) -> list[int]:
    """The offsets at which new lines begin."""
    from rich.cells import cell_len

    borders: list[int] = []
    used = 0
    for match in re.finditer(_UNBROKEN, plain):
        piece, start = match[0], match.start()
        size = cell_len(piece.rstrip())
        if used and used + size > width:
            borders.append(start)
            used = 0
        if size > width:
            for offset, character in enumerate(piece.rstrip(), start):
                cells = cell_len(character)
                if used + cells > width:
                    borders.append(offset)
                    used = 0
                used += cells
            continue
        used += cell_len(piece)
    return borders
