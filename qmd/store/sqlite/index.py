"""The two sides of an index in a SQLite file.

What takes more than a statement of SQL is done by the modules beside this one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from qmd.records import Candidate, Collection, LexicalTerm, Scope, StoredDocument
from qmd.status import IndexStatus, LeftOutFile
from qmd.store.base import IndexReader, IndexWriter
from qmd.store.records import (
    ChunkRecord,
    KnownFile,
    NamedDocument,
    NewDocument,
    PendingContent,
    StoredFile,
    StoredModel,
    VectorCoverage,
)
from qmd.store.sqlite import chunks, documents, lexical
from qmd.store.sqlite.connection import Database
from qmd.store.sqlite.documents import SqlScope, scope_condition

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from qmd.store.sqlite.dense import VectorCache
    from qmd.store.sqlite.links import SqliteLinks

_TABLES_OF_COLLECTIONS = (
    ("qmd_collections", "name"),
    ("left_out", "collection"),
    ("touched", "collection"),
    ("folders", "collection"),
)
"""(table, column of the name), `documents` apart."""


class SqliteReader(IndexReader):
    """The read side: opened read-only, any number at a time, never runs DDL.

    Usable as a context manager; not to be shared between threads.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def path(self) -> Path:
        return self._database.path

    def close(self) -> None:
        self._database.close()

    def snapshot(self) -> AbstractContextManager[None]:
        return self._database.snapshot()

    def stop_when(self, is_over: Callable[[], bool] | None) -> None:
        self._database.stop_when(is_over)

    def collections(self) -> Sequence[Collection]:
        return documents.read_collections(self._database)

    def facts(self) -> Mapping[str, str]:
        return dict(self._database.rows("SELECT key, value FROM meta"))

    def recorded_files(self, collection: str) -> Iterator[Sequence[tuple[str, int, int]]]:
        return documents.recorded_files(self._database, collection)

    def recorded_folders(self, collection: str) -> Mapping[str, int]:
        rows = self._database.rows("SELECT path, mtime_ns FROM folders WHERE collection = ?", (collection,))
        return dict(rows)

    def left_out(self, collection: str) -> Sequence[LeftOutFile]:
        return documents.read_left_out(self._database, collection)

    def documents(self, ids: Sequence[int]) -> Mapping[int, StoredDocument]:
        sql = f"SELECT {documents.COLUMNS} FROM documents WHERE id IN ({{}})"
        found = documents.stored_documents(self._database, self._database.select_in(sql, ids))
        return {document.id: document for document in found}

    def texts(self, hashes: Sequence[str]) -> Mapping[str, str]:
        return documents.fetch_texts(self._database, hashes)

    def find_path(self, collection: str, path: str) -> StoredDocument | None:
        sql = f"SELECT {documents.COLUMNS} FROM documents WHERE collection = ? AND path = ?"
        found = documents.stored_documents(self._database, self._database.rows(sql, (collection, path)))
        return found[0] if found else None

    def find_named(self, name: str, scope: Scope = Scope(), limit: int = 50) -> Sequence[NamedDocument]:
        condition = scope_condition(scope)
        rows = self._database.rows(
            "SELECT names.document, names.kind FROM names CROSS JOIN documents ON documents.id = names.document"
            f" WHERE names.key = ? {'AND ' + condition.sql if condition.sql else ''} ORDER BY names.document LIMIT ?",
            (name, *condition.bindings, limit),
        )
        return [NamedDocument(*row) for row in rows]

    def find_dated(
        self, days: Sequence[tuple[str, str]], scope: Scope, limit: int, *, by_file_time: bool = False
    ) -> Sequence[int]:
        writer = SqlScope()
        where = " AND ".join([writer.dated(days, by_file_time=by_file_time), *writer.scope(scope)])
        sql = f"SELECT id FROM documents WHERE {where} ORDER BY id LIMIT ?"
        return [row[0] for row in self._database.rows(sql, (*writer.bindings, limit))]

    def links(self) -> SqliteLinks:
        from qmd.store.sqlite.links import SqliteLinks

        return SqliteLinks(self._database)

    def find_docid(self, prefix: str) -> Sequence[StoredDocument]:
        if not prefix:
            return []
        # A range, because LIKE cannot use the index on hash. "g" follows every hex digit.
        where = "hash >= ?1 AND hash < ?1 || 'g'"
        sql = f"SELECT {documents.COLUMNS} FROM documents WHERE {where} ORDER BY collection, path LIMIT 10"
        return documents.stored_documents(self._database, self._database.rows(sql, (prefix.lower(),)))

    def iter_documents(self, scope: Scope = Scope()) -> Iterator[StoredDocument]:
        condition = scope_condition(scope)
        sql = f"SELECT {documents.COLUMNS} FROM documents WHERE {condition.sql or 1} ORDER BY collection, path"
        for document in documents.stored_documents(self._database, self._database.rows(sql, condition.bindings)):
            self._database.check()
            yield document

    def count_documents(self, scope: Scope = Scope()) -> int:
        return lexical.count_documents(self._database, scope)

    def search_lexical(
        self,
        terms: Sequence[LexicalTerm],
        k: int,
        scope: Scope,
        *,
        within: Sequence[int] | None = None,
        anchors: bool = False,
    ) -> Sequence[Candidate]:
        with self._database.snapshot():
            return lexical.search_lexical(self._database, terms, k, scope, within=within, anchors=anchors)

    def document_frequencies(self, terms: Sequence[LexicalTerm], scope: Scope = Scope()) -> Sequence[int]:
        return lexical.document_frequencies(self._database, terms, scope)

    def similar_terms(self, term: str, limit: int = 5, scope: Scope = Scope()) -> Sequence[str]:
        from qmd.store.sqlite import spelling

        return spelling.similar_terms(self._database, term, limit, scope)

    def search_dense(
        self, vector: npt.NDArray[np.float32], k: int, scope: Scope, fingerprint: str
    ) -> Sequence[Candidate]:
        with self._database.snapshot():
            return self._vectors.search(vector, k, scope, fingerprint)

    def dense_scores(
        self, vector: npt.NDArray[np.float32], document_ids: Sequence[int], fingerprint: str
    ) -> Mapping[int, Candidate]:
        with self._database.snapshot():
            return self._vectors.score(vector, document_ids, fingerprint)

    def search_like(self, document: StoredDocument, k: int, scope: Scope) -> Sequence[Candidate]:
        with self._database.snapshot():
            return self._vectors.search_like(document.id, k, scope)

    def vector_coverage(self, fingerprint: str) -> VectorCoverage:
        with self._database.snapshot():
            return chunks.vector_coverage(self._database, fingerprint)

    def without_vectors(self, fingerprint: str, hashes: Sequence[str]) -> Mapping[str, str]:
        return chunks.without_vectors(self._database, fingerprint, hashes)

    def vectors(self, fingerprint: str, keys: Sequence[bytes]) -> Mapping[bytes, npt.NDArray[np.float32]]:
        from qmd.store.sqlite import vectors

        with self._database.snapshot():
            return vectors.read_vectors(self._database, fingerprint, keys)

    def status(self, fingerprint: str | None) -> IndexStatus:
        from qmd.store.sqlite import health

        with self._database.snapshot():
            return health.read_status(self._database, fingerprint)

    def stored_files(self) -> Iterator[Sequence[StoredFile]]:
        return documents.stored_files(self._database)

    def models(self) -> Sequence[StoredModel]:
        return chunks.models(self._database)

    def chunk_sets(self, fingerprint: str) -> Iterator[Mapping[str, Sequence[ChunkRecord]]]:
        return chunks.chunk_sets(self._database, fingerprint)

    def all_vectors(self, fingerprint: str) -> Iterator[Mapping[bytes, npt.NDArray[np.float32]]]:
        from qmd.store.sqlite import vectors

        return vectors.all_vectors(self._database, fingerprint)

    def check(self, *, thorough: bool = True) -> Sequence[str]:
        from qmd.store.sqlite import health

        return health.check(self._database, thorough=thorough)

    @cached_property
    def _vectors(self) -> VectorCache:
        from qmd.store.sqlite.dense import VectorCache

        return VectorCache(self._database)


