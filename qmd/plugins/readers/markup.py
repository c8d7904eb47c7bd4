"""HTML → markdown: the text that a reader of the page sees, without navigation.

Tags are parsed as browsers do: an unclosed one ends with the file, so each character is read once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html import unescape

from qmd.ingest.markdown import plain_text
from qmd.plugins.readers.texts import Decoded, decode_as, fence_code, join_parts, one_line, table_lines

_TOKEN = re.compile(
    r"<!--(?:-?>|.*?(?:--!?>|\Z))|<[!?][^>]*(?:>|\Z)"
    r"|<(?P<name>/?[A-Za-z][^\s/>]*+)"
    r"(?P<marks>(?:[^>=]++|=\s*+(?:\"[^\"]*+(?:\"|\Z)|'[^']*+(?:'|\Z))?+)*+)(?:>|\Z)",
    re.S,
)
_ATTRIBUTE = re.compile(r"(?<![^\s\"'/])([A-Za-z:_-]++)\s*+(?:=\s*+(?:\"([^\"]*)|'([^']*)|([^\s\"']+))|(?=[\s/]|\Z))")
_ENTITY = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});?")
_CHARSET = re.compile(
    rb"<(?:meta\b[^>]{0,300}?charset|\?xml\b[^>]{0,100}?encoding)\s*=\s*[\"']?\s*([\w.:-]{1,40})", re.I
)
_MARK = re.compile(r"(?m)^(?=#{1,6}(?:\s|$)|[-+*](?:\s|$)|>|(?:===|---|~~~))|^(\d{1,9})(?=[.)]\s)")
"""Signs that are markdown marks at the beginning of a line; those of the next pattern are marks everywhere."""
_INLINE = re.compile(
    r"[`*\[]|(?<=\])\(|<(?=[A-Za-z/!?])|\\(?=[!-/:-@\[-`{-~])|(?<!\w)[_#](?=\w)|(?<=\w)_(?!\w)|&(?=#?\w+;)"
)
_TABLE_END = re.compile(r"<(?:(/table)|table|h[1-6]|[uo]l|pre)\b", re.I)
"""Elements that end a table, or occur only in a table that arranges the page."""

_RAW_TEXT = re.compile("script|style|template|noscript|textarea|iframe|noembed|noframes|title")
"""Elements whose content is text up to their own end tag."""
_SKIPPED = re.compile("nav|menu|svg|math|select|object|audio|video|canvas|button|dialog")
_MAY_HIDE = re.compile("div|section|ul|aside|span")
_BLOCK = re.compile(
    "/?(?:p|div|section|article|main|header|footer|aside|body|blockquote|d[ldt]|[uo]l|li|table|t[rdh]|caption|hr|pre"
    "|figure|figcaption|form|fieldset|details|summary|address|center|h[1-6])"
)
_MAX_DEPTH = 4


def read_html(path: str, raw: bytes) -> Decoded:
    """Return a page as markdown, its title as front matter if no heading repeats it."""
    charset = _CHARSET.search(raw, 0, 4_096)
    text, warnings = decode_as(path, raw, charset[1].decode("ascii", "replace") if charset else "")
    title, text = read_page(text)
    return join_parts([front_matter(title), text], warnings)


def read_page(text: str, is_part: bool = False) -> tuple[str, str]:
    """Return the title of a page, empty if its first heading repeats it, and its content as markdown.

    Links between parts of one file lead to no note and are skipped.
    """
    page = _Page(is_part)
    for name, marks, words in tokenize(text):
        page.take(name, marks, words)
    page.take("/pre", "", "")
    page.take("/table", "", "")
    found = "".join(page.main or page.blocks).strip("\n")
    heading = plain_text(found.partition("\n")[0])
    return "" if found.startswith("# ") and heading.lstrip("# ") in page.title else page.title, found


def tokenize(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield (name, attributes, text) of the tags and texts of HTML or XML; custom entities are not expanded.

    The name of an end tag begins with `/`; text has an empty name and its element's name as attributes.
    """
    position = 0
    while match := _TOKEN.search(text, position):
        yield "", "", text[position : match.start()]
        position = match.end()
        if not (name := (match["name"] or "").lower()):
            continue
        marks = match["marks"]
        end = _TABLE_END.search(text, position) if name == "table" else None
        yield name, "data" if end and end[1] else marks[:4_000], ""
        if marks.endswith("/") and name[0] != "/":
            yield "/" + name, "", ""
        elif _RAW_TEXT.fullmatch(name):
            end = re.compile(rf"</{name}(?=[\s/>])", re.I).search(text, position)
            stop = end.start() if end is not None else len(text)
            yield "", name, text[position:stop]
            position = stop
    yield "", "", text[position:]


