"""The write side of an index in LanceDB tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
from msgspec.structs import asdict, replace

from qmd.addresses import is_below
from qmd.batching import batches
from qmd.errors import StoreError
from qmd.plugins.lance.claim import Claim
from qmd.plugins.lance.dense import Dense
from qmd.plugins.lance.documents import LanceLinks, link_keys, of_collection
from qmd.plugins.lance.health import HealthWriter
from qmd.plugins.lance.lexical import Lexical, add_words
from qmd.plugins.lance.scope import facts_of
from qmd.plugins.lance.state import encode_state
from qmd.plugins.lance.tables import Connection, OpenTables, Row, Tables, both, is_in
from qmd.records import Collection, IndexTerms
from qmd.status import SkippedFile
from qmd.store.linking import anchors_of, correct_titles
from qmd.store.records import KnownFile, NewDocument, pack_skipped

_TITLES = 3
"""Repetitions of the title in the searched text, which has other fields once: near to its weight in `FIELD_WEIGHTS`
of SQLite's engine."""

_BORDER = "\nqmdborder\n"
"""Text between two fields, so that no phrase crosses from one into the next."""

_ANCHORS_AT_ONCE = 20_000


class LanceWriter(Lexical, Dense, HealthWriter):
    """The write side: one transaction at a time per index, whichever machine it runs on.

    Args:
        connection: The index.
        local_state: Path of this machine's own state for it.
        wait_s: Longest wait of a transaction for another writer.
    """

    def __init__(self, connection: Connection, local_state: Path, wait_s: float) -> None:
        super().__init__(connection, local_state)
        self._wait_s = wait_s
        self._changing: OpenTables | None = None
        self._unwritten: dict[str, dict[str, NewDocument]] = {}
        self._touched: dict[int, Row] = {}
        self._words: tuple[int | None, set[str] | None] = (None, None)

    @property
    def _tables(self) -> Tables:
        return self._pinned if self._changing is None else self._open

    @property
    def _open(self) -> OpenTables:
        """Return the tables of the transaction, with all changes so far."""
        if self._changing is None:
            raise RuntimeError("outside of a transaction")
        # Join many small changes: each costs a version of a table.
        waiting, self._unwritten = self._unwritten, {}
        for collection, batch in waiting.items():
            _write_documents(self._changing, collection, batch)
        touched, self._touched = self._touched, {}
        self._changing.patch_documents(list(touched.values()))
        return self._changing

    @contextmanager
    def transaction(self) -> Iterator[None]:
        if self._changing is not None:
            yield
            return
        claim = Claim(self._connection, self._wait_s)
        try:
            state = claim.state()
            before = encode_state(state)
            self._changing = OpenTables(self._connection, state, claim.confirm)
            self._changing.is_over = self._pinned.is_over
            if self._words[0] == state.versions.get("words"):
                self._changing.words = self._words[1]
            yield
            tables = self._open
        except BaseException:
            self._changing, self._unwritten, self._touched = None, {}, {}
            self._words = (None, None)
            # The first failure matters more; the next writer takes over a remaining claim.
            with suppress(StoreError):
                claim.end(None)
            raise
        self._changing, self._words = None, (None, None)
        claim.end(state if encode_state(state) != before else None)
        self._words = (state.versions.get("words"), tables.words)
        self._pinned = Tables(self._connection, state)
        self._pinned.is_over = tables.is_over

    def put_collections(self, collections: Sequence[Collection]) -> None:
        self._open.state.collections = list(collections)

    def set_facts(self, facts: Mapping[str, str | None]) -> None:
        with self.transaction():
            meta = self._open.state.meta
            for key, value in facts.items():
                meta.pop(key, None)
                if value is not None:
                    meta[key] = value

    def known_files(self, collection: str, below: str = "") -> Mapping[str, KnownFile]:
        columns = ("path", "id", "hash", "size_bytes", "mtime_ns")
        rows = self._tables.select("documents", columns, of_collection(collection))
        known = {row["path"]: KnownFile(*(row[name] for name in columns[1:])) for row in rows}
        return {path: file for path, file in known.items() if is_below(path, below)}

    def put_skipped(self, collection: str, files: Iterable[SkippedFile]) -> None:
        wanted = {one.path: one for one in files}
        if list(self.left_out(collection)) == sorted(wanted.values(), key=lambda one: one.path):
            return
        with self.transaction():
            self._open.delete("places", both("kind = 'left_out'", of_collection(collection)))
            values = {path: msgspec.json.encode(pack_skipped(one)).decode() for path, one in wanted.items()}
            self._open.add("places", _places("left_out", collection, values))

    def put_folders(self, collection: str, changed: Mapping[str, int], gone: Iterable[str]) -> None:
        with self.transaction():
            where = both("kind = 'folder'", of_collection(collection))
            self._open.delete_in("places", "path", sorted({*changed, *gone}), where)
            values = {path: str(mtime_ns) for path, mtime_ns in changed.items()}
            self._open.add("places", _places("folder", collection, values))

    def put_documents(self, collection: str, new_documents: Iterable[NewDocument]) -> None:
        with self.transaction():
            waiting = self._unwritten.setdefault(collection, {})
            for document in new_documents:
                # In the order of their last writing, as their ids are.
                waiting.pop(document.path, None)
                waiting[document.path] = document

    def settle_since(self, collection: str, since: int) -> int:
        tables = self._open
        mine = of_collection(collection)
        self._settle_titles(mine)
        where = both(mine, "anchors IS NOT NULL")
        links = LanceLinks(tables)
        new = tables.select("documents", ("id",), both(mine, f"id > {since}"))
        newest = max((row["id"] for row in new), default=since)
        touched = f"kind = 'touched' AND {mine}"
        if since:
            keys = {row["path"] for row in tables.select("places", ("path",), touched)}
            if newest == since and not keys:
                return since
            for row in tables.select("documents", ("name_keys", "links"), both(mine, f"id > {since}")):
                keys.update(row["name_keys"], link_keys(tables, row["links"]))
            targets = sorted({one.document_id for found in links.named(collection, keys).values() for one in found})
        else:
            targets = [row["id"] for row in tables.select("documents", ("id",), mine)]
        for part in batches(targets, _ANCHORS_AT_ONCE):
            rows = tables.select_in("documents", ("id", "anchors"), "id", part, where)
            stored = {row["id"]: row["anchors"] for row in rows}
            made = anchors_of(links, collection, part)
            changed = [one for one in part if made.get(one) != stored.get(one)]
            tables.patch_documents([{"id": one, "anchors": made.get(one)} for one in changed])
        tables.delete("places", touched)
        return newest

    def _settle_titles(self, where: str) -> None:
        columns = ("id", "path", "title", "heading")
        rows = self._open.select("documents", columns, both(where, "heading IS NOT NULL"))
        titles = correct_titles([(row["id"], row["path"], row["title"], row["heading"]) for row in rows])
        self._open.patch_documents([{"id": document_id, "title": title} for title, document_id in titles])

    def touch(self, document_id: int, size_bytes: int, mtime_ns: int, modified_at: str) -> None:
        facts = {"id": document_id, "size_bytes": size_bytes, "mtime_ns": mtime_ns, "modified_at": modified_at}
        with self.transaction():
            self._touched[document_id] = facts

    def remove_documents(self, collection: str, paths: Iterable[str]) -> int:
        if not (wanted := list(paths)):
            return 0
        with self.transaction():
            removed = _remove_rows(self._open, collection, wanted)
            _drop_chunks(self._open, {row["hash"] for row in removed.values()})
            return len(removed)

    def collections_with_documents(self) -> Sequence[str]:
        return sorted({row["collection"] for row in self._tables.select("documents", ("collection",))})

    def drop_collection(self, name: str) -> int:
        tables = self._open
        paths = [row["path"] for row in tables.select("documents", ("path",), of_collection(name))]
        removed = self.remove_documents(name, paths)
        tables.delete("places", of_collection(name))
        tables.state.collections = [one for one in tables.state.collections if one.name != name]
        return removed

    def move_collection(self, old: str, new: str) -> None:
        tables = self._open
        rows = tables.select("documents", ("id",), of_collection(old))
        tables.patch_documents([{"id": row["id"], "collection": new} for row in rows])
        places = tables.select("places", ("kind", "path", "value"), of_collection(old))
        tables.delete("places", is_in("collection", (old, new)))
        tables.add("places", [{**row, "collection": new} for row in places])
        known = tables.state.collections
        tables.state.collections = [replace(one, name=new) if one.name == old else one for one in known]


