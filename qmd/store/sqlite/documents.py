"""Documents, their texts, the collections they belong to, and which of them a scope leaves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from qmd.names import to_disk, to_text
from qmd.records import Collection, MetadataValue, NameKind, Scope, StoredDocument
from qmd.status import LeftOutFile
from qmd.store.filters import ScopeWriter
from qmd.store.records import StoredFile, unpack_text
from qmd.store.sqlite.connection import Database, Row

if TYPE_CHECKING:
    from qmd.store.records import NewDocument


COLUMNS = "id, collection, path, title, hash, modified_at, n_chars, metadata, date"
"""In the order of `StoredDocument`."""
LEFT_OUT_COLUMNS = "collection, path, reason, size_bytes, mtime_ns, program"
"""In the order of `LeftOutFile`."""

_FILES_AT_A_TIME = 2_000
"""Of those that are only looked at: who does so counts milliseconds."""

_STORED_AT_A_TIME = 256


def fetch_texts(database: Database, hashes: Sequence[str]) -> dict[str, str]:
    """Texts by content hash; unknown hashes are absent."""
    rows = database.select_in("SELECT hash, doc FROM content WHERE hash IN ({})", hashes)
    with database.decoding():
        return {content_hash: unpack_text(doc) for content_hash, doc in rows}


def stored_documents(database: Database, rows: Iterable[Row]) -> list[StoredDocument]:
    """Documents of rows of `COLUMNS`."""
    with database.decoding():
        facts = [[*row[:-2], _metadata(row[-2]), row[-1]] for row in rows]
        return [StoredDocument(*one) for one in facts]


def read_collections(database: Database) -> list[Collection]:
    """The collections as last mirrored from the configuration, in its order."""
    sql = (
        "SELECT name, path, pattern, ignore_json, context_json, update_command, include_by_default, gitignore "
        "FROM qmd_collections ORDER BY position, name"
    )
    with database.decoding():
        return [
            Collection(
                name=name,
                path=Path(to_disk(path)),
                pattern=pattern,
                ignore=tuple(_from_json(ignore)),
                context=_from_json(context),
                update_command=command,
                include_by_default=bool(included),
                gitignore=bool(gitignore),
            )
            for name, path, pattern, ignore, context, command, included, gitignore in database.rows(sql)
        ]


def read_left_out(database: Database, collection: str | None) -> list[LeftOutFile]:
    """The files that were left out of one collection, or of all, by collection and path."""
    sql = f"SELECT {LEFT_OUT_COLUMNS} FROM left_out WHERE ?1 IS NULL OR collection = ?1 ORDER BY collection, path"
    return [LeftOutFile(*row) for row in database.rows(sql, (collection,))]


def recorded_files(database: Database, collection: str) -> Iterator[list[Row]]:
    """(path, size in bytes, mtime in ns) of a collection's files as they were read, some thousand at a time."""
    sql = (
        "SELECT path, size_bytes, mtime_ns FROM documents WHERE collection = ? AND path > ?"
        f" ORDER BY path LIMIT {_FILES_AT_A_TIME}"
    )
    last = ""
    while rows := database.rows(sql, (collection, last)):
        yield rows
        last = rows[-1][0]


def stored_files(database: Database) -> Iterator[list[StoredFile]]:
    """What is known of every document's file, by the document's id."""
    sql = (
        "SELECT id, collection, path, hash, size_bytes, mtime_ns, created_at, modified_at FROM documents"
        f" WHERE id > ? ORDER BY id LIMIT {_STORED_AT_A_TIME}"
    )
    last = 0
    while rows := database.rows(sql, (last,)):
        yield [StoredFile(*facts) for _, *facts in rows]
        last = rows[-1][0]


def _metadata(raw: str) -> Mapping[str, MetadataValue]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in _from_json(raw).items()}


