"""What all readers share: encodings, front matter, code between fences, and the bound of a text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from qmd.ingest.document import decode_text
from qmd.ingest.outline import Outline, outline_markdown

Decoded = tuple[str, tuple[str, ...]]
"""A text, and what was wrong with the bytes it was made of."""

MAX_CHARACTERS = 4_000_000
"""Of the text of one file: the longest novels have three million."""

_ENCODING = re.compile(
    r"iso-?8859-?\d{1,2}|latin-?\d|(windows-|cp)\d{3,4}|koi8-?[ru]|gb-?(2312|k|18030)|big5|euc-?(jp|kr|cn)"
    r"|s(hift)?[_-]?jis|iso-?2022-?(jp|kr)|mac-?roman",
    re.I,
)
"""Those of texts but for UTF-8. Others take more than linear time (`punycode`) or mean something else."""

_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


def decode_as(path: str, raw: bytes, encoding: str) -> Decoded:
    """The text of bytes that name their encoding; as any other text, which may be binary, where it is not known."""
    name = encoding.strip(" \"'").lower().removeprefix("x-")
    if not _ENCODING.fullmatch(name) or raw.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")):
        return decode_text(path, raw)
    # Everybody means Windows' letters by it.
    text = raw.decode("cp1252" if name in ("iso-8859-1", "latin1", "latin-1") else name, "replace")
    return text, ("undecodable bytes were replaced",) if "\ufffd" in text else ()


def read_name(path: str, raw: bytes) -> Decoded:
    """The place of a file, by whose words it is found."""
    return f"{path}\n", ()


def one_line(words: str, most: int = 1_000) -> str:
    """Words on one line of bounded length, without control characters."""
    return " ".join(_CONTROLS.sub("", words[: 4 * most]).split())[:most]


def fenced(code: str, language: str = "") -> str:
    """Code between marks that are longer than any in it."""
    marks = "`" * (max([2, *map(len, re.findall("`{3,}", code))]) + 1)
    return f"{marks}{language}\n{code.rstrip()}\n{marks}"


def as_table(rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table, the first row as its head."""
    lines: list[str] = []
    for row in rows:
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |")
        lines += ["|" + " --- |" * len(row)] * (len(lines) == 1)
    return lines


def finished(parts: Iterable[str], warnings: tuple[str, ...] = (), between: str = "\n\n") -> Decoded:
    """The parts of a text as one that an index can keep, as long as one may be."""
    text = _CONTROLS.sub("", between.join(filter(None, parts)).replace("\r\n", "\n").replace("\r", "\n"))
    if len(text) > MAX_CHARACTERS:
        text, warnings = text[:MAX_CHARACTERS], (*warnings, f"only the first {MAX_CHARACTERS:,} characters are taken")
    return text.encode("utf-8", "replace").decode() + "\n" * (text[-1:] not in ("\n", "")), warnings


def outline_titled(text: str) -> Outline:
    """The outline of markdown that is called as its first heading of level 1, where that comes before all others.

    But for one of level 6: that may be the number of a cell.
    """
    found = outline_markdown(text)
    first = next((heading for heading in found.headings if heading.level < 6), None)
    title = first.text if first is not None and first.level == 1 else None
    return Outline(found.front, found.headings, found.fences, title)
