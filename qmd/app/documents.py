"""Documents by name: resolve a reference, select lines, list a place, explain a missing document."""

from __future__ import annotations

import os
import re
from collections.abc import Collection as Names
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from qmd.addresses import places_on_disk, split_address, without_scheme
from qmd.analysis.note_names import name_key
from qmd.app.records import DocumentText, DocumentTexts, Listing, SkippedDocument
from qmd.config.paths import expand_home
from qmd.errors import MissingDocumentError, NotFoundError, UsageError, collection_not_found
from qmd.escapes import message_line
from qmd.file_names import to_disk
from qmd.records import Collection, Heading, Scope, StoredDocument
from qmd.retrieval.lookup import ResolvedDocument, context_for, resolve_words
from qmd.retrieval.references import bare_name, form_of_place

if TYPE_CHECKING:
    from qmd.store.base import IndexReader

MAX_DOCUMENTS = 1_000
MAX_ANSWER_CHARS = 16 * 1024 * 1024
"""Total size of the texts of one `multi_get`: four million tokens, more than any model reads."""

_HEADINGS_NAMED = 10
_BORDER = r"\s*(?:\Z|#{1,6}\s)"
_ITEM = r"\s*(?:[-*+]|\d+[.)])\s"


def fetch_document(
    reader: IndexReader, found: ResolvedDocument, from_line: int | None, max_lines: int | None, missing: Names[str] = ()
) -> DocumentText:
    """Return a document or some of its lines. Only indexed documents are found, for any path.

    The last line break of a text ends a line; it does not begin one.

    Raises:
        NotFoundError: The note does not have the heading; the hint names its headings.
    """
    document, given = found.document, found.reading
    first, count = from_line or given.start, max_lines or given.count
    text = _text_of(reader, document)
    if first is None and given.heading:
        section = find_section(document, text, given.heading)
        first, count = section.start, min(count or section.count, section.count)
    first = first or 1
    is_whole = first == 1 and count is None
    warnings, collection = found.warnings, _collection_of(reader, document)
    if not is_whole:
        lines = text.removesuffix("\n").split("\n")
        if first > len(lines):
            warnings = (*warnings, f"line {first} does not exist: the last line of '{document.uri}' is {len(lines)}")
        text = "\n".join(lines[first - 1 :][:count])
    on_disk = collection.path / to_disk(document.path) if collection is not None and collection.path.is_dir() else None
    # `Path` raises for strange names.
    if document.collection in missing or (on_disk is not None and not os.path.exists(on_disk)):  # noqa: PTH110
        warnings = (*warnings, f"the file of '{document.uri}' no longer exists: this is its text as it was indexed")
    shown = tuple(map(message_line, warnings))
    return DocumentText(document, _context_of(reader, document), text, first, is_whole, shown)


