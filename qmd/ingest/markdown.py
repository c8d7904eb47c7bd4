"""What a text says of itself: headings, title and inline tags, with fenced code left out."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from qmd.records import Heading, MetadataValue

Structure = Literal["markdown", "org", "plain"]
Span = tuple[int, int]

_MARKDOWN_SUFFIXES = frozenset(
    {".md", ".markdown", ".mdown", ".mkd", ".mkdn", ".mdx", ".mdwn", ".qmd", ".rmd", ".mdc", ".livemd"}
)

# The pattern begins with a line feed: a literal first character lets the engine skip prose at memory speed, where `^`
# would be tried at every character; the first line of the range is tested separately. Then one look at the next
# character decides for most lines.
_LINE_MARK = (
    r" {0,3}(?:(#{1,6})([ \t][^\n]*)?(?=\n|\Z)"
    r"|(`{3,}|~{3,})([^\n]*)"
    r"|(=+|-+)[ \t\r]*(?=\n|\Z))"
)
_MARK_AFTER_BREAK = re.compile(r"\n(?=[ #`~=-])" + _LINE_MARK)
_MARK_AT_START = re.compile(_LINE_MARK)
_ORG_MARK = re.compile(r"^(?:(?P<stars>\*+) +(?P<text>[^\n]*)|#\+(?P<block>begin|end)_(?:src|example)\b)", re.M | re.I)
_ORG_TITLE = re.compile(r"^#\+TITLE:[ \t]*(\S[^\n]*)", re.M | re.I)
_NOT_PARAGRAPH = re.compile(r"\s*(?:[#>|]|[-*+][ \t]|\d+[.)][ \t]|`{3}|~{3}|<!--|\Z)")
_TAG = re.compile(r"#(?<![^\s#]#)(?<!##)([^\W\d_][\w/-]*)(?![\w#])")
_DIRECTIVES = frozenset(
    {"if", "ifdef", "ifndef", "elif", "elifdef", "elifndef", "else", "endif", "define", "undef", "include", "import"}
    | {"include_next", "using", "pragma", "error", "warning", "line", "region", "endregion", "embed"}
)
"""Preprocessor lines outside fences look exactly like tags."""


def structure_of(path: str) -> Structure:
    """How the file's headings are written, by extension; `plain` has none (`#` may be a comment there)."""
    suffix = "." + path.rpartition(".")[2].lower()
    if suffix in _MARKDOWN_SUFFIXES:
        return "markdown"
    return "org" if suffix == ".org" else "plain"


def find_headings(text: str, body_offset: int, structure: Structure) -> tuple[tuple[Heading, ...], tuple[Span, ...]]:
    """Headings from `body_offset` on, and the spans of fenced code, both ascending."""
    if structure == "markdown":
        return _markdown_headings(text, body_offset)
    return _org_headings(text) if structure == "org" else ((), ())


def _markdown_headings(text: str, body_offset: int) -> tuple[tuple[Heading, ...], tuple[Span, ...]]:
    headings: list[Heading] = []
    code: list[Span] = []
    fence = ""
    fence_start = 0
    for match, line_start in _line_marks(text, body_offset):
        hashes, atx, mark, info, rule = match.groups()
        if fence:
            if mark and mark[0] == fence[0] and len(mark) >= len(fence) and not info.strip():
                code.append((fence_start, match.end()))
                fence = ""
        elif mark:
            # An info string with a backtick is an inline code span, not a fence.
            if mark[0] == "~" or "`" not in info:
                fence, fence_start = mark, line_start
        elif rule:
            _add_setext(text, body_offset, line_start, rule, headings)
        else:
            title = plain_text(_closing_hashes(atx or ""))
            if title:
                headings.append(Heading(len(hashes), title, line_start))
    if fence:
        code.append((fence_start, len(text)))
    return tuple(headings), tuple(code)


def _line_marks(text: str, offset: int) -> Iterator[tuple[re.Match[str], int]]:
    """Lines from `offset` on that look like headings, underlines or fences, with their offsets."""
    first = _MARK_AT_START.match(text, offset)
    if first is not None:
        yield first, offset
    for match in _MARK_AFTER_BREAK.finditer(text, first.end() if first is not None else offset):
        yield match, match.start() + 1


def _closing_hashes(text: str) -> str:
    stripped = text.strip()
    if not stripped.endswith("#"):
        return stripped
    bare = stripped.rstrip("#")
    return bare.rstrip() if not bare or bare[-1] in " \t" else stripped


def _add_setext(text: str, body_offset: int, line_start: int, rule: str, headings: list[Heading]) -> None:
    """Take the line above an underline as a heading when it is a paragraph of one line.

    Longer paragraphs over `---` are nearly always a thematic break written without a blank line.
    """
    end = line_start - 1
    start = max(text.rfind("\n", body_offset, max(end, body_offset)) + 1, body_offset)
    if end <= start:
        return
    line = text[start:end]
    before = text[max(text.rfind("\n", body_offset, max(start - 1, body_offset)) + 1, body_offset) : start]
    if line.startswith(("    ", "\t")) or not line.strip() or _NOT_PARAGRAPH.match(line) or before.strip():
        return
    title = plain_text(line.strip())
    if title and not (headings and headings[-1].offset >= start):
        headings.append(Heading(1 if rule[0] == "=" else 2, title, start))


