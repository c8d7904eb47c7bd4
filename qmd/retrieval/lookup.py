"""Finding documents by what people and programs call them: docid, URI, path, part of a path, pattern."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal
from urllib.parse import unquote

from qmd.addresses import places_on_disk, split_address, without_scheme
from qmd.analysis.distance import edit_distance
from qmd.config.paths import expand_home
from qmd.errors import NotFoundError, UsageError
from qmd.names import storable
from qmd.quick_dataclasses import dataclass, replace
from qmd.records import Collection, MetadataFilter, Scope, StoredDocument
from qmd.store import IndexReader

_DOCID = re.compile(r"#?([0-9a-fA-F]{6,64})\Z")
_RANGE = re.compile(r"(?P<name>.+?):(?P<start>\d{1,15})(?::(?P<count>\d{1,15}))?\Z", re.DOTALL)
_MAX_EDITS = 5
"""Largest edit distance of a suggestion, as in the original."""
_AMBIGUOUS_SHOWN = 10
_MANY_LINES = 1_000_000_000


@dataclass(frozen=True, slots=True)
class LineRange:
    """A reference without its suffix: `name`, first line (>= 1) and number of lines, None where not given."""

    name: str
    start: int | None
    count: int | None


@dataclass(frozen=True, slots=True)
class Problem:
    """One part of a pattern that named nothing, or too much."""

    reference: str
    message: str


@dataclass(frozen=True, slots=True)
class Resolution:
    """What a pattern names: documents in order, each once, the parts that failed, and how the pattern was read."""

    documents: tuple[StoredDocument, ...]
    problems: tuple[Problem, ...]
    kind: Literal["list", "docid", "glob"]


def parse_line_range(reference: str) -> LineRange:
    """Split `notes/a.md:10:5` into name, first line 10 and count 5; line 0 is line 1."""
    match = _RANGE.match(reference)
    if match is None or match["name"].endswith(":") or match["name"].lower() in ("qmd", "#"):
        return LineRange(reference, None, None)
    count = _line_number(match["count"]) if match["count"] is not None else None
    return LineRange(match["name"], max(_line_number(match["start"]), 1), count)


def _line_number(digits: str) -> int:
    # Beyond any file's end one number is as good as another, and Python reads no number of thousands of digits.
    return min(int(digits[:18]), _MANY_LINES)


def resolve_document(reader: IndexReader, reference: str) -> StoredDocument:
    """The one document that `reference` names; a `:from:count` suffix is ignored.

    Tried in order: exact URI or `collection/path`, exact path, docid (from six hex digits), path under a collection's
    folder, end of a path at a `/`. Each spelling is tried as written before percent signs are decoded.

    Raises:
        UsageError: Empty reference, or several documents fit; the message lists them.
        NotFoundError: Nothing fits; the hint has similar paths.
    """
    reference = storable(reference)
    wanted = reference.strip()
    if not wanted:
        raise UsageError("the document reference is empty", hint="qmd get collection/path.md, or qmd get '#docid'")
    # A file may really be called "notes:12", or end in a space, so the whole reference comes first.
    for name in dict.fromkeys((reference, wanted, parse_line_range(wanted).name)):
        found = _find(reader, name)
        if len(found) == 1:
            return found[0]
        if found:
            raise UsageError(_ambiguous_message(name, found), hint="name the collection, or use the docid")
    name = parse_line_range(wanted).name
    similar = _similar_paths(reader, name)
    hint = f"similar: {', '.join(similar)}" if similar else "qmd ls shows what is indexed"
    raise NotFoundError(f"document not found: '{name}'", hint=hint)


def resolve_many(reader: IndexReader, pattern: str) -> Resolution:
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
    named = _exact(reader, pattern)
    if len(named) == 1:
        return Resolution(tuple(named), (), "list")
    is_glob = any(mark in wanted for mark in "*?{") or _is_class_glob(reader, wanted)
    if not is_glob:
        kind: Literal["list", "docid"] = "docid" if "," not in wanted and _DOCID.match(wanted) else "list"
        return _resolve_list(reader, [part.strip() for part in wanted.split(",") if part.strip()], kind)
    found = _matching(reader, wanted)
    problems = () if found else (Problem(wanted, f"No files matched pattern: {wanted}"),)
    return Resolution(found, problems, "glob")


def context_for(collection: Collection | None, global_context: str | None, path: str) -> str | None:
    """The user's notes that apply to a path: the global one, then the collection's from the widest to the narrowest.

    A note on `sub` applies to `sub` and what lies below it, not to `subway`. Joined by blank lines; None without any.
    """
    notes = [global_context] if global_context else []
    if collection is not None:
        entries = sorted(collection.context.items(), key=lambda entry: (len(entry[0].strip("/")), entry[0]))
        for key, note in entries:
            prefix = key.strip("/")
            if note and (not prefix or path == prefix or path.startswith(prefix + "/")):
                notes.append(note)
    return "\n\n".join(notes) or None


def _similar_paths(reader: IndexReader, name: str, limit: int = 5) -> list[str]:
    """Paths within five edits of `name`, or whose file name is close to its own, nearest first."""
    wanted = _without_scheme(name).casefold()
    last = wanted.rsplit("/", 1)[-1]
    scored: list[tuple[int, str]] = []
    for document in reader.iter_documents():
        path = document.path.casefold()
        distances = (
            edit_distance(wanted, path, _MAX_EDITS),
            edit_distance(wanted, f"{document.collection.casefold()}/{path}", _MAX_EDITS),
            edit_distance(last, path.rsplit("/", 1)[-1], min(_MAX_EDITS, max(len(last) // 3, 1))) + 1,
        )
        best = min(distances)
        if best <= _MAX_EDITS and not (best == distances[2] and best > max(len(last) // 3, 1) + 1):
            scored.append((best, f"{document.collection}/{document.path}"))
    return [path for _, path in sorted(scored)[:limit]]


def _ambiguous_message(name: str, found: Sequence[StoredDocument]) -> str:
    """One line naming the documents that fit, the first ten of them."""
    names = ", ".join(f"{document.uri} ({document.docid})" for document in found[:_AMBIGUOUS_SHOWN])
    more = f" and {len(found) - _AMBIGUOUS_SHOWN} more" if len(found) > _AMBIGUOUS_SHOWN else ""
    return f"Ambiguous path {name}: {names}{more}"


def _find(reader: IndexReader, name: str) -> list[StoredDocument]:
    """Documents at the first tier where any fits; more than one means that the reference is ambiguous."""
    spellings = tuple(dict.fromkeys((name, unquote(name))))
    for spelling in spellings:
        exact = _exact(reader, spelling)
        if exact:
            return exact
    docid = _DOCID.match(name)
    if docid is not None:
        by_hash = _one_per_place(reader.find_docid(docid[1].lower()))
        if by_hash:
            return by_hash
    if name.startswith("#"):
        return []
    for spelling in spellings:
        by_folder = _under_a_collection(reader, spelling)
        if by_folder:
            return by_folder
    for spelling in spellings:
        by_suffix = _by_suffix(reader, spelling)
        if by_suffix:
            return by_suffix
    return []


def _exact(reader: IndexReader, name: str) -> list[StoredDocument]:
    virtual = _virtual_parts(reader, name)
    if virtual is not None:
        found = reader.find_path(*virtual)
        return [found] if found else []
    collections = reader.collections()
    for collection in collections:
        if name.startswith(collection.name + "/"):
            found = reader.find_path(collection.name, name[len(collection.name) + 1 :])
            if found:
                return [found]
    return [found for collection in collections if (found := reader.find_path(collection.name, name))]


def _virtual_parts(reader: IndexReader, name: str) -> tuple[str, str] | None:
    """(collection, path) of a `qmd://` reference; None when it is not one."""
    address = without_scheme(name)
    if address is None:
        return None
    first, _, path = address.partition("/")
    return split_address(address, [collection.name for collection in reader.collections()]) or (first, path)


def _under_a_collection(reader: IndexReader, name: str) -> list[StoredDocument]:
    """A path of the file system, absolute or relative to the working directory, inside a collection's folder."""
    # Programs can send what no file system holds.
    if "\0" in name:
        return []
    if not name.startswith(("/", "./", "../", "~/")) and not re.match(r"[A-Za-z]:[\\/]", name):
        return []
    try:
        absolute = expand_home(name).absolute()
    except FileNotFoundError:
        # The working directory was deleted.
        return []
    places = places_on_disk(absolute, reader.collections())
    return next(([found] for collection, path in places if (found := reader.find_path(collection.name, path))), [])


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


