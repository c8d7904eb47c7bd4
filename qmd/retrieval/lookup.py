"""Lookup: find documents by docid, URI, path, part of a path, name or pattern."""

from __future__ import annotations

import os
import re
from bisect import insort
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from urllib.parse import unquote

from msgspec import Struct

from qmd.addresses import is_below, places_on_disk, split_address, without_scheme
from qmd.config.paths import expand_home
from qmd.errors import MissingDocumentError, UsageError
from qmd.escapes import address_line, message_line
from qmd.file_names import file_name, storable, to_disk
from qmd.records import Collection, Scope, StoredDocument
from qmd.retrieval.references import ParsedReference, bare_name, read_reference
from qmd.store.base import IndexReader

# Uncompiled: a search imports this module only for contexts.
_DOCID = r"#?([0-9a-fA-F]{6,64})\Z"
_LIST_PART = r"(?:\[\[[^\[\]]*\]\]|[^,])+"
_MAX_EDITS = 5
"""Largest edit distance of a suggestion."""
_MAX_LISTED = 10
_ALL = 1_000_000

_Lookup = Callable[[IndexReader, str], list[StoredDocument]]


class ResolvedDocument(Struct, frozen=True):
    """The document of a reference, and the reading that matched."""

    document: StoredDocument
    reading: ParsedReference
    warnings: tuple[str, ...] = ()
    """Other documents with its text and that name, in one line."""


class Resolution(Struct, frozen=True):
    """Documents of a pattern: in order, each once, and a message for each part that matches none or several."""

    documents: tuple[StoredDocument, ...]
    problems: tuple[str, ...]
    is_glob: bool


def resolve_document(reader: IndexReader, reference: str, folder: Path | None = None) -> ResolvedDocument:
    """Return the one document that `reference` names; of several with one text the nearest to the top of a collection.

    The order for each reading: exact URI or `collection/path`, exact path, docid (from six hex digits), path under a
    collection's folder, the same with `.md` added, end of a path at a `/` with and without its ending, title, alias.
    Each spelling is tried as written before percent signs are decoded. The name of a file in `folder`, the working
    directory of a person, means that file before the end of any other path, and of copies the one in its collection.

    Raises:
        UsageError: Empty reference, or several documents fit; the message lists them.
        MissingDocumentError: Nothing fits; the hint has similar paths.
    """
    reference = storable(reference)
    if not reference.strip():
        raise UsageError("the document reference is empty", hint="qmd get collection/path.md, or qmd get '#docid'")
    found, reading = _find_documents(reader, reference, folder)
    if not found:
        similar = _similar_paths(reader, bare_name(reference))
        hint = f"similar: {', '.join(similar)}" if similar else "to list the indexed documents: qmd ls"
        raise MissingDocumentError(f"document not found: '{bare_name(reference)}'", hint, similar)
    if len({document.hash for document in found}) > 1:
        names = _join_names([f"{document.uri} ({document.docid})" for document in found])
        hint = f"name the collection, or use the docid: qmd get '{found[0].docid}'"
        raise UsageError(f"Ambiguous path {reading.name}: {names}", hint=hint)
    others = _join_names([address_line(document.uri) for document in found[1:]])
    return ResolvedDocument(found[0], reading, (message_line(f"the same text is in {others}"),) if others else ())


def _join_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    return ", ".join(names[:_MAX_LISTED]) + more


def resolve_words(reader: IndexReader, words: Sequence[str], folder: Path | None) -> Resolution:
    """Return every document that the words of a command line name: together one pattern or name, else each its own.

    A shell expands globs, and people type a name of several words without quotes.

    Raises:
        UsageError: Empty pattern.
    """
    together = resolve_many(reader, " ".join(words), folder)
    if len(words) == 1 or together.documents or any(word.endswith(",") for word in words):
        return together
    each = [resolve_many(reader, word, folder) for word in words]
    documents = {document.id: document for found in each for document in found.documents}
    if not documents:
        return together
    problems = tuple(problem for found in each for problem in found.problems)
    return Resolution(tuple(documents.values()), problems, is_glob=all(found.is_glob for found in each))


def resolve_many(reader: IndexReader, pattern: str, folder: Path | None = None) -> Resolution:
    """Return every document that `pattern` names: a comma list, a docid, or a glob with `*`, `?`, `[…]`, `{a,b}`.

    Globs match the `qmd://` URI, `collection/path` and the bare path; `*` and `?` skip names that start with a dot. The
    order is that of the list, or collection and path.

    Raises:
        UsageError: Empty pattern.
    """
    pattern = storable(pattern)
    wanted = pattern.strip()
    if not wanted:
        raise UsageError("the pattern is empty", hint="qmd multi-get 'journals/2026-*.md', or a comma list")
    # A file may really be called "a, b" or "[draft]".
    named = _find_in_folder(reader, pattern, folder) or _find_exact(reader, pattern)
    if len(named) == 1:
        return Resolution(tuple(named), (), is_glob=False)
    # `[ab].md` is a glob unless a file has that very name.
    is_glob = any(mark in wanted for mark in "*?{") or (
        "[" in wanted and "]" in wanted and "," not in wanted and not _find_exact(reader, wanted)
    )
    if not is_glob or wanted.startswith(("[[", "![[")):
        return _resolve_list(reader, [part.strip() for part in re.findall(_LIST_PART, wanted) if part.strip()], folder)
    found = _match_glob(reader, wanted)
    return Resolution(found, () if found else (f"No files matched pattern: {wanted}",), is_glob=True)


