"""Drawing for a terminal with rich; control characters from indexed text are escaped.

The forms for programs do not use rich, whose import would double the time of a search.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from qmd.escapes import visible
from qmd.render.terminal import Styled, hyperlink, join_styled

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.segment import Segment
    from rich.style import Style
    from rich.text import Text
    from rich.theme import Theme

Colours = Literal["standard", "256", "truecolor"]

NARROWEST, WIDEST = 40, 120
"""Columns: minimum of tables, maximum of prose."""

STYLES = {
    "title": "bold",
    "label": "bold",
    "faint": "dim",
    "path": "dim",
    "note": "dim italic",
    "match": "bold magenta",
    "command": "cyan",
    "strong": "green",
    "likely": "cyan",
    "weak": "dim",
    "good": "green",
    "warning": "yellow",
    "bad": "red",
    "code": "cyan",
    "rule.line": "dim",
    "table.header": "bold",
    "table.title": "bold",
    "markdown.code": "cyan",
    "markdown.code_block": "cyan",
    "markdown.block_quote": "italic",
    "markdown.list": "none",
    "markdown.item.number": "bold",
    "markdown.h1": "bold underline",
    "markdown.h2": "bold magenta",
    "markdown.h3": "bold",
    "markdown.h4": "bold",
    "markdown.h5": "italic",
    "markdown.h6": "italic",
    "markdown.h7": "italic",
    "markdown.link": "underline",
    "markdown.link_url": "underline",
    "markdown.kbd": "bold",
    "markdown.mark": "reverse",
    "markdown.sup": "cyan",
    "markdown.missing": "dim",
    "markdown.table.border": "dim",
    "markdown.table.header": "bold",
}
"""Style name → style, over Rich's own, whose backgrounds and bright colours some terminals cannot show.

All are colours of the terminal that are readable on dark and light backgrounds.
"""


class Screen(Struct, frozen=True):
    """A terminal to draw on."""

    width: int = 80
    """Columns."""
    height: int = 24
    """Rows."""
    colours: Colours | None = None
    """None to send no sequences, neither colours nor links."""

    @property
    def text_width(self) -> int:
        return min(self.width, WIDEST)


def draw(screen: Screen, *parts: RenderableType) -> Styled:
    """Draw `parts` one after another; each line ends with a line feed.

    Every character passes `visible`, and every link target `hyperlink`, so any text is safe. Foreign text should pass
    `visible` before, because escapes change its width.
    """
    from rich.console import Console

    console = Console(
        width=max(screen.width, NARROWEST),
        color_system=screen.colours,
        force_terminal=True,
        theme=theme(),
        _environ={},
    )
    lines = (line for part in parts for line in console.render_lines(part, pad=False))
    return join_styled(one for line in lines for one in (*_trim(screen, line), "\n"))


def paint(screen: Screen, text: str, style: str) -> Styled:
    """Style a part of a line; much faster than `draw` for lists of thousands of lines."""
    return _style(text, theme().styles[style], screen.colours)


@cache
def theme() -> Theme:
    from rich.theme import Theme

    return Theme(STYLES)


def _trim(screen: Screen, line: Sequence[Segment]) -> Iterable[Styled]:
    """Return the segments as text and sequences, without uncoloured blanks at the end of the line."""
    trailing = True
    parts: list[Styled] = []
    for segment in reversed(line):
        trailing = trailing and (segment.style is None or segment.style.bgcolor is None)
        text = segment.text.rstrip(" ") if trailing else segment.text
        trailing = trailing and not text
        if text:
            parts.append(_style(text, segment.style, screen.colours))
    return reversed(parts)


def _style(text: str, style: Style | None, colours: Colours | None) -> Styled:
    from rich.color import ColorSystem

    shown = visible(text)
    if style is None or colours is None:
        return Styled(shown)
    system = {"standard": ColorSystem.STANDARD, "256": ColorSystem.EIGHT_BIT, "truecolor": ColorSystem.TRUECOLOR}
    # Rich gives each link a random number; without it the output is deterministic.
    coloured = Styled(style.update_link(None).render(shown, color_system=system[colours]))
    return hyperlink(coloured, style.link) if style.link else coloured


_WIDE = (
    "\u1100-\u11ff\u2e80-\u303f\u3040-\ua4cf\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\ufe30-\ufe4f\uff00-\uffef"
    "\U0001f300-\U0003ffff"
)
"""Characters that need no space between them: Chinese, Japanese, Korean, emoji."""

_CLOSING = (
    "\u2019\u201d\u2026\u3001\u3002\u3009\u300b\u300d\u300f\u3011\u3015\u30fb\u30fc\uff01\uff09\uff0c\uff0e\uff1a"
    "\uff1b\uff1f\uff3d\uff5d!),.:;?\\]}"
)
"""Characters that must not start a line."""

_JOINERS = "\u0300-\u036f\u200d\ufe00-\ufe0f\U0001f3fb-\U0001f3ff"
"""Marks and selectors that belong to the previous character."""

_UNBREAKABLE = rf"[{_WIDE}](?:\u200d[^\s]|[{_JOINERS}])*[{_CLOSING}]*[ ]*|[^\s{_WIDE}]+\s*|\s+"
"""Unbreakable parts: a word, or a wide character with closing punctuation."""


def wrap(text: Text, width: int) -> list[Text]:
    """Wrap `text` to `width` columns, between words or between characters of scripts without spaces.

    Longer words are cut. An empty text is one empty line.
    """
    lines = [line for part in text.split("\n", allow_blank=True) for line in part.divide(_breaks(part.plain, width))]
    for line in lines:
        line.rstrip()
    return lines or [text]


def shorten(text: Text, width: int) -> Text:
    """Truncate `text` to `width` columns, with an ellipsis."""
    text.truncate(max(width, 1), overflow="ellipsis")
    return text


def _breaks(plain: str, width: int) -> list[int]:
    from rich.cells import cell_len

    starts: list[int] = []
    used = 0
    for match in re.finditer(_UNBREAKABLE, plain):
        part, start = match[0], match.start()
        size = cell_len(part.rstrip())
        if used and used + size > width:
            starts.append(start)
            used = 0
        if size > width:
            for offset, character in enumerate(part.rstrip(), start):
                cells = cell_len(character)
                if used + cells > width:
                    starts.append(offset)
                    used = 0
                used += cells
            continue
        used += cell_len(part)
    return starts
