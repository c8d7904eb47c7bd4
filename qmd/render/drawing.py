"""What people see on a terminal: rich lays it out, and nothing that was indexed gets to steer the terminal.

Programs read other forms, made without rich, whose import would double what a search costs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from qmd.render.terminal import Styled, hyperlink, join_styled, visible

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.segment import Segment
    from rich.style import Style
    from rich.text import Text
    from rich.theme import Theme

Colours = Literal["standard", "256", "truecolor"]

NARROWEST, WIDEST = 40, 120
"""Columns: below, tables fall apart; above, lines of prose are tiring to read."""

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
"""What the names of styles look like: over Rich's own, whose backgrounds and bright colours some terminals cannot show.

Only the terminal's own colours that stand out from a dark and from a light background, and no background.
"""


class Screen(Struct, frozen=True):
    """The terminal that a result is drawn for."""

    width: int = 80
    """Columns."""
    height: int = 24
    """Rows."""
    colours: Colours | None = None
    """None where no sequence may be sent, neither colours nor links."""

    @property
    def text_width(self) -> int:
        """Columns that prose should fill."""
        return min(self.width, WIDEST)


def draw(screen: Screen, *parts: RenderableType) -> Styled:
    """`parts` below one another as the screen shows them, each line with its line feed.

    Every character passes `visible` on its way, and every target of a link `hyperlink`, so that any text may be handed
    over; one from outside should have passed `visible` before, to be laid out at the width that it then has.
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
    return join_styled(one for line in lines for one in (*_trimmed(screen, line), "\n"))


def paint(screen: Screen, text: str, style: str) -> Styled:
    """A piece of a line in a named style: for lists of thousands of lines, which Rich would lay out in seconds."""
    return _styled(text, theme().styles[style], screen.colours)


@cache
def theme() -> Theme:
    """The named styles, for `draw` and for whatever else draws with Rich."""
    from rich.theme import Theme

    return Theme(STYLES)


def _trimmed(screen: Screen, line: Sequence[Segment]) -> Iterable[Styled]:
    """The segments as text and sequences; blanks that nothing colours are left out at the end of a line."""
    trailing = True
    parts: list[Styled] = []
    for segment in reversed(line):
        trailing = trailing and (segment.style is None or segment.style.bgcolor is None)
        text = segment.text.rstrip(" ") if trailing else segment.text
        trailing = trailing and not text
        if text:
            parts.append(_styled(text, segment.style, screen.colours))
    return reversed(parts)


def _styled(text: str, style: Style | None, colours: Colours | None) -> Styled:
    from rich.color import ColorSystem

    shown = visible(text)
    if style is None or colours is None:
        return Styled(shown)
    system = {"standard": ColorSystem.STANDARD, "256": ColorSystem.EIGHT_BIT, "truecolor": ColorSystem.TRUECOLOR}
    # Rich gives each link a number by chance; without, the same result is the same bytes.
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
