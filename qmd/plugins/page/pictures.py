"""Pictures in notes, read only from the folders of their collections."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence

from msgspec import Struct

from qmd.errors import NotFoundError, QmdError
from qmd.file_names import to_disk, to_text
from qmd.files import read_regular_file
from qmd.ingest.exclusion import find_exclusion
from qmd.records import Collection
from qmd.render.note_marks import PICTURE_TYPES, is_picture

MAX_PICTURE_BYTES = 32 * 1024 * 1024


class Picture(Struct, frozen=True):
    media_type: str
    content: bytes


def read_picture(collections: Sequence[Collection], collection: str, note: str, source: str) -> Picture:
    """Read a picture that a note shows.

    Args:
        collections: Collections whose folders may be read.
        collection: Name of the note's collection.
        note: The note's path in it.
        source: Path in the note, relative to the note's folder or the collection's.

    Raises:
        NotFoundError: It does not exist, is too large, or lies outside the folder, hidden or ignored.
    """
    for place in (one for one in collections if one.name == collection and is_picture(source)):
        for folder in dict.fromkeys((posixpath.dirname(note), "")):
            path = posixpath.normpath(posixpath.join(folder, source.lstrip("/")))
            content = _read(place, path)
            if content is not None:
                return Picture(PICTURE_TYPES[path.rpartition(".")[2].lower()], content)
    raise NotFoundError(f"no picture '{source}' in collection '{collection}'")


def _read(collection: Collection, path: str) -> bytes | None:
    """Return a picture's content; None if it is missing, or the collection excludes the file or a link's target."""
    try:
        root = collection.path.resolve()
        real = (root / to_disk(path)).resolve(strict=True)
        inside = to_text(real.relative_to(root).as_posix())
        if not is_picture(inside) or find_exclusion(collection, inside, is_document=False):
            return None
        content = read_regular_file(real, MAX_PICTURE_BYTES + 1)
    except (OSError, RuntimeError, ValueError, QmdError):
        # Missing, an invalid name, circular links, outside the folder, an endless ignore file.
        return None
    return content if len(content) <= MAX_PICTURE_BYTES else None
