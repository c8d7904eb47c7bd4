"""Files of collections that are not in the index, and why: `status` names them, updates pass unchanged ones over."""

from __future__ import annotations

from collections.abc import Iterable

from qmd.records import LeftOutFile
from qmd.store.connection import Database

_COLUMNS = "collection, path, reason, size_bytes, mtime_ns, program"


def read(database: Database, collection: str | None = None) -> list[LeftOutFile]:
    """The files that were left out of one collection, or of all, by collection and path."""
    sql = f"SELECT {_COLUMNS} FROM left_out WHERE ?1 IS NULL OR collection = ?1 ORDER BY collection, path"
    return [LeftOutFile(*row) for row in database.rows(sql, (collection,))]


def replace(database: Database, collection: str, files: Iterable[LeftOutFile]) -> None:
    """Remember exactly these files of a collection."""
    remove(database, collection)
    rows = [(collection, one.path, one.reason, one.size_bytes, one.mtime_ns, one.program) for one in files]
    database.run_many(f"INSERT OR REPLACE INTO left_out ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)", rows)


def remove(database: Database, collection: str) -> None:
    """Forget the files of a collection."""
    database.run("DELETE FROM left_out WHERE collection = ?", (collection,))


def rename(database: Database, old: str, new: str) -> None:
    """Give the collection of remembered files another name."""
    remove(database, new)
    database.run("UPDATE left_out SET collection = ? WHERE collection = ?", (new, old))
