"""The pictures that notes show, read from the folders of their collections and from nowhere else."""

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
    """A picture file."""

    media_type: str
    content: bytes


def read_picture(collections: Sequence[Collection], collection: str, note: str, source: str) -> Picture:
    """The picture that a note shows.

    Args:
        collections: Those whose folders may be read.
        collection: The one that holds the note.
        note: The note's path in it.
        source: As the note writes it: a path from the note's folder, or from the collection's.

    Raises:
        NotFoundError: There is none, it is too large, or lies where no note would be taken: outside, hidden, ignored.
    """
    for place in (one for one in collections if one.name == collection and is_picture(source)):
        for folder in dict.fromkeys((posixpath.dirname(note), "")):
            path = posixpath.normpath(posixpath.join(folder, source.lstrip("/")))
            content = _read(place, path)
            if content is not None:
                return Picture(PICTURE_TYPES[path.rpartition(".")[2].lower()], content)
    raise NotFoundError(f"no picture '{source}' in collection '{collection}'")


def _read(collection: Collection, path: str) -> bytes | None:
    """A picture's content; None where there is none that the collection's rules let see, also behind a link."""
    try:
        root = collection.path.resolve()
        real = (root / to_disk(path)).resolve(strict=True)
        inside = to_text(real.relative_to(root).as_posix())
        if not is_picture(inside) or find_exclusion(collection, inside, is_document=False):
            return None
        content = read_regular_file(real, MAX_PICTURE_BYTES + 1)
    except (OSError, RuntimeError, ValueError, QmdError):
        # Not there, a name that no file can have, links in a circle, outside, an ignore file without end.
        return None
    return content if len(content) <= MAX_PICTURE_BYTES else None
