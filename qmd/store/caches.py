"""A bounded table of derived texts (expansions, reranker scores): losing it costs time only."""

from __future__ import annotations

from qmd.store.connection import Database

MAX_ENTRIES = 20_000
"""About 10 MB of short answers; the oldest go first."""


def cached(database: Database, key: str) -> str | None:
    """The value stored under `key`, or None."""
    value: str | None = database.value("SELECT value FROM cache WHERE key = ?", (key,))
    return value


def cache(database: Database, key: str, value: str) -> None:
    """Store a value and drop the oldest entries beyond the bound."""
    with database.transaction():
        database.run("INSERT OR REPLACE INTO cache (key, value) VALUES (?, ?)", (key, value))
        database.run("DELETE FROM cache WHERE id <= (SELECT max(id) FROM cache) - ?", (MAX_ENTRIES,))
