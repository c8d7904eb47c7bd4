"""Shared parts of all readers: encodings, front matter, fenced code, and the bound of a text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from qmd.ingest.document import decode_text
from qmd.ingest.outline import Outline, outline_markdown

Decoded = tuple[str, tuple[str, ...]]
"""A text, and warnings about its bytes."""

MAX_CHARACTERS = 4_000_000
"""Limit of the text of one file: the longest novels have three million."""

_ENCODING = re.compile(
    r"iso-?8859-?\d{1,2}|latin-?\d|(windows-|cp)\d{3,4}|koi8-?[ru]|gb-?(2312|k|18030)|big5|euc-?(jp|kr|cn)"
    r"|s(hift)?[_-]?jis|iso-?2022-?(jp|kr)|mac-?roman",
    re.I,
)
"""Text encodings besides UTF-8. Others take more than linear time (`punycode`) or mean something else."""

_CONTROLS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


def decode_as(path: str, raw: bytes, encoding: str) -> Decoded:
    """Decode bytes by their named encoding; with an unknown one as any other text, which may be binary."""
    name = encoding.strip(" \"'").lower().removeprefix("x-")
    if not _ENCODING.fullmatch(name) or raw.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")):
        return decode_text(path, raw)
    # By these names files mean Windows' encoding.
    text = raw.decode("cp1252" if name in ("iso-8859-1", "latin1", "latin-1") else name, "replace")
    return text, ("undecodable bytes were replaced",) if "\ufffd" in text else ()


def read_name(path: str, raw: bytes) -> Decoded:
    """Return the path of a file, whose words find it."""
    return f"{path}\n", ()


def one_line(words: str, most: int = 1_000) -> str:
    """Return words on one line of bounded length, without control characters."""
    return " ".join(_CONTROLS.sub("", words[: 4 * most]).split())[:most]


def fence_code(code: str, language: str = "") -> str:
    """Fence code with marks longer than any in it."""
    marks = "`" * (max([2, *map(len, re.findall("`{3,}", code))]) + 1)
    return f"{marks}{language}\n{code.rstrip()}\n{marks}"


def table_lines(rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table, the first row as its head."""
    lines: list[str] = []
    for row in rows:
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |")
        lines += ["|" + " --- |" * len(row)] * (len(lines) == 1)
    return lines


def join_parts(parts: Iterable[str], warnings: tuple[str, ...] = (), between: str = "\n\n") -> Decoded:
    """Join the parts of a text without control characters, up to the limit."""
    text = _CONTROLS.sub("", between.join(filter(None, parts)).replace("\r\n", "\n").replace("\r", "\n"))
    if len(text) > MAX_CHARACTERS:
        text, warnings = text[:MAX_CHARACTERS], (*warnings, f"only the first {MAX_CHARACTERS:,} characters are taken")
    return text.encode("utf-8", "replace").decode() + "\n" * (text[-1:] not in ("\n", "")), warnings


def outline_titled(text: str) -> Outline:
    """Return the outline of markdown, titled by a heading of level 1 if that comes before all others.

    Except headings of level 6: they may be the number of a cell.
    """
    found = outline_markdown(text)
    first = next((heading for heading in found.headings if heading.level < 6), None)
    title = first.text if first is not None and first.level == 1 else None
    return Outline(found.front, found.headings, found.fences, title)
