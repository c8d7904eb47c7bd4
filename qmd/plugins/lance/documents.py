"""Documents: rows of the table and the records of qmd."""

from __future__ import annotations

import zlib
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from qmd.analysis.note_names import Named, link_key, place_of
from qmd.clock import batches
from qmd.errors import StoreError
from qmd.plugins.lance.lexical import add_words
from qmd.plugins.lance.scope import facts_of
from qmd.plugins.lance.tables import OpenTables, Row, Tables, both, literal
from qmd.records import IndexTerms, Link, NameKind, StoredDocument
from qmd.store.linking import MANY_NOTES, WrittenLink, anchors_of, settled_title
from qmd.store.records import NewDocument, StoredFile, hash_key, unpack_links, unpack_text

COLUMNS = ("id", "collection", "path", "title", "hash", "modified_at", "n_chars", "metadata", "date")
"""In the order of `StoredDocument`."""

_TITLES = 3
"""Times that a title stands in the one text that is searched, where the other fields stand once: near to what
`FIELD_WEIGHTS` of SQLite's engine gives it."""

_BORDER = "\nqmdborder\n"
"""Between two fields, so that no phrase reaches from one into the next."""

_ANCHORS_AT_ONCE = 20_000
_FILES_AT_A_TIME = 256


def stored_documents(rows: Iterable[Row]) -> list[StoredDocument]:
    """Documents of rows of `COLUMNS`."""
    return [StoredDocument(*(_metadata(row) if name == "metadata" else row[name] for name in COLUMNS)) for row in rows]


def fetch_texts(tables: Tables, hashes: Sequence[str]) -> dict[str, str]:
    """Texts by content hash; unknown hashes are absent."""
    found: dict[str, str] = {}
    for row in tables.select_in("documents", ("hash", "doc"), "hash", hashes):
        if row["hash"] not in found:
            with _unpacking(tables):
                found[row["hash"]] = unpack_text(row["doc"])
    return found


def stored_files(tables: Tables) -> Iterator[list[StoredFile]]:
    """What is known of every document's file, by the document's id."""
    columns = StoredFile.__struct_fields__
    rows = sorted(tables.select("documents", ("id", *columns)), key=lambda row: int(row["id"]))
    for part in batches(rows, _FILES_AT_A_TIME):
        yield [StoredFile(*(row[name] for name in columns)) for row in part]


def write_documents(tables: OpenTables, collection: str, documents: Mapping[str, NewDocument]) -> None:
    """Insert or replace by path."""
    replaced = _remove_rows(tables, collection, list(documents))
    first = tables.state.next_document
    tables.state.next_document += len(documents)
    rows = [
        _row(document, number, collection, replaced[path]["created_at"] if path in replaced else document.created_at)
        for number, (path, document) in enumerate(documents.items(), start=first)
    ]
    tables.add("documents", rows)
    add_words(tables, (row["terms"] for row in rows))
    kept = {document.hash for document in documents.values()}
    _drop_chunks(tables, {row["hash"] for row in replaced.values()} - kept)


def remove_documents(tables: OpenTables, collection: str, paths: Sequence[str]) -> int:
    """Delete documents, and the chunks of texts that nothing refers to any more; the number of documents deleted."""
    removed = _remove_rows(tables, collection, paths)
    _drop_chunks(tables, {row["hash"] for row in removed.values()})
    return len(removed)


def settle_titles(tables: OpenTables, collection: str) -> None:
    """Show the file's name for a heading that many notes of a collection have, and the heading where few have it."""
    where = both(f"collection = {literal(collection)}", "heading IS NOT NULL")
    rows = tables.select("documents", ("id", "path", "title", "heading"), where)
    counts = Counter(row["heading"] for row in rows)
    changed = []
    for row in rows:
        title = settled_title(row["path"], row["heading"], is_shared=counts[row["heading"]] >= MANY_NOTES)
        if title != row["title"]:
            changed.append({"id": row["id"], "title": title})
    tables.patch_documents(changed)


def settle_anchors(tables: OpenTables, collection: str, since: int) -> int:
    """Bring the anchors of a collection's documents up to date; the largest id that has been counted.

    Args:
        tables: In a transaction.
        collection: Its name; its documents are complete.
        since: What the last call returned, 0 for the first: documents with larger ids are new.
    """
    mine = f"collection = {literal(collection)}"
    where = both(mine, "anchors IS NOT NULL")
    links = LanceLinks(tables)
    newest = max((row["id"] for row in tables.select("documents", ("id",), both(mine, f"id > {since}"))), default=since)
    touched = f"kind = 'touched' AND {mine}"
    if since:
        keys = {row["path"] for row in tables.select("places", ("path",), touched)}
        if newest == since and not keys:
            return since
        for row in tables.select("documents", ("name_keys", "links"), both(mine, f"id > {since}")):
            keys.update(row["name_keys"], _link_keys(tables, row["links"]))
        targets = sorted({one.document_id for found in links.named(collection, keys).values() for one in found})
    else:
        targets = [row["id"] for row in tables.select("documents", ("id",), mine)]
    for first in range(0, len(targets), _ANCHORS_AT_ONCE):
        part = targets[first : first + _ANCHORS_AT_ONCE]
        stored = {
            row["id"]: row["anchors"] for row in tables.select_in("documents", ("id", "anchors"), "id", part, where)
        }
        made = anchors_of(links, collection, part)
        changed = [one for one in part if made.get(one) != stored.get(one)]
        tables.patch_documents([{"id": one, "anchors": made.get(one)} for one in changed])
    tables.delete("places", touched)
    return newest


