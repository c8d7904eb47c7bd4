"""Markdown as HTML for the page. No part of a note runs, and the browser fetches only pictures of this server.

HTML in a note is shown as text. A link leads to the web or to a note of the index, and a picture from elsewhere becomes
a link to it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from html import escape
from itertools import accumulate
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
"""The only HTML that is not shown as text: tables have no other way to break a line."""

_COMMENT = re.compile("<!--|%%")
_CLOSES = {"<!--": "-->", "%%": "%%"}

Matcher = Callable[[str], Sequence[tuple[int, int]]]
"""Function that finds matches in a text, as ascending spans that do not overlap."""


class NoteContext(Struct, frozen=True):
    """Context of a text to render."""

    matches: Matcher
    notes: Mapping[str, str] = {}
    """Written target of a link → address of that note on the page."""
    picture: Callable[[str], str] | None = None
    """Function from the written source of a picture to its address on the page; None skips pictures."""
    line: int = 0
    """The found line, from 1; the element that contains it gets the class `here`."""
    keeps_links: bool = True
    """False for text inside a link."""


def mark_matches(text: str, matches: Matcher) -> str:
    """Escape a text and put its matches in `<mark>`."""
    parts, end = [], 0
    for start, stop in matches(text):
        parts.append(f"{escape(text[end:start])}<mark>{escape(text[start:stop])}</mark>")
        end = stop
    return "".join([*parts, escape(text[end:])])


def markdown_html(text: str, context: NoteContext) -> str:
    html: str = _parser().render(_unindent_list(text), {"context": context})
    return html


def _unindent_list(text: str) -> str:
    """Move a text that begins inside a nested list to the margin: indented items would be code. Lines stay."""
    if not re.match(r"[ \t]+(?:[-*+]|\d{1,9}[.)])[ \t]", text):
        return text
    lines = text.expandtabs(4).split("\n")
    indents = (len(line) - len(line.lstrip()) if line.strip() else len(text) for line in lines)
    return "\n".join(line[margin:] for line, margin in zip(lines, accumulate(indents, min), strict=True))


def plain_html(text: str, context: NoteContext) -> str:
    """Render other text as HTML, unchanged."""
    lines = [mark_matches(line, context.matches) for line in text.split("\n")]
    if 0 < context.line <= len(lines):
        lines[context.line - 1] = f'<span class="here">{lines[context.line - 1]}</span>'
    return f"<pre>{chr(10).join(lines)}</pre>"


def remove_comments(text: str, body: int, code: Sequence[Span]) -> str:
    """Remove front matter (up to `body`) and comments (`<!-- -->`, `%% %%`) outside `code`; keep line breaks."""
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
    # Text such as `main.rs` only looks like an address.
    parser.linkify.set({"fuzzy_link": False, "fuzzy_email": False})
    parser.core.ruler.push("resolve", _resolve_tokens)
    parser.add_render_rule("text", _render_text)
    parser.add_render_rule("code_inline", _render_code)
    parser.add_render_rule("image", _render_picture)
    return parser


def _resolve_tokens(state: StateCore) -> None:
    """Resolve the links, give headings ids, and mark the found block."""
    context: NoteContext = state.env["context"]
    here = None
    for index, token in enumerate(state.tokens):
        if token.map and token.map[0] < context.line and token.nesting >= 0 and not token.hidden and token.tag:
            here = token
        if token.type == "heading_open" and context.keeps_links:
            token.attrSet("id", _anchor(state.tokens[index + 1].content))
        if "style" in token.attrs:
            # A column's alignment; the policy of the page forbids inline styles.
            token.attrs = {"align": str(token.attrs["style"]).rpartition(":")[2]}
        if token.type == "inline" and token.children:
            _resolve_inline(token.children, context)
    if here is not None:
        here.attrJoin("class", "here")


def _resolve_inline(tokens: Sequence[Token], context: NoteContext) -> None:
    opened: list[Token] = []
    for token in tokens:
        if token.type == "link_open":
            _resolve_link(token, context)
            opened.append(token)
        elif token.type == "link_close" and opened:
            token.tag = opened.pop().tag
        elif token.type == "image":
            token.meta["is_inside"] = bool(opened) or not context.keeps_links


def _resolve_link(token: Token, context: NoteContext) -> None:
    href = str(token.attrs.get("href", ""))
    written = href if "wiki" in token.attrs else unquote(href)
    name, _, heading = written.partition("#")
    known = find_note(token, context.notes.get)
    token.attrs = {}
    if not context.keeps_links:
        token.tag = "span"
    elif href.lower().startswith(_TO_THE_WEB):
        token.attrs = {"href": href, "target": "_blank", "rel": "noopener noreferrer"}
    elif known is not None:
        token.attrs = {"href": known + (f"#{_anchor(heading)}" if heading else "")}
    elif not name and heading:
        token.attrs = {"href": f"#{_anchor(heading)}"}
    else:
        token.tag = "span"
        token.attrs = {"class": "gone", "title": f"{written} is not a note in the index"}


def _anchor(heading: str) -> str:
    # The prefix prevents collisions with ids of the page itself.
    return "h-" + re.sub(r"[\W_]+", "-", heading.lower()).strip("-")


def _render_text(self: RendererHTML, tokens: Sequence[Token], index: int, options: Any, env: Any) -> str:
    return re.sub(_BREAK, "<br>", mark_matches(tokens[index].content, env["context"].matches))


def _render_code(self: RendererHTML, tokens: Sequence[Token], index: int, options: Any, env: Any) -> str:
    return f"<code>{mark_matches(tokens[index].content, env['context'].matches)}</code>"


def _render_picture(self: RendererHTML, tokens: Sequence[Token], index: int, options: Any, env: Any) -> str:
    token, context = tokens[index], env["context"]
    source = str(token.attrs.get("src", ""))
    text, width = split_size(token.content)
    named = escape(text or unquote(source).rpartition("/")[2])
    if source.lower().startswith(_TO_THE_WEB[:2]) and not token.meta["is_inside"]:
        return f'<a class="picture" href="{escape(source)}" target="_blank" rel="noopener noreferrer">{named}</a>'
    if context.picture is None or _SCHEME.match(source):
        return f'<span class="picture">{named}</span>'
    sized = f' width="{width}"' if width else ""
    return f'<img src="{escape(context.picture(unquote(source)))}" alt="{escape(text)}" loading="lazy"{sized}>'
