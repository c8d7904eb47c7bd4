"""Names that a file name or front matter gives to a note."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

MAX_ALIASES = 50


MAX_ALIAS_CHARACTERS = 200


_WORD = r"[^\W\d_]{3}|[^\W\d_A-Za-z]"


_DATE = r"(?<!\d)(?:19|20)\d\d[-_.]?(?:0[1-9]|1[0-2]|[Ww]\d\d|Q[1-4])(?!\d)|(?<!\d)(?:19|20)\d{6}(?!\d)"


_CODE = r"(?=[^\W_]*\d)[0-9a-fA-F]{8,}|(?:rollout-[\dT-]{20})?[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"


_JOURNAL = r"(\d{4})_(0[1-9]|1[0-2])_([0-3]\d)"


_NUMBER = r"[0-9]{10,17}(?=[ _-])"
"""Timestamp of a note's creation, which links in a Zettelkasten use."""


_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


OF_THE_FOLDER = frozenset({"index", "_index", "readme", "__init__"})


_GENERIC = frozenset({"notes", "note", "untitled", "📝 notes"})
"""File names and headings that name the type of a text, not its subject."""


def page_path(path: str) -> str:
    """Return a path with the namespaces in a file name as folders: `pages/a/b?.md` for Logseq's `pages/a___b%3F.md`."""
    if "___" not in path and "%" not in path:
        return path
    from urllib.parse import unquote

    return unquote(path.replace("___", "/"))


def page_aliases(name: str) -> Iterator[str]:
    """Yield other names of a note that programs derive from its file name: without namespace, journal day, number."""
    if (page := page_path(name)) != name:
        yield from (page, page.rpartition("/")[2])
    elif (number := re.match(_NUMBER, name)) is not None:
        yield number[0]
    elif (day := re.fullmatch(_JOURNAL, name)) is not None:
        k = int(day[3])
        ending = "th" if k in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(k % 10, "th")
        yield f"{_MONTHS[int(day[2]) - 1]} {k}{ending}, {day[1]}"


def is_descriptive(name: str) -> bool:
    """Return whether a file name describes the note: it contains a word or a date, and is no code or common word."""
    if name.casefold() in OF_THE_FOLDER or is_common(name) or re.fullmatch(_CODE, name):
        return False
    return re.search(_WORD, name) is not None or re.search(_DATE, name) is not None


def aliases_of(metadata: Mapping[str, object]) -> tuple[str, ...]:
    """Return the other names in front matter (`aliases`, `alias`), each once."""
    found: dict[str, None] = {}
    for key in ("aliases", "alias"):
        value = metadata.get(key)
        for alias in value if isinstance(value, tuple) else () if value is None else (str(value),):
            found[" ".join(alias.split())[:MAX_ALIAS_CHARACTERS]] = None
    found.pop("", None)
    return tuple(found)[:MAX_ALIASES]


def is_common(name: str) -> bool:
    """Return whether a name or heading is generic (`Notes`)."""
    return name.casefold() in _GENERIC
