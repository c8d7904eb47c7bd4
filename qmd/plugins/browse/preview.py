"""A note as it reads: rendered markdown, the matched terms marked, the passage in view."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace
from rich.console import Console, RenderableType
from rich.markdown import Markdown
from rich.segment import Segment
from rich.style import Style
from rich.syntax import Syntax
from rich.text import Text
from textual.content import Content
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from qmd.ingest.frontmatter import read_front_matter
from qmd.plugins.browse.widgets import Resized
from qmd.render.drawing import theme
from qmd.render.markdown import code_theme, render_markdown
from qmd.render.pages import MAX_CODE, is_rendered
from qmd.render.terminal import visible
from qmd.render.text import stretch

if TYPE_CHECKING:
    from qmd.app.records import DocumentText

Find = Callable[[str], Sequence[tuple[int, int]]]
"""The spans of a text that match the question."""

_MATCH = Style(color="black", bgcolor="yellow", reverse=False)
"""Like a marker on paper: the screen has its own ground, and headings have the colour of a match elsewhere."""

_GUTTER = "▎ "
"""Beside the block that holds the passage."""

_ABOVE = 3
"""Lines of context above the passage."""

SOON = 4_000
"""Characters around the passage of a longer note that are shown first: about a screenful, in some 10 ms."""

_MAX_SHOWN = 40_000
"""Characters of a note around the passage: laid out in less than half a second, in which keys are answered late."""


class Page(Struct, frozen=True):
    """A note laid out for a width, and the line to show first."""

    lines: tuple[Strip, ...] = ()
    top: int = 0


def lay_out(found: DocumentText, line: int, width: int, find: Find, most: int = _MAX_SHOWN) -> Page:
    """The page of a document; takes a while for a long one, so no key should wait for it.

    Args:
        line: The line of the passage, from 1.
        width: Columns.
        most: Characters that are laid out.
    """
    n_before, text = stretch(found.text, line, most)
    more = len(found.text) - len(text)
    is_later, line, found = line > 1, line - n_before, replace(found, text=text)
    console = Console(
        width=width - len(_GUTTER), color_system="truecolor", force_terminal=True, theme=theme(), _environ={}
    )
    if is_rendered(found):
        parts = [_spaced(console.render_lines(part, pad=False)) for part in _rendered(found.text, line)]
    else:
        lines = console.render_lines(_source(found), pad=False)
        parts = [lines[: line - 1], lines[line - 1 : line], lines[line:]]
    before, passage, after = (
        [_marked(segments, find, console, gutter) for segments in part]
        for part, gutter in zip(parts, ("  ", _GUTTER if is_later else "  ", "  "), strict=True)
    )
    first = next((at for at, (_, is_marked) in enumerate(passage) if is_marked), 0)
    if more:
        note = Text(f"  A long note: {more:,} characters around this part are left out.", "faint")
        after.append((Strip(note.render(console)), False))
    return Page(tuple(strip for strip, _ in (*before, *passage, *after)), max(0, len(before) + first - _ABOVE))


def _rendered(text: str, line: int) -> list[Markdown]:
    """What a note says before the block of a line, in that block, and after it, each laid out by itself.

    So the rows of the first tell where the passage begins. Fields in front of a note are left out.
    """
    shown = visible(text)
    offset = read_front_matter(shown).body_offset
    line -= shown.count("\n", 0, offset)
    drawn = render_markdown(shown[offset:], lambda target: target)[-1]
    assert isinstance(drawn, Markdown)
    tokens = drawn.parsed
    starts = [at for at, token in enumerate(tokens) if token.level == 0 and token.map and token.nesting >= 0]
    begun = [at for at in starts if (tokens[at].map or [0])[0] < line] or [0]
    start, end = begun[-1], next((at for at in starts if at > begun[-1]), len(tokens))
    parts = []
    for some in (tokens[:start], tokens[start:end], tokens[end:]):
        parts.append(copy(drawn))
        parts[-1].parsed = some
    return parts


def _spaced(lines: list[list[Segment]]) -> list[list[Segment]]:
    """A stretch of a note without the blank lines around it, and with one below."""
    written = [at for at, line in enumerate(lines) if any(one.text.strip() for one in line)]
    return [*lines[written[0] : written[-1] + 1], []] if written else []


def _source(found: DocumentText) -> RenderableType:
    """A document that is no markdown, line by line; in colours unless it is too long."""
    text = visible(found.text)
    if len(text) > MAX_CODE:
        return Text(text, no_wrap=True, overflow="ignore")
    return Syntax(text, Syntax.guess_lexer(found.document.path), theme=code_theme())


def _marked(segments: Sequence[Segment], find: Find, console: Console, gutter: str) -> tuple[Strip, bool]:
    """A line with its matches marked, and whether there are any; nothing on it steers the terminal or is a link."""
    text = Text(end="").append(gutter if segments else "  ", "strong")
    for one in segments:
        # An entity of HTML may name a character that the source did not hold.
        text.append(visible(one.text.rstrip("\n")), one.style.update_link(None) if one.style else None)
    spans = find(text.plain)
    for start, end in spans:
        text.stylize(_MATCH, start, end)
    return Strip(text.render(console)), bool(spans)


class Preview(ScrollView, can_focus=True):
    """Shows a page."""

    page = Page()
    _ground = Style()

    def on_resize(self) -> None:
        self.post_message(Resized())

    def show(self, title: str, page: Page) -> None:
        """Show `page`, its passage in view; more of the same note stays where somebody has scrolled to."""
        name, before = Content(visible(title)), min(self.page.top, self.max_scroll_y)
        moved = self.scroll_offset.y - before if name == self.border_title else 0
        self.page, self.border_title = page, name
        self.virtual_size = Size(self.scrollable_content_region.width, len(page.lines))
        self.scroll_to(y=page.top + moved, animate=False, force=True, immediate=True)
        self.refresh()

    def render_lines(self, crop: Region) -> list[Strip]:
        """See `Widget`; its colours take as long to find as a line to draw."""
        self._ground = self.rich_style
        return super().render_lines(crop)

    def render_line(self, y: int) -> Strip:
        at = self.scroll_offset.y + y
        strip = self.page.lines[at] if at < len(self.page.lines) else Strip.blank(0)
        return strip.crop_extend(0, self.size.width, self._ground).apply_style(self._ground)