def _one_per_place(found: Iterable[StoredDocument]) -> list[StoredDocument]:
    """The first document when all share one text: a docid names a content, and either copy will do."""
    documents = list(found)
    return documents[:1] if len({document.hash for document in documents}) == 1 else documents


def _without_scheme(name: str) -> str:
    address = without_scheme(name)
    return name.removeprefix("./") if address is None else address


def _resolve_list(reader: IndexReader, names: Sequence[str], kind: Literal["list", "docid"]) -> Resolution:
    documents: dict[int, StoredDocument] = {}
    problems: list[Problem] = []
    for name in names:
        bare = parse_line_range(name).name
        found = _find(reader, name) or (_find(reader, bare) if bare != name else [])
        if len(found) == 1:
            documents.setdefault(found[0].id, found[0])
        elif found:
            uris = ", ".join(document.uri for document in found[:_AMBIGUOUS_SHOWN])
            problems.append(Problem(name, f"Ambiguous path {name}: {uris}"))
        else:
            similar = _similar_paths(reader, bare, 3)
            suffix = f" (did you mean: {', '.join(similar)}?)" if similar else ""
            problems.append(Problem(name, f"File not found: {name}{suffix}"))
    return Resolution(tuple(documents.values()), tuple(problems), kind)


def _is_class_glob(reader: IndexReader, pattern: str) -> bool:
    """`[ab].md` is a glob unless a file has that very name."""
    return "[" in pattern and "]" in pattern and "," not in pattern and not _exact(reader, pattern)


def _matching(reader: IndexReader, pattern: str) -> tuple[StoredDocument, ...]:
    from qmd.ingest.globs import compile_globs

    address = without_scheme(pattern)
    compiled = compile_globs((pattern if address is None else address,))
    if compiled is None:
        return ()
    return tuple(
        document
        for document in reader.iter_documents()
        if compiled.fullmatch(f"{document.collection}/{document.path}")
        or (address is None and compiled.fullmatch(document.path))
    )
