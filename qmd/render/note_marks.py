"""Rules of markdown-it for wiki links, formulas, highlights, footnotes, tasks, callouts and sized pictures.

The terminal and the page use the same rules.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import StateBlock
    from markdown_it.rules_core import StateCore
    from markdown_it.rules_inline import StateInline
    from markdown_it.token import Token

AddressOf = Callable[[str], str | None]
"""Target of a link as written → address of the note; None without one."""

PICTURE_TYPES: Mapping[str, str] = {
    "avif": "image/avif",
    "gif": "image/gif",
    "jpeg": "image/jpeg",
    "jpg": "image/jpeg",
    "png": "image/png",
    "svg": "image/svg+xml",
    "webp": "image/webp",
}
"""Suffix of a picture → media type."""

BOXES = {"[ ]": "☐", "[x]": "☑", "[X]": "☑"}
CALLOUT = r"\[!([\w-]+)\][-+]?[ \t]*"

MATH = "|".join(
    (
        r"\$\$(?:[^$]|\$(?!\$)){1,4000}?\$\$",
        r"\$(?![\s$])[^$\n]{0,400}?(?<![\s\\])\$(?!\d)",
        r"\\\(.{1,400}?\\\)",
        r"\\\[(?:.|\n){1,4000}?\\\]",
    )
)
"""A formula with its marks, shown as written because `*` is a product there. To exclude prices, no blank
follows the first mark or precedes the last one, and no digit follows it."""

NOTE_MARK = r"\[\^(?P<footnote>[^\[\]\s]{1,100})\]|==(?P<highlight>(?![\s=])(?:.|\n){1,400}?(?<![\s=]))==(?!=)"
"""A reference to a footnote, or a highlight."""

_MAX_WIKI_LINK_CHARACTERS = 2_000
"""Limit that keeps a text of many opening brackets fast."""

_MAX_FORMULA_LINES = 200


def add_marks(parser: MarkdownIt) -> MarkdownIt:
    """Add the rules of this module to `parser`."""
    parser.enable(["table", "strikethrough"])
    parser.inline.ruler.before("link", "wiki_link", _read_wiki_link)
    parser.inline.ruler.before("escape", "formula", _read_formula)
    parser.inline.ruler.before("link", "sign", _read_note_mark)
    parser.block.ruler.before("reference", "footnote", _read_footnote, {"alt": ["paragraph", "reference"]})
    parser.block.ruler.before("paragraph", "formula", _read_formula_block, {"alt": ["paragraph"]})
    parser.core.ruler.push("marks", _convert_marks)
    return parser


def is_picture(name: str) -> bool:
    return name.rpartition(".")[2].lower() in PICTURE_TYPES


def find_note(link: Token, address_of: AddressOf) -> str | None:
    written = str(link.attrs["href"])
    if "wiki" in link.attrs:
        name = written.partition("#")[0]
    else:
        written = unquote(written)
        name = written.partition("#")[0].partition("?")[0]
    # `#` can belong to the name, as in `C#`.
    return address_of(written) or address_of(name.strip())


def _read_wiki_link(state: StateInline, silent: bool) -> bool:
    """Parse `[[Note#Heading|text]]`, `![[Note]]` and `![[picture.png|400]]`."""
    is_embed = state.src[state.pos] == "!"
    start = state.pos + is_embed
    if not state.src.startswith("[[", start):
        return False
    end = state.src.find("]]", start, start + _MAX_WIKI_LINK_CHARACTERS)
    inner = state.src[start + 2 : end]
    if end < 0 or not inner.strip() or set(inner) & set("[]\n"):
        return False
    if not silent:
        written, _, text = inner.partition("|")
        target = written.removesuffix("\\").strip()
        if is_embed and is_picture(target):
            picture = state.push("image", "img", 0)
            picture.attrs, picture.content, picture.children = {"src": quote(target)}, text.strip(), []
        else:
            state.push("link_open", "a", 1).attrs = {"href": target, "wiki": 1}
            state.push("text", "", 0).content = text.strip() or written.strip().lstrip("#").replace("#", " › ")
            state.push("link_close", "a", -1)
    state.pos = end + 2
    return True


def _read_formula(state: StateInline, silent: bool) -> bool:
    found = re.compile(MATH).match(state.src, state.pos) if state.src[state.pos] in "$\\" else None
    if found is None:
        return False
    if not silent:
        state.push("text", "", 0).content = found[0]
    state.pos = found.end()
    return True


def _read_note_mark(state: StateInline, silent: bool) -> bool:
    """Parse `==text==` and `[^1]`."""
    found = re.compile(NOTE_MARK).match(state.src, state.pos, state.posMax) if state.src[state.pos] in "=[" else None
    if found is None:
        return False
    if not silent:
        tag = "mark" if found["highlight"] else "sup"
        state.push(f"{tag}_open", tag, 1).attrs = {"class": "written"}
        if found["highlight"]:
            last, (state.pos, state.posMax) = state.posMax, found.span("highlight")
            state.md.inline.tokenize(state)
            state.posMax = last
        else:
            state.push("text", "", 0).content = f"[{found['footnote']}]"
        state.push(f"{tag}_close", tag, -1)
    state.pos = found.end()
    return True


def _read_footnote(state: StateBlock, first: int, end: int, silent: bool) -> bool:
    """Parse `[^1]: text` as a paragraph; by the standard a single word is an address and not shown."""
    from markdown_it.rules_block import paragraph

    line = state.src[state.bMarks[first] + state.tShift[first] : state.eMarks[first]]
    found = re.match(NOTE_MARK, line) if line.startswith("[^") else None
    return found is not None and line.startswith(":", found.end()) and (silent or paragraph(state, first, end, silent))


def _read_formula_block(state: StateBlock, first: int, end: int, silent: bool) -> bool:
    """Parse the lines from `$$` to `$$` as one paragraph, including blank lines."""
    lines = (state.src[state.bMarks[n] + state.tShift[n] : state.eMarks[n]].rstrip() for n in range(first, end))
    if next(lines) != "$$":
        return False
    last = next((n for n, line in enumerate(islice(lines, _MAX_FORMULA_LINES), first + 1) if line.endswith("$$")), None)
    if last is None:
        return False
    if not silent:
        state.push("paragraph_open", "p", 1).map = [first, last + 1]
        inline = state.push("inline", "", 0)
        inline.content, inline.map, inline.children = (
            state.getLines(first, last + 1, state.blkIndent, False),
            [first, last + 1],
            [],
        )
        state.push("paragraph_close", "p", -1)
        state.line = last + 1
    return True


def _convert_marks(state: StateCore) -> None:
    """Show tasks as boxes, and the first line of a callout as its title."""
    for position, token in enumerate(state.tokens):
        if not token.children or position < 2:
            continue
        first, around = token.children[0], state.tokens[position - 2].type
        if around == "list_item_open" and first.content[:3] in BOXES and first.content[3:4] == " ":
            first.content = BOXES[first.content[:3]] + first.content[3:]
        callout = re.match(CALLOUT, first.content) if around == "blockquote_open" else None
        if callout:
            is_alone = callout.end() == len(first.content) and [one.type for one in token.children[1:2]] in (
                [],
                ["softbreak"],
            )
            first.content = callout[1].capitalize() if is_alone else first.content[callout.end() :]
            token.children = _with_title(token.children)
            state.tokens[position - 2].attrJoin("class", "callout")


def _with_title(tokens: Sequence[Token]) -> list[Token]:
    from markdown_it.token import Token

    end = next((number for number, token in enumerate(tokens) if token.type == "softbreak"), len(tokens))
    title = [Token("strong_open", "strong", 1), *tokens[:end], Token("strong_close", "strong", -1)]
    return [*title, *([Token("hardbreak", "br", 0)] if end < len(tokens) else []), *tokens[end + 1 :]]
