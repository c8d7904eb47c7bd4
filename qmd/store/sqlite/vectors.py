"""The write side of dense retrieval: storing vectors, and dropping those that nothing refers to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from qmd.store.sqlite.blocks import block_ids, pack_rows, read_all, read_slots, unpack_rows, write_rows, write_signs
from qmd.store.sqlite.chunks import model_id, slots_of
from qmd.store.sqlite.connection import Database

if TYPE_CHECKING:
    import numpy.typing as npt

SIGNS_FROM_SLOTS = 150_000
"""Vectors per model from which on sign bits are kept. Below, the exact scan takes at most about 20 ms."""

_NEW_GENERATION = "generation = random()"
"""Drawn anew whenever a model's vectors change, and never counted: row ids are used again after `embed --force`, so a
number that starts over would let a warm server take new vectors for those that it holds."""


def put_vectors(
    database: Database, fingerprint: str, dim: int, vectors: Mapping[bytes, npt.NDArray[np.float32]]
) -> None:
    """Store those vectors whose keys have none yet.

    Raises:
        ValueError: A vector has another dimension.
    """
    model = model_id(database, fingerprint, dim)
    slots = slots_of(database, model, list(vectors))
    new = {key: vector for key, vector in vectors.items() if key not in slots}
    if not new:
        return
    matrix = np.asarray(list(new.values()), dtype=np.float32)
    if matrix.shape != (len(new), dim):
        raise ValueError(f"vectors have shape {matrix.shape}, not {(len(new), dim)}")
    _append(database, model, dim, new, pack_rows(matrix))


def read_vectors(database: Database, fingerprint: str, keys: Sequence[bytes]) -> dict[bytes, npt.NDArray[np.float32]]:
    """The vectors of those of `keys` that have one."""
    row = database.row("SELECT id, dim FROM models WHERE fingerprint = ?", (fingerprint,))
    if row is None:
        return {}
    model, dim = row
    slots = slots_of(database, model, keys)
    rows = unpack_rows(read_slots(database, model, np.array(list(slots.values()), dtype=np.int64), dim))
    return dict(zip(slots, rows, strict=True))


def put_stored_rows(
    database: Database, fingerprint: str, dim: int, rows: Mapping[bytes, npt.NDArray[np.uint8]]
) -> None:
    """Store vectors in the form in which another index held them, by key."""
    _append(database, model_id(database, fingerprint, dim), dim, rows, np.stack(list(rows.values())))


def clear_vectors(database: Database, collections: Sequence[str] | None) -> None:
    """Forget vectors: of all models and texts, or of the texts that only the given collections hold."""
    if collections is None:
        for table in ("chunks", "embedded", "vector_keys", "vector_blocks", "sign_blocks", "models"):
            database.run(f"DELETE FROM {table}")
        return
    marks = ",".join("?" * len(collections))
    only_here = (
        f"SELECT id FROM content WHERE hash IN (SELECT hash FROM documents WHERE collection IN ({marks}))"
        f" AND hash NOT IN (SELECT hash FROM documents WHERE collection NOT IN ({marks}))"
    )
    for table in ("chunks", "embedded"):
        database.run(f"DELETE FROM {table} WHERE content IN ({only_here})", (*collections, *collections))
    # Otherwise the next run would find every key again and compute nothing.
    drop_unused(database)


def drop_unused(database: Database, *, dry_run: bool = False) -> int:
    """Remove vectors that no chunk refers to; how many there are."""
    dropped = 0
    for model, dim, n_slots in database.rows("SELECT id, dim, n_slots FROM models"):
        used = database.rows("SELECT DISTINCT slot FROM chunks WHERE model = ? ORDER BY slot", (model,))
        live = [slot for (slot,) in used]
        dropped += n_slots - len(live)
        if not dry_run and n_slots != len(live):
            with database.transaction():
                _compact(database, model, dim, np.array(live, dtype=np.int64), n_slots)
    return dropped


def _compact(database: Database, model: int, dim: int, live: npt.NDArray[np.int64], n_slots: int) -> None:
    """Move the live slots together and number them anew."""
    rows = read_all(database, model, n_slots, dim)[live]
    database.run(
        "DELETE FROM vector_keys WHERE model = ? AND slot NOT IN (SELECT slot FROM chunks WHERE model = ?)",
        (model, model),
    )
    # Ascending and never larger than the old number, so no two rows meet on the way.
    moves = [(new, model, old) for new, old in enumerate(live.tolist()) if new != old]
    # The hint: SQLite would walk all chunks of the model for every move.
    database.run_many("UPDATE chunks INDEXED BY chunks_by_slot SET slot = ? WHERE model = ? AND slot = ?", moves)
    keys = database.rows("SELECT key, slot FROM vector_keys WHERE model = ?", (model,))
    renumbered = {old: new for new, _, old in moves}
    database.run_many(
        "UPDATE vector_keys SET slot = ? WHERE model = ? AND key = ?",
        [(renumbered[slot], model, key) for key, slot in keys if slot in renumbered],
    )
    for table in ("vector_blocks", "sign_blocks"):
        database.run(f"DELETE FROM {table} WHERE id BETWEEN ? AND ?", block_ids(model))
    database.run(f"UPDATE models SET n_slots = 0, {_NEW_GENERATION}, centre = NULL WHERE id = ?", (model,))
    if len(live):
        _append_rows(database, model, dim, rows)


def _append(database: Database, model: int, dim: int, keys: Iterable[bytes], rows: npt.NDArray[np.uint8]) -> None:
    """Append stored rows under their keys."""
    first = _append_rows(database, model, dim, rows)
    database.run_many(
        "INSERT INTO vector_keys (model, key, slot) VALUES (?, ?, ?)",
        [(model, key, slot) for slot, key in enumerate(keys, start=first)],
    )


def _append_rows(database: Database, model: int, dim: int, rows: npt.NDArray[np.uint8]) -> int:
    """Append stored rows, with sign bits once there are many; the first slot."""
    row = database.row("SELECT n_slots, centre FROM models WHERE id = ?", (model,))
    first, centre_bytes = row if row else (0, None)
    write_rows(database, model, first, rows)
    total = first + len(rows)
    if centre_bytes is not None:
        centre = np.frombuffer(centre_bytes, dtype=np.float32)
        write_signs(database, model, first, unpack_rows(rows), centre)
    elif total >= SIGNS_FROM_SLOTS:
        centre_bytes = _start_signs(database, model, dim, total)
    database.run(
        f"UPDATE models SET n_slots = ?, {_NEW_GENERATION}, centre = ? WHERE id = ?",
        (total, centre_bytes, model),
    )
    return int(first)


def _start_signs(database: Database, model: int, dim: int, n_slots: int) -> bytes:
    """Write the sign bits of all vectors so far, about their mean; the mean, which stays fixed from here on."""
    sample = np.unique(np.linspace(0, n_slots - 1, 20_000).astype(np.int64))
    centre = unpack_rows(read_slots(database, model, sample, dim)).mean(axis=0).astype(np.float32)
    rows = read_all(database, model, n_slots, dim)
    for first in range(0, n_slots, 65_536):
        write_signs(database, model, first, unpack_rows(rows[first : first + 65_536]), centre)
    return bytes(centre.tobytes())
