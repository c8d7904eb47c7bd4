"""Finding documents by what people and programs call them: docid, URI, path, part of a path, name, pattern."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import unquote

from msgspec import Struct
from msgspec.structs import replace

from qmd.config.paths import expand_home
from qmd.errors import MissingDocumentError, UsageError
from qmd.names import is_below, places_on_disk, split_address, storable, to_disk, without_scheme
from qmd.records import Collection, MetadataFilter, Scope, StoredDocument
from qmd.store.base import IndexReader

# Kept as text: a search imports this for the notes on a path, and asks none of them.
_DOCID = r"#?([0-9a-fA-F]{6,64})\Z"
_RANGE = r"(?s)(?P<name>.+?):(?P<start>\d{1,15})(?::(?P<count>\d{1,15})|-(?P<end>\d{1,15}))?\Z"
_WIKI_LINK = r"!?\[\[([^\[\]|#]+)(?:#([^\[\]|]*))?(?:\|[^\[\]]*)?\]\]\Z"
_LIST_PART = r"(?:\[\[[^\[\]]*\]\]|[^,])+"
_MAX_EDITS = 5
"""Largest edit distance of a suggestion."""
_AMBIGUOUS_SHOWN = 10
_MANY_LINES = 1_000_000_000


class LineRange(Struct, frozen=True):
    """A reference without its suffix: `name`, first line (>= 1) and number of lines, None where not given."""

    name: str
    start: int | None
    count: int | None


class Resolution(Struct, frozen=True):
    """What a pattern names: documents in order, each once, and a message for each part that names none or several."""

    documents: tuple[StoredDocument, ...]
    problems: tuple[str, ...]
    is_glob: bool


def parse_line_range(reference: str) -> LineRange:
    """Split `notes/a.md:10:5` and `notes/a.md:10-14` into name, first line 10 and count 5; line 0 is line 1."""
    match = re.match(_RANGE, reference)
    if match is None or match["name"].endswith(":") or match["name"].lower() in ("qmd", "#"):
        return LineRange(reference, None, None)
    start = max(_line_number(match["start"]), 1)
    if match["end"] is not None:
        first, last = sorted((start, max(_line_number(match["end"]), 1)))
        return LineRange(match["name"], first, last - first + 1)
    return LineRange(match["name"], start, None if match["count"] is None else _line_number(match["count"]))


def split_wiki_link(reference: str) -> tuple[str, str] | None:
    """(note, heading or `^block`) of `[[Note#Heading|shown]]`; None for other names."""
    match = re.match(_WIKI_LINK, reference.strip())
    return (match[1].strip(), (match[2] or "").strip()) if match is not None else None


def _line_number(digits: str) -> int:
    # Beyond any file's end one number is as good as another, and Python reads no number of thousands of digits.
    return min(int(digits[:18]), _MANY_LINES)


def resolve_document(reader: IndexReader, reference: str) -> StoredDocument:
    """The one document that `reference` names; see `resolve_lines`."""
    return resolve_lines(reader, reference)[0]


def resolve_lines(reader: IndexReader, reference: str, folder: Path | None = None) -> tuple[StoredDocument, LineRange]:
    """The one document that `reference` names, and the lines of it that a `:from:count` behind the name selects.

    Tried in order: exact URI or `collection/path`, exact path, docid (from six hex digits), path under a collection's
    folder, end of a path at a `/`, name of a note (file, title, alias), as it is or as a wiki link. Each spelling is
    tried as written before percent signs are decoded. The name of a file in `folder`, where a person stands, means
    that file before the end of any other path.

    Raises:
        UsageError: Empty reference, or several documents fit; the message lists them.
        MissingDocumentError: Nothing fits; the hint has similar paths.
    """
    reference = storable(reference)
    wanted = reference.strip()
    if not wanted:
        raise UsageError("the document reference is empty", hint="qmd get collection/path.md, or qmd get '#docid'")
    # A file may really be called "notes:12", or end in a space, so the whole reference comes first.
    given = parse_line_range(wanted)
    for name in dict.fromkeys((reference, wanted, given.name)):
        found = _find(reader, name, folder)
        if len(found) == 1:
            return found[0], given if name == given.name else LineRange(name, None, None)
        if found:
            names = ", ".join(f"{document.uri} ({document.docid})" for document in found[:_AMBIGUOUS_SHOWN])
            more = f" and {len(found) - _AMBIGUOUS_SHOWN} more" if len(found) > _AMBIGUOUS_SHOWN else ""
            raise UsageError(f"Ambiguous path {name}: {names}{more}", hint="name the collection, or use the docid")
    similar = _similar_paths(reader, name)
    hint = f"similar: {', '.join(similar)}" if similar else "qmd ls shows what is indexed"
    raise MissingDocumentError(f"document not found: '{name}'", hint=hint)


def resolve_words(reader: IndexReader, words: Sequence[str], folder: Path | None) -> Resolution:
    """Every document that the words of a command line name: together one pattern or name, else each its own.

    A shell puts the names of many files in place of a glob, and a person types a name of several words without quotes.

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
    """Every document that `pattern` names: a comma list, a docid, or a glob with `*`, `?`, `[…]`, `{a,b}`.

    Globs are compared with the `qmd://` URI, with `collection/path` and with the bare path; `*` and `?` skip names that
    start with a dot. Order is that of the list, or collection and path.

    Raises:
        UsageError: Empty pattern.
    """
    pattern = storable(pattern)
    wanted = pattern.strip()
    if not wanted:
        raise UsageError("the pattern is empty", hint="qmd multi-get 'journals/2026-*.md', or a comma list")
    # A file may really be called "a, b" or "[draft]".
    named = _in_folder(reader, pattern, folder) or _exact(reader, pattern)
    if len(named) == 1:
        return Resolution(tuple(named), (), is_glob=False)
    # `[ab].md` is a glob unless a file has that very name.
    is_glob = any(mark in wanted for mark in "*?{") or (
        "[" in wanted and "]" in wanted and "," not in wanted and not _exact(reader, wanted)
    )
    if not is_glob or wanted.startswith(("[[", "![[")):
        return _resolve_list(reader, [part.strip() for part in re.findall(_LIST_PART, wanted) if part.strip()], folder)
    found = _matching(reader, wanted)
    return Resolution(found, () if found else (f"No files matched pattern: {wanted}",), is_glob=True)


