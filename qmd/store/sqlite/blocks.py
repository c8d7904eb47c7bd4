"""How vectors lie in the file: int8 rows in small blocks, and sign bits in large ones.

A vector's *slot* is its ordinal within its model. A row is a float32 scale followed by `dim` int8 values; the cosine of
two normalised vectors is the dot product with the int8 values times the scale. Blocks are fixed in size, the last one
padded with zero rows. Small blocks let a few thousand single rows be read without the rest; sign bits lie word by word
(word 0 of every slot, then word 1 …), which lets the scan run over contiguous memory.

One path serves every platform: sqlite-vec has no wheel for musl or Windows on Arm, and its full scan at 100,000 x 384
takes several times that of the scan here, so keeping both would add code and bytes without a gain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from qmd.store.sqlite.connection import DamagedIndexError, Database

if TYPE_CHECKING:
    import numpy.typing as npt

ROWS_PER_BLOCK = 64
SLOTS_PER_SIGN_BLOCK = 4096
SCALE_BYTES = 4

_MODEL_SHIFT = 32
"""Block ids are `model << 32 | block`, so that the blocks of a model are one range of the primary key."""


def block_id(model: int, block: int) -> int:
    """Primary key of a block."""
    return model << _MODEL_SHIFT | block


def block_ids(model: int) -> tuple[int, int]:
    """The first and the last primary key that a block of a model can have."""
    return block_id(model, 0), block_id(model + 1, 0) - 1


def pack_rows(vectors: npt.NDArray[np.float32]) -> npt.NDArray[np.uint8]:
    """Rows as stored, shape (n, 4 + dim), of vectors of shape (n, dim).

    The scale is the reciprocal norm of the rounded values, so rounding cannot change the length of a vector; a zero
    vector gets scale 0 and is never similar to anything.
    """
    peak = np.abs(vectors).max(axis=1, keepdims=True)
    values = np.rint(vectors * (127.0 / np.where(peak > 0, peak, 1.0))).astype(np.int8)
    norms = np.sqrt((values.astype(np.float32) ** 2).sum(axis=1))
    scales = np.where(norms > 0, 1.0 / np.where(norms > 0, norms, 1.0), 0.0).astype("<f4")
    rows = np.empty((len(vectors), SCALE_BYTES + vectors.shape[1]), dtype=np.uint8)
    rows[:, :SCALE_BYTES] = scales[:, None].view(np.uint8)
    rows[:, SCALE_BYTES:] = values.view(np.uint8)
    return rows


def unpack_rows(rows: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """Unit vectors, shape (n, dim), of stored rows."""
    scales = np.ascontiguousarray(rows[:, :SCALE_BYTES]).view("<f4")
    vectors: npt.NDArray[np.float32] = rows[:, SCALE_BYTES:].view(np.int8).astype(np.float32)
    vectors *= scales
    return vectors


def score_rows(rows: npt.NDArray[np.uint8], query: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Cosine of every stored row, shape (n,), with a unit vector of shape (dim,)."""
    scores = np.empty(len(rows), dtype=np.float32)
    # 1,024 rows at a time stay in the cache as float32: twice as fast as one large product.
    for first in range(0, len(rows), 1024):
        part = rows[first : first + 1024]
        scores[first : first + 1024] = part[:, SCALE_BYTES:].view(np.int8).astype(np.float32) @ query
    scores *= np.ascontiguousarray(rows[:, :SCALE_BYTES]).view("<f4")[:, 0]
    return scores


def pack_signs(vectors: npt.NDArray[np.float32], centre: npt.NDArray[np.float32]) -> npt.NDArray[np.uint64]:
    """Sign bits about `centre`, shape (words, n), one column per vector; unused bits are zero.

    Centring matters: embedding models put most vectors into a narrow cone, where raw signs hardly differ.
    """
    bits = np.packbits(vectors > centre, axis=1)
    padded = np.zeros((len(vectors), sign_words(vectors.shape[1]) * 8), dtype=np.uint8)
    padded[:, : bits.shape[1]] = bits
    return np.ascontiguousarray(padded.view(np.uint64).T)


