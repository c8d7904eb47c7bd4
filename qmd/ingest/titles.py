"""What a note is called: its title, the name of its file and its aliases."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct

from qmd.ingest.markdown import MAX_HEADING_CHARACTERS, Structure, plain_text
from qmd.records import Heading, MetadataValue

MAX_ALIASES = 50
_ORG_TITLE = re.compile(r"^#\+TITLE:[ \t]*(\S[^\n]*)", re.M | re.I)
_WORD = re.compile(r"[^\W\d_]{3}|[^\W\d_A-Za-z]")
_DATE = re.compile(r"(?<!\d)(?:19|20)\d\d[-_.]?(?:0[1-9]|1[0-2]|[Ww]\d\d|Q[1-4])(?!\d)|(?<!\d)(?:19|20)\d{6}(?!\d)")
_CODE = re.compile(r"(?=[^\W_]*\d)[0-9a-fA-F]{8,}|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_OF_THE_FOLDER = frozenset({"index", "_index", "readme", "__init__"})
_OF_EVERYBODY = frozenset({"notes", "note", "untitled", "📝 notes"})
"""File names and headings that say what a text is and not what it is about."""


class Title(Struct, frozen=True):
    """A note's title and what it was taken from; `file` for its name or its folder's."""

    text: str
    source: Literal["front matter", "heading", "file"]


def title_of(
    path: str, text: str, structure: Structure, headings: Sequence[Heading], metadata: Mapping[str, MetadataValue]
) -> Title:
    """The title: front matter, else a heading of level 1 that stands above the whole text, else the file's name.

    A file name that says nothing (`index`, `3f9a01c2`, `12`) gives way to the first heading of level 1 or 2, and that
    of an index to its folder's name. Whether a heading names many notes alike only the index knows.
    """
    named = metadata.get("title")
    if isinstance(named, (str, int, float)) and not isinstance(named, bool) and str(named).strip():
        return Title(plain_text(" ".join(str(named).split())), "front matter")
    if structure == "org":
        match = _ORG_TITLE.search(text)
        if match:
            return Title(match[1].strip()[:MAX_HEADING_CHARACTERS], "heading")
    name = file_name(path)
    heading = _top_heading(headings) if structure != "plain" else None
    if heading is None and structure != "plain" and not is_telling(name):
        heading = next((h.text for h in headings if h.level <= 2 and not _is_common(h.text)), None)
    if heading is not None:
        return Title(heading, "heading")
    folder = path.rpartition("/")[0].rpartition("/")[2]
    return Title(folder if folder and name.casefold() in _OF_THE_FOLDER else name, "file")


def file_name(path: str) -> str:
    """The name of a file without its folder and its ending: what a wiki link calls the note."""
    name = path.rpartition("/")[2]
    stem, dot, _ = name.rpartition(".")
    return stem if dot and stem else name


def is_telling(name: str) -> bool:
    """Whether a file's name says what the note is about: it holds a word or a date, and is no code or common word."""
    if name.casefold() in _OF_THE_FOLDER or _is_common(name) or _CODE.fullmatch(name):
        return False
    return _WORD.search(name) is not None or _DATE.search(name) is not None


def aliases_of(metadata: Mapping[str, MetadataValue]) -> tuple[str, ...]:
    """The other names that a note's front matter gives it (`aliases`, `alias`), each once."""
    found: dict[str, None] = {}
    for key in ("aliases", "alias"):
        value = metadata.get(key)
        for alias in value if isinstance(value, tuple) else () if value is None else (str(value),):
            found[" ".join(alias.split())[:MAX_HEADING_CHARACTERS]] = None
    found.pop("", None)
    return tuple(found)[:MAX_ALIASES]


def _top_heading(headings: Sequence[Heading]) -> str | None:
    """The text's one heading of level 1, where no other precedes it; several of them are the parts of a text."""
    if not headings or headings[0].level != 1 or _is_common(headings[0].text):
        return None
    return headings[0].text if all(heading.level > 1 for heading in headings[1:]) else None


def _is_common(text: str) -> bool:
    return text.casefold() in _OF_EVERYBODY
