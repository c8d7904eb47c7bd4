"""What the names of files and the aliases in front matter call a note; light enough for a search to import."""

from __future__ import annotations

import re
from collections.abc import Mapping

from qmd.records import MetadataValue

MAX_ALIASES = 50
MAX_ALIAS_CHARACTERS = 200
# Kept as text: `re` compiles them when a file is first read, and a search never does.
_WORD = r"[^\W\d_]{3}|[^\W\d_A-Za-z]"
_DATE = r"(?<!\d)(?:19|20)\d\d[-_.]?(?:0[1-9]|1[0-2]|[Ww]\d\d|Q[1-4])(?!\d)|(?<!\d)(?:19|20)\d{6}(?!\d)"
_CODE = r"(?=[^\W_]*\d)[0-9a-fA-F]{8,}|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
OF_THE_FOLDER = frozenset({"index", "_index", "readme", "__init__"})
_OF_EVERYBODY = frozenset({"notes", "note", "untitled", "📝 notes"})
"""File names and headings that say what a text is and not what it is about."""


def file_name(path: str) -> str:
    """The name of a file without its folder and its ending: what a wiki link calls the note."""
    name = path.rpartition("/")[2]
    stem, dot, _ = name.rpartition(".")
    return stem if dot and stem else name


def is_telling(name: str) -> bool:
    """Whether a file's name says what the note is about: it holds a word or a date, and is no code or common word."""
    if name.casefold() in OF_THE_FOLDER or is_common(name) or re.fullmatch(_CODE, name):
        return False
    return re.search(_WORD, name) is not None or re.search(_DATE, name) is not None


def aliases_of(metadata: Mapping[str, MetadataValue]) -> tuple[str, ...]:
    """The other names that a note's front matter gives it (`aliases`, `alias`), each once."""
    found: dict[str, None] = {}
    for key in ("aliases", "alias"):
        value = metadata.get(key)
        for alias in value if isinstance(value, tuple) else () if value is None else (str(value),):
            found[" ".join(alias.split())[:MAX_ALIAS_CHARACTERS]] = None
    found.pop("", None)
    return tuple(found)[:MAX_ALIASES]


def is_common(name: str) -> bool:
    """Whether a name or a heading is one that anything may have (`Notes`)."""
    return name.casefold() in _OF_EVERYBODY
