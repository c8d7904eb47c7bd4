"""Parse the bytes of a file into a `Document`."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Sequence
from typing import Literal, cast

from msgspec import Struct

from qmd.errors import UnindexableFileError
from qmd.file_names import file_name, suffix_of
from qmd.files import read_regular_file, sha256
from qmd.ingest.links import MAX_LINKS, find_links
from qmd.ingest.markdown import MAX_HEADINGS, MAX_TAGS, find_tags, plain_text
from qmd.ingest.note_dates import dates_of
from qmd.ingest.outline import Outline, read_outline
from qmd.note_names import OF_THE_FOLDER, aliases_of, is_common, is_descriptive, page_aliases, page_path
from qmd.plugins import Kind, load
from qmd.records import Document, FileEntry, Heading
from qmd.status import LICENCE, NO_READER, TEMPLATE

MAX_SIZE_BYTES = 10 * 1024 * 1024
"""Limit for text. Larger files are data, not notes: one of them would fill the index and name nothing."""

MAX_CONVERTED_BYTES = 64 * 1024 * 1024
"""Limit for files that a separate process converts to text: pictures and fonts are most of their bytes."""

_SNIFFED_BYTES = 8192

PAGES = (".html", ".htm", ".xhtml")
BOILERPLATE_PATH = re.compile(
    r"(?:.*/)?(?:(?:[\w.-]*[-_])?(?:requirements|constraints)[\w.-]*\.txt|(?:robots|humans|ads|CMakeLists)\.txt"
    r"|(?:SOURCES|entry_points|top_level|requires|dependency_links)\.txt|[Ll]icen[cs]e\.txt"
    r"|(?:UN)?(?:LICEN[CS]E|COPYING|COPYRIGHT|NOTICE|PATENTS)[\w.-]*\.(?:txt|md|rst|html))"
)
"""Paths of texts that every project has; a note has spaces, or a capital, in such a name."""

_TEMPLATE_MARK = re.compile(
    rb"[<{](?:(?<=<)(?:(?P<end>/?)(?P<name>script|style|pre|code|tt|kbd|samp|textarea|math|title)\b|\?(?:php|=|\s)|%[=@\s-])"
    rb"|(?<=\{)(?:%-?\s*\w|(?<![\\^_{}]\{)\{\{?[^{}\\\n]{2,200}\}\}))",
    re.I,
)
"""Marks of templates, and elements whose text may quote them. `{{n}}` and `^{{ab}}` are formulas."""


def read_document(entry: FileEntry, kind: Kind) -> Document:
    """Return the parsed file of a scan.

    Raises:
        UnindexableFileError: The file cannot be read, is too large, lacks an installed reader, or is not of its kind.
    """
    if kind.is_missing:
        raise UnindexableFileError(NO_READER, "unreadable")
    raw = _read(entry, kind)
    if entry.is_prose and BOILERPLATE_PATH.fullmatch(entry.path):
        raise UnindexableFileError(LICENCE, "no_prose")
    if entry.is_prose and is_template(suffix_of(entry.path), raw):
        raise UnindexableFileError(TEMPLATE, "no_prose")
    text, warnings = decode_file(entry.path, kind, raw)
    return parse_text(entry.path, kind, text, warnings)


def is_template(suffix: str, raw: bytes) -> bool:
    """Return whether text begins with a mark of a template language, or HTML has one outside scripts and quotations."""
    if suffix not in PAGES:
        return suffix == ".txt" and raw[:999].lstrip().startswith((b"{%", b"{{", b"<?php"))
    quoting = b""
    for mark in _TEMPLATE_MARK.finditer(raw):
        name = (mark["name"] or b"").lower()
        if not quoting and not name:
            return True
        quoting = b"" if mark["end"] and name == quoting else quoting or b"" if mark["end"] else quoting or name
    return False


def read_hash(entry: FileEntry, kind: Kind) -> str:
    """Return the hash that the document of a file has, unparsed; raises as `read_document` does."""
    return _hash(decode_file(entry.path, kind, _read(entry, kind))[0])


def _read(entry: FileEntry, kind: Kind) -> bytes:
    if kind.is_name:
        return b""
    max_size_bytes = MAX_CONVERTED_BYTES if kind.needs or kind.is_bulky else MAX_SIZE_BYTES
    try:
        raw = b"" if entry.size_bytes > max_size_bytes else read_regular_file(entry.absolute, max_size_bytes + 1)
    except OSError as exc:
        raise UnindexableFileError(f"cannot read '{entry.path}': {exc.strerror or exc}", "unreadable") from exc
    if (size := max(entry.size_bytes, len(raw))) > max_size_bytes:
        message = f"'{entry.path}' has {size:,} bytes, more than the limit of {max_size_bytes:,}"
        raise UnindexableFileError(message, "too_large")
    return raw


def decode_file(path: str, kind: Kind, raw: bytes) -> tuple[str, tuple[str, ...]]:
    """Return the text of a file and what was wrong with its bytes.

    Whitespace alone gives an empty text, so that it replaces the text in the index.

    Raises:
        UnindexableFileError: The bytes are not those of a file of this kind.
    """
    # As for `read_outline`.
    decode = cast("Callable[[str, bytes], tuple[str, tuple[str, ...]]]", load(kind.decode))
    text, warnings = decode(path, raw)
    return "" if text.isspace() else text, warnings


def parse_text(path: str, kind: Kind, text: str, warnings: tuple[str, ...] = ()) -> Document:
    """Return the document of a text, from a file or from the index; `warnings` come from its decoding."""
    name, outline = file_name(path), read_outline(kind, text)
    headings, front = outline.headings, outline.front
    metadata = front.metadata
    tags: tuple[str, ...] = ()
    links = outline.links
    if kind.is_markdown:
        tags = find_tags(text, front.body_offset, outline.fences)
        links = find_links(text, outline.fences)
    limits = ((headings, MAX_HEADINGS, "headings"), (tags, MAX_TAGS, "tags"), (links, MAX_LINKS, "links"))
    for found, limit, what in limits:
        if len(found) == limit:
            warnings = (*warnings, f"only the first {limit:,} {what} are taken")
    if tags:
        known = metadata.get("tags")
        known = known if isinstance(known, tuple) else () if known in (None, "") else (str(known),)
        metadata["tags"] = tuple(dict.fromkeys((*known, *tags)))
    title = _choose_title(path, name, outline)
    dates = dates_of(path, name, metadata, headings, title.text)
    return Document(
        path=path,
        name=name,
        title=title.text,
        title_source=title.source,
        aliases=aliases_of(metadata),
        labels=(*outline.labels, *page_aliases(name)),
        text=text,
        hash=_hash(text),
        body_offset=front.body_offset,
        headings=headings,
        metadata=metadata,
        date=dates.own,
        dates=dates.all,
        links=links,
        warnings=warnings + front.warnings,
        unread_line=front.unread_line,
    )


def _hash(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass"))


def decode_text(path: str, raw: bytes) -> tuple[str, tuple[str, ...]]:
    """Return the text in `raw` and warnings about its bytes.

    UTF-8, or UTF-16 after its byte order mark, with U+FFFD and a warning for invalid bytes; the mark is dropped.

    Raises:
        UnindexableFileError: If the bytes are binary (a NUL in the first 8 KiB), or too many for text.
    """
    if len(raw) > MAX_SIZE_BYTES:
        raise UnindexableFileError(f"'{path}' has {len(raw):,} bytes, more than {MAX_SIZE_BYTES:,}", "too_large")
    encoding = "utf-8"
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encoding = "utf-16"
    elif b"\0" in raw[:_SNIFFED_BYTES]:
        raise UnindexableFileError(f"'{path}' is binary", "binary")
    try:
        return raw.decode(encoding).removeprefix("\ufeff"), ()
    except UnicodeDecodeError:
        text = raw.decode(encoding, errors="replace").removeprefix("\ufeff")
        return text, (f"not valid {encoding.upper()}: undecodable bytes were replaced",)


class _Title(Struct, frozen=True):
    """Title of a note and its source; `file` for the name of its file or folder."""

    text: str
    source: Literal["front matter", "heading", "file"]


def _title_heading(page: str, headings: Sequence[Heading]) -> str | None:
    # Several headings of level 1 are the parts of a text.
    is_single = bool(headings) and headings[0].level == 1 and all(one.level > 1 for one in headings[1:])
    if is_single and not is_common(headings[0].text):
        return headings[0].text
    if is_descriptive(page):
        return None
    return next((h.text for h in headings if h.level <= 2 and not is_common(h.text)), None)


def _choose_title(path: str, name: str, outline: Outline) -> _Title:
    """Return the title: front matter, else the text's own title, else a heading of level 1 above all others.

    Else the name of the file. A name without meaning (`index`, `3f9a01c2`, `12`) is replaced by the first heading of
    level 1 or 2, and the name of an index by the name of its folder. Only the index knows whether a heading names many
    notes alike.
    """
    given = outline.front.metadata.get("title")
    if isinstance(given, (str, int, float)) and not isinstance(given, bool) and str(given).strip():
        return _Title(plain_text(" ".join(str(given).split())), "front matter")
    page = page_path(name)
    heading = outline.title or _title_heading(page, outline.headings)
    if heading is not None:
        return _Title(heading, "heading")
    folder = path.rpartition("/")[0].rpartition("/")[2]
    return _Title(folder if folder and page.casefold() in OF_THE_FOLDER else page, "file")