def context_for(collection: Collection | None, global_context: str | None, path: str) -> str | None:
    """Return the contexts of a path: the global one, then the collection's from the widest to the narrowest.

    A context of `sub` applies to `sub` and the paths below it, not to `subway`. Joined by blank lines.
    """
    notes = [global_context] if global_context else []
    if collection is not None:
        entries = sorted(collection.context.items(), key=lambda entry: (len(entry[0].strip("/")), entry[0]))
        for key, note in entries:
            prefix = key.strip("/")
            if note and is_below(path, prefix):
                notes.append(note)
    return "\n\n".join(notes) or None


def _similar_paths(reader: IndexReader, name: str, limit: int = 5) -> list[str]:
    """Return paths within five edits of `name`, or with a similar file name or title, the nearest first."""
    from qmd.analysis.distance import edit_distance
    from qmd.analysis.note_names import name_key

    address = without_scheme(name)
    wanted = (name.removeprefix("./") if address is None else address).casefold()
    last = wanted.rsplit("/", 1)[-1]
    key = name_key(last.removesuffix(".md"))
    most, farthest = min(_MAX_EDITS, max(len(last) // 3, 1)), _MAX_EDITS
    scored: list[tuple[int, str]] = []
    for document in reader.iter_documents():
        path = document.path.casefold()
        distances = (
            edit_distance(wanted, path, farthest),
            edit_distance(wanted, f"{document.collection.casefold()}/{path}", farthest),
            edit_distance(last, path.rsplit("/", 1)[-1], most) + 1,
            *(edit_distance(key, name_key(one), most) + 1 for one in (file_name(document.path), document.title)),
        )
        best = min(distances)
        if best <= farthest and not (best == min(distances[2:]) and best > max(len(last) // 3, 1) + 1):
            insort(scored, (best, f"{document.collection}/{document.path}"))
            if len(scored) > limit:
                scored.pop()
                farthest = scored[-1][0]
                most = min(most, farthest)
    return [path for _, path in scored]


def _find_documents(
    reader: IndexReader, reference: str, folder: Path | None
) -> tuple[list[StoredDocument], ParsedReference]:
    """Return the documents of the first lookup that finds any, the nearest first; more than one may be copies."""
    for reading in read_reference(reference):
        for look, name in _list_lookups(reading, folder):
            found = look(reader, name)
            if reading.place:
                from qmd.ingest.outline import kind_of

                found = [one for one in found if kind_of(one.path).place == reading.place]
            if len(found) > 1:
                order = [one.name for one in reader.collections()]
                places = places_on_disk(folder, reader.collections()) if folder is not None else ()
                in_folder = {one.name for one, _ in places}
                found.sort(key=lambda one: (one.path.count("/"), len(one.path), order.index(one.collection), one.path))
                found.sort(key=lambda one: one.collection not in in_folder)
            if found:
                return found, reading
    return [], reading


def _list_lookups(reading: ParsedReference, folder: Path | None) -> Iterator[tuple[_Lookup, str]]:
    """Yield the lookups of each spelling of a name, in order."""
    name = reading.name
    spellings = tuple(dict.fromkeys((name, unquote(name))))
    notes = tuple(f"{one}.md" for one in spellings)
    paths, files = ((), ()) if name.startswith("#") else (spellings, (*spellings, *notes))
    tiers: tuple[tuple[_Lookup, Sequence[str], str], ...] = (
        (partial(_find_in_folder, folder=folder), (name, f"{name}.md"), "any file"),
        (_find_exact, spellings, "any file path"),
        (_find_by_docid, (name,), "any file"),
        (_find_on_disk, files, "any file"),
        (_find_exact, notes, "any file path"),
        (_find_by_file, paths, "any file"),
        (_find_by_title, paths, "any title"),
    )
    return ((look, one) for look, names, ways in tiers if reading.by in ways for one in names)


def _find_in_folder(reader: IndexReader, name: str, folder: Path | None) -> list[StoredDocument]:
    """Return the document of the file `name` in `folder`, unless the name is an address of a document."""
    if folder is None or "\0" in name or not os.path.isfile(folder / to_disk(name)):  # noqa: PTH113 - Path.is_file raises for long names
        return []
    return _find_by_address(reader, name) or _find_on_disk(reader, str(folder / name))


def _find_by_address(reader: IndexReader, name: str) -> list[StoredDocument]:
    for collection in reader.collections():
        if name.startswith(collection.name + "/"):
            found = reader.find_path(collection.name, name[len(collection.name) + 1 :])
            if found:
                return [found]
    return []


def _find_exact(reader: IndexReader, name: str) -> list[StoredDocument]:
    virtual = _split_uri(reader, name)
    if virtual is not None:
        found = reader.find_path(*virtual)
        return [found] if found else []
    return _find_by_address(reader, name) or [
        found for collection in reader.collections() if (found := reader.find_path(collection.name, name))
    ]


def _find_by_docid(reader: IndexReader, name: str) -> list[StoredDocument]:
    docid = re.match(_DOCID, name)
    return list(reader.find_docid(docid[1])) if docid else []


def _split_uri(reader: IndexReader, name: str) -> tuple[str, str] | None:
    """Return (collection, path) of a `qmd://` reference; None for any other."""
    address = without_scheme(name)
    if address is None:
        return None
    first, _, path = address.partition("/")
    return split_address(address, [collection.name for collection in reader.collections()]) or (first, path)


def _find_on_disk(reader: IndexReader, name: str) -> list[StoredDocument]:
    """Return the document of an absolute or relative path of the file system inside a collection's folder."""
    if not name.startswith(("/", "./", "../", "~/")) and not re.match(r"[A-Za-z]:[\\/]", name):
        return []
    try:
        absolute = expand_home(name).absolute()
    except FileNotFoundError:
        # The working directory was deleted.
        return []
    for collection, path in places_on_disk(absolute, reader.collections()):
        found = reader.find_path(collection.name, path)
        if found:
            return [found]
    return []


def _find_by_file(reader: IndexReader, name: str) -> list[StoredDocument]:
    """Return documents whose path ends with the name at a `/`.

    The first rule with a match applies: exact, in another case, without its ending, by `name_key`.
    """
    from qmd.analysis.note_names import name_key

    scope = Scope()
    wanted = name
    virtual = _split_uri(reader, name)
    if virtual is not None:
        collection, wanted = virtual
        scope = Scope(collections=(collection,))
    wanted = wanted.removeprefix("./").strip("/")
    if not wanted or "\0" in wanted:
        return []
    last = wanted.rpartition("/")[2]
    keys = {name_key(last), name_key(file_name(last)), name_key(wanted)}
    named = {one.document_id for key in keys for one in reader.find_named(key, scope, _ALL) if one.kind == "file"}
    documents = [*reader.documents(sorted(named)).values()]
    whole = [f"/{one.collection}/{one.path}" for one in documents]
    bare = [f"{path.rpartition('/')[0]}/{file_name(path)}" for path in whole]
    keyed: Callable[[str], str] = lambda path: "/".join(map(name_key, path.split("/")))  # noqa: E731
    for places, form in ((whole, str), (whole, str.casefold), (bare, str), (whole, keyed), (bare, keyed)):
        fits = [form(place).endswith(f"/{form(wanted)}") for place in places]
        if any(fits):
            return [one for one, fit in zip(documents, fits, strict=True) if fit]
    # Some programs write the folders of a note into its name: `a.b.md`, `a___b.md` for `a/b`.
    return list(filter(lambda one: name_key(file_name(one.path)) == name_key(wanted), documents))


def _find_by_title(reader: IndexReader, name: str) -> list[StoredDocument]:
    """Return the notes with this title, those with its exact spelling first, else those with this alias."""
    if name.startswith(("/", "./", "../", "~/")) or without_scheme(name) is not None or name.lower().endswith(".md"):
        return []
    from qmd.analysis.note_names import name_key

    named = reader.find_named(name_key(name))
    documents = reader.documents([one.document_id for one in named])
    for kind in ("title", "alias"):
        found = [documents[one.document_id] for one in named if one.kind == kind and one.document_id in documents]
        if found:
            return [document for document in found if document.title == name] or found
    return []


def _resolve_list(reader: IndexReader, names: Sequence[str], folder: Path | None) -> Resolution:
    documents: dict[int, StoredDocument] = {}
    problems: list[str] = []
    for name in names:
        found, _ = _find_documents(reader, name, folder)
        if len({document.hash for document in found}) == 1:
            documents.setdefault(found[0].id, found[0])
        elif found:
            problems.append(f"Ambiguous path {name}: {_join_names([document.uri for document in found])}")
        else:
            similar = _similar_paths(reader, bare_name(name), 3)
            suffix = f" (did you mean: {', '.join(similar)}?)" if similar else ""
            problems.append(f"File not found: {name}{suffix}")
    return Resolution(tuple(documents.values()), tuple(problems), is_glob=False)


def _match_glob(reader: IndexReader, pattern: str) -> tuple[StoredDocument, ...]:
    from qmd.ingest.globs import compile_globs

    address = without_scheme(pattern)
    compiled = compile_globs((pattern if address is None else address,))
    return tuple(
        document
        for document in reader.iter_documents()
        if compiled.fullmatch(f"{document.collection}/{document.path}")
        or (address is None and compiled.fullmatch(document.path))
    )
