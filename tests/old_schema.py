"""Indexes as older versions wrote them."""

from __future__ import annotations

import apsw

_TAKEN_BACK = {
    7: "DROP TABLE folders; ALTER TABLE qmd_collections DROP COLUMN gitignore",
    6: "DROP TABLE links; DROP TABLE link_keys; DROP TABLE touched; DROP TABLE anchors",
    5: "DROP TABLE names; ALTER TABLE documents DROP COLUMN heading; ALTER TABLE documents DROP COLUMN date",
    4: "CREATE TABLE cache (id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, value TEXT NOT NULL)",
    3: "DROP TABLE left_out",
    2: "ALTER TABLE qmd_collections RENAME TO collections",
}
"""What each version of the schema did, undone."""


def take_back(connection: apsw.Connection, version: int) -> None:
    """Give an index of the newest version the tables of an older one."""
    for step, sql in _TAKEN_BACK.items():
        if step > version:
            connection.execute(sql)
    connection.execute(f"PRAGMA user_version = {version}")
