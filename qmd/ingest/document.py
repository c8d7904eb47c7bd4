"""Bytes of a file → `Document`."""

from __future__ import annotations

import codecs
import hashlib

from qmd.file_names import aliases_of
from qmd.files import read_regular_file
from qmd.ingest.errors import UnindexableFileError
from qmd.ingest.links import MAX_LINKS, find_links
from qmd.ingest.markdown import MAX_HEADINGS, MAX_TAGS, find_tags
from qmd.ingest.note_dates import dates_of
from qmd.ingest.outline import read_outline
from qmd.ingest.titles import title_of
from qmd.records import Document, FileEntry, MetadataValue

MAX_SIZE_BYTES = 10 * 1024 * 1024
"""Larger files are data, not notes: one of them would fill the index and name nothing."""

_SNIFFED_BYTES = 8192


def read_document(entry: FileEntry, *, max_size_bytes: int = MAX_SIZE_BYTES) -> Document:
    """The parsed file of a scan.

    Raises:
        UnindexableFileError: If the file cannot be read, is binary, or is larger than `max_size_bytes`.
    """
    return parse_document(entry.path, _read(entry, max_size_bytes))


def read_hash(entry: FileEntry) -> str:
    """The hash that the document of a file has, unparsed; raises as `read_document` does."""
    return _decode(entry.path, _read(entry, MAX_SIZE_BYTES))[1]


def _read(entry: FileEntry, max_size_bytes: int) -> bytes:
    try:
        raw = b"" if entry.size_bytes > max_size_bytes else read_regular_file(entry.absolute, max_size_bytes + 1)
    except OSError as exc:
        raise UnindexableFileError(
            f"cannot read '{entry.path}': {exc.strerror or exc}", "unreadable", "check the file's permissions"
        ) from exc
    if (size := max(entry.size_bytes, len(raw))) > max_size_bytes:
        raise UnindexableFileError(
            f"'{entry.path}' has {size:,} bytes, more than the limit of {max_size_bytes:,}",
            "too_large",
            "exclude it with the collection's ignore list or a .qmdignore file",
        )
    return raw


def parse_document(path: str, raw: bytes) -> Document:
    """The document in `raw`; `path` gives the format (by extension) and the title of last resort.

    UTF-8 (UTF-16 where a byte order mark says so) with U+FFFD and a warning for invalid bytes; a byte order mark is
    dropped. Whitespace alone gives an empty text, so that it replaces what the index held.

    Raises:
        UnindexableFileError: If the bytes are binary (a NUL in the first 8 KiB).
    """
    text, text_hash, warnings = _decode(path, raw)
    outline = read_outline(path, text)
    structure, headings, code = outline.structure, outline.headings, outline.fences
    metadata, body_offset = outline.front.metadata, outline.front.body_offset
    warnings += outline.front.warnings
    tags = find_tags(text, body_offset, code) if structure == "markdown" else ()
    links = find_links(text, code) if structure == "markdown" else ()
    limits = ((headings, MAX_HEADINGS, "headings"), (tags, MAX_TAGS, "tags"), (links, MAX_LINKS, "links"))
    for found, limit, what in limits:
        if len(found) == limit:
            warnings = (*warnings, f"only the first {limit:,} {what} are taken")
    if tags:
        metadata["tags"] = tuple(dict.fromkeys((*_as_tuple(metadata.get("tags")), *tags)))
    title = title_of(path, text, structure, headings, metadata)
    dates = dates_of(path, metadata, headings if structure != "plain" else (), title.text)
    return Document(
        path=path,
        title=title.text,
        title_source=title.source,
        aliases=aliases_of(metadata),
        text=text,
        hash=text_hash,
        body_offset=body_offset,
        headings=headings,
        metadata=metadata,
        date=dates.own,
        dates=dates.all,
        links=links,
        warnings=warnings,
    )


def _decode(path: str, raw: bytes) -> tuple[str, str, tuple[str, ...]]:
    """The text of a file, its hash, and what was wrong with its bytes."""
    encoding = "utf-8"
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encoding = "utf-16"
    elif b"\0" in raw[:_SNIFFED_BYTES]:
        raise UnindexableFileError(
            f"'{path}' is binary", "binary", "narrow the collection's mask, or add it to the ignore list"
        )
    warnings: tuple[str, ...] = ()
    try:
        text = raw.decode(encoding).removeprefix("\ufeff")
    except UnicodeDecodeError:
        text = raw.decode(encoding, errors="replace").removeprefix("\ufeff")
        warnings = (f"not valid {encoding.upper()}: undecodable bytes were replaced",)
    text = "" if text.isspace() else text
    return text, hashlib.sha256(text.encode("utf-8")).hexdigest(), warnings


def _as_tuple(value: MetadataValue | None) -> tuple[str, ...]:
    if value is None or value == "":
        return ()
    return value if isinstance(value, tuple) else (str(value),)