def _org_headings(text: str) -> tuple[tuple[Heading, ...], tuple[Span, ...]]:
    headings: list[Heading] = []
    code: list[Span] = []
    opened: int | None = None
    for match in _ORG_MARK.finditer(text):
        block = (match["block"] or "").lower()
        if block == "begin" and opened is None:
            opened = match.start()
        elif block == "end" and opened is not None:
            code.append((opened, match.end()))
            opened = None
        elif match["stars"] and opened is None and match["text"].strip():
            headings.append(Heading(min(len(match["stars"]), 6), match["text"].strip(), match.start()))
    return tuple(headings), tuple(code)


# --- titles ---------------------------------------------------------------------------------------


def extract_title(
    path: str, text: str, structure: Structure, headings: Sequence[Heading], metadata: Mapping[str, MetadataValue]
) -> tuple[str, bool]:
    """(title, whether the file name stands in for it): front matter, then the first heading of level 1 or 2.

    A heading `Notes` or `📝 Notes` names every daily note alike, so the first level-2 heading after it wins.
    """
    named = metadata.get("title")
    if isinstance(named, (str, int, float)) and not isinstance(named, bool) and str(named).strip():
        return plain_text(" ".join(str(named).split())), False
    if structure == "org":
        match = _ORG_TITLE.search(text)
        if match:
            return match[1].strip(), False
        if headings:
            return headings[0].text, False
    first = next((h for h in headings if h.level <= 2), None)
    if first is not None and structure == "markdown":
        if first.text in ("Notes", "📝 Notes"):
            first = next((h for h in headings if h.level == 2 and h is not first), first)
        return first.text, False
    name = path.rpartition("/")[2]
    stem, dot, _ = name.rpartition(".")
    return (stem if dot and stem else name), True


_CODE_SPAN = re.compile(r"(`+)(.+?)(?<!`)\1(?!`)")
_WIKI_LINK = re.compile(r"!?\[\[([^\[\]|]*)(?:\|([^\[\]]*))?\]\]")
_LINK = re.compile(r"!?\[((?:[^\[\]\\]|\\.)*)\](?:\((?:[^()\\]|\\.|\([^()]*\))*\)|\[[^\[\]]*\])")
_ANCHOR = re.compile(r"\s*\{\s*[:#.][^{}]*\}\s*\Z")
_TAG_ELEMENT = re.compile(
    r"</?(?:a|abbr|b|big|br|center|code|del|div|em|font|i|img|ins|kbd|mark|p|s|small|span|strong|sub|sup|tt|u|wbr)"
    r"(?:\s[^<>]*)?/?>|<!--.*?-->",
    re.I,
)
_EMPHASIS = re.compile(r"(?<!\\)(\*{1,3}|~~|==)(?=\S)(.+?)(?<=\S)(?<!\\)\1")
_UNDERSCORES = re.compile(r"(?<![\w\\])(_{1,3})(?=\S)(.+?)(?<=\S)(?<!\\)\1(?!\w)")
_ESCAPE = re.compile(r"\\([!-/:-@\[-`{-~])")
_MARKED_UP = re.compile(r"[`*_~=\[\]<>{}\\&]")


def plain_text(text: str) -> str:
    """A heading's text as a reader sees it: no emphasis, links, anchors, inline elements or escapes."""
    if _MARKED_UP.search(text) is None:
        return text
    kept: list[str] = []

    def keep(match: re.Match[str]) -> str:
        kept.append(match[2].strip())
        # A private-use character cannot be mistaken for markup by the steps below.
        return f"\ue000{len(kept) - 1}\ue001"

    if "`" in text:
        text = _CODE_SPAN.sub(keep, text)
    if text.endswith("}"):
        text = _ANCHOR.sub("", text)
    if "[" in text:
        text = _WIKI_LINK.sub(lambda m: (m[2] or m[1]).strip(), text)
        for _ in range(2):  # an image inside a link takes two rounds
            text = _LINK.sub(lambda m: m[1], text)
    if "<" in text:
        text = _TAG_ELEMENT.sub("", text)
    if "*" in text or "~" in text or "=" in text:
        text = _EMPHASIS.sub(lambda m: m[2], text)
    if "_" in text:
        text = _UNDERSCORES.sub(lambda m: m[2], text)
    if "\\" in text:
        text = _ESCAPE.sub(lambda m: m[1], text)
    if "&" in text:
        text = html.unescape(text)
    if kept:
        text = re.sub("\ue000(\\d+)\ue001", lambda m: kept[int(m[1])] if int(m[1]) < len(kept) else "", text)
    return " ".join(text.split())


# --- tags -----------------------------------------------------------------------------------------


def find_tags(text: str, body_offset: int, code: Sequence[Span]) -> tuple[str, ...]:
    """Inline `#tags` of the body, without `#`, in order of first use; none from fenced, indented or inline code."""
    found: dict[str, None] = {}
    k = 0
    for match in _TAG.finditer(text, body_offset):
        start = match.start()
        while k < len(code) and code[k][1] <= start:
            k += 1
        if k < len(code) and code[k][0] <= start:
            continue
        line = text[text.rfind("\n", 0, start) + 1 : start]
        # `{ #name }` is a heading's anchor.
        is_code = line.startswith(("    ", "\t")) or line.count("`") % 2 or match[1] in _DIRECTIVES
        if not is_code and not line.rstrip().endswith("{"):
            found[match[1].rstrip("/-")] = None
    return tuple(found)
