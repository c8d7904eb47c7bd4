"""Structure of markdown (headings, fenced code, inline tags), and its lines as plain text."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from itertools import chain

from msgspec import Struct, field

from qmd.records import Heading, MetadataValue

Span = tuple[int, int]

FENCE = r"(`{3,}|~{3,})([^\n]*)"
"""Mark of a fence and the rest of its line."""

# The pattern begins with a line feed: a literal first character lets the engine skip prose at memory speed, while `^`
# would be tried at every character; the first line of the range is tested separately. Then one look at the next
# character decides for most lines.
_LINE_MARK = (
    r" {0,3}+(?=[#`~=-])(?:(#{1,6}+)([ \t][^\n]*+)?(?=\n|\Z)"
    rf"|{FENCE}"
    r"|(=+|-+)[ \t\r]*(?=\n|\Z))"
)
_FENCE_LINE = rf"(?m)^ {{0,3}}{FENCE}(?:\n|\Z)"
_MARK_AFTER_BREAK = re.compile(r"\n" + _LINE_MARK)
_MARK_AT_START = re.compile(_LINE_MARK)
_NOT_PARAGRAPH = r"\s*(?:[#>|]|[-*+][ \t]|\d+[.)][ \t]|`{3}|~{3}|<!--|\Z)"
_TAG = r"#(?<![^\s#]#)(?<!##)([^\W\d_][\w/-]*)(?![\w#])"
_DIRECTIVES = frozenset(
    {"if", "ifdef", "ifndef", "elif", "elifdef", "elifndef", "else", "endif", "define", "undef", "include", "import"}
    | {"include_next", "using", "pragma", "error", "warning", "line", "region", "endregion", "embed"}
)
"""Preprocessor lines outside fences look exactly like tags."""

MAX_HEADINGS = 50_000
"""Later headings belong to the last section: ten megabytes of empty sections would take half a gigabyte of memory."""


class FrontMatter(Struct, frozen=True):
    """Typed metadata, the offset at which the body starts (0 without front matter), and warnings."""

    metadata: dict[str, MetadataValue] = field(default_factory=dict)
    body_offset: int = 0
    warnings: tuple[str, ...] = ()
    unread_line: int | None = None


def find_headings(text: str, body_offset: int = 0) -> tuple[tuple[Heading, ...], tuple[Span, ...]]:
    """Return the headings from `body_offset` on, and the spans of fenced code, both ascending."""
    headings: list[Heading] = []
    fences = FenceScanner()
    first = _MARK_AT_START.match(text, body_offset)
    others = _MARK_AFTER_BREAK.finditer(text, body_offset if first is None else first.end())
    for match in others if first is None else chain([first], others):
        line_start = match.start() + (match is not first)
        hashes, atx, mark, info, rule = match.groups()
        if mark:
            fences.line(mark, info, line_start, match.end())
        elif fences.is_open:
            continue
        elif rule:
            _add_setext(text, body_offset, line_start, rule, headings)
        else:
            title = plain_text(_closing_hashes(atx or ""))
            if title and len(headings) < MAX_HEADINGS:
                headings.append(Heading(len(hashes), title, line_start))
    return tuple(headings), fences.finish(len(text))


def _closing_hashes(text: str) -> str:
    stripped = text.strip()
    if not stripped.endswith("#"):
        return stripped
    bare = stripped.rstrip("#")
    return bare.rstrip() if not bare or bare[-1] in " \t" else stripped


def _add_setext(text: str, body_offset: int, line_start: int, rule: str, headings: list[Heading]) -> None:
    """Add the line above an underline as a heading when it is a paragraph of one line.

    A longer paragraph over `---` is nearly always a thematic break without a blank line.
    """
    end = line_start - 1
    start = max(text.rfind("\n", body_offset, max(end, body_offset)) + 1, body_offset)
    if end <= start:
        return
    line = text[start:end]
    before = text[max(text.rfind("\n", body_offset, max(start - 1, body_offset)) + 1, body_offset) : start]
    if line.startswith(("    ", "\t")) or not line.strip() or re.match(_NOT_PARAGRAPH, line) or before.strip():
        return
    title = plain_text(line.strip())
    if title and len(headings) < MAX_HEADINGS and not (headings and headings[-1].offset >= start):
        headings.append(Heading(1 if rule[0] == "=" else 2, title, start))


class FenceScanner:
    """Scanner that pairs the marks of fenced code, given every line that begins with a mark, in order."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        """Closed fenced code, fence lines included."""
        self._mark = ""
        self._start = 0

    @property
    def is_open(self) -> bool:
        """Whether the current text is code."""
        return bool(self._mark)

    def line(self, mark: str, rest: str, start: int, end: int) -> None:
        """Add the next line with a mark, `rest` after it, at `text[start:end]`."""
        if self._mark:
            if mark[0] == self._mark[0] and len(mark) >= len(self._mark) and not rest.strip():
                self.spans.append((self._start, end))
                self._mark = ""
        # With a backtick after it the mark begins an inline code span.
        elif mark[0] == "~" or "`" not in rest:
            self._mark, self._start = mark, start

    def finish(self, end: int) -> tuple[Span, ...]:
        """Return all fenced code of a text that ends at `end`; an open fence extends to there."""
        return (*self.spans, (self._start, end)) if self._mark else tuple(self.spans)


def code_fences(text: str, start: int, end: int) -> tuple[Span, ...]:
    """Return spans of fenced code in `text[start:end]`, fence lines included; an open fence extends to `end`."""
    fences = FenceScanner()
    for match in re.compile(_FENCE_LINE).finditer(text, start, end):
        fences.line(match[1], match[2], match.start(), match.end())
    return fences.finish(end)


MAX_HEADING_CHARACTERS = 500
"""Every chunk below a heading is embedded with it, so a paragraph after a `#` must not be included whole."""

MAX_MARKED_UP_CHARACTERS = 4_000
"""Limit for a heading with its links and elements, and for a line that is shown without them."""

# Kept as text: `re` compiles them at the first heading that needs them, and most searches show none with marks.
_BACKTICKS = r"`+"
_WIKI_LINK = r"(!?)\[\[([^\[\]|]*)(?:\|([^\[\]]*))?\]\]"
_LINK = r"(?<!\\)!?\[((?:[^\[\]\\]|\\.)*)\](?:\((?:[^()\\]|\\.|\([^()]*\))*\)|\[[^\[\]]*\])"
_SIZE = r"(?:\A|\|)(\d{1,4})(?:x\d+)?\Z"
_ANCHOR = r"\{\s*[:#.][^{}]*\}\Z"
_TAG_ELEMENT = (
    r"(?i)</?(?:a|abbr|b|big|br|center|code|del|div|em|font|i|img|ins|kbd|mark|p|s|small|span|strong|sub|sup|tt|u|wbr)"
    r"(?:\s[^<>]*)?/?>|<!--.*?(?:-->|(\Z))"
)
_EMPHASIS = r"(?<!\\)(?:\*{1,3}|~~|==)(?=\S)"
_UNDERSCORES = r"(?<![\w\\])_{1,3}(?=\S)"
_ESCAPE = r"\\([!-/:-@\[-`{-~])"
_MARKED_UP = re.compile(r"[`*_~=\[\]<>{}\\&]")


def plain_text(text: str, most: int = MAX_HEADING_CHARACTERS) -> str:
    """Return the text of a heading or line without emphasis, links, anchors, inline elements or escapes.

    At most `most` characters, in time proportional to its length: unclosed marks must not be tried one by one.
    """
    text = text[:MAX_MARKED_UP_CHARACTERS]
    if _MARKED_UP.search(text) is None:
        return text[:most]
    kept: list[str] = []
    if "`" in text:
        text = _without_code_spans(text, kept)
    for marks, without in _STEPS:
        if any(map(text.__contains__, marks)):
            text = without(text)
    if kept:
        text = re.sub("\ue000(\\d+)\ue001", lambda m: kept[int(m[1])] if int(m[1]) < len(kept) else "", text)
    return " ".join(text.split())[:most]


def _without_anchor(text: str) -> str:
    anchor = re.compile(_ANCHOR).match(text, text.rfind("{")) if text.endswith("}") else None
    return text[: anchor.start()].rstrip() if anchor is not None else text


def _without_links(text: str) -> str:
    text = re.sub(_WIKI_LINK, lambda m: ((split_size(m[3] or "")[0] if m[1] else m[3]) or m[2]).strip(), text)
    for _ in range(2):  # an image inside a link takes two rounds
        text = re.sub(_LINK, lambda m: split_size(m[1])[0] if m[0][0] == "!" else m[1], text)
    return text


def _without_entities(text: str) -> str:
    import html  # brings its table of 2,000 names, which few headings need

    return html.unescape(text)


def split_size(label: str) -> tuple[str, str]:
    """Return name and width of a picture: `chart|400`, `400x300`; an empty width if there is none."""
    size = re.search(_SIZE, label)
    return (label[: size.start()], size[1]) if size is not None else (label, "")


def _without_code_spans(text: str, kept: list[str]) -> str:
    """Return `text` with a placeholder for every code span, whose content goes to `kept`."""
    runs = list(re.finditer(_BACKTICKS, text))
    closing: dict[int, int] = {}
    after = [0] * len(runs)
    for i in range(len(runs) - 1, -1, -1):
        n_ticks = len(runs[i][0])
        after[i] = closing.get(n_ticks, 0)
        closing[n_ticks] = i
    pieces: list[str] = []
    position = i = 0
    while i < len(runs):
        if after[i]:
            # A private-use character cannot be mistaken for markup by the later steps.
            pieces += [text[position : runs[i].start()], f"\ue000{len(kept)}\ue001"]
            kept.append(text[runs[i].end() : runs[after[i]].start()].strip())
            i = after[i]
            position = runs[i].end()
        i += 1
    return "".join([*pieces, text[position:]])


def _without_pairs(text: str, mark_pattern: str) -> str:
    """Return `text` without paired marks; an unclosed mark stays, and is searched only once."""
    opening = re.compile(mark_pattern)
    unclosed: set[str] = set()
    pieces: list[str] = []
    position = 0
    match = opening.search(text)
    while match is not None:
        start, run = match.start(), match[0]
        marks = [run[:k] for k in range(len(run), 0, -1)] if run[0] in "*_" else [run]
        for mark in marks:
            closing = None if mark in unclosed else _closing(mark).search(text, start + len(mark) + 1)
            if closing is not None:
                pieces += [text[position:start], text[start + len(mark) : closing.start()]]
                position = closing.end()
                break
            unclosed.add(mark)
        match = opening.search(text, max(position, start + 1))
    return "".join([*pieces, text[position:]])


_STEPS: tuple[tuple[str, Callable[[str], str]], ...] = (
    ("}", _without_anchor),
    ("[", _without_links),
    ("<", lambda text: re.sub(_TAG_ELEMENT, lambda m: "" if m[1] is None else m[0], text)),
    ("*~=", lambda text: _without_pairs(text, _EMPHASIS)),
    ("_", lambda text: _without_pairs(text, _UNDERSCORES)),
    ("\\", lambda text: re.sub(_ESCAPE, lambda match: match[1], text)),
    ("&", _without_entities),
)
"""Characters → the step that removes their marks from a text with one of them, in this order."""


@cache
def _closing(mark: str) -> re.Pattern[str]:
    return re.compile(r"(?<=[^\s\\])" + re.escape(mark) + (r"(?!\w)" if mark[0] == "_" else ""))


MAX_TAGS = 2_000
"""They are stored with the document and sent with every hit; a text with more is a list of colours or issue numbers."""


def find_tags(text: str, body_offset: int, code: Sequence[Span]) -> tuple[str, ...]:
    """Return inline `#tags` of the body, without `#`, in order of first use; none from code of any kind."""
    found: dict[str, None] = {}
    k = 0
    line_start = position = text.rfind("\n", 0, body_offset) + 1
    n_backticks = 0
    for match in re.compile(_TAG).finditer(text, body_offset):
        start = match.start()
        while k < len(code) and code[k][1] <= start:
            k += 1
        if k < len(code) and code[k][0] <= start:
            continue
        # From the previous tag on, so that a line of tags is not searched again for each of them.
        line_break = text.rfind("\n", position, start)
        if line_break >= 0:
            line_start = position = line_break + 1
            n_backticks = 0
        between = text[position:start]
        n_backticks += between.count("`")
        position = start
        is_code = text.startswith(("    ", "\t"), line_start) or n_backticks % 2 or match[1] in _DIRECTIVES
        # `{ #name }` is a heading's anchor.
        if not is_code and not between.rstrip().endswith("{"):
            found[match[1].rstrip("/-")] = None
            if len(found) == MAX_TAGS:
                break
    return tuple(found)
