"""A note's markdown, laid out for a terminal: Rich's layout with wiki links, pictures, tasks and HTML made readable."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote, urlsplit

from qmd.app.pictures import is_picture
from qmd.ingest.frontmatter import read_front_matter
from qmd.render.terminal import visible

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_inline import StateInline
    from markdown_it.token import Token
    from rich.console import RenderableType
    from rich.markdown import Markdown
    from rich.syntax import SyntaxTheme

AddressOf = Callable[[str], str | None]
"""Target of a link, as the note writes it → address of that note; None where there is none."""

MAX_WIKI_LINK_CHARACTERS = 2_000
"""So that a text of nothing but opening brackets is not searched to its end for each of them."""

TASKS = {"[ ] ": "☐ ", "[x] ": "☑ ", "[X] ": "☑ "}
_SIGNS = {"<sup>": "^", "<sub>": "_"}
_CALLOUT = r"\[!([\w-]+)\][-+]?[ \t]*"
PICTURE_SIZE = r"(.*?)\|?(\d{1,4})(?:x\d+)?\Z"
"""The text of a picture, and the width that stands behind it or alone: `![[plan.png|400]]`."""

_MISSING = "missing"
"""The name of a style, of links that lead nowhere and of what a terminal cannot show."""


def render_markdown(text: str, address_of: AddressOf, *, hyperlinks: bool = True) -> list[RenderableType]:
    """`text` in parts to be drawn below one another: its front matter, faint, and what it says.

    About a second for 100,000 characters.

    Args:
        text: All of a note.
        address_of: Finds the notes that it links to.
        hyperlinks: Whether the terminal takes links; without, the addresses of web pages are written out.
    """
    from rich.text import Text

    shown = visible(text.replace("\r\n", "\n"))
    offset = read_front_matter(shown).body_offset
    parts: list[RenderableType] = []
    if offset:
        parts += [Text("\n".join(shown[:offset].strip().splitlines()[1:-1]), "faint"), ""]
    tokens = _parser().parse(shown[offset:])
    _prepare(tokens, address_of, hyperlinks)
    drawn = _drawn_markdown()("", hyperlinks=hyperlinks)
    drawn.parsed = tokens
    return [*parts, drawn]


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    parser = MarkdownIt().enable("strikethrough").enable("table")
    parser.inline.ruler.before("link", "wiki_link", read_wiki_link)
    return parser


def read_wiki_link(state: StateInline, silent: bool) -> bool:
    """`[[Note#Heading|text]]` and `![[Note]]`, as a rule of the parser."""
    start = state.pos + (state.src[state.pos] == "!")
    if not state.src.startswith("[[", start):
        return False
    end = state.src.find("]]", start, start + MAX_WIKI_LINK_CHARACTERS)
    inner = state.src[start + 2 : end]
    if end < 0 or not inner.strip() or set(inner) & set("[]\n"):
        return False
    if not silent:
        target, _, text = inner.partition("|")
        target = target.removesuffix("\\").strip()
        if start > state.pos and is_picture(target):
            image = state.push("image", "img", 0)
            image.attrs, image.content, image.children = {"src": quote(target)}, text.strip(), []
            state.pos = end + 2
            return True
        state.push("link_open", "a", 1).attrs = {"href": target, "wiki": 1}
        state.push("text", "", 0).content = text.strip() or target.lstrip("#").replace("#", " › ")
        state.push("link_close", "a", -1)
    state.pos = end + 2
    return True


# --- tokens ---------------------------------------------------------------------------------------


def _prepare(tokens: Sequence[Token], address_of: AddressOf, hyperlinks: bool) -> None:
    for position, token in enumerate(tokens):
        if not token.children:
            continue
        first, around = token.children[0], tokens[position - 2].type if position >= 2 else ""
        if around == "list_item_open" and first.content[:4] in TASKS:
            first.content = TASKS[first.content[:4]] + first.content[4:]
        words = with_callout_title(token.children) if around == "blockquote_open" else None
        token.children = list(_readable(words or token.children, address_of, hyperlinks))


def with_callout_title(tokens: Sequence[Token]) -> list[Token] | None:
    """The words of a callout, `> [!note] Title`, of which the first line is its title; None for another quotation."""
    from markdown_it.token import Token

    callout = re.match(_CALLOUT, tokens[0].content)
    if callout is None:
        return None
    tokens[0].content = tokens[0].content[callout.end() :] or callout[1].capitalize()
    end = next((number for number, token in enumerate(tokens) if token.type == "softbreak"), len(tokens))
    title = [Token("strong_open", "strong", 1), *tokens[:end], Token("strong_close", "strong", -1)]
    return [*title, *([Token("hardbreak", "br", 0)] if end < len(tokens) else []), *tokens[end + 1 :]]


def _readable(tokens: Sequence[Token], address_of: AddressOf, hyperlinks: bool) -> Iterator[Token]:
    """What stands in a line, with links resolved and what a terminal cannot show in words."""
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
            sized = re.match(PICTURE_SIZE, token.content, re.S)
            name = (sized[1] if sized else token.content) or unquote(str(token.attrs.get("src", ""))).rpartition("/")[2]
            text = Token("text", "", 0, content=f"[image {name}]" if name else "[image]")
            yield from (Token("missing_open", _MISSING, 1), text, Token("missing_close", _MISSING, -1))
        elif token.type == "html_inline" and token.content.lower().startswith("<br"):
            yield Token("hardbreak", "br", 0)
        elif token.type == "html_inline" and token.content.lower() in _SIGNS:
            yield Token("text", "", 0, content=_SIGNS[token.content.lower()])
        else:
            yield token


def _link(token: Token, address_of: AddressOf, hyperlinks: bool) -> tuple[list[Token], list[Token]]:
    """What stands before and after the text of a link: a link, the style of one that leads nowhere, or nothing."""
    from markdown_it.token import Token

    href = str(token.attrs.get("href", ""))
    is_wiki = "wiki" in token.attrs
    if not is_wiki and urlsplit(href).scheme:
        return [token], [Token("link_close", "a", -1)]
    if href.startswith("#"):
        return [], []
    target = href.partition("#")[0]
    address = address_of(href if is_wiki else unquote(target.partition("?")[0])) or address_of(target.strip())
    if address is None and is_wiki:
        return [Token("missing_open", _MISSING, 1)], [Token("missing_close", _MISSING, -1)]
    # The sources of a web site link to pages that are only made of them.
    if address is None or not hyperlinks:
        return [], []
    token.attrs["href"] = address
    return [token], [Token("link_close", "a", -1)]


# --- layout ---------------------------------------------------------------------------------------


@cache
def _drawn_markdown() -> type[Markdown]:
    """Rich's renderable with headings at the left, code without a background, and blocks of HTML as they stand."""
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

    class Drawn(markdown.Markdown):
        inlines = {*markdown.Markdown.inlines, _MISSING}  # noqa: RUF012
        elements = {  # noqa: RUF012
            **markdown.Markdown.elements,
            "heading_open": Heading,
            "fence": CodeBlock,
            "code_block": CodeBlock,
            "html_block": HtmlBlock,
            "table_open": TableElement,
        }

    return Drawn


@cache
def code_theme() -> SyntaxTheme:
    """Colours of source code, of the terminal's own that stand out from dark and from light."""
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
