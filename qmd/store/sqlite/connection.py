"""Opening the SQLite file, running statements on it, and turning SQLite's failures into qmd's."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import apsw

from qmd.batches import batches
from qmd.errors import BusyError, NotFoundError, QmdError, StoreError
from qmd.files import create_private, exclusive_lock, make_private_folder, real_place
from qmd.store.sqlite.checksums import CHECKSUM_BYTES, register_checksums
from qmd.store.waiting import busy_timeout_ms

# SQLite decides the type of every value at run time, so a row cannot be typed further here; callers unpack at once.
Row = tuple[Any, ...]
Bindings = Sequence[object]

_STEPS_BETWEEN_CHECKS = 20_000
"""Instructions of SQLite's machine, about a millisecond."""

PAGE_BYTES = 8192
"""Of a new file. With SQLite's own 4096 an index of notes is 7 % larger, as texts and postings leave the ends of their
pages empty; 16384 gains one per cent more, and every change writes more."""

_SIDE_FILES = ("-wal", "-shm", "-journal")

APPLICATION_ID = 0x716D6401
"""`qmd` and a version byte: tells our files from those of the original, which sets none."""


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


HAS_CHECKSUMS = register_checksums()
"""Done while the module is imported, which happens once whatever threads there are."""


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
        """Kept by `scoped_ranking`: collections → what was counted of them."""
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

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing; the write lock is taken at once, and nested use joins the outer transaction."""
        if self.connection.in_transaction:
            yield
            return
        self.run("BEGIN IMMEDIATE")
        try:
            yield
            self.run("COMMIT")
        except BaseException:
            # A failed COMMIT or a full disk may have rolled back already.
            if self.connection.in_transaction:
                self.run("ROLLBACK")
            raise

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Several reads of one state, whatever a writer commits meanwhile."""
        if self.connection.in_transaction:
            yield
            return
        self.run("BEGIN")
        try:
            yield
        finally:
            if self.connection.in_transaction:
                self.run("ROLLBACK")


def connect_for_reading(path: Path) -> Database:
    """Open read-only; on media that cannot hold SQLite's side files, as an immutable file.

    Raises:
        NotFoundError: There is no such file.
        StoreError: The file cannot be opened or is no database.
    """
    if not path.is_file():
        raise NotFoundError(f"no index at '{path}'", "make one: qmd index .")
    timeout = busy_timeout_ms()
    try:
        try:
            return _open_and_probe(path, apsw.SQLITE_OPEN_READONLY, timeout)
        except (apsw.CantOpenError, apsw.ReadOnlyError):
            # An immutable open would ignore the journal or the log and show an old or torn state.
            if _is_pending(path, "-journal"):
                # Taking back a rewrite that was cut short needs a connection that may write.
                _open_and_probe(path, apsw.SQLITE_OPEN_READWRITE, timeout).close()
                return _open_and_probe(path, apsw.SQLITE_OPEN_READONLY, timeout)
            if _is_pending(path, "-wal"):
                raise
            return _open_and_probe(path, apsw.SQLITE_OPEN_READONLY, timeout, is_immutable=True)
    except (apsw.Error, OSError) as exc:
        raise as_qmd_error(exc, path) from exc


def connect_for_writing(path: Path, timeout_ms: int | None = None) -> Database:
    """Open for reading and writing in WAL mode, creating the file and its folder.

    Raises:
        BusyError: Another process holds the index longer than the time-out.
        StoreError: The place is not writable, or the file is no database.
    """
    timeout = busy_timeout_ms() if timeout_ms is None else timeout_ms
    try:
        make_private_folder(path.parent)
        if not path.exists() or path.stat().st_size == 0:
            _create(path, timeout)
        database = _open_and_probe(path, apsw.SQLITE_OPEN_READWRITE, timeout)
    except (apsw.Error, OSError) as exc:
        raise as_qmd_error(exc, path) from exc
    try:
        if database.connection.readonly("main"):
            raise as_qmd_error(apsw.ReadOnlyError(), path)
        if not HAS_CHECKSUMS and database.connection.reserve_bytes("main") == CHECKSUM_BYTES:
            message = f"index '{path}' has checksums, which this installation of apsw cannot write"
            hint = "install it from its wheel: pip install --force-reinstall --only-binary apsw apsw"
            raise StoreError(message, hint)
        database.run("PRAGMA journal_size_limit = 67108864")
        database.run("PRAGMA synchronous = NORMAL")
    except QmdError:
        database.close()
        raise
    return database