class LanceLinks:
    """The `LinkTables` of an index."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def links_in(self, document_id: int) -> Sequence[Link]:
        rows = self._tables.select("documents", ("links",), f"id = {document_id}")
        return [link for row in rows for link in _links(self._tables, row["links"])]

    def written(self, collection: str, keys: Collection[str], limit: int | None = None) -> Iterator[WrittenLink]:
        where = both(f"collection = {literal(collection)}", _has_any("link_keys", map(hash_key, keys)))
        rows = self._tables.select("documents", ("path", "id", "links"), where)
        for row in sorted(sorted(rows, key=lambda row: int(row["id"]))[:limit], key=lambda row: str(row["path"])):
            for link in _links(self._tables, row["links"]):
                key = link_key(link.target)
                if key in keys:
                    yield WrittenLink(row["id"], row["path"], key, link)

    def count_links(self, keys: Collection[str]) -> int:
        wanted = set(map(hash_key, keys))
        rows = self._tables.select("documents", ("link_keys", "link_counts"), _has_any("link_keys", wanted))
        return sum(
            n for row in rows for key, n in zip(row["link_keys"], row["link_counts"], strict=True) if key in wanted
        )

    def names_of(self, ids: Sequence[int]) -> Iterator[tuple[int, str]]:
        for row in self._tables.select_in("documents", ("id", "name_keys"), "id", ids):
            for key in row["name_keys"]:
                yield row["id"], key

    def named(self, collection: str, keys: Collection[str]) -> dict[str, list[Named]]:
        where = both(f"collection = {literal(collection)}", _has_any("name_keys", keys))
        named: defaultdict[str, list[Named]] = defaultdict(list)
        rows = self._tables.select("documents", ("path", "id", "name_keys", "name_kinds"), where)
        for row in sorted(rows, key=lambda row: str(row["path"])):
            for key, kind in names_in(row):
                if key in keys:
                    named[key].append(Named(row["id"], place_of(row["path"]), kind))
        return named


def names_in(row: Row) -> Iterator[tuple[str, NameKind]]:
    """The names of a document and what each is there, of a row with `name_keys` and `name_kinds`."""
    return zip(row["name_keys"], row["name_kinds"], strict=True)


def _metadata(row: Row) -> Any:
    stored = msgspec.json.decode(row["metadata"])
    return {key: tuple(value) if isinstance(value, list) else value for key, value in stored.items()}


def _row(document: NewDocument, document_id: int, collection: str, created_at: str) -> Row:
    metadata: dict[str, Any] = msgspec.json.decode(document.metadata_json)
    links = document.links
    return {
        "id": document_id,
        "collection": collection,
        "path": document.path,
        "title": document.title,
        "hash": document.hash,
        "created_at": created_at,
        "modified_at": document.modified_at,
        "n_chars": document.n_chars,
        "size_bytes": document.size_bytes,
        "mtime_ns": document.mtime_ns,
        "metadata": document.metadata_json,
        "heading": document.heading,
        "date": document.date,
        "facts": facts_of(metadata),
        "name_keys": list(document.names),
        "name_kinds": list(document.names.values()),
        "link_keys": list(links.counts) if links else [],
        "link_counts": list(links.counts.values()) if links else [],
        "links": links.packed if links else None,
        "doc": document.doc,
        "terms": _searched(document.terms),
        "anchors": None,
    }


def _searched(terms: IndexTerms) -> str:
    fields = [*[terms.title] * _TITLES, terms.headings, terms.path, terms.body, terms.extra]
    return _BORDER.join(one for one in fields if one).encode("utf-8", "replace").decode()


def _remove_rows(tables: OpenTables, collection: str, paths: Sequence[str]) -> dict[str, Row]:
    """Delete documents and remember which names that concerns; what they were, by path."""
    mine = f"collection = {literal(collection)}"
    if not tables.count("documents", mine):
        return {}
    columns = ("id", "path", "created_at", "hash", "name_keys", "links")
    rows = list(tables.select_in("documents", columns, "path", paths, mine))
    touched = {key for row in rows for key in (*row["name_keys"], *_link_keys(tables, row["links"]))}
    known = {row["path"] for row in tables.select("places", ("path",), f"kind = 'touched' AND {mine}")}
    tables.add(
        "places",
        [{"kind": "touched", "collection": collection, "path": key, "value": None} for key in touched - known],
    )
    tables.delete_in("documents", "id", [row["id"] for row in rows])
    return {row["path"]: row for row in rows}


def _drop_chunks(tables: OpenTables, hashes: set[str]) -> None:
    """Delete the chunks of those texts that no document holds; their vectors stay, by key, for one that comes back."""
    if tables.table("chunks") is not None and hashes:
        used = {row["hash"] for row in tables.select_in("documents", ("hash",), "hash", list(hashes))}
        tables.delete_in("chunks", "hash", list(hashes - used))


def _has_any(column: str, values: Iterable[object]) -> str:
    listed = ", ".join(map(literal, values))
    return f"array_has_any({column}, [{listed}])" if listed else "false"


def _links(tables: Tables, packed: bytes | None) -> list[Link]:
    if packed is None:
        return []
    with _unpacking(tables):
        return unpack_links(packed)


def _link_keys(tables: Tables, packed: bytes | None) -> Iterator[str]:
    return filter(None, (link_key(link.target) for link in _links(tables, packed)))


@contextmanager
def _unpacking(tables: Tables) -> Iterator[None]:
    """Stored values are taken apart in this block, and where that fails the index is damaged."""
    try:
        yield
    except (ValueError, TypeError, zlib.error) as exc:
        message = f"index '{tables.connection.address}' is damaged"
        raise StoreError(message, "make it anew from your files") from exc
