"""Documents, their texts and collections, and the documents in a scope."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from msgspec import Struct, json

from qmd.conditions import Condition
from qmd.file_names import to_disk
from qmd.records import Collection, Scope, StoredDocument
from qmd.status import SkippedFile
from qmd.store.base import IndexReader
from qmd.store.filters import ScopeWriter
from qmd.store.records import NamedDocument, StoredFile, decode_metadata, unpack_skipped, unpack_text
from qmd.store.sqlite.connection import Database, Row

COLUMNS = "id, collection, path, title, hash, modified_at, n_chars, metadata, date"
"""In the order of `StoredDocument`."""
SKIPPED_COLUMNS = "collection, path, reason, size_bytes, mtime_ns, program"
"""In the order of `SkippedFile`."""

_FILES_AT_A_TIME = 2_000
"""Batch size of files that are only listed, where milliseconds count."""

_STORED_AT_A_TIME, _CONDITIONS_KNOWN = 256, 128


class Documents(IndexReader):
    """Read methods for documents and collections; the other parts read the same database."""

    def __init__(self, database: Database) -> None:
        self.database = database

    @property
    def path(self) -> Path:
        return self.database.path

    def close(self) -> None:
        self.database.close()

    def snapshot(self) -> AbstractContextManager[None]:
        return self.database.snapshot()

    def stop_when(self, is_over: Callable[[], bool] | None) -> None:
        self.database.stop_when(is_over)

    def collections(self) -> list[Collection]:
        sql = (
            "SELECT name, path, pattern, ignore_json, context_json, update_command, include_by_default, gitignore "
            "FROM qmd_collections ORDER BY position, name"
        )
        with self.database.decoding():
            return [
                Collection(
                    name=name,
                    path=Path(to_disk(path)),
                    pattern=pattern,
                    ignore=tuple(json.decode(ignore)),
                    context=json.decode(context),
                    update_command=command,
                    include_by_default=bool(included),
                    gitignore=bool(gitignore),
                )
                for name, path, pattern, ignore, context, command, included, gitignore in self.database.rows(sql)
            ]

    def facts(self) -> Mapping[str, str]:
        return dict(self.database.rows("SELECT key, value FROM meta"))

    def recorded_files(self, collection: str) -> Iterator[list[Row]]:
        sql = (
            "SELECT path, size_bytes, mtime_ns FROM documents WHERE collection = ? AND path > ?"
            f" ORDER BY path LIMIT {_FILES_AT_A_TIME}"
        )
        last = ""
        while rows := self.database.rows(sql, (collection, last)):
            yield rows
            last = rows[-1][0]

    def recorded_folders(self, collection: str) -> Mapping[str, int]:
        return dict(self.database.rows("SELECT path, mtime_ns FROM folders WHERE collection = ?", (collection,)))

    def left_out(self, collection: str | None) -> list[SkippedFile]:
        """With None those of all collections, by collection and path."""
        sql = f"SELECT {SKIPPED_COLUMNS} FROM left_out WHERE ?1 IS NULL OR collection = ?1 ORDER BY collection, path"
        return [unpack_skipped(SkippedFile(*row)) for row in self.database.rows(sql, (collection,))]

    def documents(self, ids: Sequence[int]) -> Mapping[int, StoredDocument]:
        found = self.database.select_in(f"SELECT {COLUMNS} FROM documents WHERE id IN ({{}})", ids)
        return {document.id: document for document in self._stored(found)}

    def texts(self, hashes: Sequence[str]) -> dict[str, str]:
        rows = self.database.select_in("SELECT hash, doc FROM content WHERE hash IN ({})", hashes)
        with self.database.decoding():
            return {content_hash: unpack_text(doc) for content_hash, doc in rows}

    def find_path(self, collection: str, path: str) -> StoredDocument | None:
        sql = f"SELECT {COLUMNS} FROM documents WHERE collection = ? AND path = ?"
        return next(iter(self._stored(self.database.rows(sql, (collection, path)))), None)

    def find_named(self, name: str, scope: Scope = Scope(), limit: int = 50) -> Sequence[NamedDocument]:
        condition = scope_condition(self.database, scope)
        rows = self.database.rows(
            "SELECT names.document, names.kind FROM names CROSS JOIN documents ON documents.id = names.document"
            f" WHERE names.key = ? {'AND ' + condition.sql if condition.sql else ''} ORDER BY names.document LIMIT ?",
            (name, *condition.bindings, limit),
        )
        return [NamedDocument(*row) for row in rows]

    def find_by_date(
        self, days: Sequence[tuple[str, str]], scope: Scope, limit: int, *, by_file_time: bool = False
    ) -> Sequence[int]:
        writer = SqlScope(self.database)
        where = " AND ".join([writer.dated(days, by_file_time=by_file_time), *writer.scope(scope)])
        sql = f"SELECT id FROM documents WHERE {where} ORDER BY id LIMIT ?"
        return [row[0] for row in self.database.rows(sql, (*writer.bindings, limit))]

    def find_docid(self, prefix: str) -> Sequence[StoredDocument]:
        if not prefix:
            return []
        # A range, because LIKE cannot use the index on hash. "g" follows every hex digit.
        where = "hash >= ?1 AND hash < ?1 || 'g'"
        sql = f"SELECT {COLUMNS} FROM documents WHERE {where} ORDER BY collection, path LIMIT 10"
        return self._stored(self.database.rows(sql, (prefix.lower(),)))

    def field_names(self) -> frozenset[str]:
        sql = "SELECT DISTINCT one.key FROM documents, json_each(metadata) AS one"
        return frozenset(row[0] for row in self.database.rows(sql))

    def iter_documents(self, scope: Scope = Scope()) -> Iterator[StoredDocument]:
        condition = scope_condition(self.database, scope)
        sql = f"SELECT {COLUMNS} FROM documents WHERE {condition.sql or 1} ORDER BY collection, path"
        for document in self._stored(self.database.rows(sql, condition.bindings)):
            self.database.check()
            yield document

    def stored_files(self) -> Iterator[list[StoredFile]]:
        sql = (
            "SELECT id, collection, path, hash, size_bytes, mtime_ns, created_at, modified_at FROM documents"
            f" WHERE id > ? ORDER BY id LIMIT {_STORED_AT_A_TIME}"
        )
        last = 0
        while rows := self.database.rows(sql, (last,)):
            yield [StoredFile(*facts) for _, *facts in rows]
            last = rows[-1][0]

    def _stored(self, rows: Iterable[Row]) -> list[StoredDocument]:
        with self.database.decoding():
            return [StoredDocument(*[*row[:-2], decode_metadata(row[-2]), row[-1]]) for row in rows]


class SqlCondition(Struct, frozen=True):
    """An SQL condition on `documents` with its bindings; `sql` is empty if every document is in scope."""

    sql: str
    bindings: tuple[object, ...]


def scope_condition(database: Database, scope: Scope) -> SqlCondition:
    writer = SqlScope(database)
    return SqlCondition(" AND ".join(writer.scope(scope)), tuple(writer.bindings))


class SqlScope(ScopeWriter):
    """Conditions in SQLite's SQL; `bindings` are the values of the written conditions, in their order."""

    def __init__(self, database: Database) -> None:
        super().__init__()
        self._database = database
        self.bindings: list[object] = []

    def value(self, value: object) -> str:
        self.bindings.append(value)
        return "?"

    def begins(self, column: str, text: str) -> str:
        return f"substr({column}, 1, {len(text)}) = {self.value(text)}"

    def contains(self, column: str, text: str) -> str:
        return f"instr({column}, {self.value(text)}) > 0"

    def contains_folded(self, column: str, text: str) -> str:
        return self.contains(f"casefold({column})", text)

    def matches(self, column: str, mask: str) -> str:
        return f"{column} GLOB {self.value(mask)}"

    def tagged(self, tag: str) -> str:
        found = "ltrim(casefold(m.value), '#')"
        tests = [
            f"EXISTS (SELECT 1 FROM json_each(metadata, '$.{key}') AS m"
            f" WHERE {found} = {self.value(tag)} OR {self.begins(found, f'{tag}/')})"
            for key in ("tag", "tags")
        ]
        return f"({' OR '.join(tests)})"

    def metadata_clause(self, condition: Condition) -> str:
        matching = self.value(_documents_matching(self._database, condition))
        return f"documents.id IN (SELECT value FROM json_each({matching}))"


def _documents_matching(database: Database, condition: Condition) -> str:
    """Return the documents whose front matter meets a condition, as a JSON list."""
    key, state, known = ("", condition), database.state(), database.statistics
    if known.get(key, key)[0] != state:
        found: list[int] = []
        for number, metadata in database.rows("SELECT id, metadata FROM documents"):
            database.check()
            with database.decoding():
                found += [number] * condition.holds(json.decode(metadata))
        if len(known) >= _CONDITIONS_KNOWN:
            known.clear()
        known[key] = state, str(found)
    return str(known[key][1])