def _places(kind: str, collection: str, values: Mapping[str, str | None]) -> list[Row]:
    return [{"kind": kind, "collection": collection, "path": path, "value": one} for path, one in values.items()]


def _write_documents(tables: OpenTables, collection: str, documents: Mapping[str, NewDocument]) -> None:
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
    _drop_chunks(tables, {row["hash"] for row in replaced.values()} - {one.hash for one in documents.values()})


def _row(document: NewDocument, document_id: int, collection: str, created_at: str) -> Row:
    links = document.links
    return {
        # Fields that are no columns are ignored.
        **asdict(document),
        "id": document_id,
        "collection": collection,
        "created_at": created_at,
        "metadata": document.metadata_json,
        "facts": facts_of(msgspec.json.decode(document.metadata_json)),
        "name_keys": list(document.names),
        "name_kinds": list(document.names.values()),
        "link_keys": list(links.counts) if links else [],
        "link_counts": list(links.counts.values()) if links else [],
        "links": links.packed if links else None,
        "terms": _searched(document.terms),
        "anchors": None,
    }


def _searched(terms: IndexTerms) -> str:
    fields = [*[terms.title] * _TITLES, terms.headings, terms.path, terms.body, terms.extra]
    return _BORDER.join(one for one in fields if one).encode("utf-8", "replace").decode()


def _remove_rows(tables: OpenTables, collection: str, paths: Sequence[str]) -> dict[str, Row]:
    """Delete documents and record the affected names; return the deleted rows by path."""
    mine = of_collection(collection)
    if not tables.count("documents", mine):
        return {}
    columns = ("id", "path", "created_at", "hash", "name_keys", "links")
    rows = list(tables.select_in("documents", columns, "path", paths, mine))
    touched = {key for row in rows for key in (*row["name_keys"], *link_keys(tables, row["links"]))}
    known = {row["path"] for row in tables.select("places", ("path",), f"kind = 'touched' AND {mine}")}
    tables.add("places", _places("touched", collection, dict.fromkeys(touched - known)))
    tables.delete_in("documents", "id", [row["id"] for row in rows])
    return {row["path"]: row for row in rows}


def _drop_chunks(tables: OpenTables, hashes: set[str]) -> None:
    """Delete the chunks of texts that no document has; their vectors stay, by key, for a text that comes back."""
    if tables.table("chunks") is not None and hashes:
        used = {row["hash"] for row in tables.select_in("documents", ("hash",), "hash", list(hashes))}
        tables.delete_in("chunks", "hash", list(hashes - used))
