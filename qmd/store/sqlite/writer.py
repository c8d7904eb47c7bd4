"""The write side of an index in an SQLite file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING

from msgspec.structs import astuple

from qmd.addresses import is_below
from qmd.file_names import to_text
from qmd.records import Collection
from qmd.status import SkippedFile
from qmd.store.records import KnownFile, NewDocument, pack_skipped
from qmd.store.sqlite.chunks import ChunkWriter
from qmd.store.sqlite.documents import SKIPPED_COLUMNS
from qmd.store.sqlite.index import SqliteReader
from qmd.store.sqlite.links import LinkWriter

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_TABLES_OF_COLLECTIONS = (
    ("qmd_collections", "name"),
    ("left_out", "collection"),
    ("touched", "collection"),
    ("folders", "collection"),
)
"""(table, column of the name), without `documents`."""

_STORED = attrgetter(
    *("path", "title", "hash", "modified_at", "n_chars", "size_bytes", "mtime_ns", "metadata_json", "heading", "date")
)


class SqliteWriter(SqliteReader, ChunkWriter, LinkWriter):
    """The write side: one at a time per index (waits for the lock, then `BusyError`)."""

    def transaction(self) -> AbstractContextManager[None]:
        return self.database.transaction()

    def put_collections(self, collections: Sequence[Collection]) -> None:
        self.database.run("DELETE FROM qmd_collections")
        sql = (
            "INSERT INTO qmd_collections (name, path, pattern, ignore_json, context_json, update_command,"
            " include_by_default, gitignore, position) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
        )
        for position, one in enumerate(collections):
            ignore = json.dumps(list(one.ignore), ensure_ascii=False)
            context = json.dumps(dict(one.context), ensure_ascii=False)
            row = (one.name, to_text(one.path), one.pattern, ignore, context, one.update_command)
            self.database.run(sql, (*row, int(one.include_by_default), int(one.gitignore), position))

    def set_facts(self, facts: Mapping[str, str | None]) -> None:
        with self.database.transaction():
            for key, value in facts.items():
                if value is None:
                    self.database.run("DELETE FROM meta WHERE key = ?", (key,))
                else:
                    self.database.run("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", (key, value))

    def known_files(self, collection: str, below: str = "") -> Mapping[str, KnownFile]:
        sql = "SELECT path, id, hash, size_bytes, mtime_ns FROM documents WHERE collection = ? AND path >= ?"
        # `0` comes after `/`.
        sql, last = (f"{sql} AND path < ?", [f"{below}0"]) if below else (sql, [])
        rows = self.database.rows(sql, (collection, below, *last))
        return {path: KnownFile(*known) for path, *known in rows if not below or is_below(path, below)}

    def put_skipped(self, collection: str, files: Iterable[SkippedFile]) -> None:
        with self.database.transaction():
            self.database.run("DELETE FROM left_out WHERE collection = ?", (collection,))
            self.database.run_many(
                f"INSERT OR REPLACE INTO left_out ({SKIPPED_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)",
                [
                    (collection, one.path, one.message, one.size_bytes, one.mtime_ns, one.program)
                    for one in map(pack_skipped, files)
                ],
            )

    def put_folders(self, collection: str, changed: Mapping[str, int], gone: Iterable[str]) -> None:
        with self.database.transaction():
            self.database.run_many(
                "INSERT OR REPLACE INTO folders (collection, path, mtime_ns) VALUES (?, ?, ?)",
                [(collection, path, mtime_ns) for path, mtime_ns in changed.items()],
            )
            sql = "DELETE FROM folders WHERE collection = ? AND path = ?"
            self.database.run_many(sql, [(collection, path) for path in gone])

    def put_documents(self, collection: str, new_documents: Iterable[NewDocument]) -> None:
        """See `IndexWriter`.

        Replaced rows are deleted first, then follow only plain inserts with ascending ids: an upsert, a RETURNING
        clause or a lower id between them makes FTS5 write out its buffer for every row.
        """
        database = self.database
        with database.transaction():
            batch = {document.path: document for document in new_documents}
            replaced = self._remove_rows(collection, list(batch), batch)
            self._touch_links(collection, [one.links for path, one in batch.items() if path not in replaced])
            # AUTOINCREMENT's own counter: an id is never reused, so a reader cannot mistake one document for another.
            next_id = int(database.value("SELECT seq FROM sqlite_sequence WHERE name = 'documents'") or 0) + 1
            numbered = list(enumerate(batch.values(), start=next_id))
            self._put_texts(list(batch.values()))
            database.run_many(
                "INSERT INTO documents (id, collection, created_at, path, title, hash, modified_at, n_chars,"
                " size_bytes, mtime_ns, metadata, heading, date) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [(at, collection, replaced.get(d.path, (d.created_at,))[0], *_STORED(d)) for at, d in numbered],
            )
            names = sorted((key, at, kind) for at, one in numbered for key, kind in one.names.items())
            database.run_many("INSERT INTO names (key, document, kind) VALUES (?, ?, ?)", names)
            self._put_links({at: one.links for at, one in numbered if one.links is not None})
            sql = "INSERT INTO terms (rowid, title, headings, path, body, extra) VALUES (?, ?, ?, ?, ?, ?)"
            database.run_many(sql, [(at, *astuple(one.terms)) for at, one in numbered])
            kept = {one.hash for one in batch.values()}
            self._drop_unused_content({content_hash for _, content_hash in replaced.values()} - kept)

    def _put_texts(self, documents: Sequence[NewDocument]) -> None:
        """Store new texts; of equal texts the first, in their order."""
        texts = {one.hash: one for one in [*documents, *reversed(documents)]}
        stored = {row[0] for row in self.database.select_in("SELECT hash FROM content WHERE hash IN ({})", list(texts))}
        new = [(one.hash, one.created_at, one.n_chars, one.doc) for one in texts.values() if one.hash not in stored]
        self.database.run_many("INSERT INTO content (hash, created_at, n_chars, doc) VALUES (?, ?, ?, ?)", new)

    def touch(self, document_id: int, size_bytes: int, mtime_ns: int, modified_at: str) -> None:
        sql = "UPDATE documents SET size_bytes = ?, mtime_ns = ?, modified_at = ? WHERE id = ?"
        self.database.run(sql, (size_bytes, mtime_ns, modified_at, document_id))

    def remove_documents(self, collection: str, paths: Iterable[str]) -> int:
        with self.database.transaction():
            removed = self._remove_rows(collection, list(paths))
            self._drop_unused_content({content_hash for _, content_hash in removed.values()})
            return len(removed)

    def collections_with_documents(self) -> Sequence[str]:
        # A step through the index for each name, not for each document.
        sql = (
            "WITH RECURSIVE found (name) AS (SELECT min(collection) FROM documents UNION ALL"
            " SELECT (SELECT min(collection) FROM documents WHERE collection > name) FROM found WHERE name IS NOT NULL)"
            " SELECT name FROM found WHERE name IS NOT NULL"
        )
        return [name for (name,) in self.database.rows(sql)]

    def drop_collection(self, name: str) -> int:
        paths = self.database.rows("SELECT path FROM documents WHERE collection = ?", (name,))
        removed = self.remove_documents(name, [path for (path,) in paths])
        for table, column in _TABLES_OF_COLLECTIONS:
            self.database.run(f"DELETE FROM {table} WHERE {column} = ?", (name,))
        return removed

    def move_collection(self, old: str, new: str) -> None:
        self.database.run("DELETE FROM left_out WHERE collection = ?", (new,))
        for table, column in (("documents", "collection"), *_TABLES_OF_COLLECTIONS):
            self.database.run(f"UPDATE {table} SET {column} = ? WHERE {column} = ?", (new, old))

    def prepare_vectors(self) -> None:
        from qmd.store.sqlite.vec0 import enable

        enable(self.database)

    def put_vectors(self, fingerprint: str, dim: int, new_vectors: Mapping[bytes, npt.NDArray[np.float32]]) -> None:
        from qmd.store.sqlite import vectors

        with self.database.transaction():
            vectors.put_vectors(self.database, fingerprint, dim, new_vectors)

    def keep_models(self, names: Mapping[str, str]) -> None:
        from qmd.store.sqlite import vectors

        with self.database.transaction():
            vectors.keep_models(self.database, names)

    def cleanup(self, *, dry_run: bool = False) -> Mapping[str, int]:
        from qmd.store.sqlite import health

        return health.cleanup(self.database, dry_run=dry_run)

    def _remove_rows(
        self, collection: str, paths: Sequence[str], successors: Mapping[str, NewDocument] = {}
    ) -> dict[str, tuple[str, str]]:
        """Delete documents and their terms, for which those of `successors` are written; return (created_at, hash)
        by path.
        """
        sql = "SELECT path, created_at, hash, id FROM documents WHERE collection = ? AND path IN ({})"
        found = sorted(self.database.select_in(sql, paths, (collection,)), key=itemgetter(3))
        self._remove_links(collection, {row[3]: getattr(successors.get(row[0]), "links", None) for row in found})
        ids = [(row[3],) for row in found]
        self.database.run_many("DELETE FROM terms WHERE rowid = ?", ids)
        self.database.run_many("DELETE FROM names WHERE document = ?", ids)
        self.database.run_many("DELETE FROM documents WHERE id = ?", ids)
        return {path: (created_at, content_hash) for path, created_at, content_hash, _ in found}

    def _drop_unused_content(self, hashes: set[str]) -> None:
        """Delete those of `hashes` that no document has; their vectors stay, by key, for a text that comes back."""
        database = self.database
        used = {row[0] for row in database.select_in("SELECT hash FROM documents WHERE hash IN ({})", list(hashes))}
        unused = [content_hash for content_hash in hashes if content_hash not in used]
        ids = [(row[0],) for row in database.select_in("SELECT id FROM content WHERE hash IN ({})", unused)]
        for (model,) in database.rows("SELECT id FROM models") if ids else ():
            pairs = [(model, content) for (content,) in ids]
            database.run_many("DELETE FROM chunks WHERE model = ? AND content = ?", pairs)
            database.run_many("DELETE FROM embedded WHERE model = ? AND content = ?", pairs)
        database.run_many("DELETE FROM content WHERE id = ?", ids)