def sign_words(dim: int) -> int:
    """64-bit words per vector of sign bits."""
    return -(-dim // 64)


def hamming(signs: npt.NDArray[np.uint64], query: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint16]:
    """Differing bits between every column of `signs` (words, n) and `query` (words,), shape (n,)."""
    n = signs.shape[1]
    distances = np.zeros(n, dtype=np.uint16)
    for first in range(0, n, 32_768):
        part = distances[first : first + 32_768]
        for word, bits in enumerate(query):
            part += np.bitwise_count(signs[word, first : first + 32_768] ^ bits)
    return distances


def read_all(database: Database, model: int, n_slots: int, dim: int) -> npt.NDArray[np.uint8]:
    """All rows of a model, shape (n_slots, 4 + dim)."""
    sql = "SELECT vectors FROM vector_blocks WHERE id BETWEEN ? AND ? ORDER BY id"
    blobs = database.rows(sql, block_ids(model))
    with database.decoding():
        rows = np.frombuffer(b"".join([blob for (blob,) in blobs]), dtype=np.uint8).reshape(-1, SCALE_BYTES + dim)
    if len(rows) < n_slots:
        raise DamagedIndexError(database.path)
    return rows[:n_slots]


def read_slots(database: Database, model: int, slots: npt.NDArray[np.int64], dim: int) -> npt.NDArray[np.uint8]:
    """Some rows of a model in the order of `slots`, shape (len(slots), 4 + dim)."""
    width = SCALE_BYTES + dim
    out = np.empty((len(slots), width), dtype=np.uint8)
    if not len(slots):
        return out
    connection = database.connection
    order = np.argsort(slots, kind="stable")
    first = block_id(model, int(slots[order[0]]) // ROWS_PER_BLOCK)
    with database.decoding(), connection.blob_open("main", "vector_blocks", "vectors", first, False) as blob:
        at = first
        for position in order.tolist():
            block, row = divmod(int(slots[position]), ROWS_PER_BLOCK)
            if block_id(model, block) != at:
                at = block_id(model, block)
                blob.reopen(at)
            blob.seek(row * width)
            out[position] = np.frombuffer(blob.read(width), dtype=np.uint8)
    return out


def write_rows(database: Database, model: int, first_slot: int, rows: npt.NDArray[np.uint8]) -> None:
    """Append rows from `first_slot` on, completing a block that is partly filled."""
    width = rows.shape[1]
    for start, stop, block in _pieces(first_slot, len(rows), ROWS_PER_BLOCK):
        full = np.zeros((ROWS_PER_BLOCK, width), dtype=np.uint8)
        offset = (first_slot + start) % ROWS_PER_BLOCK
        if offset:
            old = database.value("SELECT vectors FROM vector_blocks WHERE id = ?", (block_id(model, block),))
            full[:] = np.frombuffer(old, dtype=np.uint8).reshape(ROWS_PER_BLOCK, width)
        full[offset : offset + stop - start] = rows[start:stop]
        sql = "INSERT OR REPLACE INTO vector_blocks (id, vectors) VALUES (?, ?)"
        database.run(sql, (block_id(model, block), full.tobytes()))


def read_signs(database: Database, model: int, n_slots: int, dim: int) -> npt.NDArray[np.uint64]:
    """Sign bits of a model, shape (words, n_slots)."""
    sql = "SELECT signs FROM sign_blocks WHERE id BETWEEN ? AND ? ORDER BY id"
    blobs = database.rows(sql, block_ids(model))
    signs = np.empty((sign_words(dim), len(blobs) * SLOTS_PER_SIGN_BLOCK), dtype=np.uint64)
    with database.decoding():
        for number, (blob,) in enumerate(blobs):
            first = number * SLOTS_PER_SIGN_BLOCK
            block = np.frombuffer(blob, dtype=np.uint64).reshape(len(signs), -1)
            signs[:, first : first + SLOTS_PER_SIGN_BLOCK] = block
    return signs[:, :n_slots]


def write_signs(
    database: Database,
    model: int,
    first_slot: int,
    vectors: npt.NDArray[np.float32],
    centre: npt.NDArray[np.float32],
) -> None:
    """Append sign bits from `first_slot` on, completing a block that is partly filled."""
    new = pack_signs(vectors, centre)
    for start, stop, block in _pieces(first_slot, len(vectors), SLOTS_PER_SIGN_BLOCK):
        full = np.zeros((len(new), SLOTS_PER_SIGN_BLOCK), dtype=np.uint64)
        offset = (first_slot + start) % SLOTS_PER_SIGN_BLOCK
        if offset:
            old = database.value("SELECT signs FROM sign_blocks WHERE id = ?", (block_id(model, block),))
            full[:] = np.frombuffer(old, dtype=np.uint64).reshape(len(new), -1)
        full[:, offset : offset + stop - start] = new[:, start:stop]
        sql = "INSERT OR REPLACE INTO sign_blocks (id, signs) VALUES (?, ?)"
        database.run(sql, (block_id(model, block), full.tobytes()))


def _pieces(first_slot: int, count: int, per_block: int) -> list[tuple[int, int, int]]:
    """(start, stop, block) of the parts of `count` rows that fall into one block each."""
    pieces = []
    start = 0
    while start < count:
        block, offset = divmod(first_slot + start, per_block)
        stop = min(count, start + per_block - offset)
        pieces.append((start, stop, block))
        start = stop
    return pieces
