"""Restore missing checksums, and rebuild an index that is damaged or that the original qmd changed.

A new index has the sound vectors of the old one; everything else comes from the notes again.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import islice
from pathlib import Path

import apsw
import numpy as np
import numpy.typing as npt
from msgspec import Struct

from qmd.batching import batches
from qmd.config.paths import index_next_to
from qmd.errors import BusyError, StoreError, UnknownOriginError
from qmd.files import sha256
from qmd.store.records import unpack_text
from qmd.store.sqlite import vectors
from qmd.store.sqlite.connection import DamagedIndexError, Database, Row, as_qmd_error
from qmd.store.sqlite.files import PAGE_BYTES, connect_for_writing, file_lock, open_file
from qmd.store.sqlite.health import check
from qmd.store.sqlite.index import SqliteReader
from qmd.store.sqlite.origin import ORIGIN, check_origin, record_origin
from qmd.store.sqlite.schema import is_mixed, migrate
from qmd.store.sqlite.vec0 import Vec0Table, vectors_of
from qmd.store.sqlite.writer import SqliteWriter
from qmd.switches import busy_timeout_ms

_SIDE_FILES = ("-wal", "-shm")

_ROWS_AT_ONCE = 4_096

_PAGES_TRIED = 100
"""Mismatching pages among which one must differ in more than two bits; trying a page takes a tenth of a second."""

_Sums = npt.NDArray[np.uint32]


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


def restore_checksums(path: Path) -> bool:
    """Give all pages their checksums if the index is proved sound without them; else return False.

    It is if SQLite finds no fault, each text has its hash, and the pages without checksum look like a transaction and
    not like a fault of the disk. The next update and embedding run write all other rows but the vectors again.

    Raises:
        BusyError: Another process works on it for too long.
        StoreError: There is no space.
    """
    unusable = suppress(DamagedIndexError, UnknownOriginError)
    with _lock_alone(path), unusable, closing(_open_unverified(path)) as database:
        check_origin(database)
        # The value is 1 if another process kept a part of the log from being written.
        if database.value("PRAGMA wal_checkpoint(TRUNCATE)"):
            raise as_qmd_error(apsw.BusyError(), path)
        if _is_of_transaction(database) and _are_texts_sound(database) and not check(database):
            database.run("DELETE FROM meta WHERE key GLOB 'made_by:*'")
            database.run("VACUUM")
            return True
    return False


def _are_texts_sound(database: Database) -> bool:
    """Return whether texts have their hashes, and all other values can be decoded."""
    with database.decoding():
        for (name,) in database.rows("SELECT name FROM sqlite_schema WHERE type = 'table' AND rootpage > 0"):
            for _ in database.connection.execute(f'SELECT * FROM "{name}"'):
                pass
        rows = database.connection.execute("SELECT hash, doc FROM content")
        return all(sha256(unpack_text(doc).encode("utf-8", "surrogatepass")) == known for known, doc in rows)


def _is_of_transaction(database: Database) -> bool:
    """Return whether pages that do not match their checksums look like a transaction, not like a fault of the disk.

    A fault changes a few bits or a part of one page. A transaction changes pages of several tables, or facts alone;
    with vectors it changes the row of their model, to a random number. It may change a counter by one bit, too.
    """
    if not (pages := _find_mismatches(database)):
        return True
    try:
        names = {name for name, page in database.rows("SELECT name, pageno FROM dbstat") if page in pages}
    except StoreError:  # the tables are broken
        return False
    if (len(pages) == 1 and names != {"meta"}) or all(map(_is_of_bits, islice(pages.values(), _PAGES_TRIED))):
        return False
    return "models" in names or not any(name.startswith(("vector", "signs_")) for name in names)


def _find_mismatches(database: Database) -> dict[int, _Sums]:
    """Return the pages whose checksum does not match, with the difference.

    A checksum is two 32-bit sums, in which word k before the end of a page counts F(k) and F(k + 1) times, F being the
    Fibonacci numbers. Programs without checksums leave zeros on a new page, and the old checksum on a changed one.

    Source: `cksmCompute` in SQLite's ext/misc/cksumvfs.c.
    """
    size, n_pages = database.value("PRAGMA page_size"), database.value("PRAGMA page_count")
    counts = _fibonacci(size // 4)
    found = {}
    for number in range(n_pages):
        with database.decoding():
            words = np.frombuffer(database.connection.read("main", 0, number * size, size)[1], dtype="<u4")
        difference = words[-2:] - np.array([words[-3::-1] @ counts[1:-1], words[-3::-1] @ counts[2:]])
        if difference.any():
            found[number + 1] = difference
    return found


def _fibonacci(n: int) -> _Sums:
    """Return F(-1), F(0), … F(n - 2), modulo 2^32."""
    numbers = [1, 0]
    while len(numbers) < n:
        numbers.append((numbers[-1] + numbers[-2]) % 2**32)
    return np.array(numbers, dtype=np.uint32)


def _is_of_bits(difference: _Sums) -> bool:
    """Return whether one or two changed bits make this difference of checksums; others do with a chance of 1 to 2^30.

    A bit of word k changes the sums by F(k) and F(k + 1) times a power of two, a bit of the checksum one of them alone.
    """
    counts, bits = _fibonacci(PAGE_BYTES // 4), 1 << np.arange(32, dtype=np.uint32)
    by_one = np.outer(np.concatenate([bits, -bits, [0]]), counts).astype(np.uint32)
    changes = np.stack([by_one[:, :-1], by_one[:, 1:]], axis=-1).reshape(-1, 2)
    rests = np.ascontiguousarray(difference - changes)
    return bool(np.isin(rests.view(np.uint64), changes.view(np.uint64)).any())


def rebuild(path: Path, found: os.stat_result) -> RebuildReport | None:
    """Replace a damaged index by a new one, and set it aside in place of an earlier one.

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
    """Rename an unusable file, with `what` in its name, in place of an earlier one; return the new name."""
    aside = path.with_name(f"{path.name}.{what}")
    # The log first: without the file, a new one under its name would get the old log.
    for suffix in (*_SIDE_FILES, ""):
        try:
            path.with_name(path.name + suffix).replace(aside.with_name(aside.name + suffix))
        except FileNotFoundError:
            aside.with_name(aside.name + suffix).unlink(missing_ok=True)
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
    kept = 0
    with closing(connect_for_writing(new)) as database:
        migrate(database)
        # Inside a transaction the schema is not read again, so it is not verified.
        with (
            suppress(DamagedIndexError, UnknownOriginError),
            closing(_open_unverified(path)) as loose,
            closing(_open_unverified(path)) as source,
            source.snapshot(),
            database.transaction(),
        ):
            source.value("SELECT count(*) FROM sqlite_schema")
            source.run("PRAGMA checksum_verification = ON")
            check_origin(source)
            with suppress(StoreError):
                writer = SqliteWriter(database)
                writer.put_collections(SqliteReader(source).collections())
                kept_facts = ("global_context", ORIGIN)
                writer.set_facts(dict(source.rows("SELECT key, value FROM meta WHERE key IN (?, ?)", kept_facts)))
            if _is_of_transaction(loose):
                source = loose
            models = _read_both_ends(source, "SELECT fingerprint, id, dim FROM models ORDER BY id", ())
            kept = sum(_copy_model(loose, source, database, *model) for model in models)
        record_origin(database, target)
    with closing(connect_for_writing(new)) as database:  # a reader would leave the log
        if check(database):
            raise DamagedIndexError(new)
    return new, kept


