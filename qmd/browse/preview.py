"""A note as it reads: rendered markdown, the matched terms marked, the passage in view."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from markdown_it.token import Token

Find = Callable[[str], Sequence[tuple[int, int]]]
"""The spans of a text that match the question."""

_WIKI_LINKS = ((r"!\[\[([^\[\]|]+)[^\[\]]*\]\]", r"🖼 \1"), (r"\[\[(?:[^\[\]|]*\|)?([^\[\]|]+)\]\]", r"\1"))
"""Embeds and links, and the words in them that the reader needs; code keeps its brackets."""

_GUTTER = "▎ "
"""Beside the block that holds the passage."""

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
    console = Console(
        width=width - len(_GUTTER), color_system="truecolor", force_terminal=True, theme=theme(), _environ={}
    )
    markdown = Markdown(_without_front_matter(visible(text)), hyperlinks=True)
    tokens = markdown.parsed
    for child in (one for token in tokens for one in token.children or () if one.type == "text"):
        for pattern, words in _WIKI_LINKS:
            child.content = re.sub(pattern, words, child.content)
    before, passage, after = (
        _lines(part, markdown, console, find, gutter)
        for part, gutter in zip(_split_at(tokens, line), ("  ", _GUTTER if line > 1 else "  ", "  "), strict=True)
    )
    first = next((at for at, (_, is_marked) in enumerate(passage) if is_marked), 0)
    return Page(tuple(strip for strip, _ in (*before, *passage, *after)), max(0, len(before) + first - _ABOVE))


def _split_at(tokens: Sequence[Token], line: int) -> tuple[Sequence[Token], Sequence[Token], Sequence[Token]]:
    """What stands before the block of a line, that block, and what stands after it, each to be laid out by itself."""
    starts = [at for at, token in enumerate(tokens) if token.level == 0 and token.map and token.nesting >= 0]
    begun = [at for at in starts if (tokens[at].map or [0])[0] < line] or [0]
    start, end = begun[-1], next((at for at in starts if at > begun[-1]), len(tokens))
    return tokens[:start], tokens[start:end], tokens[end:]


def _lines(
    part: Sequence[Token], markdown: Markdown, console: Console, find: Find, gutter: str
) -> list[tuple[Strip, bool]]:
    markdown.parsed = list(part)
    return [_marked(segments, find, console, gutter) for segments in console.render_lines(markdown, pad=False)]


def _without_front_matter(text: str) -> str:
    """Markdown would take the fields for a heading; blank lines keep the count of lines."""
    lines = text.split("\n")
    if lines[0].rstrip() != "---" or "---" not in (rest := [line.rstrip() for line in lines[1:]]):
        return text
    end = rest.index("---") + 2
    return "\n" * end + "\n".join(lines[end:])


def _marked(segments: Sequence[Segment], find: Find, console: Console, gutter: str) -> tuple[Strip, bool]:
    """A line with its matches marked, and whether there are any; nothing on it steers the terminal or is a link."""
    text = Text(end="").append(gutter, "strong")
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
