"""Markdown as HTML for the page: nothing of a note runs, and nothing of it is fetched but pictures by this server.

HTML in a note is shown as text, a link leads to the web or to a note of the index, and a picture from elsewhere becomes
a link to it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from html import escape
from typing import Any
from urllib.parse import unquote

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_core import StateCore
from markdown_it.token import Token
from msgspec import Struct

from qmd.ingest.markdown import Span, split_size
from qmd.render.note_marks import add_marks, find_note

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:|//|\\\\", re.I)
_TO_THE_WEB = ("http:", "https:", "mailto:")
_BREAK = re.compile(r"&lt;br ?/?&gt;", re.I)
"""The only HTML of a note that is no text: tables have no other way to break a line."""

_COMMENT = re.compile("<!--|%%")
_CLOSES = {"<!--": "-->", "%%": "%%"}

Matcher = Callable[[str], Sequence[tuple[int, int]]]
"""Where a text holds what was searched for: ascending spans that do not overlap."""


class NoteContext(Struct, frozen=True):
    """What is known around a text."""

    matches: Matcher
    notes: Mapping[str, str] = {}
    """Target of a link as it is written → address of that note on the page."""
    picture: Callable[[str], str] | None = None
    """Address on the page of a picture as it is written; None leaves pictures out."""
    line: int = 0
    """The line that was found, from 1; what holds it gets the class `here`."""
    keeps_links: bool = True
    """False where the text stands inside of a link."""


def marked(text: str, matches: Matcher) -> str:
    """`text` escaped, with what was searched for as `<mark>`."""
    parts, end = [], 0
    for start, stop in matches(text):
        parts.append(f"{escape(text[end:start])}<mark>{escape(text[start:stop])}</mark>")
        end = stop
    return "".join([*parts, escape(text[end:])])


def markdown_html(text: str, around: NoteContext) -> str:
    """A markdown text as HTML."""
    html: str = _parser().render(text, {"around": around})
    return html


def plain_html(text: str, around: NoteContext) -> str:
    """A text that is no markdown as HTML, as it is written."""
    lines = [marked(line, around.matches) for line in text.split("\n")]
    if 0 < around.line <= len(lines):
        lines[around.line - 1] = f'<span class="here">{lines[around.line - 1]}</span>'
    return f"<pre>{chr(10).join(lines)}</pre>"


def without_comments(text: str, body: int, code: Sequence[Span]) -> str:
    """`text` with front matter (up to `body`) and comments (`<!-- -->`, `%% %%`) outside `code` emptied, lines kept."""
    kept, position = ["\n" * text.count("\n", 0, body)], body
    for end, after in (*code, (len(text), len(text))):
        while opened := _COMMENT.search(text, position, end):
            close = text.find(_CLOSES[opened[0]], opened.end(), end)
            if close < 0:
                break
            kept += text[position : opened.start()], "\n" * text.count("\n", opened.start(), close)
            position = close + len(_CLOSES[opened[0]])
        kept.append(text[position:after])
        position = after
    return "".join(kept)


@cache
def _parser() -> MarkdownIt:
    parser = add_marks(MarkdownIt("commonmark", {"html": False, "linkify": True}).enable("linkify"))
    assert parser.linkify is not None
    # What only looks like an address is often none: `main.rs`.
    parser.linkify.set({"fuzzy_link": False, "fuzzy_email": False})
    parser.core.ruler.push("settle", _settle)
    parser.add_render_rule("text", _render_text)
    parser.add_render_rule("code_inline", _render_code)
    parser.add_render_rule("image", _render_picture)
    return parser


def _settle(state: StateCore) -> None:
    """Decide what each link leads to, name the headings, and find the block that was searched for."""
    around: NoteContext = state.env["around"]
    here = None
    for index, token in enumerate(state.tokens):
        if token.map and token.map[0] < around.line and token.nesting >= 0 and not token.hidden and token.tag:
            here = token
        if token.type == "heading_open" and around.keeps_links:
            token.attrSet("id", _anchor(state.tokens[index + 1].content))
        if "style" in token.attrs:
            # A column's alignment; the page takes no styles from inside its elements.
            token.attrs = {"align": str(token.attrs["style"]).rpartition(":")[2]}
        if token.type == "inline" and token.children:
            _settle_inline(token.children, around)
    if here is not None:
        here.attrJoin("class", "here")


def _settle_inline(tokens: Sequence[Token], around: NoteContext) -> None:
    opened: list[Token] = []
    for token in tokens:
        if token.type == "link_open":
            _settle_link(token, around)
            opened.append(token)
        elif token.type == "link_close" and opened:
            token.tag = opened.pop().tag
        elif token.type == "image":
            token.meta["is_inside"] = bool(opened) or not around.keeps_links


def _settle_link(token: Token, around: NoteContext) -> None:
    href = str(token.attrs.get("href", ""))
    written = href if "wiki" in token.attrs else unquote(href)
    name, _, heading = written.partition("#")
    known = find_note(token, around.notes.get)
    token.attrs = {}
    if not around.keeps_links:
        token.tag = "span"
    elif href.lower().startswith(_TO_THE_WEB):
        token.attrs = {"href": href, "target": "_blank", "rel": "noopener noreferrer"}
    elif known is not None:
        token.attrs = {"href": known + (f"#{_anchor(heading)}" if heading else "")}
    elif not name and heading:
        token.attrs = {"href": f"#{_anchor(heading)}"}
    else:
        token.tag = "span"
        token.attrs = {"class": "gone", "title": f"{written} is no note of the index"}


def _anchor(heading: str) -> str:
    # The prefix keeps a note from giving its parts the names of parts of the page.
    return "h-" + re.sub(r"[\W_]+", "-", heading.lower()).strip("-")


def _render_text(self: RendererHTML, tokens: Sequence[Token], index: int, options: Any, env: Any) -> str:
    return re.sub(_BREAK, "<br>", marked(tokens[index].content, env["around"].matches))


def _render_code(self: RendererHTML, tokens: Sequence[Token], index: int, options: Any, env: Any) -> str:
    return f"<code>{marked(tokens[index].content, env['around'].matches)}</code>"


def _render_picture(self: RendererHTML, tokens: Sequence[Token], index: int, options: Any, env: Any) -> str:
    token, around = tokens[index], env["around"]
    source = str(token.attrs.get("src", ""))
    text, width = split_size(token.content)
    named = escape(text or unquote(source).rpartition("/")[2])
    if source.lower().startswith(_TO_THE_WEB[:2]) and not token.meta["is_inside"]:
        return f'<a class="picture" href="{escape(source)}" target="_blank" rel="noopener noreferrer">{named}</a>'
    if around.picture is None or _SCHEME.match(source):
        return f'<span class="picture">{named}</span>'
    sized = f' width="{width}"' if width else ""
    return f'<img src="{escape(around.picture(unquote(source)))}" alt="{escape(text)}" loading="lazy"{sized}>'