def context_for(collection: Collection | None, global_context: str | None, path: str) -> str | None:
    """The user's notes that apply to a path: the global one, then the collection's from the widest to the narrowest.

    A note on `sub` applies to `sub` and what lies below it, not to `subway`. Joined by blank lines; None without any.
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
    """Paths within five edits of `name`, or whose file name or title is close to its own, the nearest first."""
    from qmd.analysis.distance import edit_distance
    from qmd.analysis.note_names import name_key
    from qmd.names import file_name

    linked = split_wiki_link(name)
    name = linked[0] if linked is not None else name
    address = without_scheme(name)
    wanted = (name.removeprefix("./") if address is None else address).casefold()
    last = wanted.rsplit("/", 1)[-1]
    key = name_key(last.removesuffix(".md"))
    most = min(_MAX_EDITS, max(len(last) // 3, 1))
    scored: list[tuple[int, str]] = []
    for document in reader.iter_documents():
        path = document.path.casefold()
        distances = (
            edit_distance(wanted, path, _MAX_EDITS),
            edit_distance(wanted, f"{document.collection.casefold()}/{path}", _MAX_EDITS),
            edit_distance(last, path.rsplit("/", 1)[-1], most) + 1,
            *(edit_distance(key, name_key(one), most) + 1 for one in (file_name(document.path), document.title)),
        )
        best = min(distances)
        if best <= _MAX_EDITS and not (best == min(distances[2:]) and best > max(len(last) // 3, 1) + 1):
            scored.append((best, f"{document.collection}/{document.path}"))
    return [path for _, path in sorted(scored)[:limit]]


def _find(reader: IndexReader, name: str, folder: Path | None) -> list[StoredDocument]:
    """Documents at the first tier where any fits; more than one means that the reference is ambiguous."""
    here = _in_folder(reader, name, folder)
    if here:
        return here
    spellings = tuple(dict.fromkeys((name, unquote(name))))
    paths = () if name.startswith("#") else spellings
    by_path = ((_exact, spellings), (_by_docid, (name,)), (_under_a_collection, paths), (_by_suffix, paths))
    tiers: list[tuple[Callable[[IndexReader, str], list[StoredDocument]], Sequence[str]]] = [*by_path]
    linked = split_wiki_link(name)
    if linked is not None:
        file = (f"{linked[0]}.md",)
        tiers = [(_exact, spellings), (_exact, file), (_by_suffix, file)]
    tiers.append((_by_name, paths if linked is None else linked[:1]))
    for look, names in tiers:
        for one in names:
            found = look(reader, one)
            if found:
                return found
    return []


def _in_folder(reader: IndexReader, name: str, folder: Path | None) -> list[StoredDocument]:
    """The document of the file `name` in `folder`, unless the name is an address of a document."""
    if folder is None or "\0" in name or not os.path.isfile(folder / to_disk(name)):  # noqa: PTH113 - Path.is_file raises for long names
        return []
    return _by_address(reader, name) or _under_a_collection(reader, str(folder / name))


def _by_address(reader: IndexReader, name: str) -> list[StoredDocument]:
    for collection in reader.collections():
        if name.startswith(collection.name + "/"):
            found = reader.find_path(collection.name, name[len(collection.name) + 1 :])
            if found:
                return [found]
    return []


def _exact(reader: IndexReader, name: str) -> list[StoredDocument]:
    virtual = _virtual_parts(reader, name)
    if virtual is not None:
        found = reader.find_path(*virtual)
        return [found] if found else []
    return _by_address(reader, name) or [
        found for collection in reader.collections() if (found := reader.find_path(collection.name, name))
    ]


def _by_docid(reader: IndexReader, name: str) -> list[StoredDocument]:
    """Documents of a docid; the first when all share one text: a docid names a content, and either copy will do."""
    docid = re.match(_DOCID, name)
    found = list(reader.find_docid(docid[1])) if docid else []
    return found[:1] if len({document.hash for document in found}) == 1 else found


def _virtual_parts(reader: IndexReader, name: str) -> tuple[str, str] | None:
    """(collection, path) of a `qmd://` reference; None when it is not one."""
    address = without_scheme(name)
    if address is None:
        return None
    first, _, path = address.partition("/")
    return split_address(address, [collection.name for collection in reader.collections()]) or (first, path)


def _under_a_collection(reader: IndexReader, name: str) -> list[StoredDocument]:
    """A path of the file system, absolute or relative to the working directory, inside a collection's folder."""
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


