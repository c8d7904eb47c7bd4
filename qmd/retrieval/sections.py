"""The part of a note that a link names: below a heading, or a block."""

from __future__ import annotations

import re

from msgspec import Struct

from qmd.analysis.note_names import name_key
from qmd.errors import NotFoundError
from qmd.ingest.outline import read_outline
from qmd.records import Heading, StoredDocument

_HEADINGS_NAMED = 10
_BORDER = re.compile(r"\s*(?:\Z|#{1,6}\s)")
_ITEM = re.compile(r"\s*(?:[-*+]|\d+[.)])\s")


class Section(Struct, frozen=True):
    """Some lines of a text: the first, from 1, and how many."""

    start: int
    count: int


def find_section(document: StoredDocument, text: str, fragment: str) -> Section:
    """The lines that `Heading`, `Heading#Subheading` or `^block` means: a heading's to the next of its level.

    Raises:
        NotFoundError: The note has no such part; the hint names its headings.
    """
    found = _block(text, fragment) if fragment.startswith("^") else None
    headings = read_outline(document.path, text).headings
    if found is None and not fragment.startswith("^"):
        found = _below(text, headings, [name_key(part) for part in fragment.split("#") if part.strip()])
    if found is not None:
        return found
    named = ", ".join(f"'{heading.text}'" for heading in headings[:_HEADINGS_NAMED])
    kind = "block" if fragment.startswith("^") else "heading"
    hint = f"its headings: {named}" if named else f"qmd get {document.docid}"
    raise NotFoundError(f"'{document.uri}' has no {kind} '{fragment.removeprefix('^')}'", hint)


def _below(text: str, headings: tuple[Heading, ...], wanted: list[str]) -> Section | None:
    """The section of the last of the headings `wanted`, each looked for below the one before."""
    start, end = 0, len(headings)
    for key in wanted:
        found = next((i for i in range(start, end) if name_key(headings[i].text) == key), None)
        if found is None:
            return None
        end = next((i for i in range(found + 1, end) if headings[i].level <= headings[found].level), end)
        start = found + 1
    if not start:
        return None
    first = text.count("\n", 0, headings[start - 1].offset) + 1
    offset = headings[end].offset if end < len(headings) else len(text)
    return Section(first, len(text[headings[start - 1].offset : offset].rstrip().split("\n")))


def _block(text: str, fragment: str) -> Section | None:
    """The paragraph or list item whose last line ends with the block's name, or stands above a line of only that."""
    lines = text.split("\n")
    last = next(
        (i for i, line in enumerate(lines) if line.rstrip().endswith(fragment) and _is_mark(line, fragment)), None
    )
    if last is None:
        return None
    if lines[last].strip() == fragment:
        above = last - 1
        while above > 0 and not lines[above].strip():
            above -= 1
        last = max(above, 0)
    first = last
    while first > 0 and not _ITEM.match(lines[first]) and not _BORDER.match(lines[first - 1]):
        first -= 1
    return Section(first + 1, last - first + 1)


def _is_mark(line: str, fragment: str) -> bool:
    before = line.rstrip().removesuffix(fragment)
    return not before or before[-1].isspace()
