"""Opening the SQLite file, running statements on it, and turning SQLite's failures into qmd's."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import apsw

from qmd.batching import batches
from qmd.errors import BusyError, QmdError, StoreError

# SQLite decides the type of every value at run time, so a row cannot be typed further here; callers unpack at once.
Row = tuple[Any, ...]
Bindings = Sequence[object]

_STEPS_BETWEEN_CHECKS = 20_000
"""Instructions of SQLite's machine, about a millisecond."""


class ForeignIndexError(StoreError):
    """The file was written by another program (the original qmd keeps the same name and place)."""

    code = "foreign_index"


def driver_version() -> str:
    """SQLite's version and the driver's."""
    return f"{apsw.sqlite_lib_version()} (apsw {apsw.apsw_version()})"


class DamagedIndexError(StoreError):
    """Part of the file is not what was written."""

    code = "damaged_index"

    def __init__(self, path: Path, what: str = "is damaged") -> None:
        hint = "rebuild it from your files, which keeps its sound vectors: qmd index"
        super().__init__(f"index '{path}' {what}", hint)
        # Whoever meets damage makes the next run look at the whole file.
        forget_verified(path)


def verified_mark(path: Path) -> Path:
    """The empty file beside an index whose time says when all of the index was last found sound."""
    return path.with_name(f".{path.name}.verified")


def forget_verified(path: Path) -> None:
    """Have the next run verify the index."""
    with suppress(OSError):
        verified_mark(path).unlink(missing_ok=True)


def as_qmd_error(error: apsw.Error | OSError, path: Path) -> QmdError:
    """The failure a user can act on; SQLite's own words only where they add something."""
    shown = f"index '{path}'"
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return BusyError(f"{shown} is in use by another process", "wait for the other qmd to finish, then try again")
    if isinstance(error, apsw.NotADBError):
        return DamagedIndexError(path, "is not a SQLite database")
    if isinstance(error, apsw.CorruptError) or getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_DATA:
        return DamagedIndexError(path)
    if isinstance(error, apsw.FullError):
        return StoreError(
            f"no space left on the disk that holds {shown}", "free some space, then run the command again"
        )
    if isinstance(error, apsw.ReadOnlyError | apsw.CantOpenError | PermissionError):
        state = "is read-only" if isinstance(error, apsw.ReadOnlyError) else "cannot be opened"
        return StoreError(f"{shown} {state}", "check the permissions of the file and of its folder")
    if isinstance(error, apsw.InterruptError):
        return StoreError("the query was interrupted")
    known = error.strerror if isinstance(error, OSError) else None
    detail = (known or str(error)).replace("\n", " ") or type(error).__name__
    return StoreError(f"{shown} cannot be used: {detail}")


class Database:
    """One connection. Every statement goes through it, so every SQLite failure leaves it as a `QmdError`."""

    def __init__(self, connection: apsw.Connection, path: Path) -> None:
        self.connection = connection
        self.path = path
        self.statistics: dict[tuple[str, ...], Any] = {}
        """Kept by `scoped_ranking`: collections → what was counted of them; and by `documents`, below an empty name."""
        self.has_vec0 = False
        """Whether `vec0` has loaded its extension into the connection."""
        self._is_over: Callable[[], bool] | None = None

    def close(self) -> None:
        """Close the connection; closing twice is harmless.

        The log goes into the file even if a reader has it open, which cannot do so when it is the last to close: other
        programs would, and write the pages of a log without checksums.
        """
        with suppress(apsw.Error):
            if not self.connection.readonly("main"):
                self.connection.set_busy_timeout(0)
                self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        try:
            self.connection.close()
        except apsw.Error as exc:
            raise as_qmd_error(exc, self.path) from exc

    def state(self) -> tuple[int, int]:
        """Another one after any change of the index, by this connection or by others."""
        return int(self.value("PRAGMA data_version")), self.connection.total_changes()

    def stop_when(self, is_over: Callable[[], bool] | None) -> None:
        """End statements with a `StoreError` once `is_over`; None lets them run."""
        self._is_over = is_over
        self.connection.set_progress_handler(is_over, _STEPS_BETWEEN_CHECKS)

    def check(self) -> None:
        """Raise as a statement would. For loops over rows, and because short statements never ask."""
        if self._is_over is not None and self._is_over():
            raise as_qmd_error(apsw.InterruptError(), self.path)

    def rows(self, sql: str, bindings: Bindings = ()) -> list[Row]:
        """All rows of a statement."""
        self.check()
        try:
            return self.connection.execute(sql, tuple(bindings)).fetchall()
        except apsw.Error as exc:
            raise as_qmd_error(exc, self.path) from exc
        except UnicodeDecodeError as exc:
            raise DamagedIndexError(self.path) from exc

    def row(self, sql: str, bindings: Bindings = ()) -> Row | None:
        """The first row, or None."""
        rows = self.rows(sql, bindings)
        return rows[0] if rows else None

    def value(self, sql: str, bindings: Bindings = ()) -> Any:
        """The first column of the first row, or None."""
        row = self.row(sql, bindings)
        return row[0] if row else None

    def run(self, sql: str, bindings: Bindings = ()) -> int:
        """Run a statement without result; the number of rows it changed."""
        self.rows(sql, bindings)
        return self.connection.changes()

    def run_many(self, sql: str, bindings: Iterable[Bindings]) -> None:
        """Run one statement for each set of bindings."""
        try:
            self.connection.executemany(sql, bindings)
        except apsw.Error as exc:
            raise as_qmd_error(exc, self.path) from exc

    def select_in(self, sql: str, values: Sequence[object], bindings: Bindings = ()) -> Iterator[Row]:
        """Rows of `sql`, whose `{}` stands for a list of question marks, over any number of `values`.

        Values are bound after `bindings`, five hundred at a time.
        """
        for part in batches(values, 500):
            yield from self.rows(sql.replace("{}", ",".join("?" * len(part))), (*bindings, *part))

    @contextmanager
    def decoding(self) -> Iterator[None]:
        """What was stored is taken apart in this block, and where that fails the index is damaged.

        Raises:
            DamagedIndexError: A stored value is not of the form in which it was written.
        """
        try:
            yield
        except (ValueError, TypeError, AttributeError, zlib.error) as exc:
            raise DamagedIndexError(self.path) from exc
        except apsw.Error as exc:
            raise as_qmd_error(exc, self.path) from exc

    def _is_in_transaction(self) -> bool:
        return self.connection.in_transaction

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing; the write lock is taken at once, and nested use joins the outer transaction."""
        if self._is_in_transaction():
            yield
            return
        self.run("BEGIN IMMEDIATE")
        try:
            yield
            self.run("COMMIT")
        except BaseException:
            # A failed COMMIT or a full disk may have rolled back already.
            if self._is_in_transaction():
                self.run("ROLLBACK")
            raise

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Several reads of one state, whatever a writer commits meanwhile."""
        if self._is_in_transaction():
            yield
            return
        self.run("BEGIN")
        try:
            yield
        finally:
            if self._is_in_transaction():
                self.run("ROLLBACK")