def file_lock(path: Path, wait_s: float) -> AbstractContextManager[bool]:
    """Held while the file at `path` is made, or another one is put in its place."""
    return exclusive_lock(path.with_name(f".{path.name}.lock"), wait_s)


def _create(path: Path, timeout_ms: int) -> None:
    """Make a file that is ours from its first byte, with room for checksums.

    One process alone, and under another name until it is whole: who has an empty file open when another one makes it
    would write pages without checksums, or find the first page damaged for its size.
    """
    with file_lock(path, timeout_ms / 1000) as held:
        if not held:
            raise apsw.BusyError
        if path.exists() and path.stat().st_size:
            return
        # SQLite would make it readable by everybody; its side files take the permissions of this one.
        whole = real_place(path)
        new = whole.with_name(f".{whole.name}.made")
        new.unlink(missing_ok=True)
        create_private(new)
        with closing(open_file(new, apsw.SQLITE_OPEN_READWRITE)) as connection:
            connection.set_busy_timeout(timeout_ms)
            # First: the checksum module allows no other size later.
            connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
            if HAS_CHECKSUMS:
                connection.reserve_bytes("main", CHECKSUM_BYTES)
            connection.execute(f"BEGIN IMMEDIATE; PRAGMA application_id = {APPLICATION_ID}; COMMIT")
            connection.execute("PRAGMA journal_mode = WAL").fetchall()
        new.replace(whole)


def add_checksums(database: Database) -> None:
    """Give an index of an older version room for checksums, which rewrites it, unless another process has it open.

    Such a process would go on to write pages without them.
    """
    connection = database.connection
    if not HAS_CHECKSUMS or connection.reserve_bytes("main") == CHECKSUM_BYTES:
        return
    timeout = int(database.value("PRAGMA busy_timeout"))
    connection.set_busy_timeout(0)
    try:
        # Only the one process that has a file open can take it out of WAL mode.
        database.run("PRAGMA journal_mode = DELETE")
        # Without the log the file itself is rewritten, and NORMAL would trust the journal to the disk's cache.
        database.run("PRAGMA synchronous = EXTRA")
        connection.reserve_bytes("main", CHECKSUM_BYTES)
        database.run("VACUUM")
    except BusyError:
        return
    finally:
        connection.set_busy_timeout(timeout)
        database.run("PRAGMA journal_mode = WAL")
        database.run("PRAGMA synchronous = NORMAL")


def open_file(path: Path, flags: int, *, is_immutable: bool = False) -> apsw.Connection:
    """SQLite's connection to the file at `path`, whatever bytes its name is made of.

    SQLite takes no word of the file's own schema for what a statement may call, and writes no table that is not meant
    to be written.

    Args:
        path: The file.
        flags: `SQLITE_OPEN_…`.
        is_immutable: Trust that nobody writes it, and do without side files.

    Raises:
        OSError: It lies in a project's `.qmd`, and it or a side file is a link.
    """
    for suffix in _SIDE_FILES:
        real_place(path.with_name(path.name + suffix))
    place = real_place(path)
    name, flags = str(place), flags | apsw.SQLITE_OPEN_NOFOLLOW
    if is_immutable or name != name.encode(errors="ignore").decode():
        from urllib.parse import quote

        # The one form in which SQLite takes bytes that are no UTF-8.
        name, flags = f"file:{quote(os.fsencode(place))}", flags | apsw.SQLITE_OPEN_URI
    connection = apsw.Connection(f"{name}?immutable=1" if is_immutable else name, flags=flags)
    connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    return connection


def _open_and_probe(path: Path, flags: int, timeout_ms: int, *, is_immutable: bool = False) -> Database:
    """Open and read the header, so that a bad file fails here and not in the first query."""
    connection = open_file(path, flags, is_immutable=is_immutable)
    try:
        # First of all: the pragmas below may already meet a lock.
        connection.set_busy_timeout(timeout_ms)
        connection.execute("PRAGMA temp_store = MEMORY; PRAGMA cache_size = -32000")
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
        connection.create_scalar_function("casefold", _casefold, 1, deterministic=True)
    except apsw.Error:
        connection.close()
        raise
    return Database(connection, path)


def _casefold(*values: apsw.SQLiteValue) -> apsw.SQLiteValue:
    """SQLite's own lower() knows only ASCII."""
    value = values[0]
    return value.casefold() if isinstance(value, str) else value


def _is_pending(path: Path, side_file: str) -> bool:
    try:
        return path.with_name(path.name + side_file).stat().st_size > 0
    except OSError:
        return False