def fetch_documents(
    reader: IndexReader, patterns: Sequence[str], max_bytes: int, max_lines: int | None, folder: Path | None
) -> DocumentTexts:
    """Return every document that patterns name; those above the size limits are skipped, without their text.

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
    return DocumentTexts(tuple(entries), tuple(map(message_line, problems)), found.is_glob)


def list_documents(reader: IndexReader, place: str) -> Listing:
    """List the documents of `name`, `name/prefix`, their `qmd://` forms, or a path inside a collection's folder.

    Raises:
        NotFoundError: There is no such collection.
    """
    name, prefix = split_place(place, reader.collections())
    documents = reader.iter_documents(Scope(collections=(name,), path_prefix=prefix or None))
    return Listing(name, prefix, tuple(documents))


def split_place(place: str, collections: Sequence[Collection]) -> tuple[str, str]:
    """Return (collection, path prefix) of a place; see `list_documents`.

    Raises:
        NotFoundError: There is no such collection.
    """
    address = without_scheme(place)
    bare = place if address is None else address
    named = split_address(bare, [one.name for one in collections])
    if named is not None:
        return named
    on_disk = Path(f"/{bare}" if place.startswith("qmd:///") else place)
    for collection, path in places_on_disk(on_disk, collections) if on_disk.is_absolute() else ():
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
    text = _text_of(reader, document)
    lines, mark = text.split("\n"), ""
    if max_lines is not None and len(lines) > max_lines:
        mark = f"\n\n[... truncated {len(lines) - max_lines} more lines]"
        text = "\n".join(lines[:max_lines]) + mark
    if len(text) > room:
        return SkippedDocument(document, context, "The answer is full: ask for fewer files at once")
    return DocumentText(document, context, text, mark=mark)


def _text_of(reader: IndexReader, document: StoredDocument) -> str:
    text = reader.texts([document.hash]).get(document.hash)
    if text is None:
        raise NotFoundError(f"text of '{document.uri}' is missing from the index", "qmd update")
    return text


def _context_of(reader: IndexReader, document: StoredDocument) -> str | None:
    return context_for(_collection_of(reader, document), reader.global_context(), document.path)


def _collection_of(reader: IndexReader, document: StoredDocument) -> Collection | None:
    return next((known for known in reader.collections() if known.name == document.collection), None)


class Section(Struct, frozen=True):
    """Range of lines: the first, from 1, and their number."""

    start: int
    count: int


def find_section(document: StoredDocument, text: str, fragment: str) -> Section:
    """Return the lines of `Heading`, `Heading#Subheading`, `^block` or a place; a section ends at an equal heading.

    Raises:
        NotFoundError: The note does not have this part; the hint names its headings.
    """
    from qmd.ingest.outline import kind_of, read_outline

    kind = kind_of(document.path)
    form = kind.place
    found = _block(text, fragment) if fragment.startswith("^") else None
    headings = read_outline(kind, text).headings
    if found is None and not fragment.startswith("^"):
        found = _below(text, headings, [name_key(part) for part in fragment.split("#") if part.strip()])
        if found is None and form and form == form_of_place(fragment):
            found = _at_time(text, fragment) if form == "::" else _at_number(text, headings, form, fragment)
    if found is not None:
        return found
    named = ", ".join(f"'{heading.text}'" for heading in headings[:_HEADINGS_NAMED])
    part = "block" if fragment.startswith("^") else "heading"
    hint = f"its headings: {named}" if named else f"qmd get {document.docid}"
    raise NotFoundError(f"'{document.uri}' has no {part} '{fragment.removeprefix('^')}'", hint)


def _below(text: str, headings: tuple[Heading, ...], wanted: list[str]) -> Section | None:
    """Return the section of the last of the headings `wanted`, each searched below the one before."""
    start, end = 0, len(headings)
    for key in wanted:
        found = next((i for i in range(start, end) if name_key(headings[i].text) == key), None)
        if found is None:
            return None
        end = next((i for i in range(found + 1, end) if headings[i].level <= headings[found].level), end)
        start = found + 1
    if not start:
        return None
    first = text.count("\n", 0, headings[start - 1].offset) + 1
    offset = headings[end].offset if end < len(headings) else len(text)
    return Section(first, len(text[headings[start - 1].offset : offset].rstrip().split("\n")))


def _at_number(text: str, headings: tuple[Heading, ...], form: str, place: str) -> Section | None:
    """Return the page, slide, notebook cell or turn with a number, or the part of a sheet with the row of the cells."""
    sheet, _, cells = place.rpartition("!")
    number = int("".join(re.findall("[0-9]{1,9}", cells)[:1]) or -1)
    for heading in headings if form == "!" else ():
        part = re.fullmatch(r"(.+)!A(\d{1,9}):[A-Z]+(\d{1,9})", heading.text)
        if part and name_key(part[1]) == name_key(sheet) and int(part[2]) <= number <= int(part[3]):
            return _below(text, headings, [name_key(heading.text)])
    return _below(text, headings, [f"{form}{number}"])


def _at_time(text: str, time: str) -> Section | None:
    """Return the lines from the last time mark at or before a time to the next mark."""
    marks = [(mark[1], mark.start()) for mark in re.finditer(r"(?m)^\[(\d\d:\d\d:\d\d)\]", text)]
    starts = [start for at, start in marks if at <= time.zfill(8)]
    if not starts:
        return None
    end = next((start for _, start in marks if start > starts[-1]), len(text))
    return Section(text.count("\n", 0, starts[-1]) + 1, len(text[starts[-1] : end].rstrip().split("\n")))


def _block(text: str, fragment: str) -> Section | None:
    """Return the paragraph or list item whose last line ends with the block's name, or precedes it."""
    lines, mark = text.split("\n"), re.compile(rf"(?<!\S){re.escape(fragment)}\s*\Z")
    last = next((i for i, line in enumerate(lines) if fragment in line and mark.search(line)), None)
    if last is None:
        return None
    if lines[last].strip() == fragment:
        above = last - 1
        while above > 0 and not lines[above].strip():
            above -= 1
        last = max(above, 0)
    first = last
    while first > 0 and not re.match(_ITEM, lines[first]) and not re.match(_BORDER, lines[first - 1]):
        first -= 1
    return Section(first + 1, last - first + 1)


def explain_missing(error: MissingDocumentError, reference: str, reader: IndexReader, cwd: Path) -> NotFoundError:
    """Return `error` as scripts parse it, or with the reason why an existing file is not indexed."""
    from qmd.ingest.exclusion import find_exclusion

    for collection, path in _places(reference, reader.collections(), cwd):
        exclusion = find_exclusion(collection, path)
        if exclusion is None:
            left_out = {(one.collection, one.path): one.reason for one in reader.status(None).left_out}
            reason = left_out.get((collection.name, path))
            if reason is not None:
                return NotFoundError(f"Document not found: {reference} (skipped: {reason})", "see: qmd status")
            known = f"Document not found: {reference} (the file exists, but is not indexed)"
            return NotFoundError(known, "run: qmd update")
        return NotFoundError(
            f"Document is excluded by ignore rule: {reference}",
            "change the rule, then run: qmd update",
            details=(
                f"  Collection: {collection.name}",
                f"  Matched path: {path}",
                f"  Ignore rule: {exclusion.rule} ({exclusion.source})",
            ),
        )
    return MissingDocumentError(f"Document not found: {reference}", error.hint, error.similar)


def _places(reference: str, collections: Sequence[Collection], cwd: Path) -> Iterator[tuple[Collection, str]]:
    """Return (collection, path in it) of each file on disk that the reference can mean."""
    name = bare_name(reference)
    address = without_scheme(name)
    named = split_address(name if address is None else address, [one.name for one in collections])
    meant = [(one, named[1]) for one in collections if named is not None and one.name == named[0]]
    if address is None:
        meant += [(one, name.removeprefix("./")) for one in collections if not Path(name).is_absolute()]
        meant += places_on_disk(cwd / expand_home(name), collections)
    for collection, path in meant:
        # `..` in a reference must not reveal whether a file outside the collection exists.
        if path and ".." not in path.split("/") and os.path.isfile(collection.path / to_disk(path)):  # noqa: PTH113 - Path.is_file raises for long names
            yield collection, path
