"""Markdown of a note for a terminal: Rich's layout, with readable wiki links, pictures, tasks and HTML."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from qmd.escapes import visible
from qmd.ingest.frontmatter import read_front_matter
from qmd.ingest.markdown import split_size
from qmd.render.note_marks import AddressOf, add_marks, find_note

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token
    from rich.console import RenderableType
    from rich.markdown import Markdown
    from rich.syntax import SyntaxTheme

_SIGNS = {"<sup>": "^", "<sub>": "_"}
_MISSING = "missing"
"""Style of broken links, and of content that a terminal cannot show."""


def render_markdown(text: str, address_of: AddressOf, *, hyperlinks: bool = True) -> list[RenderableType]:
    """Return the parts of a note to draw: faint front matter and the text; 100,000 characters take about a second.

    Args:
        text: The whole note.
        hyperlinks: Whether the terminal supports links; otherwise the addresses of web pages are shown.
    """
    from rich.text import Text

    shown = visible(text.replace("\r\n", "\n"))
    offset = read_front_matter(shown).body_offset
    parts: list[RenderableType] = []
    if offset:
        parts += [Text("\n".join(shown[:offset].strip().splitlines()[1:-1]), "faint"), ""]
    tokens = _parser().parse(shown[offset:])
    for token in tokens:
        if token.children:
            token.children = list(_readable(token.children, address_of, hyperlinks))
    drawn = _markdown_class()("", hyperlinks=hyperlinks)
    drawn.parsed = tokens
    return [*parts, drawn]


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    return add_marks(MarkdownIt())


def _readable(tokens: Sequence[Token], address_of: AddressOf, hyperlinks: bool) -> Iterator[Token]:
    """Yield the tokens of a line with resolved links, and words for content that a terminal cannot show."""
    from markdown_it.token import Token

    closing: list[list[Token]] = []
    for token in tokens:
        if token.type == "link_open":
            before, after = _link(token, address_of, hyperlinks)
            closing.append(after)
            yield from before
        elif token.type == "link_close":
            yield from closing.pop() if closing else ()
        elif token.type == "image":
            name = split_size(token.content)[0] or unquote(str(token.attrs.get("src", ""))).rpartition("/")[2]
            text = Token("text", "", 0, content=f"[image {name}]" if name else "[image]")
            yield from (Token("missing_open", _MISSING, 1), text, Token("missing_close", _MISSING, -1))
        elif token.type == "html_inline" and token.content.lower().startswith("<br"):
            yield Token("hardbreak", "br", 0)
        elif token.type == "html_inline" and token.content.lower() in _SIGNS:
            yield Token("text", "", 0, content=_SIGNS[token.content.lower()])
        else:
            yield token


def _link(token: Token, address_of: AddressOf, hyperlinks: bool) -> tuple[list[Token], list[Token]]:
    """Return the tokens before and after the text of a link: a link, the style of a broken one, or none."""
    from markdown_it.token import Token

    href = str(token.attrs.get("href", ""))
    is_wiki = "wiki" in token.attrs
    if not is_wiki and urlsplit(href).scheme:
        return [token], [Token("link_close", "a", -1)]
    if href.startswith("#"):
        return [], []
    address = find_note(token, address_of)
    if address is None and is_wiki:
        return [Token("missing_open", _MISSING, 1)], [Token("missing_close", _MISSING, -1)]
    # Sources of a web site link to generated pages.
    if address is None or not hyperlinks:
        return [], []
    token.attrs["href"] = address
    return [token], [Token("link_close", "a", -1)]


@cache
def _markdown_class() -> type[Markdown]:
    """Return Rich's class with left-aligned headings, code without a background, and HTML as text."""
    from rich import box, markdown
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.padding import Padding
    from rich.syntax import Syntax
    from rich.table import Table
    from rich.text import Text

    class Heading(markdown.Heading):
        def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
            yield self.text

    class CodeBlock(markdown.CodeBlock):
        def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
            code = str(self.text).rstrip()
            syntax = Syntax(code, self.lexer_name, theme=code_theme(), word_wrap=True)
            yield Padding(syntax, (0, 0, 0, 2))

    class TableElement(markdown.TableElement):
        def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
            heads = self.header.row.cells if self.header is not None and self.header.row is not None else []
            table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, border_style="markdown.table.border")
            for cell in heads:
                table.add_column(cell.content, header_style="markdown.table.header", justify=cell.justify)
            for row in self.body.rows if self.body is not None else []:
                table.add_row(*(cell.content for cell in row.cells))
            yield table

    class HtmlBlock(markdown.TextElement):
        style_name = f"markdown.{_MISSING}"

        def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
            yield Text(str(self.text).rstrip(), self.style)

    class NoteMarkdown(markdown.Markdown):
        inlines = {*markdown.Markdown.inlines, _MISSING, "mark", "sup"}  # noqa: RUF012
        elements = {  # noqa: RUF012
            **markdown.Markdown.elements,
            "heading_open": Heading,
            "fence": CodeBlock,
            "code_block": CodeBlock,
            "html_block": HtmlBlock,
            "table_open": TableElement,
        }

    return NoteMarkdown


@cache
def code_theme() -> SyntaxTheme:
    """Return colours of source code that are readable on dark and light backgrounds."""
    from pygments.token import Comment, Generic, Keyword, Name, Number, Operator, String
    from rich.style import Style
    from rich.syntax import ANSISyntaxTheme

    return ANSISyntaxTheme(
        {
            Comment: Style(dim=True, italic=True),
            Keyword: Style(color="magenta"),
            Operator.Word: Style(color="magenta"),
            Name.Function: Style(bold=True),
            Name.Class: Style(bold=True),
            Name.Decorator: Style(color="cyan"),
            Name.Tag: Style(color="magenta"),
            Name.Attribute: Style(color="cyan"),
            Number: Style(color="cyan"),
            String: Style(color="green"),
            Generic.Heading: Style(bold=True),
            Generic.Subheading: Style(bold=True),
            Generic.Emph: Style(italic=True),
            Generic.Strong: Style(bold=True),
            Generic.Deleted: Style(color="red"),
            Generic.Inserted: Style(color="green"),
        }
    )