def _from_json(raw: str) -> Any:
    # Most values are empty, and a search that meets no other need not import the reader.
    if raw == "{}":
        return {}
    if raw == "[]":
        return []
    import json

    return json.loads(raw)


def write_meta(database: Database, key: str, value: str | None) -> None:
    """Set or, with None, drop one entry of the key-value table."""
    if value is None:
        database.run("DELETE FROM meta WHERE key = ?", (key,))
    else:
        database.run("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", (key, value))


def mirror_collections(database: Database, collections: Sequence[Collection]) -> None:
    """Replace the table of collections; documents stay."""
    import json

    database.run("DELETE FROM qmd_collections")
    database.run_many(
        "INSERT INTO qmd_collections (name, path, pattern, ignore_json, context_json, update_command,"
        " include_by_default, gitignore, position) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (
                collection.name,
                to_text(collection.path),
                collection.pattern,
                json.dumps(list(collection.ignore), ensure_ascii=False),
                json.dumps(dict(collection.context), ensure_ascii=False),
                collection.update_command,
                int(collection.include_by_default),
                int(collection.gitignore),
                position,
            )
            for position, collection in enumerate(collections)
        ],
    )


def put_documents(database: Database, collection: str, documents: Iterable[NewDocument]) -> None:
    """Insert or replace by path.

    Replaced rows go first, then only plain inserts with ascending ids: an upsert, a RETURNING clause or a lower id
    between them makes FTS5 write out its buffer for every row.
    """
    from qmd.store.sqlite.links import put_links, touch_links

    batch = {document.path: document for document in documents}
    replaced = _remove_rows(database, collection, list(batch), batch)
    touch_links(database, collection, [one.links for path, one in batch.items() if path not in replaced])
    # AUTOINCREMENT's own counter: an id is never given twice, so a reader cannot mistake one document for another.
    next_id = int(database.value("SELECT seq FROM sqlite_sequence WHERE name = 'documents'") or 0) + 1
    hashes = {document.hash for document in batch.values()}
    stored = {row[0] for row in database.select_in("SELECT hash FROM content WHERE hash IN ({})", list(hashes))}
    for document_id, document in enumerate(batch.values(), start=next_id):
        if document.hash not in stored:
            stored.add(document.hash)
            content = (document.hash, document.created_at, document.n_chars, document.doc)
            database.run("INSERT INTO content (hash, created_at, n_chars, doc) VALUES (?, ?, ?, ?)", content)
        database.run(
            "INSERT INTO documents (id, collection, path, title, hash, created_at, modified_at, n_chars, size_bytes,"
            " mtime_ns, metadata, heading, date) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                document_id,
                collection,
                document.path,
                document.title,
                document.hash,
                replaced[document.path][0] if document.path in replaced else document.created_at,
                document.modified_at,
                document.n_chars,
                document.size_bytes,
                document.mtime_ns,
                document.metadata_json,
                document.heading,
                document.date,
            ),
        )
        _put_names(database, document_id, document.names)
        if document.links is not None:
            put_links(database, document_id, document.links)
        terms = document.terms
        database.run(
            "INSERT INTO terms (rowid, title, headings, path, body, extra) VALUES (?, ?, ?, ?, ?, ?)",
            (document_id, terms.title, terms.headings, terms.path, terms.body, terms.extra),
        )
    _drop_unused_content(database, {content_hash for _, content_hash in replaced.values()} - hashes)


def settle_titles(database: Database, collection: str) -> None:
    """Show the file's name for a heading that many notes of a collection have, and the heading where few have it."""
    from qmd.store.linking import MANY_NOTES, settled_title

    mine = "FROM documents WHERE collection = ?1 AND heading IS NOT NULL"
    rows = database.rows(
        f"WITH shared AS (SELECT heading {mine} GROUP BY heading HAVING count(*) >= {MANY_NOTES})"
        f" SELECT id, path, title, heading, heading IN shared AS is_shared {mine} AND (title != heading OR is_shared)",
        (collection,),
    )
    changed = []
    for document_id, path, title, heading, is_shared in rows:
        settled = settled_title(path, heading, is_shared=bool(is_shared))
        if settled != title:
            changed.append((settled, document_id))
    database.run_many("UPDATE documents SET title = ? WHERE id = ?", changed)