def _by_suffix(reader: IndexReader, name: str) -> list[StoredDocument]:
    """Documents whose path ends with the name at a `/`; letter case decides only among several."""
    scope = Scope()
    wanted = name
    virtual = _virtual_parts(reader, name)
    if virtual is not None:
        collection, wanted = virtual
        scope = Scope(collections=(collection,))
    wanted = wanted.removeprefix("./").strip("/")
    if not wanted:
        return []
    last = wanted.rsplit("/", 1)[-1]
    if not any(mark in last for mark in "*?["):
        # The store finds the paths that hold the name as it is written; only another letter case needs all of them.
        holding = replace(scope, filters=(MetadataFilter("path", "=", last),))
        same_case = [d for d in reader.iter_documents(holding) if f"/{d.collection}/{d.path}".endswith("/" + wanted)]
        if same_case:
            return same_case
    ending = "/" + wanted.casefold()
    found = [d for d in reader.iter_documents(scope) if f"/{d.collection}/{d.path}".casefold().endswith(ending)]
    return [d for d in found if f"/{d.collection}/{d.path}".endswith("/" + wanted)] or found


def _by_name(reader: IndexReader, name: str) -> list[StoredDocument]:
    """Notes that have the name: by their file's, else by their title, else by an alias."""
    if name.startswith(("/", "./", "../", "~/")) or without_scheme(name) is not None or name.lower().endswith(".md"):
        return []
    from qmd.analysis.note_names import name_key

    named = reader.find_named(name_key(name))
    documents = reader.documents([one.document_id for one in named])
    for kind in ("file", "title", "alias"):
        found = [documents[one.document_id] for one in named if one.kind == kind and one.document_id in documents]
        if found:
            return sorted(found, key=lambda document: (document.collection, document.path))
    return []


def _resolve_list(reader: IndexReader, names: Sequence[str], folder: Path | None) -> Resolution:
    documents: dict[int, StoredDocument] = {}
    problems: list[str] = []
    for name in names:
        bare = parse_line_range(name).name
        found = _find(reader, name, folder) or (_find(reader, bare, folder) if bare != name else [])
        if len(found) == 1:
            documents.setdefault(found[0].id, found[0])
        elif found:
            uris = ", ".join(document.uri for document in found[:_AMBIGUOUS_SHOWN])
            problems.append(f"Ambiguous path {name}: {uris}")
        else:
            similar = _similar_paths(reader, bare, 3)
            suffix = f" (did you mean: {', '.join(similar)}?)" if similar else ""
            problems.append(f"File not found: {name}{suffix}")
    return Resolution(tuple(documents.values()), tuple(problems), is_glob=False)


def _matching(reader: IndexReader, pattern: str) -> tuple[StoredDocument, ...]:
    from qmd.ingest.globs import compile_globs

    address = without_scheme(pattern)
    compiled = compile_globs((pattern if address is None else address,))
    return tuple(
        document
        for document in reader.iter_documents()
        if compiled.fullmatch(f"{document.collection}/{document.path}")
        or (address is None and compiled.fullmatch(document.path))
    )
