"""sqlite-vec's `vec0` tables: one of int8 vectors for each model, and one of sign bits for a model of many vectors.

They are `vectors_M (embedding int8[dim])` and `signs_M (signs bit[dim])`, M being the row id in `models`. A vector's
*slot* is its row id in both. Writing uses the extension. Reading uses its internal tables, which needs no extension and
takes a tenth of the time: `_chunks` has the used places and their slots, `_vector_chunks00` the values of as many rows,
`_rowids` the place of a slot. Tables of a version not in `_LAYOUT` are read through the extension.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import apsw
import numpy as np
import numpy.typing as npt

from qmd.errors import ModelError
from qmd.store.sqlite.connection import DamagedIndexError, Database
from qmd.store.sqlite.quantisation import sign_bytes

Slots = npt.NDArray[np.int64]
Rows = npt.NDArray[np.uint8]

_LAYOUT = "v0.1."
"""Versions whose tables are laid out as described above."""

_ROWS_PER_CHUNK = 64
"""Rows of int8 vectors in one value: single rows are read in a quarter of the time that 1,024 of them take, as
SQLite walks the pages of a value from its start; all of them are read, written and searched as fast."""

_SIGNS_PER_CHUNK = 4096
"""Sign bits are always read as a whole, and counted in half the time that chunks of 1,024 take."""


class Vec0Table:
    """One `vec0` table with one column of vectors.

    Args:
        database: The index.
        name: Its name.
        column: Name of the column.
        width: Bytes of a vector.
    """

    def __init__(self, database: Database, name: str, column: str, width: int) -> None:
        self._database = database
        self.name = name
        self.column = column
        self.width = width

    def insert(self, slots: Sequence[int], rows: Rows) -> None:
        """Add rows, shape (n, width), under free slots."""
        enable(self._database)
        kind = "bit" if self.column == "signs" else "int8"
        sql = f"INSERT INTO {self.name} (rowid, {self.column}) VALUES (?, vec_{kind}(?))"
        self._database.run_many(sql, ((slot, row.tobytes()) for slot, row in zip(slots, rows, strict=True)))

    def delete(self, slots: Sequence[int]) -> None:
        enable(self._database)
        self._database.run_many(f"DELETE FROM {self.name} WHERE rowid = ?", ((slot,) for slot in slots))

    def exists(self) -> bool:
        return self._database.value("SELECT 1 FROM sqlite_schema WHERE name = ?", (self.name,)) is not None

    def drop(self) -> None:
        enable(self._database)
        self._database.run(f"DROP TABLE {self.name}")

    def next_slot(self) -> int:
        """Return the slot after all others."""
        last = self._database.value(f"SELECT max(rowid) FROM {self.name}_rowids")
        return 0 if last is None else int(last) + 1

    def compact(self) -> None:
        """Move the rows of chunks that are less than half full to the end, which frees those chunks."""
        chunks = self._database.rows(f"SELECT validity, rowids FROM {self.name}_chunks ORDER BY chunk_id")
        # Rows are only ever added to the last chunk, which may have any fill.
        for validity, rowids in chunks[:-1]:
            slots = np.frombuffer(rowids, dtype=np.int64)[_places_in_use(validity)]
            if 2 * len(slots) < 8 * len(validity):
                rows = self.read_slots(slots)
                self.delete(slots.tolist())
                self.insert(slots.tolist(), rows)

    def read_all(self) -> tuple[Slots, Rows]:
        """Return all slots, ascending, shape (n,), and their rows, shape (n, width)."""
        slots, chunks = self.read_chunks()
        rows = np.concatenate(chunks) if chunks else np.empty((0, self.width), dtype=np.uint8)
        if np.all(slots[1:] > slots[:-1]):
            return slots, rows
        order = np.argsort(slots)
        return slots[order], rows[order]

    def read_chunks(self) -> tuple[Slots, list[Rows]]:
        """Return all slots, shape (n,), and their rows in the same order, in pieces, shapes (?, width)."""
        if not self._is_readable():
            found = self._database.rows(f"SELECT rowid, {self.column} FROM {self.name} ORDER BY rowid")
            slots = np.array([slot for slot, _ in found], dtype=np.int64)
            return slots, [self._as_rows(b"".join([row for _, row in found]))]
        chunks = self._database.rows(f"SELECT chunk_id, validity, rowids FROM {self.name}_chunks ORDER BY chunk_id")
        pieces: list[tuple[Slots, Rows]] = []
        if not chunks:
            return np.empty(0, dtype=np.int64), []
        with self._open_values(chunks[0][0]) as blob:
            for chunk, validity, rowids in chunks:
                if pieces:
                    blob.reopen(chunk)
                slots = np.frombuffer(rowids, dtype=np.int64)
                rows = np.empty((len(slots), self.width), dtype=np.uint8)
                if len(slots) != 8 * len(validity) or blob.length() != rows.nbytes:
                    raise DamagedIndexError(self._database.path)
                blob.read_into(rows.data)
                if validity != b"\xff" * len(validity):
                    chosen = _places_in_use(validity)
                    slots, rows = slots[chosen], rows[chosen]
                pieces.append((slots, rows))
        return np.concatenate([slots for slots, _ in pieces]), [rows for _, rows in pieces]

    def read_slots(self, slots: Slots) -> Rows:
        """Return some rows in the order of `slots`, shape (len(slots), width).

        Raises:
            DamagedIndexError: One of them is missing.
        """
        # Not by numpy's `unique`, whose first use imports for a tenth of a query's time.
        wanted = np.array(sorted(set(slots.tolist())), dtype=np.int64)
        if not self._is_readable():
            sql = f"SELECT rowid, {self.column} FROM {self.name} WHERE rowid IN ({{}})"
            by_slot: dict[int, bytes] = dict(self._database.select_in(sql, wanted.tolist()))
            rows = self._as_rows(b"".join([by_slot.get(slot, b"") for slot in wanted.tolist()]))
        else:
            # In the order of the list, and half as long as by `IN`.
            joined = f"json_each(?) CROSS JOIN {self.name}_rowids AS kept ON kept.rowid = value"
            found = self._database.rows(f"SELECT chunk_id, chunk_offset FROM {joined}", (str(wanted.tolist()),))
            places = np.array(found, dtype=np.int64).reshape(-1, 2)
            order = np.lexsort((places[:, 1], places[:, 0]))
            rows = np.empty((len(places), self.width), dtype=np.uint8)
            if len(places):
                self._read_places(places[order], order, rows)
        if len(rows) != len(wanted):
            raise DamagedIndexError(self._database.path)
        return rows[np.searchsorted(wanted, slots)]

    def _read_places(self, places: Slots, positions: npt.NDArray[np.intp], rows: Rows) -> None:
        """Read rows at places, sorted by chunk and place, into `rows[positions]`; neighbours in one go."""
        chunks, offsets = places[:, 0], places[:, 1]
        starts = np.flatnonzero(np.diff(chunks, prepend=-1) | (np.diff(offsets, prepend=-1) - 1))
        ends = [*starts[1:].tolist(), len(places)]
        runs = zip(starts.tolist(), ends, chunks[starts].tolist(), offsets[starts].tolist(), strict=True)
        at = int(chunks[0])
        with self._open_values(at) as blob:
            for start, stop, chunk, offset in runs:
                if chunk != at:
                    at = chunk
                    blob.reopen(at)
                blob.seek(offset * self.width)
                piece = np.frombuffer(blob.read((stop - start) * self.width), dtype=np.uint8)
                rows[positions[start:stop]] = piece.reshape(stop - start, self.width)

    @contextmanager
    def _open_values(self, chunk: int) -> Iterator[apsw.Blob]:
        """Open the values of a chunk, reopenable at others; a missing or short one means damage."""
        table = f"{self.name}_vector_chunks00"
        with self._database.decoding():
            try:
                with self._database.connection.blob_open("main", table, "vectors", chunk, False) as blob:
                    yield blob
            except apsw.SQLError as exc:
                raise DamagedIndexError(self._database.path) from exc

    def _as_rows(self, blob: bytes) -> Rows:
        return np.frombuffer(blob, dtype=np.uint8).reshape(-1, self.width)

    def _is_readable(self) -> bool:
        """Return whether the table has the known layout; if not, load the extension."""
        version = self._database.value(f"SELECT value FROM {self.name}_info WHERE key = 'CREATE_VERSION'")
        if str(version).startswith(_LAYOUT):
            return True
        enable(self._database)
        return False


def vectors_of(database: Database, model: int, dim: int) -> Vec0Table:
    return Vec0Table(database, f"vectors_{model}", "embedding", dim)


def signs_of(database: Database, model: int, dim: int) -> Vec0Table:
    """Return the table of the sign bits of a model's vectors, which only a model of many has."""
    return Vec0Table(database, f"signs_{model}", "signs", sign_bytes(dim))


