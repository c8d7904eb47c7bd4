"""Names of notes, their comparison, and the target of a link."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from functools import lru_cache

from msgspec import Struct

from qmd.analysis.scripts import normalize, without_accents
from qmd.note_names import is_descriptive, page_path
from qmd.records import Document, NameKind

_SEPARATORS = re.compile(r"[^\w+#&@]+|_+")
_ASCII = bytes(ord(_SEPARATORS.sub(" ", chr(code)).lower()) for code in range(128)).ljust(256)
"""The lower-case form of each ASCII character, which bytes are mapped to ten times as fast."""


@lru_cache(maxsize=1_000)
def name_key(name: str) -> str:
    """Normalise a name for comparison: case, accents, hyphens, punctuation and emoji do not matter.

    `+` and `#` do (`C++`, `C#`), except the sign of a tag. A name of signs alone stays as it is.
    """
    if name.isascii():
        key = b" ".join(name.encode().translate(_ASCII).split()).decode()
    else:
        key = " ".join(_SEPARATORS.sub(" ", without_accents(normalize(name))).split()).lower()
    return key.lstrip("#") or name.strip()


def note_names(document: Document) -> tuple[str, ...]:
    """Return title, descriptive file name and aliases; of equal names the first."""
    names: dict[str, str] = {}
    for name in (document.title, *([document.name] if is_descriptive(document.name) else ()), *document.aliases):
        names.setdefault(name_key(name), name)
    return tuple(names.values())


def name_kinds(document: Document) -> dict[str, NameKind]:
    """Return the keys of all names of a document; the first meaning of a key counts."""
    kinds: dict[str, NameKind] = {name_key(document.name): "file"}
    # Markdown alone is linked to without its ending.
    if not document.path.lower().endswith(".md"):
        kinds.setdefault(name_key(document.path.rpartition("/")[2]), "file")
    kinds.setdefault(name_key(document.title), "title")
    for alias in (*document.aliases, *document.labels):
        kinds.setdefault(name_key(alias), "alias")
    return kinds


_KINDS: tuple[NameKind, ...] = ("file", "title", "alias")


class NamedNote(Struct, frozen=True, gc=False):
    """A note with a given name: its document, its path in the form of `path_key`, and the kind of that name."""

    document_id: int
    place: str
    kind: NameKind


def link_key(target: str) -> str:
    """Return the last name in a link's target, in the form of `name_key`; empty for a link to the note itself."""
    return _cached_key(target.rstrip("/").rpartition("/")[2])


@lru_cache(maxsize=10_000)
def _cached_key(name: str) -> str:
    """Cached, as the notes of one folder link to one another."""
    return name_key(name[:-3] if name.lower().endswith(".md") else name) if name else ""


def path_key(path: str) -> str:
    """Normalise a path for comparison: no `.md`, letter case or Unicode form."""
    place = normalize(page_path(path)).lower()
    return place[:-3] if place.endswith(".md") else place


def choose_target(target: str, source: str, named: Sequence[NamedNote]) -> int | None:
    """Return the document that a link means, or None.

    A target with a folder is a path from the note's folder, else from the collection's root, else from above or below
    that root. A mere name is that of a file before a title and an alias; of several notes the one in the same folder,
    else the one with the shortest path.

    Args:
        target: As written in the link.
        source: Path of the note with the link.
        named: The notes of the same collection with the name `link_key(target)`.
    """
    folder = path_key(source).rpartition("/")[0]
    if "/" not in target:
        best = min(named, key=lambda one: _rank(one, folder), default=None)
        return best.document_id if best is not None else None
    wanted = path_key(target).rstrip("/")
    rooted = posixpath.normpath(wanted.lstrip("/"))
    if not wanted.startswith("/"):
        relative = posixpath.normpath(posixpath.join(folder, wanted))
        for one in named:
            if one.place == relative:
                return one.document_id
    while rooted.startswith("../"):
        rooted = rooted[3:]
    files = [one for one in named if _is_suffix(one.place, rooted)]
    files.sort(key=lambda one: (one.place != rooted, *_rank(one, folder)))
    return files[0].document_id if files else None


def _is_suffix(place: str, wanted: str) -> bool:
    """Return whether one path ends with the other; a note at the root only matches its whole path."""
    return f"/{place}".endswith(f"/{wanted}") or ("/" in place and wanted.endswith(f"/{place}"))


def _rank(one: NamedNote, folder: str) -> tuple[int, bool, int, int, str]:
    its_folder = one.place.rpartition("/")[0]
    return _KINDS.index(one.kind), its_folder != folder, one.place.count("/"), len(one.place), one.place