class SqliteWriter(SqliteReader, IndexWriter):
    """The write side: one at a time per index (waits for the lock, then `BusyError`)."""

    def transaction(self) -> AbstractContextManager[None]:
        return self._database.transaction()

    def put_collections(self, collections: Sequence[Collection]) -> None:
        documents.mirror_collections(self._database, collections)

    def set_facts(self, facts: Mapping[str, str | None]) -> None:
        with self.transaction():
            for key, value in facts.items():
                documents.write_meta(self._database, key, value)

    def known_files(self, collection: str) -> Mapping[str, KnownFile]:
        sql = "SELECT path, id, hash, size_bytes, mtime_ns FROM documents WHERE collection = ?"
        rows = self._database.rows(sql, (collection,))
        return {path: KnownFile(number, hash, size, mtime) for path, number, hash, size, mtime in rows}

    def put_left_out(self, collection: str, files: Iterable[LeftOutFile]) -> None:
        with self.transaction():
            self._database.run("DELETE FROM left_out WHERE collection = ?", (collection,))
            self._database.run_many(
                f"INSERT OR REPLACE INTO left_out ({documents.LEFT_OUT_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)",
                [(collection, one.path, one.reason, one.size_bytes, one.mtime_ns, one.program) for one in files],
            )

    def put_folders(self, collection: str, changed: Mapping[str, int], gone: Iterable[str]) -> None:
        with self.transaction():
            self._database.run_many(
                "INSERT OR REPLACE INTO folders (collection, path, mtime_ns) VALUES (?, ?, ?)",
                [(collection, path, mtime_ns) for path, mtime_ns in changed.items()],
            )
            sql = "DELETE FROM folders WHERE collection = ? AND path = ?"
            self._database.run_many(sql, [(collection, path) for path in gone])

    def put_documents(self, collection: str, new_documents: Iterable[NewDocument]) -> None:
        with self.transaction():
            documents.put_documents(self._database, collection, new_documents)

    def settle_titles(self, collection: str) -> None:
        documents.settle_titles(self._database, collection)

    def settle_anchors(self, collection: str, since: int) -> int:
        from qmd.store.sqlite.links import settle_anchors

        return settle_anchors(self._database, collection, since)

    def touch(self, document_id: int, size_bytes: int, mtime_ns: int, modified_at: str) -> None:
        sql = "UPDATE documents SET size_bytes = ?, mtime_ns = ?, modified_at = ? WHERE id = ?"
        self._database.run(sql, (size_bytes, mtime_ns, modified_at, document_id))

    def remove_documents(self, collection: str, paths: Iterable[str]) -> int:
        with self.transaction():
            return documents.remove_documents(self._database, collection, paths)

    def collections_with_documents(self) -> Sequence[str]:
        # A step through the index for each name, not for each document.
        sql = (
            "WITH RECURSIVE found (name) AS (SELECT min(collection) FROM documents UNION ALL"
            " SELECT (SELECT min(collection) FROM documents WHERE collection > name) FROM found WHERE name IS NOT NULL)"
            " SELECT name FROM found WHERE name IS NOT NULL"
        )
        return [name for (name,) in self._database.rows(sql)]

    def drop_collection(self, name: str) -> int:
        paths = self._database.rows("SELECT path FROM documents WHERE collection = ?", (name,))
        removed = documents.remove_documents(self._database, name, [path for (path,) in paths])
        for table, column in _TABLES_OF_COLLECTIONS:
            self._database.run(f"DELETE FROM {table} WHERE {column} = ?", (name,))
        return removed

    def move_collection(self, old: str, new: str) -> None:
        self._database.run("DELETE FROM left_out WHERE collection = ?", (new,))
        for table, column in (("documents", "collection"), *_TABLES_OF_COLLECTIONS):
            self._database.run(f"UPDATE {table} SET {column} = ? WHERE {column} = ?", (new, old))

    def pending(self, fingerprint: str, collections: Sequence[str] | None = None) -> Iterator[PendingContent]:
        return chunks.pending(self._database, fingerprint, collections)

    def count_pending(self, fingerprint: str, collections: Sequence[str] | None = None) -> tuple[int, int]:
        return chunks.count_pending(self._database, fingerprint, collections)

    def existing_keys(self, fingerprint: str, keys: Sequence[bytes]) -> frozenset[bytes]:
        return frozenset(chunks.slots_of(self._database, chunks.known_model(self._database, fingerprint), keys))

    def put_chunks(
        self,
        fingerprint: str,
        dim: int,
        contents: Mapping[str, Sequence[ChunkRecord]],
        *,
        is_complete: bool = True,
    ) -> None:
        with self.transaction():
            chunks.put_chunks(self._database, fingerprint, dim, contents, is_complete=is_complete)

    def forget_chunks(self, fingerprint: str, suffixes: Sequence[str] | None = None) -> None:
        with self.transaction():
            chunks.forget_chunks(self._database, fingerprint, suffixes)

    def prepare_vectors(self) -> None:
        from qmd.store.sqlite.vec0 import enable

        enable(self._database)

    def put_vectors(self, fingerprint: str, dim: int, new_vectors: Mapping[bytes, npt.NDArray[np.float32]]) -> None:
        from qmd.store.sqlite import vectors

        with self.transaction():
            vectors.put_vectors(self._database, fingerprint, dim, new_vectors)

    def keep_models(self, names: Mapping[str, str]) -> None:
        from qmd.store.sqlite import vectors

        with self.transaction():
            vectors.keep_models(self._database, names)

    def cleanup(self, *, dry_run: bool = False) -> Mapping[str, int]:
        from qmd.store.sqlite import health

        return health.cleanup(self._database, dry_run=dry_run)
