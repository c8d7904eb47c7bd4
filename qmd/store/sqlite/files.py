"""The file of an index: creation, opening, and the page checksums of SQLite's module."""

from __future__ import annotations

import os
import sys
from contextlib import AbstractContextManager, closing
from pathlib import Path

import apsw

from qmd.errors import BusyError, NotFoundError, QmdError, StoreError
from qmd.files import create_private, exclusive_lock, make_private_folder, resolve_own_file
from qmd.store.sqlite.connection import Database, as_qmd_error
from qmd.switches import busy_timeout_ms

PAGE_BYTES = 8192
"""Page size of a new file. With SQLite's own 4096 an index of notes is 7 % larger, as texts and postings leave the
ends of their pages empty; 16384 gains one per cent more, and every change writes more."""

_SIDE_FILES = ("-wal", "-shm", "-journal")

APPLICATION_ID = 0x716D6401
"""`qmd` and a version byte: distinguishes our files from those of the original, which sets none."""

CHECKSUM_BYTES = 8
"""Bytes at the end of each page reserved for the checksum module, which recognises its files by them."""


def register_checksums() -> bool:
    """Register SQLite's checksum module for all files opened from here on; return False if this apsw lacks it.

    Each page then carries a checksum that is verified on every read, so that a flipped bit in a posting, a vector or a
    pointer is an error and not another answer. Files without space for checksums are unaffected.
    """
    # A second registration would make the module call itself forever.
    if "cksmvfs" in apsw.vfs_names():
        return True
    ending = {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")
    library = Path(apsw.__file__).parent / "sqlite_extra_binaries" / f"cksumvfs{ending}"
    if not library.exists():
        return False
    connection = apsw.Connection(":memory:")
    try:
        connection.enable_load_extension(True)
        connection.load_extension(str(library))
    except apsw.Error:
        return False
    finally:
        connection.close()
    return True


HAS_CHECKSUMS = register_checksums()
"""Runs while the module is imported, which happens once in any number of threads."""


def connect_for_reading(path: Path) -> Database:
    """Open read-only; on media that cannot store SQLite's side files, as an immutable file.

    Raises:
        NotFoundError: There is no such file.
        StoreError: The file cannot be opened or is not a database.
    """
    if not path.is_file():
        raise NotFoundError(f"no index at '{path}'", "make one: qmd index ~/notes")
    timeout = busy_timeout_ms()
    try:
        try:
            return _open_and_probe(path, apsw.SQLITE_OPEN_READONLY, timeout)
        except (apsw.CantOpenError, apsw.ReadOnlyError):
            # An immutable open would ignore the journal or the log and show an old or torn state.
            if _is_pending(path, "-journal"):
                # Rolling back an interrupted rewrite needs a connection that may write.
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
        BusyError: Another process uses the index longer than the time-out.
        StoreError: The place is not writable, or the file is not a database.
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
    """Lock the creation or replacement of the file at `path`."""
    return exclusive_lock(path.with_name(f".{path.name.removeprefix('.')}.lock"), wait_s)


def _create(path: Path, timeout_ms: int) -> None:
    """Create a file that is ours from its first byte, with space for checksums.

    Only one process creates it, and under another name until it is complete: a process with an empty file open while
    another one creates it would write pages without checksums, or find the first page damaged for its size.
    """
    with file_lock(path, timeout_ms / 1000) as held:
        if not held:
            raise apsw.BusyError
        if path.exists() and path.stat().st_size:
            return
        # SQLite would make it readable by everyone; its side files take the permissions of this one.
        whole = resolve_own_file(path)
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
    """Rewrite an index of an older version with space for checksums, unless another process has it open.

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
    """Return SQLite's connection to the file at `path`, whatever bytes its name contains.

    SQLite then ignores the file's own schema as a source of callable functions and refuses to write internal tables.

    Args:
        path: The file.
        flags: `SQLITE_OPEN_…`.
        is_immutable: Assume that no one writes it, and use no side files.

    Raises:
        OSError: It lies in a project's `.qmd`, and it or a side file is a link.
    """
    for suffix in _SIDE_FILES:
        resolve_own_file(path.with_name(path.name + suffix))
    place = resolve_own_file(path)
    name, flags = str(place), flags | apsw.SQLITE_OPEN_NOFOLLOW
    if is_immutable or name != name.encode(errors="ignore").decode():
        from urllib.parse import quote

        # The only form in which SQLite accepts bytes that are not UTF-8.
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
    """Fold case; SQLite's own lower() knows only ASCII."""
    value = values[0]
    return value.casefold() if isinstance(value, str) else value


def _is_pending(path: Path, side_file: str) -> bool:
    try:
        return path.with_name(path.name + side_file).stat().st_size > 0
    except OSError:
        return False
