"""Vectors as versions of the schema before 8 kept them: to be brought over, or saved from a damaged file.

A slot's row is a float32 scale, which follows from the rest, and `dim` int8 values; sixty-four rows are one value of
`vector_blocks`, whose ids are `model << 32 | block`, slots being numbered from 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from qmd.store.sqlite.connection import DamagedIndexError, Database
from qmd.store.sqlite.vec0 import create_vectors, is_available, vectors_of
from qmd.store.sqlite.vectors import SIGNS_FROM, start_signs

if TYPE_CHECKING:
    import numpy.typing as npt

ROWS_PER_BLOCK = 64
_SCALE_BYTES = 4
_MODEL_SHIFT = 32
_BLOCKS_AT_ONCE = 16


def read_block(database: Database, model: int, block: int, dim: int) -> npt.NDArray[np.int8]:
    """The rows of a block, shape (64, dim), in the last one with rows that are no vector's.

    Raises:
        DamagedIndexError: It is not there, or of another size.
    """
    blob = database.value("SELECT vectors FROM vector_blocks WHERE id = ?", (model << _MODEL_SHIFT | block,))
    width = _SCALE_BYTES + dim
    if blob is None or len(blob) != ROWS_PER_BLOCK * width:
        raise DamagedIndexError(database.path)
    return np.frombuffer(blob, dtype=np.int8).reshape(ROWS_PER_BLOCK, width)[:, _SCALE_BYTES:]


def move_blocks(database: Database) -> None:
    """Fill the tables of sqlite-vec from the blocks; where there is no sqlite-vec, forget the vectors."""
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
            # What is freed here takes the next rows, so that the file does not grow to twice its size.
            span = (model << _MODEL_SHIFT | part[0], model << _MODEL_SHIFT | part[-1])
            database.run("DELETE FROM vector_blocks WHERE id BETWEEN ? AND ?", span)
        centre = start_signs(database, model, dim) if n_vectors >= SIGNS_FROM else None
        database.run("UPDATE models SET generation = random(), centre = ? WHERE id = ?", (centre, model))
