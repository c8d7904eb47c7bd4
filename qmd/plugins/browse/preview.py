"""Preview of a note: rendered markdown with marked matches, scrolled to the passage."""

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

from qmd.escapes import one_line, visible
from qmd.ingest.frontmatter import read_front_matter
from qmd.plugins.browse.widgets import Resized
from qmd.render.columns import elide
from qmd.render.drawing import theme
from qmd.render.markdown import code_theme, render_markdown
from qmd.render.pages import MAX_CODE, is_rendered
from qmd.render.text import stretch

if TYPE_CHECKING:
    from qmd.app.records import DocumentText

Find = Callable[[str], Sequence[tuple[int, int]]]
"""Function that returns the spans of a text that match the query."""

_MATCH = Style(color="black", bgcolor="yellow", reverse=False)
"""Black on yellow in both themes: headings have the colour that other screens use for matches."""

_GUTTER = "▎ "
"""Bar next to the block that contains the passage."""

_ABOVE = 3
"""Lines of context above the passage."""

FIRST_CHARACTERS = 4_000
"""Characters of a long note that are shown first, around the passage: about a screenful, in some 10 ms."""

_MAX_SHOWN = 40_000
"""Most characters of a note, around the passage: the layout takes half a second at most, and delays keys."""


class Page(Struct, frozen=True):
    """Note laid out for a width, and the line to show first."""

    lines: tuple[Strip, ...] = ()
    top: int = 0


def lay_out(found: DocumentText, line: int, width: int, find: Find, most: int = _MAX_SHOWN) -> Page:
    """Lay out a document; this is slow for a long one, so call it in a thread.

    Args:
        line: The line of the passage, from 1.
        width: Columns.
        most: Most characters to lay out.
    """
    n_before, text = stretch(found.text, line, most)
    more = len(found.text) - len(text)
    is_later, line, found = line > 1, line - n_before, replace(found, text=text)
    console = Console(
        width=width - len(_GUTTER), color_system="truecolor", force_terminal=True, theme=theme(), _environ={}
    )
    if is_rendered(found):
        parts = [_trim_blank_lines(console.render_lines(part, pad=False)) for part in _split_markdown(found.text, line)]
    else:
        lines = console.render_lines(_render_source(found), pad=False)
        parts = [lines[: line - 1], lines[line - 1 : line], lines[line:]]
    before, passage, after = (
        [_mark_line(segments, find, console, gutter) for segments in part]
        for part, gutter in zip(parts, ("  ", _GUTTER if is_later else "  ", "  "), strict=True)
    )
    first = next((at for at, (_, is_marked) in enumerate(passage) if is_marked), 0)
    if more:
        note = Text(f"  A long note: {more:,} characters around this part are not shown.", "faint")
        after.append((Strip(note.render(console)), False))
    return Page(tuple(strip for strip, _ in (*before, *passage, *after)), max(0, len(before) + first - _ABOVE))


def _split_markdown(text: str, line: int) -> list[Markdown]:
    """Split markdown into the parts before, in and after the block of a line, without front matter.

    The height of the first part is the row of the passage.
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


def _trim_blank_lines(lines: list[list[Segment]]) -> list[list[Segment]]:
    """Remove the blank lines around a part, and add one below."""
    written = [at for at, line in enumerate(lines) if any(one.text.strip() for one in line)]
    return [*lines[written[0] : written[-1] + 1], []] if written else []


def _render_source(found: DocumentText) -> RenderableType:
    """Render a document other than markdown, with syntax colours unless it is too long."""
    text = visible(found.text)
    if len(text) > MAX_CODE:
        return Text(text, no_wrap=True, overflow="ignore")
    return Syntax(text, Syntax.guess_lexer(found.document.path), theme=code_theme())


def _mark_line(segments: Sequence[Segment], find: Find, console: Console, gutter: str) -> tuple[Strip, bool]:
    """Mark the matches of a line, and return whether there are any; remove control characters and links."""
    text = Text(end="").append(gutter if segments else "  ", "strong")
    for one in segments:
        # An HTML entity may stand for a control character.
        text.append(visible(one.text.rstrip("\n")), one.style.update_link(None) if one.style else None)
    spans = find(text.plain)
    for start, end in spans:
        text.stylize(_MATCH, start, end)
    return Strip(text.render(console)), bool(spans)


class Preview(ScrollView, can_focus=True):
    """Widget that shows a page."""

    page = Page()
    _ground = Style()

    def on_resize(self) -> None:
        self.post_message(Resized())

    def show(self, title: str, page: Page) -> None:
        """Show `page` at its passage; keep the user's scroll position if more of the same note is shown."""
        name, before = Content(elide(one_line(title), self.size.width - 4)), min(self.page.top, self.max_scroll_y)
        moved = self.scroll_offset.y - before if name == self.border_title else 0
        self.page, self.border_title = page, name
        self.virtual_size = Size(self.scrollable_content_region.width, len(page.lines))
        self.scroll_to(y=page.top + moved, animate=False, force=True, immediate=True)
        self.refresh()

    def render_lines(self, crop: Region) -> list[Strip]:
        """See `Widget`; looks up the style once, because that takes as long as drawing a line."""
        self._ground = self.rich_style
        return super().render_lines(crop)

    def render_line(self, y: int) -> Strip:
        at = self.scroll_offset.y + y
        strip = self.page.lines[at] if at < len(self.page.lines) else Strip.blank(0)
        return strip.crop_extend(0, self.size.width, self._ground).apply_style(self._ground)