def _copy_model(loose: Database, source: Database, target: Database, fingerprint: str, model: int, dim: int) -> int:
    """Copy the vectors of one model whose key and place can both be read; return their number."""
    table, copied = vectors_of(source, model, dim), 0
    keys = _read_keys(loose, source, model, table)
    for slots in batches(sorted(keys), _ROWS_AT_ONCE):
        rows = _read_one_by_one(table, slots)
        if rows:
            vectors.put_stored_rows(target, fingerprint, dim, {keys[slot]: row for slot, row in rows.items()})
            copied += len(rows)
    return copied


def _read_keys(loose: Database, source: Database, model: int, table: Vec0Table) -> dict[int, bytes]:
    """Return the keys of a model by slot: all if each vector has exactly one, else those on sound pages."""
    sql = "SELECT slot, key FROM vector_keys WHERE model = ? ORDER BY key"
    rows = _read_both_ends(loose, sql, (model,))
    slots = _read_both_ends(loose, f"SELECT rowid FROM {table.name}_rowids ORDER BY rowid", ())
    are_proved = sorted((slot,) for slot, _ in rows) == slots
    return dict(rows if are_proved else _read_both_ends(source, sql, (model,)))


def _read_one_by_one(table: Vec0Table, slots: Sequence[int]) -> dict[int, npt.NDArray[np.int8]]:
    """Return the rows of some neighbouring slots, all or else the readable ones."""
    try:
        return dict(zip(slots, table.read_slots(np.array(slots, dtype=np.int64)).view(np.int8), strict=True))
    except StoreError:
        if len(slots) == 1:
            return {}
    middle = len(slots) // 2
    return _read_one_by_one(table, slots[:middle]) | _read_one_by_one(table, slots[middle:])


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
