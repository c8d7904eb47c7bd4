"""SQLite connections and statements, with SQLite's failures mapped to qmd's."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
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
"""Instructions of SQLite's virtual machine, about a millisecond."""


class ForeignIndexError(StoreError):
    """The file was written by another program (the original qmd has the same name and place)."""

    code = "foreign_index"


def driver_version() -> str:
    """Return the versions of SQLite and its driver."""
    return f"{apsw.sqlite_lib_version()} (apsw {apsw.apsw_version()})"


class DamagedIndexError(StoreError):
    """Part of the file has changed since it was written."""

    code = "damaged_index"

    def __init__(self, path: Path, what: str = "is damaged") -> None:
        hint = "repair it, from your files if necessary, which keeps its sound vectors: qmd index"
        super().__init__(f"index '{path}' {what}", hint)
        # After damage the next run checks the whole file.
        forget_verified(path)


def verified_mark(path: Path) -> Path:
    """Return the empty file next to an index whose time records the last successful check of the whole index.

    Its time of access is that of the index file as qmd left it; any other shows that another program changed it.
    """
    return path.with_name(f".{path.name}.verified")


def record_state(path: Path, found_ns: int | None = None) -> bool:
    """Record the time of the index file in the mark, as the last change by qmd; return whether it was recorded.

    With `found_ns`, the time of the file before qmd changed it, only if that is the recorded one.
    """
    mark = verified_mark(path)
    with suppress(OSError):
        recorded = mark.stat()
        if found_ns in (None, recorded.st_atime_ns):
            os.utime(mark, ns=(path.stat().st_mtime_ns, recorded.st_mtime_ns))
            return True
    return False


def forget_verified(path: Path) -> None:
    """Make the next run verify the index."""
    with suppress(OSError):
        verified_mark(path).unlink(missing_ok=True)


def as_qmd_error(error: apsw.Error | OSError, path: Path) -> QmdError:
    """Convert a failure into one that a user can act on; keep SQLite's own words only if they add something."""
    shown = f"index '{path}'"
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return BusyError(f"{shown} is in use by another process", "wait for the other qmd to finish, then try again")
    if isinstance(error, apsw.NotADBError):
        return DamagedIndexError(path, "is not a SQLite database")
    if isinstance(error, apsw.CorruptError) or getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_DATA:
        return DamagedIndexError(path)
    if isinstance(error, apsw.FullError):
        return StoreError(f"no space left on the disk of {shown}", "free some space, then run the command again")
    if isinstance(error, apsw.ReadOnlyError | apsw.CantOpenError | PermissionError):
        state = "is read-only" if isinstance(error, apsw.ReadOnlyError) else "cannot be opened"
        return StoreError(f"{shown} {state}", "check the permissions of the file and of its folder")
    if isinstance(error, apsw.InterruptError):
        return StoreError("the query was interrupted")
    known = error.strerror if isinstance(error, OSError) else None
    return StoreError(f"{shown} cannot be used: {known or str(error) or type(error).__name__}")


class Database:
    """One connection. Every statement goes through it, so every SQLite failure leaves it as a `QmdError`."""

    def __init__(self, connection: apsw.Connection, path: Path) -> None:
        self.connection = connection
        self.path = path
        self.statistics: dict[tuple[Hashable, ...], Any] = {}
        """Cache of `scoped_ranking`: collections → their statistics; and of `documents`, under an empty name."""
        self.has_vec0 = False
        """True once `vec0` has loaded its extension into the connection."""
        self._is_over: Callable[[], bool] | None = None
        is_reader = connection.readonly("main")
        self._found_ns = 0 if is_reader or not path.exists() else path.stat().st_mtime_ns

    def close(self) -> None:
        """Close the connection; closing twice is harmless.

        This checkpoints the log even if a reader has the file open: a reader that closes last cannot, and other
        programs would write the pages of a log without checksums.
        """
        with suppress(apsw.Error):
            if not self.connection.readonly("main"):
                self.connection.set_busy_timeout(0)
                self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
                record_state(self.path, self._found_ns)
        try:
            self.connection.close()
        except apsw.Error as exc:
            raise as_qmd_error(exc, self.path) from exc

    def state(self) -> tuple[int, int]:
        """Return a value that changes with any change of the index, by this connection or by others."""
        return int(self.value("PRAGMA data_version")), self.connection.total_changes()

    def stop_when(self, is_over: Callable[[], bool] | None) -> None:
        """Abort statements with a `StoreError` once `is_over`; None lets them run."""
        self._is_over = is_over
        self.connection.set_progress_handler(is_over, _STEPS_BETWEEN_CHECKS)

    def check(self) -> None:
        """Raise as a statement would. For loops over rows, and because short statements never check."""
        if self._is_over is not None and self._is_over():
            raise as_qmd_error(apsw.InterruptError(), self.path)

    def rows(self, sql: str, bindings: Bindings = ()) -> list[Row]:
        self.check()
        try:
            return self.connection.execute(sql, tuple(bindings)).fetchall()
        except apsw.Error as exc:
            raise as_qmd_error(exc, self.path) from exc
        except UnicodeDecodeError as exc:
            raise DamagedIndexError(self.path) from exc

    def row(self, sql: str, bindings: Bindings = ()) -> Row | None:
        """Return the first row, or None."""
        rows = self.rows(sql, bindings)
        return rows[0] if rows else None

    def value(self, sql: str, bindings: Bindings = ()) -> Any:
        """Return the first column of the first row, or None."""
        row = self.row(sql, bindings)
        return row[0] if row else None

    def run(self, sql: str, bindings: Bindings = ()) -> int:
        """Run a statement without result; return the number of changed rows."""
        self.rows(sql, bindings)
        return self.connection.changes()

    def run_many(self, sql: str, bindings: Iterable[Bindings]) -> None:
        """Run one statement for each set of bindings."""
        try:
            self.connection.executemany(sql, bindings)
        except apsw.Error as exc:
            raise as_qmd_error(exc, self.path) from exc

    def select_in(self, sql: str, values: Sequence[object], bindings: Bindings = ()) -> Iterator[Row]:
        """Yield the rows of `sql`, whose `{}` becomes a list of question marks, over any number of `values`.

        Values are bound after `bindings`, five hundred at a time.
        """
        for part in batches(values, 500):
            yield from self.rows(sql.replace("{}", ",".join("?" * len(part))), (*bindings, *part))

    @contextmanager
    def decoding(self) -> Iterator[None]:
        """Report a failure to decode stored values in this block as damage of the index.

        Raises:
            DamagedIndexError: A stored value does not have the form in which it was written.
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
        """Commit all or nothing; takes the write lock at once, and nested use joins the outer transaction."""
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
        """Read one state in several statements, whatever a writer commits meanwhile."""
        if self._is_in_transaction():
            yield
            return
        self.run("BEGIN")
        try:
            yield
        finally:
            if self._is_in_transaction():
                self.run("ROLLBACK")
