"""The pictures that notes show, read from the folders of their collections and from nowhere else."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from qmd.errors import NotFoundError
from qmd.names import to_disk
from qmd.records import Collection

PICTURE_TYPES: Mapping[str, str] = {
    "avif": "image/avif",
    "gif": "image/gif",
    "jpeg": "image/jpeg",
    "jpg": "image/jpeg",
    "png": "image/png",
    "svg": "image/svg+xml",
    "webp": "image/webp",
}
"""Suffix → media type of what is taken for a picture."""

MAX_PICTURE_BYTES = 32 * 1024 * 1024


class Picture(Struct, frozen=True):
    """A picture file."""

    media_type: str
    content: bytes


def is_picture(name: str) -> bool:
    """Whether a name is that of a picture, by its suffix."""
    return name.rpartition(".")[2].lower() in PICTURE_TYPES


def read_picture(collections: Sequence[Collection], collection: str, note: str, source: str) -> Picture:
    """The picture that a note shows.

    Args:
        collections: Those whose folders may be read.
        collection: The one that holds the note.
        note: The note's path in it.
        source: As the note writes it: a path from the note's folder, or from the collection's.

    Raises:
        NotFoundError: There is none, it is too large, hidden, or outside the collection's folder, also by a link.
    """
    root = next((one.path for one in collections if one.name == collection), None)
    for path in _places(note, source) if is_picture(source) else ():
        if root is None:
            break
        file = root / to_disk(path)
        if _is_readable(file, root):
            return Picture(PICTURE_TYPES[path.rpartition(".")[2].lower()], file.read_bytes())
    raise NotFoundError(f"no picture '{source}' in collection '{collection}'")


def _places(note: str, source: str) -> Iterator[str]:
    """The paths in the collection that `source` may mean; none that leads out of it, or into what is hidden."""
    for folder in dict.fromkeys((posixpath.dirname(note), "")):
        path = posixpath.normpath(posixpath.join(folder, source.lstrip("/")))
        if "\0" not in path and not any(part.startswith(".") for part in path.split("/")):
            yield path


def _is_readable(file: Path, root: Path) -> bool:
    try:
        real = file.resolve(strict=True)
        return (
            real.is_relative_to(root.resolve())
            and is_picture(real.name)
            and real.is_file()
            and real.stat().st_size <= MAX_PICTURE_BYTES
        )
    except (OSError, RuntimeError):
        # Not there, a name that no file can have, or links in a circle.
        return False
