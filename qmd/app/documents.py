"""Documents by name: which one a reference means, which of its lines, and what a place holds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from qmd.app.records import DocumentText, DocumentTexts, Listing, SkippedDocument
from qmd.errors import NotFoundError, UsageError, collection_not_found
from qmd.names import places_on_disk, split_address, without_scheme
from qmd.records import Collection, Scope, StoredDocument
from qmd.retrieval.lookup import context_for, resolve_lines, resolve_words, split_wiki_link

if TYPE_CHECKING:
    from qmd.store.base import IndexReader

MAX_DOCUMENTS = 1_000
MAX_ANSWER_CHARS = 16 * 1024 * 1024
"""Texts of one `multi_get` together: four million tokens, more than any model reads."""


def fetch_document(
    reader: IndexReader,
    reference: str,
    from_line: int | None = None,
    max_lines: int | None = None,
    folder: Path | None = None,
) -> DocumentText:
    """One document or some of its lines. Only indexed documents are found, whatever the path says.

    The last line break of a text ends a line; it does not begin one.

    Raises:
        NotFoundError: Nothing fits; the hint names similar paths, or the headings of a note that lacks the one wanted.
        UsageError: Several documents fit.
    """
    document, given = resolve_lines(reader, reference, folder)
    first, count = from_line or given.start, max_lines or given.count
    text = _text_of(reader, document)
    linked = split_wiki_link(given.name)
    if first is None and linked is not None and linked[1]:
        from qmd.retrieval.sections import find_section

        section = find_section(document, text, linked[1])
        first, count = section.start, min(count or section.count, section.count)
    first = first or 1
    is_whole = first == 1 and count is None
    if not is_whole:
        lines = text.removesuffix("\n").split("\n")[first - 1 :]
        text = "\n".join(lines if count is None else lines[:count])
    return DocumentText(document, _context_of(reader, document), text, first, is_whole)


def fetch_documents(
    reader: IndexReader,
    patterns: Sequence[str],
    max_bytes: int,
    max_lines: int | None = None,
    folder: Path | None = None,
) -> DocumentTexts:
    """Every document that patterns name; large ones, and what goes beyond the size of an answer, without its text.

    Raises:
        UsageError: A pattern is empty, or they list more names than an answer has documents.
    """
    if len(patterns) + sum(pattern.count(",") for pattern in patterns) > MAX_DOCUMENTS:
        raise UsageError(f"pattern: at most {MAX_DOCUMENTS} names in one call")
    found = resolve_words(reader, patterns, folder)
    entries: list[DocumentText | SkippedDocument] = []
    room = MAX_ANSWER_CHARS
    for document in found.documents[:MAX_DOCUMENTS]:
        entry = _fetch_or_skip(reader, document, max_bytes, max_lines, room)
        room -= len(entry.text) if isinstance(entry, DocumentText) else 0
        entries.append(entry)
    problems = list(found.problems)
    if len(found.documents) > MAX_DOCUMENTS:
        problems.append(f"{len(found.documents)} files match, the first {MAX_DOCUMENTS} are shown: narrow the pattern")
    return DocumentTexts(tuple(entries), tuple(problems), found.is_glob)


def list_documents(reader: IndexReader, place: str) -> Listing:
    """The documents of `name`, `name/prefix`, their `qmd://` forms, or a path inside a collection's folder.

    Raises:
        NotFoundError: There is no such collection.
    """
    name, prefix = split_place(place, reader.collections())
    documents = reader.iter_documents(Scope(collections=(name,), path_prefix=prefix or None))
    return Listing(name, prefix, tuple(documents))


def split_place(place: str, collections: Sequence[Collection]) -> tuple[str, str]:
    """(collection, path prefix) that a place to list means; see `list_documents`.

    Raises:
        NotFoundError: There is no such collection.
    """
    address = without_scheme(place)
    bare = place if address is None else address
    named = split_address(bare, [one.name for one in collections])
    if named is not None:
        return named
    for collection, path in places_on_disk(Path(place), collections) if Path(place).is_absolute() else ():
        return collection.name, path
    error = collection_not_found(bare.partition("/")[0], [one.name for one in collections])
    raise NotFoundError(error.message, "Run 'qmd ls' to see available collections.")


def _fetch_or_skip(
    reader: IndexReader, document: StoredDocument, max_bytes: int, max_lines: int | None, room: int
) -> DocumentText | SkippedDocument:
    context = _context_of(reader, document)
    if document.size > max_bytes:
        size_kb, limit_kb = round(document.size / 1024), round(max_bytes / 1024)
        return SkippedDocument(document, context, f"File too large ({size_kb}KB > {limit_kb}KB)")
    text = _first_lines(_text_of(reader, document), max_lines)
    if len(text) > room:
        return SkippedDocument(document, context, "The answer is full: ask for fewer files at once")
    return DocumentText(document, context, text)


def _first_lines(text: str, max_lines: int | None) -> str:
    """The first `max_lines` lines, followed by a note of how many are missing."""
    lines = text.split("\n")
    if max_lines is None or len(lines) <= max_lines:
        return text
    return "\n".join([*lines[:max_lines], "", f"[... truncated {len(lines) - max_lines} more lines]"])


def _text_of(reader: IndexReader, document: StoredDocument) -> str:
    text = reader.texts([document.hash]).get(document.hash)
    if text is None:
        raise NotFoundError(f"text of '{document.uri}' is gone from the index", "qmd update")
    return text


def _context_of(reader: IndexReader, document: StoredDocument) -> str | None:
    collection = next((known for known in reader.collections() if known.name == document.collection), None)
    return context_for(collection, reader.global_context(), document.path)