def create_vectors(database: Database, model: int, dim: int) -> None:
    enable(database)
    columns = f"embedding int8[{dim}] distance_metric=cosine, chunk_size={_ROWS_PER_CHUNK}"
    database.run(f"CREATE VIRTUAL TABLE vectors_{model} USING vec0 ({columns})")


def create_signs(database: Database, model: int, dim: int) -> None:
    enable(database)
    columns = f"signs bit[{8 * sign_bytes(dim)}], chunk_size={_SIGNS_PER_CHUNK}"
    database.run(f"CREATE VIRTUAL TABLE signs_{model} USING vec0 ({columns})")


def is_available() -> bool:
    """Return whether this platform has a package of sqlite-vec."""
    from importlib.util import find_spec

    return find_spec("sqlite_vec") is not None


def enable(database: Database) -> None:
    """Load the extension into a connection, once.

    Raises:
        ModelError: There is none for this platform, or this build of SQLite cannot load it.
    """
    if database.has_vec0:
        return
    hint = "search by words: qmd search"
    try:
        import sqlite_vec

        database.connection.enable_load_extension(True)
        database.connection.load_extension(sqlite_vec.loadable_path())
        database.connection.enable_load_extension(False)
    except ImportError as exc:
        raise ModelError("vectors cannot be stored: sqlite-vec is not installed", hint) from exc
    except apsw.Error as exc:
        raise ModelError(f"vectors cannot be stored: sqlite-vec cannot be loaded: {exc}", hint) from exc
    database.has_vec0 = True


def _places_in_use(validity: bytes) -> npt.NDArray[np.intp]:
    return np.flatnonzero(np.unpackbits(np.frombuffer(validity, dtype=np.uint8), bitorder="little"))