def attributes_of(marks: str) -> dict[str, str]:
    """Return attributes by their lower-case names."""
    return {one[1].lower(): expand(one[2] or one[3] or one[4] or "").strip() for one in _ATTRIBUTE.finditer(marks)}


def front_matter(title: str, **fields: str) -> str:
    """Return a title and fields as front matter, without empty ones."""
    fields = {"title": escape(title).replace("\\<", "&lt;"), **fields}
    lines = [f"{name}: {json.dumps(one_line(value), ensure_ascii=False)}" for name, value in fields.items() if value]
    return "\n".join(["---", *lines, "---"]) if lines else ""


def escape(words: str, *, is_code: bool = False) -> str:
    """Return words on one line, with marks of markdown escaped unless they are code."""
    words = re.sub(r"\s+", " ", words)
    return words if is_code else _INLINE.sub(r"\\\g<0>", words)


def expand(text: str) -> str:
    """Replace the entities in text."""
    return _ENTITY.sub(lambda match: unescape(match[0]), text)


class _Page:
    """A page being converted: finished blocks, each with the line break before it, and open elements."""

    def __init__(self, is_part: bool) -> None:
        self.title, self._is_part = "", is_part
        self.blocks: list[str] = []
        self.main: list[str] = []
        """The blocks of the page's main part, if it names one."""
        self._main_from = 0
        self._words: list[str] = []
        self._link: tuple[int, str] | None = None
        """Start of the open link in `_words`, and its target."""
        self._lists: list[int] = []
        """Number of the last item of each open list; negative for an unnumbered list."""
        self._marker, self._was_item, self._quotes = "", False, 0
        self._is_code = False
        self._rows: list[list[str]] | None = None
        """Rows of the open table."""
        self._code: str | None = None
        """The language of the open code block."""
        self._skipped, self._depth = "", 0

    def take(self, name: str, marks: str, words: str) -> None:
        if self._skipped:
            self._depth += (name == self._skipped) - (name == "/" + self._skipped)
            self._skipped *= self._depth > 0
        elif not name and marks == "title":
            self.title = self.title or one_line(expand(words))
        elif not name:
            words = expand("" if marks else words)
            self._words.append(words if self._code is not None else escape(words, is_code=self._is_code))
        elif _is_skipped(name, marks):
            self._skipped, self._depth = name, 1
        elif self._code is not None and name != "/pre":
            self._words += ["\n"] * (name == "br")
            self._code = self._code or _language(marks)
        elif _BLOCK.fullmatch(name):
            self._take_block(name, name.lstrip("/"), marks)
        else:
            self._take_inline(name, marks)

    def _take_inline(self, name: str, marks: str) -> None:
        if name == "br":
            self._words.append("\n")
        elif name in ("code", "/code"):
            self._words.append("`")
            self._is_code = name == "code"
        elif name in ("a", "/a"):
            self._end_link()
            address = attributes_of(marks).get("href", "") if name == "a" else ""
            self._link = (len(self._words), address) if address else None
        elif name == "img":
            found = attributes_of(marks)
            self._words.append(self._link_text(escape(found.get("alt", "")), found.get("src", ""), "!"))

    def _take_block(self, name: str, tag: str, marks: str) -> None:
        if name == "/pre" and self._code is not None:
            code, self._words = "".join(self._words).strip("\n"), []
            self._put(fence_code(code, self._code) if code.strip() else "")
            self._code = None
            return
        if self._rows is not None:
            self._take_table(name)
            return
        text = self._take_words()
        # In a heading an escaped mark would still be taken for an element.
        is_heading = self._marker.startswith("#")
        self._put(text.replace("\n", " ").replace("\\<", "&lt;") if is_heading else _escape_starts(text))
        if tag in ("ul", "ol", "li"):
            self._take_list(name)
        elif tag == "main":
            self.main += self.blocks[self._main_from :] if name == "/main" else []
            self._main_from = len(self.blocks)
        elif tag == "blockquote":
            self._quotes = max(self._quotes + (1 if name == tag else -1), 0)
        elif tag[1:].isdigit():
            self._marker = "#" * int(tag[1]) + " " if name == tag else ""
        elif name == "pre":
            self._code = _language(marks)
        elif marks == "data":
            self._rows = []

    def _take_list(self, name: str) -> None:
        self._marker = ""
        if name in ("ul", "ol"):
            self._lists.append(-1 if name == "ul" else 0)
        elif name == "li":
            number = self._lists[-1] if self._lists else -1
            self._lists[-1:] = [number + (number >= 0)] if self._lists else []
            self._marker = f"{number + 1}. " if number >= 0 else "- "
        elif name != "/li" and self._lists:
            self._lists.pop()

    def _take_table(self, name: str) -> None:
        """Process a tag within a table, whose cells are one line each."""
        if name.lstrip("/") not in ("table", "tr", "td", "th") or self._rows is None:
            self._words.append(" ")
            return
        text = self._take_words().replace("\n", " ")
        if self._rows and self._rows[-1]:
            self._rows[-1][-1] = self._rows[-1][-1] or text
        else:
            self._put(_escape_starts(text))
        if name == "tr":
            self._rows.append([])
        elif name in ("td", "th"):
            self._rows = self._rows or [[]]
            self._rows[-1].append("")
        elif name == "/table":
            rows, self._rows = [row for row in self._rows if any(row)], None
            self._put("\n".join(table_lines(rows)))

    def _take_words(self) -> str:
        self._end_link()
        words, self._words, self._is_code = "".join(self._words) + "`" * self._is_code, [], False
        return re.sub(r" ?\n ?", "\n", re.sub(" +", " ", words)).strip()

    def _end_link(self) -> None:
        if self._link is not None:
            start, address = self._link
            self._words[start:] = [self._link_text("".join(self._words[start:]), address)]
            self._link = None

    def _link_text(self, text: str, address: str, mark: str = "") -> str:
        """Return a link, or its text if it leads to a program or contains the picture itself."""
        is_inner = self._is_part and ":" not in address
        is_program = re.match(r"(?:javascript|data|vbscript|blob|cid):", address, re.I) is not None
        if not text.strip() or not address or is_inner or is_program:
            return text
        address = one_line(address).replace("<", "%3C").replace(">", "%3E")
        return f"{mark}[{text.strip()}]({f'<{address}>' if re.search(r'[ ()]', address) else address})"

    def _put(self, text: str) -> None:
        if not text:
            return
        marker, self._marker = self._marker, ""
        is_heading = marker.startswith("#")
        before, depth = "> " * min(self._quotes, _MAX_DEPTH), 0 if is_heading else min(len(self._lists), _MAX_DEPTH)
        is_item = bool(marker and depth)
        first = ("" if is_heading else before) + "    " * (depth - is_item) + marker
        # Items of a list follow each other without a blank line.
        end = "\n" if is_item and self._was_item else "\n\n"
        self._was_item = depth > 0
        self.blocks.append(end + first + text.replace("\n", "\n" + before + "    " * depth))


def _is_skipped(name: str, marks: str) -> bool:
    if not _MAY_HIDE.fullmatch(name):
        return _SKIPPED.fullmatch(name) is not None
    found = attributes_of(marks)
    return "hidden" in found or found.get("aria-hidden") == "true" or found.get("role") == "navigation"


def _language(marks: str) -> str:
    found = re.search(r"(?:language|lang|highlight)-([\w+#-]{1,30})", attributes_of(marks).get("class", ""))
    return found[1] if found is not None else ""


def _escape_starts(text: str) -> str:
    return _MARK.sub(lambda match: f"{match[1] or ''}\\", text)
