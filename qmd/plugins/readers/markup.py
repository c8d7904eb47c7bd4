"""HTML → markdown: what a reader of the page sees, without what only leads elsewhere.

Marks are told apart as browsers do: what is not closed ends with the file, so each character is looked at once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html import unescape

from qmd.ingest.markdown import plain_text
from qmd.plugins.readers.texts import Decoded, as_table, decode_as, fenced, finished, one_line

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
"""What begins a line and would be a mark of markdown; the next is one wherever it stands."""
_INLINE = re.compile(
    r"[`*\[]|(?<=\])\(|<(?=[A-Za-z/!?])|\\(?=[!-/:-@\[-`{-~])|(?<!\w)[_#](?=\w)|(?<=\w)_(?!\w)|&(?=#?\w+;)"
)
_NO_TABLE = re.compile(r"<(?:(/table)|table|h[1-6]|[uo]l|pre)\b", re.I)
"""The end of a table, or what only one that arranges the page holds."""

_UNREAD = re.compile("script|style|template|noscript|textarea|iframe|noembed|noframes|title")
"""What is text up to its own end."""
_SKIPPED = re.compile("nav|menu|svg|math|select|object|audio|video|canvas|button|dialog")
_MAY_HIDE = re.compile("div|section|ul|aside|span")
_BLOCK = re.compile(
    "/?(?:p|div|section|article|main|header|footer|aside|body|blockquote|d[ldt]|[uo]l|li|table|t[rdh]|caption|hr|pre"
    "|figure|figcaption|form|fieldset|details|summary|address|center|h[1-6])"
)
_DEEPEST = 4


def read_html(path: str, raw: bytes) -> Decoded:
    """A page as markdown, its title as front matter where no heading says it."""
    charset = _CHARSET.search(raw, 0, 4_096)
    text, warnings = decode_as(path, raw, charset[1].decode("ascii", "replace") if charset else "")
    title, text = read_page(text)
    return finished([front_matter(title), text], warnings)


def read_page(text: str, is_part: bool = False) -> tuple[str, str]:
    """The title of a page, empty where its first heading says it, and what it says as markdown.

    Links between parts of one file lead to no note and are left out.
    """
    page = _Page(is_part)
    for name, marks, words in tokens(text):
        page.take(name, marks, words)
    page.take("/pre", "", "")
    page.take("/table", "", "")
    found = "".join(page.main or page.blocks).strip("\n")
    heading = plain_text(found.partition("\n")[0])
    return "" if found.startswith("# ") and heading.lstrip("# ") in page.title else page.title, found


def tokens(text: str) -> Iterator[tuple[str, str, str]]:
    """(name, attributes, text) of the marks and texts of HTML or XML; entities that it defines are not expanded.

    The name of an end begins with `/`, that of text is empty, with the name of what it is the content of as attributes.
    """
    position = 0
    while match := _TOKEN.search(text, position):
        yield "", "", text[position : match.start()]
        position = match.end()
        if not (name := (match["name"] or "").lower()):
            continue
        marks = match["marks"]
        end = _NO_TABLE.search(text, position) if name == "table" else None
        yield name, "data" if end and end[1] else marks[:4_000], ""
        if marks.endswith("/") and name[0] != "/":
            yield "/" + name, "", ""
        elif _UNREAD.fullmatch(name):
            end = re.compile(rf"</{name}(?=[\s/>])", re.I).search(text, position)
            stop = end.start() if end is not None else len(text)
            yield "", name, text[position:stop]
            position = stop
    yield "", "", text[position:]


def attributes_of(marks: str) -> dict[str, str]:
    """Attributes by their names, in lower case."""
    return {one[1].lower(): plain(one[2] or one[3] or one[4] or "").strip() for one in _ATTRIBUTE.finditer(marks)}


def front_matter(title: str, **fields: str) -> str:
    """A title and fields as the beginning of markdown; of those that are empty nothing."""
    fields = {"title": said(title).replace("\\<", "&lt;"), **fields}
    lines = [f"{name}: {json.dumps(one_line(value), ensure_ascii=False)}" for name, value in fields.items() if value]
    return "\n".join(["---", *lines, "---"]) if lines else ""


def said(words: str, *, is_code: bool = False) -> str:
    """Words on one line in which nothing is a mark of markdown, unless they are code."""
    words = re.sub(r"\s+", " ", words)
    return words if is_code else _INLINE.sub(r"\\\g<0>", words)


def plain(text: str) -> str:
    """Text with what its entities stand for."""
    return _ENTITY.sub(lambda match: unescape(match[0]), text)


class _Page:
    """A page under way: the blocks that are done, each with the end of the line before it, and what is open."""

    def __init__(self, is_part: bool) -> None:
        self.title, self._is_part = "", is_part
        self.blocks: list[str] = []
        self.main: list[str] = []
        """The blocks of the page's main part, where it names one."""
        self._main_from = 0
        self._words: list[str] = []
        self._link: tuple[int, str] | None = None
        """Where in `_words` it begins, and where it leads."""
        self._lists: list[int] = []
        """Of each open list the number of its last item; of one without numbers a negative one."""
        self._marker, self._was_item, self._quotes = "", False, 0
        self._is_code = False
        self._rows: list[list[str]] | None = None
        """Of the table that is open."""
        self._code: str | None = None
        """The language of the code that is open."""
        self._skipped, self._depth = "", 0

    def take(self, name: str, marks: str, words: str) -> None:
        """Go on with a token."""
        if self._skipped:
            self._depth += (name == self._skipped) - (name == "/" + self._skipped)
            self._skipped *= self._depth > 0
        elif not name and marks == "title":
            self.title = self.title or one_line(plain(words))
        elif not name:
            words = plain("" if marks else words)
            self._words.append(words if self._code is not None else said(words, is_code=self._is_code))
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
            self._words.append(self._linked(said(found.get("alt", "")), found.get("src", ""), "!"))

    def _take_block(self, name: str, tag: str, marks: str) -> None:
        if name == "/pre" and self._code is not None:
            code, self._words = "".join(self._words).strip("\n"), []
            self._put(fenced(code, self._code) if code.strip() else "")
            self._code = None
            return
        if self._rows is not None:
            self._take_table(name)
            return
        text = self._taken_words()
        # In a heading an escaped mark would still be taken for an element.
        is_heading = self._marker.startswith("#")
        self._put(text.replace("\n", " ").replace("\\<", "&lt;") if is_heading else _escaped(text))
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
        """Go on with a mark within a table, whose cells are one line each, whatever they hold."""
        if name.lstrip("/") not in ("table", "tr", "td", "th") or self._rows is None:
            self._words.append(" ")
            return
        text = self._taken_words().replace("\n", " ")
        if self._rows and self._rows[-1]:
            self._rows[-1][-1] = self._rows[-1][-1] or text
        else:
            self._put(_escaped(text))
        if name == "tr":
            self._rows.append([])
        elif name in ("td", "th"):
            self._rows = self._rows or [[]]
            self._rows[-1].append("")
        elif name == "/table":
            rows, self._rows = [row for row in self._rows if any(row)], None
            self._put("\n".join(as_table(rows)))

    def _taken_words(self) -> str:
        self._end_link()
        words, self._words, self._is_code = "".join(self._words) + "`" * self._is_code, [], False
        return re.sub(r" ?\n ?", "\n", re.sub(" +", " ", words)).strip()

    def _end_link(self) -> None:
        if self._link is not None:
            start, address = self._link
            self._words[start:] = [self._linked("".join(self._words[start:]), address)]
            self._link = None

    def _linked(self, text: str, address: str, mark: str = "") -> str:
        """A link, or its text where it leads to a program or holds the picture itself."""
        is_inner = self._is_part and ":" not in address
        if (
            not text.strip()
            or not address
            or is_inner
            or re.match(r"(?:javascript|data|vbscript|blob|cid):", address, re.I)
        ):
            return text
        address = one_line(address).replace("<", "%3C").replace(">", "%3E")
        return f"{mark}[{text.strip()}]({f'<{address}>' if re.search(r'[ ()]', address) else address})"

    def _put(self, text: str) -> None:
        """Add a block, in the list and quotation that are open."""
        if not text:
            return
        marker, self._marker = self._marker, ""
        is_heading = marker.startswith("#")
        before, depth = "> " * min(self._quotes, _DEEPEST), 0 if is_heading else min(len(self._lists), _DEEPEST)
        is_item = bool(marker and depth)
        first = ("" if is_heading else before) + "    " * (depth - is_item) + marker
        # Items of a list stand one below the other.
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


def _escaped(text: str) -> str:
    return _MARK.sub(lambda match: f"{match[1] or ''}\\", text)
