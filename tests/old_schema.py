"""Indexes with the tables of each older version; `tests/upgrade` keeps whole ones as versions left them."""

from pathlib import Path

import apsw
import numpy as np

from qmd.store.sqlite.connection import Database
from qmd.store.sqlite.quantisation import score_rows
from qmd.store.sqlite.vec0 import vectors_of

_TAKEN_BACK = {
    8: "ALTER TABLE models RENAME COLUMN n_vectors TO n_slots; UPDATE models SET centre = NULL",
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
    if version < 8:
        _put_into_blocks(connection)
    for step, sql in _TAKEN_BACK.items():
        if step > version:
            connection.execute(sql)
    connection.execute(f"PRAGMA user_version = {version}")


def _put_into_blocks(connection: apsw.Connection) -> None:
    """Put vectors, whose slots are numbered without gaps, into the tables of the versions before 8."""
    database = Database(connection, Path(connection.filename))
    database.run("CREATE TABLE vector_blocks (id INTEGER PRIMARY KEY, vectors BLOB NOT NULL)")
    database.run("CREATE TABLE sign_blocks (id INTEGER PRIMARY KEY, signs BLOB NOT NULL)")
    for model, dim, n_vectors in database.rows("SELECT id, dim, n_vectors FROM models"):
        table = vectors_of(database, model, dim)
        slots, stored = table.read_all()
        assert slots.tolist() == list(range(n_vectors))
        scales = score_rows(stored.view(np.int8), np.zeros(dim, dtype=np.float32))[1].astype("<f4")
        rows = np.hstack([scales[:, None].view(np.uint8), stored])
        rows = np.vstack([rows, np.zeros((-n_vectors % 64, dim + 4), dtype=np.uint8)])
        blocks = [(model << 32 | block, rows[64 * block :][:64].tobytes()) for block in range(len(rows) // 64)]
        database.run_many("INSERT INTO vector_blocks VALUES (?, ?)", blocks)
        table.drop()
