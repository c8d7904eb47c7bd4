"""Reading documents and collections: rows of the tables as the records of qmd."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Collection as Names
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import msgspec
from msgspec.structs import replace

from qmd.analysis.note_names import NamedNote, link_key, path_key
from qmd.batching import batches
from qmd.errors import StoreError
from qmd.plugins.lance.scope import LanceScope, scope_condition
from qmd.plugins.lance.tables import Connection, Row, Tables, both, is_in, literal
from qmd.records import Collection, Link, NameKind, Scope, StoredDocument
from qmd.status import SkippedFile
from qmd.store.base import IndexReader
from qmd.store.linking import Written
from qmd.store.records import (
    NamedDocument,
    StoredFile,
    decode_metadata,
    hash_key,
    unpack_links,
    unpack_skipped,
    unpack_text,
)

COLUMNS = ("id", "collection", "path", "title", "hash", "modified_at", "n_chars", "metadata", "date")
"""In the order of `StoredDocument`."""

_FILES_AT_A_TIME = 2_000
_STORED_AT_A_TIME = 256


class Documents(IndexReader):
    """Read methods for documents and collections; the other parts read the same tables."""

    def __init__(self, connection: Connection, local_state: Path) -> None:
        self._connection = connection
        self._local_state = local_state
        self._pinned = Tables(connection, connection.read_state(connection.open_state())).share()

    @property
    def path(self) -> Path:
        return self._local_state

    @property
    def _tables(self) -> Tables:
        return self._pinned

    def close(self) -> None:
        self._pinned = Tables(self._connection, self._pinned.state)

    def snapshot(self) -> AbstractContextManager[None]:
        return nullcontext()

    def stop_when(self, is_over: Callable[[], bool] | None) -> None:
        self._tables.is_over = is_over

    def collections(self) -> Sequence[Collection]:
        return self._tables.state.collections

    def facts(self) -> Mapping[str, str]:
        return self._tables.state.meta

    def recorded_files(self, collection: str) -> Iterator[Sequence[tuple[str, int, int]]]:
        rows = self._tables.select("documents", ("path", "size_bytes", "mtime_ns"), of_collection(collection))
        yield from batches(sorted((row["path"], row["size_bytes"], row["mtime_ns"]) for row in rows), _FILES_AT_A_TIME)

    def recorded_folders(self, collection: str) -> Mapping[str, int]:
        rows = self._tables.select("places", ("path", "value"), both("kind = 'folder'", of_collection(collection)))
        return {row["path"]: int(row["value"]) for row in rows}

    def left_out(self, collection: str | None) -> list[SkippedFile]:
        """With None those of all collections, by collection and path."""
        inside = "" if collection is None else of_collection(collection)
        rows = self._tables.select("places", ("collection", "value"), both("kind = 'left_out'", inside))
        files = [(msgspec.json.decode(row["value"], type=SkippedFile), row["collection"]) for row in rows]
        found = [replace(unpack_skipped(file), collection=name) for file, name in files]
        return sorted(found, key=lambda one: (one.collection, one.path))

    def documents(self, ids: Sequence[int]) -> Mapping[int, StoredDocument]:
        rows = self._tables.select_in("documents", COLUMNS, "id", ids)
        return {document.id: document for document in _stored_documents(rows)}

    def texts(self, hashes: Sequence[str]) -> dict[str, str]:
        tables = self._tables
        packed = {row["hash"]: row["doc"] for row in tables.select_in("documents", ("hash", "doc"), "hash", hashes)}
        with _unpacking(tables):
            return {content_hash: unpack_text(doc) for content_hash, doc in packed.items()}

    def find_path(self, collection: str, path: str) -> StoredDocument | None:
        return next(iter(self._stored(both(of_collection(collection), f"path = {literal(path)}"))), None)

    def find_named(self, name: str, scope: Scope = Scope(), limit: int = 50) -> Sequence[NamedDocument]:
        where = both(f"array_has_any(name_keys, [{literal(name)}])", scope_condition(self._tables, scope))
        rows = self._tables.select("documents", ("id", "name_keys", "name_kinds"), where)
        found = [NamedDocument(row["id"], kind) for row in rows for key, kind in names_in(row) if key == name]
        return sorted(found, key=lambda one: one.document_id)[:limit]

    def find_by_date(
        self, days: Sequence[tuple[str, str]], scope: Scope, limit: int, *, by_file_time: bool = False
    ) -> Sequence[int]:
        writer = LanceScope(self._tables)
        where = both(writer.dated(days, by_file_time=by_file_time), *writer.scope(scope))
        return sorted(row["id"] for row in self._tables.select("documents", ("id",), where))[:limit]

    def links(self) -> LanceLinks:
        return LanceLinks(self._tables)

    def find_docid(self, prefix: str) -> Sequence[StoredDocument]:
        return self._stored(f"starts_with(hash, {literal(prefix.lower())})")[:10] if prefix else []

    def iter_documents(self, scope: Scope = Scope()) -> Iterator[StoredDocument]:
        for document in self._stored(scope_condition(self._tables, scope)):
            self._tables.check()
            yield document

    def count_documents(self, scope: Scope = Scope()) -> int:
        tables, where = self._tables, of_collections(scope.collections)
        return tables.once(("documents", where), lambda: tables.count("documents", where))

    def stored_files(self) -> Iterator[list[StoredFile]]:
        columns = StoredFile.__struct_fields__
        rows = sorted(self._tables.select("documents", ("id", *columns)), key=lambda row: int(row["id"]))
        for part in batches(rows, _STORED_AT_A_TIME):
            yield [StoredFile(*(row[name] for name in columns)) for row in part]

    def _stored(self, where: str) -> list[StoredDocument]:
        found = _stored_documents(self._tables.select("documents", COLUMNS, where))
        return sorted(found, key=lambda one: (one.collection, one.path))


def of_collection(collection: str) -> str:
    """Return the condition that a row belongs to a collection."""
    return f"collection = {literal(collection)}"


def of_collections(names: Sequence[str] | None) -> str:
    """Return the condition that a row belongs to one of these collections, or with None to any."""
    return "" if names is None else is_in("collection", names)


def _stored_documents(rows: Iterable[Row]) -> list[StoredDocument]:
    decoded = ({**row, "metadata": decode_metadata(row["metadata"])} for row in rows)
    return [StoredDocument(*(row[name] for name in COLUMNS)) for row in decoded]


class LanceLinks:
    """The `LinkTables` of an index."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def links_in(self, document_id: int) -> Sequence[Link]:
        rows = self._tables.select("documents", ("links",), f"id = {document_id}")
        return [link for row in rows for link in _links(self._tables, row["links"])]

    def written(self, collection: str, keys: Names[str], limit: int | None = None) -> Iterator[Written]:
        where = both(of_collection(collection), _has_any("link_keys", map(hash_key, keys)))
        rows = self._tables.select("documents", ("path", "id", "links"), where)
        for row in sorted(sorted(rows, key=lambda row: int(row["id"]))[:limit], key=lambda row: str(row["path"])):
            yield row["id"], row["path"], _links(self._tables, row["links"])

    def count_links(self, keys: Names[str]) -> int:
        wanted = set(map(hash_key, keys))
        rows = self._tables.select("documents", ("link_keys", "link_counts"), _has_any("link_keys", wanted))
        counts = (one for row in rows for one in zip(row["link_keys"], row["link_counts"], strict=True))
        return sum(n for key, n in counts if key in wanted)

    def names_of(self, ids: Sequence[int]) -> Iterator[tuple[int, str]]:
        rows = self._tables.select_in("documents", ("id", "name_keys"), "id", ids)
        return ((row["id"], key) for row in rows for key in row["name_keys"])

    def named(self, collection: str, keys: Names[str]) -> dict[str, list[NamedNote]]:
        where = both(of_collection(collection), _has_any("name_keys", keys))
        named: defaultdict[str, list[NamedNote]] = defaultdict(list)
        rows = self._tables.select("documents", ("path", "id", "name_keys", "name_kinds"), where)
        for row in sorted(rows, key=lambda row: str(row["path"])):
            for key, kind in names_in(row):
                if key in keys:
                    named[key].append(NamedNote(row["id"], path_key(row["path"]), kind))
        return named


def names_in(row: Row) -> Iterator[tuple[str, NameKind]]:
    """Yield the names of a document with their kinds, from a row with `name_keys` and `name_kinds`."""
    return zip(row["name_keys"], row["name_kinds"], strict=True)


def _has_any(column: str, values: Iterable[object]) -> str:
    listed = ", ".join(map(literal, values))
    return f"array_has_any({column}, [{listed}])" if listed else "false"


def _links(tables: Tables, packed: bytes | None) -> list[Link]:
    if packed is None:
        return []
    with _unpacking(tables):
        return unpack_links(packed)


def link_keys(tables: Tables, packed: bytes | None) -> Iterator[str]:
    return filter(None, (link_key(link.target) for link in _links(tables, packed)))


@contextmanager
def _unpacking(tables: Tables) -> Iterator[None]:
    """Report a failure to decode stored values in this block as damage of the index."""
    try:
        yield
    except (ValueError, TypeError, zlib.error) as exc:
        raise StoreError(f"index '{tables.connection.address}' is damaged", "rebuild it from your files") from exc
