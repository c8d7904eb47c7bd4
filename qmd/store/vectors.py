"""The write side of dense retrieval: which texts lack vectors, storing them, dropping those nothing refers to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from qmd.batches import batches
from qmd.store.base import ChunkRecord, PendingContent
from qmd.store.blocks import block_id, pack_rows, read_all, read_slots, unpack_rows, write_rows, write_signs
from qmd.store.connection import Database
from qmd.store.documents import fetch_texts

if TYPE_CHECKING:
    import numpy.typing as npt

SIGNS_FROM_SLOTS = 150_000
"""Vectors per model from which on sign bits are kept. Below, the exact scan takes at most about 20 ms."""

_TEXTS_AT_ONCE = 64

_NEW_GENERATION = "generation = random()"
"""Drawn anew whenever a model's vectors change, and never counted: row ids are used again after `embed --force`, so a
number that starts over would let a warm server take new vectors for those that it holds."""


def pending(database: Database, fingerprint: str, collections: Sequence[str] | None) -> Iterator[PendingContent]:
    """Contents without a complete chunk set for `fingerprint`, by path; safe while the caller writes."""
    model = database.value("SELECT id FROM models WHERE fingerprint = ?", (fingerprint,))
    inside = "" if collections is None else f"AND documents.collection IN ({','.join('?' * len(collections))})"
    wanted = database.rows(
        "SELECT documents.hash, min(documents.path) AS path FROM documents JOIN content USING (hash) "
        "LEFT JOIN embedded ON embedded.model = ? AND embedded.content = content.id "
        f"WHERE documents.active = 1 AND embedded.content IS NULL {inside} GROUP BY documents.hash ORDER BY path",
        (model if model is not None else -1, *(collections or ())),
    )
    for part in batches(wanted, _TEXTS_AT_ONCE):
        texts = fetch_texts(database, [content_hash for content_hash, _ in part])
        for content_hash, path in part:
            # A text can vanish between the list and here, when another process updates the index.
            if content_hash in texts:
                yield PendingContent(content_hash, path, texts[content_hash])


def count_pending(database: Database, fingerprint: str, collections: Sequence[str] | None) -> tuple[int, int]:
    """(contents, characters) without a complete chunk set for `fingerprint`."""
    model = database.value("SELECT id FROM models WHERE fingerprint = ?", (fingerprint,))
    inside = "" if collections is None else f"AND collection IN ({','.join('?' * len(collections))})"
    row = database.row(
        "SELECT count(*), coalesce(sum(content.n_chars), 0) FROM content "
        "LEFT JOIN embedded ON embedded.model = ? AND embedded.content = content.id "
        "WHERE embedded.content IS NULL AND "
        f"hash IN (SELECT hash FROM documents WHERE active = 1 {inside})",
        (model if model is not None else -1, *(collections or ())),
    )
    return (row[0], row[1]) if row else (0, 0)


def existing_keys(database: Database, fingerprint: str, keys: Sequence[bytes]) -> frozenset[bytes]:
    """Those of `keys` that already have a vector."""
    model = database.value("SELECT id FROM models WHERE fingerprint = ?", (fingerprint,))
    return frozenset(_slots_of(database, model, keys)) if model is not None else frozenset()


def put_vectors(
    database: Database, fingerprint: str, dim: int, vectors: Mapping[bytes, npt.NDArray[np.float32]]
) -> None:
    """Store those vectors whose keys have none yet."""
    model = _model_id(database, fingerprint, dim)
    slots = _slots_of(database, model, list(vectors))
    new = {key: vector for key, vector in vectors.items() if key not in slots}
    if new:
        _append(database, model, dim, new)


def put_stored_rows(
    database: Database, fingerprint: str, dim: int, rows: Mapping[bytes, npt.NDArray[np.uint8]]
) -> None:
    """Store vectors in the form in which another index held them, by key."""
    model = _model_id(database, fingerprint, dim)
    first = _append_rows(database, model, dim, np.stack(list(rows.values())))
    _put_keys(database, model, {key: first + offset for offset, key in enumerate(rows)})


def put_chunks(
    database: Database,
    fingerprint: str,
    dim: int,
    contents: Mapping[str, Sequence[ChunkRecord]],
    vectors: Mapping[bytes, npt.NDArray[np.float32]],
) -> None:
    """Store complete chunk sets and the vectors they need; contents that are gone meanwhile are passed over.

    Raises:
        ValueError: A chunk's key has neither a stored vector nor one in `vectors`, or a vector has another dimension.
    """
    model = _model_id(database, fingerprint, dim)
    keys = list(dict.fromkeys(chunk.key for chunks in contents.values() for chunk in chunks))
    slots = _slots_of(database, model, keys)
    new = [key for key in keys if key not in slots]
    if any(key not in vectors for key in new):
        raise ValueError("a chunk has no vector")
    if new:
        slots |= _append(database, model, dim, {key: vectors[key] for key in new})
    ids: dict[str, int] = dict(database.select_in("SELECT hash, id FROM content WHERE hash IN ({})", list(contents)))
    known = [(ids[content_hash], chunks) for content_hash, chunks in contents.items() if content_hash in ids]
    database.run_many("DELETE FROM chunks WHERE model = ? AND content = ?", [(model, content) for content, _ in known])
    database.run_many(
        "INSERT INTO chunks (model, content, seq, start, end, slot) VALUES (?, ?, ?, ?, ?, ?)",
        [(model, content, c.seq, c.start, c.end, slots[c.key]) for content, chunks in known for c in chunks],
    )
    database.run_many(
        "INSERT OR REPLACE INTO embedded (model, content, n_chunks) VALUES (?, ?, ?)",
        [(model, content, len(chunks)) for content, chunks in known],
    )


def forget_chunks(database: Database, fingerprint: str, suffixes: Sequence[str] | None) -> None:
    """Make contents pending again; their chunks stay until `put_chunks` replaces them."""
    model = "model = (SELECT id FROM models WHERE fingerprint = ?)"
    if suffixes is None:
        database.run(f"DELETE FROM embedded WHERE {model}", (fingerprint,))
        return
    for suffix in suffixes:
        holding = "SELECT hash FROM documents WHERE substr(lower(path), -length(?2)) = ?2"
        sql = f"DELETE FROM embedded WHERE {model.replace('?', '?1')} AND content IN"
        database.run(f"{sql} (SELECT id FROM content WHERE hash IN ({holding}))", (fingerprint, suffix))


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
        span = (block_id(model, 0), block_id(model + 1, 0) - 1)
        database.run(f"DELETE FROM {table} WHERE id BETWEEN ? AND ?", span)
    database.run(f"UPDATE models SET n_slots = 0, {_NEW_GENERATION}, centre = NULL WHERE id = ?", (model,))
    if len(live):
        _append_rows(database, model, dim, rows)


def _model_id(database: Database, fingerprint: str, dim: int) -> int:
    row = database.row("SELECT id, dim FROM models WHERE fingerprint = ?", (fingerprint,))
    if row is None:
        database.run("INSERT INTO models (fingerprint, dim, generation) VALUES (?, ?, random())", (fingerprint, dim))
        return int(database.connection.last_insert_rowid())
    if row[1] != dim:
        raise ValueError(f"model {fingerprint} has dimension {row[1]}, not {dim}")
    return int(row[0])


def _slots_of(database: Database, model: int, keys: Sequence[bytes]) -> dict[bytes, int]:
    sql = "SELECT key, slot FROM vector_keys WHERE model = ? AND key IN ({})"
    return dict(database.select_in(sql, keys, (model,)))


def _append(
    database: Database, model: int, dim: int, vectors: Mapping[bytes, npt.NDArray[np.float32]]
) -> dict[bytes, int]:
    """Store new vectors; their slots by key."""
    matrix = np.asarray(list(vectors.values()), dtype=np.float32)
    if matrix.shape != (len(vectors), dim):
        raise ValueError(f"vectors have shape {matrix.shape}, not {(len(vectors), dim)}")
    first = _append_rows(database, model, dim, pack_rows(matrix))
    slots = {key: first + offset for offset, key in enumerate(vectors)}
    _put_keys(database, model, slots)
    return slots


def _put_keys(database: Database, model: int, slots: Mapping[bytes, int]) -> None:
    database.run_many(
        "INSERT INTO vector_keys (model, key, slot) VALUES (?, ?, ?)",
        [(model, key, slot) for key, slot in slots.items()],
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