def remove_documents(database: Database, collection: str, paths: Iterable[str]) -> int:
    """Delete documents outright, and texts that nothing refers to any more; the number of documents deleted."""
    removed = _remove_rows(database, collection, list(paths))
    _drop_unused_content(database, {content_hash for _, content_hash in removed.values()})
    return len(removed)


def _remove_rows(
    database: Database, collection: str, paths: Sequence[str], successors: Mapping[str, NewDocument] = {}
) -> dict[str, tuple[str, str]]:
    """Delete documents and their terms, for which those of `successors` are written; (created_at, hash) by path."""
    from qmd.store.sqlite.links import remove_links

    sql = "SELECT path, created_at, hash, id FROM documents WHERE collection = ? AND path IN ({})"
    found = sorted(database.select_in(sql, paths, (collection,)), key=itemgetter(3))
    remove_links(database, collection, {row[3]: getattr(successors.get(row[0]), "links", None) for row in found})
    ids = [(row[3],) for row in found]
    database.run_many("DELETE FROM terms WHERE rowid = ?", ids)
    database.run_many("DELETE FROM names WHERE document = ?", ids)
    database.run_many("DELETE FROM documents WHERE id = ?", ids)
    return {path: (created_at, content_hash) for path, created_at, content_hash, _ in found}


def _drop_unused_content(database: Database, hashes: set[str]) -> None:
    """Delete those of `hashes` that no document holds; their vectors stay, by key, for a text that comes back."""
    used = {row[0] for row in database.select_in("SELECT hash FROM documents WHERE hash IN ({})", list(hashes))}
    unused = [content_hash for content_hash in hashes if content_hash not in used]
    ids = [(row[0],) for row in database.select_in("SELECT id FROM content WHERE hash IN ({})", unused)]
    for (model,) in database.rows("SELECT id FROM models") if ids else ():
        pairs = [(model, content) for (content,) in ids]
        database.run_many("DELETE FROM chunks WHERE model = ? AND content = ?", pairs)
        database.run_many("DELETE FROM embedded WHERE model = ? AND content = ?", pairs)
    database.run_many("DELETE FROM content WHERE id = ?", ids)


def _put_names(database: Database, document_id: int, names: Mapping[str, NameKind]) -> None:
    """Store what a new document is called."""
    rows = [(key, document_id, kind) for key, kind in names.items()]
    database.run_many("INSERT INTO names (key, document, kind) VALUES (?, ?, ?)", rows)


class Condition(Struct, frozen=True):
    """An SQL condition on `documents` with its bindings; `sql` is empty when every document is in scope."""

    sql: str
    bindings: tuple[object, ...]


def scope_condition(scope: Scope) -> Condition:
    """Translate a scope."""
    writer = SqlScope()
    return Condition(" AND ".join(writer.scope(scope)), tuple(writer.bindings))


class SqlScope(ScopeWriter):
    """Conditions in SQLite's SQL; `bindings` are the values of what was written, in its order."""

    def __init__(self) -> None:
        super().__init__()
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

    def says(self, key: str, op: str, text: str, number: float | None) -> str:
        path = '$."' + key.replace("\\", "\\\\").replace('"', '\\"') + '"'
        found = f"SELECT 1 FROM json_each(metadata, {self.value(path)}) AS m"
        test = f"casefold(iif(m.type IN ('true', 'false'), m.type, m.value)) {op} {self.value(text)}"
        if number is not None:
            test = f"iif(m.type NOT IN ('integer', 'real'), {test}, m.value {op} {self.value(number)})"
        return f"EXISTS ({found} WHERE {test})"
