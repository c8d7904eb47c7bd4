"""Rebuild an index with the sound vectors of a file that is damaged or that the original qmd changed.

Everything else comes from the notes again.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import apsw
import numpy as np
import numpy.typing as npt
from msgspec import Struct

from qmd.config.paths import index_next_to
from qmd.errors import BusyError, StoreError
from qmd.store.sqlite import vectors
from qmd.store.sqlite.connection import Database, Row, as_qmd_error
from qmd.store.sqlite.files import connect_for_writing, file_lock, open_file
from qmd.store.sqlite.index import SqliteReader
from qmd.store.sqlite.origin import ORIGIN, record_origin
from qmd.store.sqlite.schema import is_mixed, migrate
from qmd.store.sqlite.vec0 import Vec0Table, vectors_of
from qmd.store.sqlite.writer import SqliteWriter
from qmd.switches import busy_timeout_ms

_SIDE_FILES = ("-wal", "-shm")

_VEC0_VERSION = 8
"""First schema version with vectors in the tables of sqlite-vec."""


class RebuildReport(Struct, frozen=True):
    """Result of rebuilding a damaged index."""

    aside: Path
    """The damaged file."""
    vectors: int
    """Vectors that the new index took from it."""


def separate(path: Path) -> Path | None:
    """Create our index next to a file of ours that the original changed; return None if it did not.

    The original cannot use such a file either: it is set aside, and from then on both programs have their own.

    Raises:
        BusyError: Another process works on it for too long.
        StoreError: There is no space, or the place is not writable.
    """
    beside = index_next_to(path)
    with _lock_alone(path):
        if beside.exists():
            return beside
        try:
            with closing(_open_unverified(path)) as source:
                if not is_mixed(source):
                    return None
        except StoreError:
            return None
        new, kept = _create_empty(path, beside)
        new.replace(beside)
        aside = _set_aside(path, "mixed")
    logging.getLogger("qmd").warning(
        "tobi/qmd had put its tables into '%s', which is now '%s'; the index is '%s' and has its %d vectors;"
        " fill it from your files: qmd index",
        *(path, aside, beside, kept),
    )
    return beside


def rebuild(path: Path, found: os.stat_result) -> RebuildReport | None:
    """Replace a damaged index by a new one, and set it aside.

    The new index has the configuration and the sound vectors; the texts come from the files again.

    Args:
        path: The damaged file.
        found: That file when it was found damaged; None is returned if another process has replaced it since.

    Raises:
        BusyError: Another process works on it for too long.
        StoreError: There is no space, or the place is not writable.
    """
    with _lock_alone(path):
        if not path.exists() or not os.path.samestat(path.stat(), found):
            return None
        new, kept = _create_empty(path, path)
        aside = _set_aside(path, "damaged")
        new.replace(path)
    return RebuildReport(aside, kept)


def set_foreign_index_aside(path: Path) -> Path:
    """Rename an index that was not made here; return the new name.

    Raises:
        BusyError: Another process works on it for too long.
        StoreError: The place is not writable.
    """
    with _lock_alone(path):
        return _set_aside(path, "strange")


@contextmanager
def _lock_alone(path: Path) -> Iterator[None]:
    try:
        with file_lock(path, busy_timeout_ms() / 1000) as held:
            if not held:
                raise BusyError(f"index '{path}' is being rebuilt by another process", "wait until it has ended")
            yield
    except OSError as exc:
        raise as_qmd_error(exc, path) from exc


def _set_aside(path: Path, what: str) -> Path:
    """Rename an unusable file, with `what` in its name; return the new name."""
    aside = path.with_name(f"{path.name}.{what}")
    number = 1
    while aside.exists():
        number += 1
        aside = path.with_name(f"{path.name}.{what}-{number}")
    # The log first: without the file, a new one under its name would get the old log.
    for suffix in (*_SIDE_FILES, ""):
        with suppress(FileNotFoundError):
            path.with_name(path.name + suffix).rename(aside.with_name(aside.name + suffix))
    return aside


def _open_unverified(path: Path) -> Database:
    """Open a file whose schema must be readable, sound or not; the schema stays readable while it is open."""
    try:
        connection = open_file(path, apsw.SQLITE_OPEN_READWRITE)
    except (apsw.Error, OSError) as exc:
        raise as_qmd_error(exc, path) from exc
    try:
        connection.set_busy_timeout(busy_timeout_ms())
        connection.execute("PRAGMA checksum_verification = OFF")
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
    except apsw.Error as exc:
        connection.close()
        raise as_qmd_error(exc, path) from exc
    return Database(connection, path)


def _create_empty(path: Path, target: Path) -> tuple[Path, int]:
    """Create an index for `target` with the configuration and the sound vectors of the file at `path`.

    Returns its temporary name, and the number of vectors.
    """
    new = target.with_name(f".{target.name}.new")
    for suffix in ("", *_SIDE_FILES):
        new.with_name(new.name + suffix).unlink(missing_ok=True)
    with closing(connect_for_writing(new)) as database:
        migrate(database)
        try:
            source = _open_unverified(path)
        except StoreError:
            return new, 0
        # Inside a transaction the schema is not read again, so it is not verified.
        with closing(source), source.snapshot(), database.transaction():
            source.value("SELECT count(*) FROM sqlite_schema")
            source.run("PRAGMA checksum_verification = ON")
            with suppress(StoreError):
                writer = SqliteWriter(database)
                writer.put_collections(SqliteReader(source).collections())
                kept_facts = ("global_context", ORIGIN)
                writer.set_facts(dict(source.rows("SELECT key, value FROM meta WHERE key IN (?, ?)", kept_facts)))
            is_old = int(source.value("PRAGMA user_version")) < _VEC0_VERSION
            models = _read_both_ends(source, "SELECT fingerprint, id, dim FROM models ORDER BY id", ())
            kept = sum(_copy_model(source, database, *model, is_old=is_old) for model in models)
        record_origin(database, target)
        return new, kept


def _copy_model(source: Database, target: Database, fingerprint: str, model: int, dim: int, *, is_old: bool) -> int:
    """Copy the vectors of one model whose key and place can both be read; return their number."""
    keys = {slot: key for key, slot in _iter_keys(source, model) if slot >= 0}
    table = vectors_of(source, model, dim)
    by_piece: dict[int, list[int]] = {}
    for slot in keys:
        by_piece.setdefault(slot // vectors.ROWS_PER_BLOCK, []).append(slot)
    copied = 0
    for piece, slots in sorted(by_piece.items()):
        try:
            if is_old:
                block = vectors.read_block(source, model, piece, dim)
                rows = {slot: block[slot % vectors.ROWS_PER_BLOCK] for slot in slots}
            else:
                rows = _read_one_by_one(table, slots)
        except StoreError:
            continue
        if rows:
            vectors.put_stored_rows(target, fingerprint, dim, {keys[slot]: row for slot, row in rows.items()})
            copied += len(rows)
    return copied


def _read_one_by_one(table: Vec0Table, slots: Sequence[int]) -> dict[int, npt.NDArray[np.int8]]:
    """Return the rows of some neighbouring slots, all or else the readable ones."""
    try:
        return dict(zip(slots, table.read_slots(np.array(slots, dtype=np.int64)).view(np.int8), strict=True))
    except StoreError:
        if len(slots) == 1:
            return {}
    middle = len(slots) // 2
    return _read_one_by_one(table, slots[:middle]) | _read_one_by_one(table, slots[middle:])


def _iter_keys(source: Database, model: int) -> Iterator[tuple[bytes, int]]:
    """Yield keys of a model with their slots, skipping damaged pages: by first bytes."""
    sql = "SELECT key, slot FROM vector_keys WHERE model = ? AND key >= ? AND key < ? ORDER BY key"
    for first in range(256):
        after = bytes([first + 1]) if first < 255 else b"\xff" * 17
        yield from _read_both_ends(source, sql, (model, bytes([first]), after))


def _read_both_ends(source: Database, sql: str, bindings: Sequence[object]) -> list[Row]:
    """Return the rows from the start to the first damaged page and from the end to the last."""
    rows: dict[Row, None] = {}
    for direction in ("", " DESC"):
        try:
            for row in source.connection.execute(sql + direction, tuple(bindings)):
                rows[row] = None
        except apsw.Error:
            continue
        break
    return list(rows)
