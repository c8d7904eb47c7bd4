"""An EPUB → its chapters in reading order. Names in its archive are only compared."""

from __future__ import annotations

import posixpath
import zlib
from io import BytesIO
from itertools import pairwise
from urllib.parse import unquote
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile

from qmd.errors import UnindexableFileError
from qmd.plugins.readers.markup import attributes_of, expand, front_matter, read_page, tokenize
from qmd.plugins.readers.texts import MAX_CHARACTERS, Decoded, decode_as, join_parts, one_line

_MOST, _MOST_OF_CONTENTS = 2 * MAX_CHARACTERS, 2_000_000
"""Unpacked bytes of all chapters, and of their list."""
_SURPRISES = (BadZipFile, EOFError, LookupError, OSError, RuntimeError, UnindexableFileError, ValueError, zlib.error)


def read_epub(path: str, raw: bytes) -> Decoded:
    """Return a book as markdown, its title and author as front matter."""
    try:
        archive = ZipFile(BytesIO(raw))
        container = _elements(_read(archive, "META-INF/container.xml", _MOST_OF_CONTENTS))
        root = next((found["full-path"] for _, found, _ in container if "full-path" in found), "")
        contents = _elements(_read(archive, root, _MOST_OF_CONTENTS))
    except _SURPRISES as exc:
        message = f"'{path}' cannot be read as a book: {one_line(str(exc), 100)}"
        raise UnindexableFileError(message, "failed", "exclude it with a .qmdignore file") from exc
    metadata = {name: words for name, _, words in reversed(contents) if words}
    places = {found.get("id"): found.get("href", "") for name, found, _ in contents if name == "item"}
    spine = (places.get(found.get("idref"), "") for name, found, _ in contents if name == "itemref")
    parts = [front_matter(metadata.get("title", ""), author=metadata.get("creator", ""))]
    left, warnings = _MOST, dict[str, None]()
    for place in dict.fromkeys(posixpath.normpath(f"{posixpath.dirname(root)}/{unquote(one)}") for one in spine):
        try:
            text = _read(archive, place.lstrip("/"), left)
            parts.append(read_page(text, True)[1])
            left -= len(text)
        except _SURPRISES as exc:
            warnings[f"skipped a chapter: {one_line(str(exc), 100)}"] = None
    return join_parts(parts, tuple(warnings)[:5])


def _read(archive: ZipFile, name: str, most: int) -> str:
    """Return at most `most` bytes of a text in an archive."""
    entry = archive.getinfo(name)
    if most <= 0 or entry.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
        raise BadZipFile("it unpacks to too much" if most <= 0 else f"'{name}' is packed in another way")
    with archive.open(entry) as stream:
        return decode_as(name, stream.read(most), "")[0]


def _elements(text: str) -> list[tuple[str, dict[str, str], str]]:
    """Return (name without prefix, attributes, text) of the elements of XML."""
    marks = ((name, words, after[2]) for (name, words, _), after in pairwise(tokenize(text)) if name and name[0] != "/")
    return [(name.rpartition(":")[2], attributes_of(words), one_line(expand(text))) for name, words, text in marks]
