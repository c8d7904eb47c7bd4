"""Marks of notes that the standard of markdown does not know: wiki links, formulas, highlights, footnotes, tasks,
callouts, pictures with a size.

They are rules for the tokens of markdown-it, the same for a terminal and for a page.
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
"""Target of a link, as the note writes it → address of that note; None where there is none."""

PICTURE_TYPES: Mapping[str, str] = {
    "avif": "image/avif",
    "gif": "image/gif",
    "jpeg": "image/jpeg",
    "jpg": "image/jpeg",
    "png": "image/png",
    "svg": "image/svg+xml",
    "webp": "image/webp",
}
"""Suffix → media type of what is taken for a picture."""

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
"""A formula with its marks, which is shown as it is written: what emphasis is elsewhere is a product here. A price is
none: behind the mark of a formula, and before the one that ends it, stands no blank, and behind that no digit."""

SIGN = r"\[\^(?P<footnote>[^\[\]\s]{1,100})\]|==(?P<highlight>(?![\s=])(?:.|\n){1,400}?(?<![\s=]))==(?!=)"
"""What leads to a footnote, and what is highlighted."""

_MAX_WIKI_LINK_CHARACTERS = 2_000
"""So that a text of nothing but opening brackets is not searched to its end for each of them."""

_MAX_FORMULA_LINES = 200


def add_marks(parser: MarkdownIt) -> MarkdownIt:
    """`parser` with the rules of this module."""
    parser.enable(["table", "strikethrough"])
    parser.inline.ruler.before("link", "wiki_link", _read_wiki_link)
    parser.inline.ruler.before("escape", "formula", _read_formula)
    parser.inline.ruler.before("link", "sign", _read_sign)
    parser.block.ruler.before("reference", "footnote", _read_footnote, {"alt": ["paragraph", "reference"]})
    parser.block.ruler.before("paragraph", "formula", _read_formula_block, {"alt": ["paragraph"]})
    parser.core.ruler.push("marks", _settle_marks)
    return parser


def is_picture(name: str) -> bool:
    """Whether a name is that of a picture, by its suffix."""
    return name.rpartition(".")[2].lower() in PICTURE_TYPES


def find_note(link: Token, address_of: AddressOf) -> str | None:
    """The address of the note that a link leads to."""
    written = str(link.attrs["href"])
    if "wiki" in link.attrs:
        name = written.partition("#")[0]
    else:
        written = unquote(written)
        name = written.partition("#")[0].partition("?")[0]
    # A sign may belong to the name, as in `C#`.
    return address_of(written) or address_of(name.strip())


def _read_wiki_link(state: StateInline, silent: bool) -> bool:
    """`[[Note#Heading|text]]`, `![[Note]]` and `![[picture.png|400]]`."""
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
    """A formula, as text."""
    found = re.compile(MATH).match(state.src, state.pos) if state.src[state.pos] in "$\\" else None
    if found is None:
        return False
    if not silent:
        state.push("text", "", 0).content = found[0]
    state.pos = found.end()
    return True


def _read_sign(state: StateInline, silent: bool) -> bool:
    """`==text==`, and what leads to a footnote: `[^1]`."""
    found = re.compile(SIGN).match(state.src, state.pos, state.posMax) if state.src[state.pos] in "=[" else None
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
    """`[^1]: text`, a paragraph: the standard takes one of a single word for an address, and shows nothing of it."""
    from markdown_it.rules_block import paragraph

    line = state.src[state.bMarks[first] + state.tShift[first] : state.eMarks[first]]
    found = re.match(SIGN, line) if line.startswith("[^") else None
    return found is not None and line.startswith(":", found.end()) and (silent or paragraph(state, first, end, silent))


def _read_formula_block(state: StateBlock, first: int, end: int, silent: bool) -> bool:
    """`$$` on a line of its own to the line that ends with it: one paragraph, blank lines included."""
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


def _settle_marks(state: StateCore) -> None:
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
