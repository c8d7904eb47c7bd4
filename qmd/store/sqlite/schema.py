"""The tables, as numbered migrations that are never edited, only added to.

`documents(id, collection, path, title, hash, created_at, modified_at, active)` is read by other programs: those columns
keep their names and meaning. `hash` is the full sha-256 of the text in hex, `active` is always 1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import cache, lru_cache

import apsw

from qmd.errors import NotFoundError, StoreError
from qmd.store.sqlite.connection import Database, ForeignIndexError
from qmd.store.sqlite.files import APPLICATION_ID, add_checksums

TOKENIZER = "porter unicode61 remove_diacritics 2"


_open_once = cache(apsw.Connection)


@lru_cache(maxsize=1 << 16)
def indexed_form(word: str, *, stemmed: bool = True) -> str:
    """Return a word as the index stores it, or would without its stemmer; empty unless it is exactly one term."""
    name, *arguments = TOKENIZER.split() if stemmed else TOKENIZER.split()[1:]
    tokenize = _open_once(":memory:").fts5_tokenizer(name, arguments)
    flags = {"include_offsets": False, "include_colocated": False}
    tokens = list(tokenize(word.encode(), apsw.FTS5_TOKENIZE_QUERY, None, **flags))
    return str(tokens[0]) if len(tokens) == 1 else ""


META = "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID"

_INITIAL = f"""
{META};
CREATE TABLE collections (
  name TEXT PRIMARY KEY, path TEXT NOT NULL, pattern TEXT NOT NULL, ignore_json TEXT NOT NULL,
  context_json TEXT NOT NULL, update_command TEXT, include_by_default INTEGER NOT NULL, position INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE content (
  id INTEGER PRIMARY KEY, hash TEXT NOT NULL UNIQUE, created_at TEXT NOT NULL, n_chars INTEGER NOT NULL,
  doc BLOB NOT NULL
);
CREATE TABLE documents (
  id INTEGER PRIMARY KEY AUTOINCREMENT, collection TEXT NOT NULL, path TEXT NOT NULL, title TEXT NOT NULL,
  hash TEXT NOT NULL, created_at TEXT NOT NULL, modified_at TEXT NOT NULL, active INTEGER NOT NULL DEFAULT 1,
  n_chars INTEGER NOT NULL, size_bytes INTEGER NOT NULL, mtime_ns INTEGER NOT NULL,
  metadata TEXT NOT NULL DEFAULT '{{}}',
  UNIQUE (collection, path)
);
CREATE INDEX documents_by_hash ON documents (hash);
CREATE VIRTUAL TABLE terms USING fts5 (
  title, headings, path, body, extra, content = '', contentless_delete = 1, tokenize = '{TOKENIZER}'
);
CREATE VIRTUAL TABLE vocabulary USING fts5vocab ('terms', 'row');
INSERT INTO terms (terms, rank) VALUES ('hashsize', 33554432);
CREATE TABLE models (
  id INTEGER PRIMARY KEY, fingerprint TEXT NOT NULL UNIQUE, dim INTEGER NOT NULL,
  n_slots INTEGER NOT NULL DEFAULT 0, generation INTEGER NOT NULL DEFAULT 0, centre BLOB
);
CREATE TABLE vector_keys (
  model INTEGER NOT NULL, key BLOB NOT NULL, slot INTEGER NOT NULL, PRIMARY KEY (model, key)
) WITHOUT ROWID;
CREATE TABLE vector_blocks (id INTEGER PRIMARY KEY, vectors BLOB NOT NULL);
CREATE TABLE sign_blocks (id INTEGER PRIMARY KEY, signs BLOB NOT NULL);
CREATE TABLE chunks (
  model INTEGER NOT NULL, content INTEGER NOT NULL, seq INTEGER NOT NULL, start INTEGER NOT NULL, end INTEGER NOT NULL,
  slot INTEGER NOT NULL, PRIMARY KEY (model, content, seq)
) WITHOUT ROWID;
CREATE INDEX chunks_by_slot ON chunks (model, slot);
CREATE TABLE embedded (
  model INTEGER NOT NULL, content INTEGER NOT NULL, n_chunks INTEGER NOT NULL, PRIMARY KEY (model, content)
) WITHOUT ROWID;
CREATE TABLE cache (id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, value TEXT NOT NULL);
"""


_LEFT_OUT = """
CREATE TABLE left_out (
  collection TEXT NOT NULL, path TEXT NOT NULL, reason TEXT NOT NULL, size_bytes INTEGER NOT NULL,
  mtime_ns INTEGER NOT NULL, program TEXT NOT NULL, PRIMARY KEY (collection, path)
) WITHOUT ROWID;
"""


_NAMES_AND_DATES = """
CREATE TABLE names (
  key TEXT NOT NULL, document INTEGER NOT NULL, kind TEXT NOT NULL, PRIMARY KEY (key, document)
) WITHOUT ROWID;
CREATE INDEX names_by_document ON names (document);
ALTER TABLE documents ADD COLUMN heading TEXT;
ALTER TABLE documents ADD COLUMN date TEXT;
"""
"""Filled by the next update, as this migration came with a new analysis version. `heading` is a title taken from the
text, stored because `title` is the file's name if many notes share the heading."""

_LINKS = f"""
CREATE TABLE links (source INTEGER PRIMARY KEY, packed BLOB NOT NULL);
CREATE TABLE link_keys (
  key INTEGER NOT NULL, source INTEGER NOT NULL, n INTEGER NOT NULL, PRIMARY KEY (key, source)
) WITHOUT ROWID;
CREATE TABLE touched (
  collection TEXT NOT NULL, key TEXT NOT NULL, PRIMARY KEY (collection, key)
) WITHOUT ROWID;
CREATE VIRTUAL TABLE anchors USING fts5 (
  text, content = '', contentless_delete = 1, tokenize = '{TOKENIZER}'
);
"""
"""`touched` contains the affected names since the anchors were made; `anchors` the texts of links to a document."""

_FOLDERS = """
CREATE TABLE folders (
  collection TEXT NOT NULL, path TEXT NOT NULL, mtime_ns INTEGER NOT NULL, PRIMARY KEY (collection, path)
) WITHOUT ROWID;
ALTER TABLE qmd_collections ADD COLUMN gitignore INTEGER NOT NULL DEFAULT 1;
"""
"""`folders` are those of the last update, with the last change of their names."""


def _vec0_tables(database: Database) -> None:
    """Move vectors from blocks of their own into the tables of sqlite-vec."""
    database.run("ALTER TABLE models RENAME COLUMN n_slots TO n_vectors")
    if database.value("SELECT 1 FROM models LIMIT 1"):
        from qmd.store.sqlite.vectors import move_blocks

        move_blocks(database)
    database.run("DROP TABLE vector_blocks; DROP TABLE sign_blocks")
    # Current link texts are compared with the previous ones: an older version may have ended between the two.
    database.run("DELETE FROM meta WHERE key GLOB 'anchored:*'")


MIGRATIONS: tuple[str | Callable[[Database], None], ...] = (
    _INITIAL,
    # The original drops any table `collections` that it finds.
    "ALTER TABLE collections RENAME TO qmd_collections",
    _LEFT_OUT,
    # The cache was never used.
    "DROP TABLE cache",
    _NAMES_AND_DATES,
    _LINKS,
    _FOLDERS,
    _vec0_tables,
)
"""Entry n takes a file from version n to n + 1."""

_OF_VECTORS = r"(vectors|signs)_\d+(_info|_chunks|_rowids|_vector_chunks\d\d)?"

_TABLES_OF_THE_ORIGINAL = ("content_vectors", "documents_fts", "store_config")


class MixedIndexError(StoreError):
    """The original qmd has put its tables into a file of ours."""


class OutdatedIndexError(StoreError):
    """An older version made the file; opening it for writing upgrades it."""


def check_schema(database: Database) -> None:
    """Check that a reader understands the file.

    Raises:
        ForeignIndexError: Another program wrote it.
        MixedIndexError: The original wrote into it.
        NotFoundError: It is an empty database.
        OutdatedIndexError: It must be migrated first.
        StoreError: A newer qmd wrote it.
    """
    version = _own_version(database)
    if version == 0:
        raise NotFoundError(f"index '{database.path}' is empty", "fill it: qmd index .")
    if version < len(MIGRATIONS):
        raise OutdatedIndexError(f"index '{database.path}' is of an older version", "bring it up to date: qmd index")


def migrate(database: Database) -> None:
    """Migrate a file that is open for writing to the newest version, in one transaction.

    Raises:
        ForeignIndexError: Another program wrote it; nothing was changed.
        MixedIndexError: The original wrote into it; nothing was changed.
        StoreError: A newer qmd wrote it.
    """
    version = _own_version(database)
    if database.value("PRAGMA journal_mode") != "wal":
        database.run("PRAGMA journal_mode = WAL")
    if version == len(MIGRATIONS):
        return
    with database.transaction():
        # Read again under the lock: another process may have migrated while this one waited.
        apply_steps(database, _own_version(database), len(MIGRATIONS))
        database.run(f"PRAGMA user_version = {len(MIGRATIONS)}")
    add_checksums(database)


def apply_steps(database: Database, first: int, after: int) -> None:
    for step in MIGRATIONS[first:after]:
        if isinstance(step, str):
            database.run(step)
        else:
            step(database)


def is_as_made(database: Database) -> bool:
    """Return whether a file has exactly our tables and indexes.

    Internal tables of virtual tables are recognised by name: their form depends on the SQLite version.
    """
    with closing(Database(apsw.Connection(":memory:"), database.path)) as fresh:
        apply_steps(fresh, 0, int(database.value("PRAGMA user_version")))
        ours: dict[str, str | None] = dict(fresh.rows("SELECT name, sql FROM sqlite_schema"))
    found = database.rows("SELECT type, name, sql FROM sqlite_schema")
    return all(_is_ours(kind, name, sql, ours) for kind, name, sql in found)


def _is_ours(kind: str, name: str, sql: str | None, ours: Mapping[str, str | None]) -> bool:
    if name in ours and not name.startswith(("terms_", "anchors_")):
        return sql == ours[name]
    is_inner = kind == "table" and (name in ours or re.fullmatch(_OF_VECTORS, name) is not None)
    return is_inner or name.startswith("sqlite_")


def is_mixed(database: Database) -> bool:
    """Return whether the original has put its tables among ours."""
    return any(database.select_in("SELECT 1 FROM sqlite_schema WHERE name IN ({})", _TABLES_OF_THE_ORIGINAL))


def _own_version(database: Database) -> int:
    """Return the schema version, 0 for an empty file.

    Raises:
        ForeignIndexError: Another program wrote it.
        MixedIndexError: The original wrote into it.
        StoreError: A newer qmd wrote it.
    """
    if database.value("PRAGMA application_id") != APPLICATION_ID:
        if database.value("PRAGMA page_count") == 0:
            return 0
        hint = "use another index (--index NAME), or move it away and run: qmd index"
        raise ForeignIndexError(f"'{database.path}' is a database of another program", hint)
    version = int(database.value("PRAGMA user_version"))
    if is_mixed(database):
        raise MixedIndexError(f"tobi/qmd has changed index '{database.path}'", "set it apart: qmd index")
    if version > len(MIGRATIONS):
        raise StoreError(f"index '{database.path}' was written by a newer qmd (version {version})", "upgrade qmd")
    return version
