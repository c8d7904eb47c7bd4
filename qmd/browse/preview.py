"""A note as it reads: rendered markdown, the matched terms marked, the passage in view."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from msgspec import Struct
from rich.console import Console
from rich.markdown import Markdown
from rich.segment import Segment
from rich.text import Text
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from qmd.render.drawing import theme
from qmd.render.terminal import visible

Find = Callable[[str], Sequence[tuple[int, int]]]
"""The spans of a text that match the question."""

_WIKI_LINKS = ((r"!\[\[([^\[\]|]+)[^\[\]]*\]\]", r"🖼 \1"), (r"\[\[(?:[^\[\]|]*\|)?([^\[\]|]+)\]\]", r"\1"))
"""Embeds and links, and the words in them that the reader needs; code keeps its brackets."""

_ABOVE = 3
"""Lines of context above the passage."""


class Page(Struct, frozen=True):
    """A note laid out for a width, and the line to show first."""

    lines: tuple[Strip, ...] = ()
    top: int = 0


def lay_out(text: str, line: int, width: int, find: Find) -> Page:
    """The page of a note; takes a while for a long one, so no key should wait for it.

    Args:
        text: Its markdown.
        line: The line of the passage, from 1.
        width: Columns.
        find: Finds what is marked.
    """
    console = Console(width=width, color_system="truecolor", force_terminal=True, theme=theme(), _environ={})
    markdown = Markdown(_without_front_matter(visible(text)), hyperlinks=True)
    tokens = markdown.parsed
    for child in (one for token in tokens for one in token.children or () if one.type == "text"):
        for pattern, words in _WIKI_LINKS:
            child.content = re.sub(pattern, words, child.content)
    # The blocks at the top level tell where the passage begins once everything before it is laid out.
    starts = [at for at, token in enumerate(tokens) if token.level == 0 and token.map and token.nesting >= 0]
    begun = [at for at in starts if (tokens[at].map or [0])[0] < line]
    split = begun[-1] if begun else 0
    lines: list[Strip] = []
    marked: list[int] = []
    top = 0
    for part in (tokens[:split], tokens[split:]):
        top = len(lines)
        markdown.parsed = part
        for segments in console.render_lines(markdown, pad=False):
            strip, is_marked = _marked(segments, find, console)
            if is_marked:
                marked.append(len(lines))
            lines.append(strip)
    first = next((at for at in marked if at >= top), top)
    return Page(tuple(lines), max(0, first - _ABOVE))


def _without_front_matter(text: str) -> str:
    """Markdown would take the fields for a heading; blank lines keep the count of lines."""
    lines = text.split("\n")
    if lines[0].rstrip() != "---" or "---" not in (rest := [line.rstrip() for line in lines[1:]]):
        return text
    end = rest.index("---") + 2
    return "\n" * end + "\n".join(lines[end:])


def _marked(segments: Sequence[Segment], find: Find, console: Console) -> tuple[Strip, bool]:
    """A line with its matches marked, and whether there are any; nothing on it steers the terminal or is a link."""
    text = Text(end="")
    for one in segments:
        # An entity of HTML may name a character that the source did not hold.
        text.append(visible(one.text.rstrip("\n")), one.style.update_link(None) if one.style else None)
    spans = find(text.plain)
    for start, end in spans:
        text.stylize("match", start, end)
    return Strip(text.render(console)), bool(spans)


class Preview(ScrollView, can_focus=True):
    """Shows a page."""

    class Resized(Message):
        """Its pages have another width now."""

    page = Page()

    def on_resize(self) -> None:
        """See `Widget`."""
        self.post_message(self.Resized())

    def show(self, title: str, page: Page) -> None:
        """Show `page`, its passage in view."""
        self.page = page
        self.border_title = Content(visible(title))
        self.virtual_size = Size(self.scrollable_content_region.width, len(page.lines))
        self.scroll_to(y=page.top, animate=False, immediate=True)
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """See `ScrollView`."""
        at = self.scroll_offset.y + y
        strip = self.page.lines[at] if at < len(self.page.lines) else Strip.blank(0)
        return strip.crop_extend(0, self.size.width, self.rich_style).apply_style(self.rich_style)
