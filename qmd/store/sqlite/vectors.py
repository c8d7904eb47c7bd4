"""Stored vectors: writing, reading, and deleting unused ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from qmd.batching import batches
from qmd.store.sqlite.chunks import keys_by_slot, known_model, model_id, slots_of
from qmd.store.sqlite.connection import DamagedIndexError, Database
from qmd.store.sqlite.quantisation import Floats, dequantise, pack_signs, quantise
from qmd.store.sqlite.vec0 import create_signs, create_vectors, is_available, signs_of, vectors_of

SIGNS_FROM = 150_000
"""Vectors per model from which on sign bits are stored. Below, the exact scan takes at most about 30 ms."""

_SAMPLE = 20_000
"""Vectors whose mean is the centre of the sign bits."""

_ROWS_AT_ONCE = 65_536
_VECTORS_AT_A_TIME = 4_096

_NEW_GENERATION = "generation = random()"
"""A new random number for every change of a model's vectors, never a counter: row ids are used again after `embed
--force`, so a counter that restarts would let a warm server take new vectors for its cached ones."""

ROWS_PER_BLOCK = 64
_SCALE_BYTES = 4
_MODEL_SHIFT = 32
_BLOCKS_AT_ONCE = 16
"""Versions of the schema before 8 kept vectors in `vector_blocks`: sixty-four rows are one value, whose id is `model
<< 32 | block`, slots being numbered from 0; a row is a float32 scale, which follows from the rest, and `dim` int8
values."""


def put_vectors(database: Database, fingerprint: str, dim: int, vectors: Mapping[bytes, Floats]) -> None:
    """Store the vectors whose keys have none yet.

    Raises:
        ModelError: There is no sqlite-vec for this platform.
        ValueError: A vector has another dimension.
    """
    model = model_id(database, fingerprint, dim)
    slots = slots_of(database, model, list(vectors))
    if not (new := {key: vector for key, vector in vectors.items() if key not in slots}):
        return
    matrix = np.asarray(list(new.values()), dtype=np.float32)
    if matrix.shape != (len(new), dim):
        raise ValueError(f"vectors have shape {matrix.shape}, not {(len(new), dim)}")
    _append(database, model, dim, new, quantise(matrix))


def read_vectors(database: Database, fingerprint: str, keys: Sequence[bytes]) -> dict[bytes, Floats]:
    """Return the vectors of those `keys` that have one."""
    row = database.row("SELECT id, dim FROM models WHERE fingerprint = ?", (fingerprint,))
    slots = slots_of(database, row[0], keys) if row else {}
    if row is None or not slots:
        return {}
    return dict(zip(slots, vectors_at(database, row[0], row[1], list(slots.values())), strict=True))


def vectors_at(database: Database, model: int, dim: int, slots: Sequence[int]) -> Floats:
    """Return the vectors in the given slots of a model, shape (len(slots), dim)."""
    return dequantise(vectors_of(database, model, dim).read_slots(np.array(slots, dtype=np.int64)).view(np.int8))


def all_vectors(database: Database, fingerprint: str) -> Iterator[Mapping[bytes, Floats]]:
    """Yield every vector of a model by key, in the order of their slots."""
    model = known_model(database, fingerprint)
    dim = database.value("SELECT dim FROM models WHERE id = ?", (model,))
    for part in batches(list(keys_by_slot(database, model).items()), _VECTORS_AT_A_TIME):
        rows = vectors_at(database, model, dim, [slot for slot, _ in part])
        yield dict(zip((key for _, key in part), rows, strict=True))


def put_stored_rows(database: Database, fingerprint: str, dim: int, rows: Mapping[bytes, npt.NDArray[np.int8]]) -> None:
    """Store vectors by key in the stored form of another index."""
    _append(database, model_id(database, fingerprint, dim), dim, rows, np.stack(list(rows.values())))


def keep_models(database: Database, names: Mapping[str, str]) -> None:
    """Delete all vectors except those of these models, and rename these; see `IndexWriter`."""
    for model, dim, fingerprint in database.rows("SELECT id, dim, fingerprint FROM models"):
        if fingerprint in names:
            continue
        for one in (vectors_of(database, model, dim), signs_of(database, model, dim)):
            if one.exists():
                one.drop()
        for table in ("chunks", "embedded", "vector_keys"):
            database.run(f"DELETE FROM {table} WHERE model = ?", (model,))
        database.run("DELETE FROM models WHERE id = ?", (model,))
    database.run_many("UPDATE models SET fingerprint = ?2 WHERE fingerprint = ?1 AND fingerprint != ?2", names.items())


def drop_unused(database: Database, *, dry_run: bool = False) -> int:
    """Delete vectors that no chunk refers to; return their number."""
    dropped = 0
    for model, dim, n_vectors, centre in database.rows("SELECT id, dim, n_vectors, centre FROM models"):
        unused = "model = ?1 AND slot NOT IN (SELECT slot FROM chunks WHERE model = ?1)"
        slots = [slot for (slot,) in database.rows(f"SELECT slot FROM vector_keys WHERE {unused}", (model,))]
        dropped += len(slots)
        if dry_run or not slots:
            continue
        with database.transaction():
            database.run(f"DELETE FROM vector_keys WHERE {unused}", (model,))
            for table in [vectors_of(database, model, dim), *([signs_of(database, model, dim)] if centre else [])]:
                table.delete(slots)
                table.compact()
            sql = f"UPDATE models SET n_vectors = ?, {_NEW_GENERATION} WHERE id = ?"
            database.run(sql, (n_vectors - len(slots), model))
    return dropped


def _append(database: Database, model: int, dim: int, keys: Iterable[bytes], rows: npt.NDArray[np.int8]) -> None:
    before = database.row("SELECT n_vectors, centre FROM models WHERE id = ?", (model,))
    n_vectors, centre_bytes = before if before else (0, None)
    table = vectors_of(database, model, dim)
    if not table.exists():
        create_vectors(database, model, dim)
    first = table.next_slot()
    slots = range(first, first + len(rows))
    table.insert(slots, rows.view(np.uint8))
    database.run_many(
        "INSERT INTO vector_keys (model, key, slot) VALUES (?, ?, ?)",
        [(model, key, slot) for slot, key in zip(slots, keys, strict=True)],
    )
    if centre_bytes is not None:
        centre = np.frombuffer(centre_bytes, dtype=np.float32)
        signs_of(database, model, dim).insert(slots, pack_signs(dequantise(rows), centre))
    elif n_vectors + len(rows) >= SIGNS_FROM:
        centre_bytes = start_signs(database, model, dim)
    database.run(
        f"UPDATE models SET n_vectors = ?, {_NEW_GENERATION}, centre = ? WHERE id = ?",
        (n_vectors + len(rows), centre_bytes, model),
    )


def start_signs(database: Database, model: int, dim: int) -> bytes:
    """Write the sign bits of all vectors so far, about their mean; return the mean, which stays fixed from here on."""
    slots, stored = vectors_of(database, model, dim).read_all()
    rows = stored.view(np.int8)
    sample = np.unique(np.linspace(0, len(rows) - 1, _SAMPLE).astype(np.int64))
    centre = dequantise(rows[sample]).mean(axis=0).astype(np.float32)
    create_signs(database, model, dim)
    table = signs_of(database, model, dim)
    for first in range(0, len(rows), _ROWS_AT_ONCE):
        part = slice(first, first + _ROWS_AT_ONCE)
        table.insert(slots[part].tolist(), pack_signs(dequantise(rows[part]), centre))
    return bytes(centre.tobytes())


def read_block(database: Database, model: int, block: int, dim: int) -> npt.NDArray[np.int8]:
    """Return the rows of a block, shape (64, dim); the last one may have unused rows.

    Raises:
        DamagedIndexError: It is missing or of another size.
    """
    blob = database.value("SELECT vectors FROM vector_blocks WHERE id = ?", (model << _MODEL_SHIFT | block,))
    width = _SCALE_BYTES + dim
    if blob is None or len(blob) != ROWS_PER_BLOCK * width:
        raise DamagedIndexError(database.path)
    return np.frombuffer(blob, dtype=np.int8).reshape(ROWS_PER_BLOCK, width)[:, _SCALE_BYTES:]


def move_blocks(database: Database) -> None:
    """Fill the tables of sqlite-vec from the blocks; without sqlite-vec, delete the vectors."""
    models = database.rows("SELECT id, dim, n_vectors FROM models")
    if models and not is_available():
        for name in ("chunks", "embedded", "vector_keys", "models"):
            database.run(f"DELETE FROM {name}")
        return
    for model, dim, n_vectors in models:
        create_vectors(database, model, dim)
        table = vectors_of(database, model, dim)
        blocks = range(-(-n_vectors // ROWS_PER_BLOCK))
        for first in range(0, len(blocks), _BLOCKS_AT_ONCE):
            part = blocks[first : first + _BLOCKS_AT_ONCE]
            rows = np.concatenate([read_block(database, model, block, dim) for block in part])
            start = first * ROWS_PER_BLOCK
            slots = range(start, min(start + len(rows), n_vectors))
            table.insert(slots, np.ascontiguousarray(rows[: len(slots)]).view(np.uint8))
            # Space freed here takes the next rows, so that the file does not grow to twice its size.
            span = (model << _MODEL_SHIFT | part[0], model << _MODEL_SHIFT | part[-1])
            database.run("DELETE FROM vector_blocks WHERE id BETWEEN ? AND ?", span)
        centre = start_signs(database, model, dim) if n_vectors >= SIGNS_FROM else None
        database.run("UPDATE models SET generation = random(), centre = ? WHERE id = ?", (centre, model))
