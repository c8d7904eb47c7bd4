"""What notes are called, when two names are the same, and which of the notes of one name a link means."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from functools import lru_cache

from msgspec import Struct

from qmd.analysis.scripts import normalize, without_accents
from qmd.file_names import file_name
from qmd.note_names import is_descriptive, page_path
from qmd.records import Document, NameKind

_BETWEEN = re.compile(r"[^\w+#&@]+|_+")
_ASCII = bytes(ord(_BETWEEN.sub(" ", chr(code)).lower()) for code in range(128)).ljust(256)
"""The same and small letters for each sign of ASCII, which bytes are given ten times as fast."""


@lru_cache(maxsize=1_000)
def name_key(name: str) -> str:
    """A name in the form in which two are equal: case, accents, hyphens, punctuation and emoji do not matter.

    `+` and `#` do (`C++`, `C#`), but for the sign of a tag. A name of nothing but signs stands for itself.
    """
    if name.isascii():
        words = name.encode().translate(_ASCII).split()
        return b" ".join(words).decode().lstrip("#") or name.strip()
    key = " ".join(_BETWEEN.sub(" ", without_accents(normalize(name))).split()).lower().lstrip("#")
    return key or name.strip()


def note_names(document: Document) -> tuple[str, ...]:
    """Title, file name where it says something, and aliases; of equal names the first."""
    file = file_name(document.path)
    named: dict[str, str] = {}
    for name in (document.title, *([file] if is_descriptive(file) else ()), *document.aliases):
        named.setdefault(name_key(name), name)
    return tuple(named.values())


# --- links ----------------------------------------------------------------------------------------

_KINDS: tuple[NameKind, ...] = ("file", "title", "alias")


class NamedNote(Struct, frozen=True, gc=False):
    """A note that has the name: its document, its path as `path_key` writes it, and what the name is there."""

    document_id: int
    place: str
    kind: NameKind


def link_key(target: str) -> str:
    """The name that a link's target ends with, as `name_key` writes names; empty for a link to the note itself."""
    return _key_of(target.rstrip("/").rpartition("/")[2])


@lru_cache(maxsize=10_000)
def _key_of(name: str) -> str:
    """Cached, as the notes of one folder link to one another."""
    return name_key(name[:-3] if name.lower().endswith(".md") else name) if name else ""


def path_key(path: str) -> str:
    """A path in the form in which two are compared: without `.md`, letter case and Unicode's forms."""
    place = normalize(page_path(path)).lower()
    return place[:-3] if place.endswith(".md") else place


def choose_target(target: str, source: str, named: Sequence[NamedNote]) -> int | None:
    """The document that a link means, or None.

    A target with a folder is a path from the note's folder, else from the collection's root, else from above or below
    that root. A mere name is that of a file before a title and an alias; of several notes the one in the same folder,
    else the one with the shortest path.

    Args:
        target: As the link has it.
        source: Path of the note that holds the link.
        named: The notes of the same collection that are called `link_key(target)`.
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
    files = [one for one in named if _is_end(one.place, rooted)]
    files.sort(key=lambda one: (one.place != rooted, *_rank(one, folder)))
    return files[0].document_id if files else None


def _is_end(place: str, wanted: str) -> bool:
    """Whether one path ends with the other; a note at the root is meant by its whole path alone."""
    return f"/{place}".endswith(f"/{wanted}") or ("/" in place and wanted.endswith(f"/{place}"))


def _rank(one: NamedNote, folder: str) -> tuple[int, bool, int, int, str]:
    its_folder = one.place.rpartition("/")[0]
    return _KINDS.index(one.kind), its_folder != folder, one.place.count("/"), len(one.place), one.place
