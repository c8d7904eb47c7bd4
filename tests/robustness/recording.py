"""What a run does to its disk, operation by operation: recorded for replay, or made to fail at a chosen one.

SQLite's operations come through a virtual file system registered as the default one; those of `index.yml`, which Python
writes, through the four functions of `os` that decide what survives. `-shm` is not recorded: SQLite rebuilds it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import apsw

from qmd.store.sqlite import files as index_files

Kind = Literal["create", "write", "truncate", "sync", "rename", "unlink"]


@dataclass(frozen=True, slots=True)
class Operation:
    """One change of a file in the folder; names are relative to it."""

    kind: Kind
    name: str
    offset: int = 0
    """Where a write begins, or the size that a file is cut to."""
    data: bytes = b""
    target: str = ""
    """The new name of a renamed file."""


@dataclass(slots=True)
class Fault:
    """Lets the operation number `at` (from 0) and, when `lasting`, all later ones fail."""

    at: int
    code: int
    """`errno.ENOSPC` or `errno.EIO`."""
    lasting: bool
    n_seen: int = 0
    n_failed: int = 0

    def strikes(self) -> bool:
        """Count one more operation; whether it is to fail."""
        struck = self.n_seen == self.at or (self.lasting and self.n_seen > self.at)
        self.n_seen += 1
        self.n_failed += struck
        return struck


@dataclass(slots=True)
class Disk:
    """The operations on one folder while `recording` runs."""

    folder: Path
    fault: Fault | None = None
    log: list[Operation] = field(default_factory=list)
    known: dict[str, bytes] = field(default_factory=dict)
    """Content, as far as it was recorded, of the files that Python writes."""

    def name_of(self, path: str | None) -> str | None:
        """The name of a file in the folder; None for lock files, SQLite's shared memory and files elsewhere."""
        if path is None or Path(path).parent != self.folder or path.endswith(("-shm", ".lock")):
            return None
        return Path(path).name

    def note(self, operation: Operation) -> None:
        """Record an operation that is about to happen.

        Raises:
            OSError: It is to fail.
        """
        if self.fault is not None and self.fault.strikes():
            raise OSError(self.fault.code, os.strerror(self.fault.code))
        self.log.append(operation)

    def note_content(self, name: str) -> None:
        """Record what Python wrote into a file since it was last looked at."""
        content = (self.folder / name).read_bytes()
        if self.known.get(name) != content:
            if name not in self.known:
                self.note(Operation("create", name))
            self.note(Operation("write", name, 0, content))
            self.known[name] = content


class _RecordedFile(apsw.VFSFile):
    def __init__(self, disk: Disk, base: str, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self._disk = disk
        self._name = disk.name_of(name.filename() if isinstance(name, apsw.URIFilename) else name)
        if self._name is not None and not (disk.folder / self._name).exists():
            disk.log.append(Operation("create", self._name))
        super().__init__(base, name, flags)

    def excepthook(self, kind: object, error: object, trace: object) -> bool:
        """Say nothing of the faults that SQLite itself overlooks, such as those while it closes."""
        return True

    def xWrite(self, data: bytes, offset: int) -> None:
        if self._name is not None:
            _note(self._disk, Operation("write", self._name, offset, bytes(data)), apsw.SQLITE_IOERR_WRITE)
        super().xWrite(data, offset)

    def xTruncate(self, newsize: int) -> None:
        if self._name is not None:
            _note(self._disk, Operation("truncate", self._name, newsize), apsw.SQLITE_IOERR_TRUNCATE)
        super().xTruncate(newsize)

    def xSync(self, flags: int) -> None:
        if self._name is not None:
            _note(self._disk, Operation("sync", self._name), apsw.SQLITE_IOERR_FSYNC)
        super().xSync(flags)


class _RecordingFiles(apsw.VFS):
    """SQLite's own file system, with every change noted on the way."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._base = apsw.vfs_names()[0]
        super().__init__("qmd-recording", self._base, makedefault=True)

    def excepthook(self, kind: object, error: object, trace: object) -> bool:
        """Say nothing of the faults that SQLite itself overlooks, such as those while it closes."""
        return True

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        return _RecordedFile(self._disk, self._base, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        name = self._disk.name_of(filename)
        if name is not None and (self._disk.folder / name).exists():
            _note(self._disk, Operation("unlink", name), apsw.SQLITE_IOERR_DELETE)
        super().xDelete(filename, syncdir)


_CHECKSUMS = "cksmvfs"
"""The module that qmd puts over SQLite's own files."""

_UNREGISTERED: list[_RecordingFiles] = []


def _note(disk: Disk, operation: Operation, extended: int) -> None:
    """Like `Disk.note`, with the failure in SQLite's terms."""
    try:
        disk.note(operation)
    except OSError as exc:
        if exc.errno == errno.ENOSPC and operation.kind == "write":
            raise apsw.FullError("no space") from exc
        failure = apsw.IOError("disk fault")
        failure.extendedresult = extended  # type: ignore[attr-defined]
        raise failure from exc


@contextmanager
def without_checksums() -> Iterator[None]:
    """Let files that are made while the block runs have no checksums, as those of older versions have none."""
    before = index_files.HAS_CHECKSUMS
    if before:
        apsw.unregister_vfs(_CHECKSUMS)
    index_files.HAS_CHECKSUMS = False
    try:
        yield
    finally:
        index_files.HAS_CHECKSUMS = before
        if before:
            index_files.register_checksums()


@contextmanager
def recording(disk: Disk, *, checkpoint_pages: int | None = None) -> Iterator[Disk]:
    """Note every change of `disk.folder` while the block runs; all of its connections must be closed by its end.

    Args:
        disk: Gets the operations; its `fault`, if any, strikes.
        checkpoint_pages: Copy the write-ahead log into the file whenever it has so many pages; None = SQLite's 1,000.
    """
    for path in disk.folder.iterdir():
        if path.suffix == ".yml":
            disk.known[path.name] = path.read_bytes()
    hooks = list(apsw.connection_hooks)
    has_checksums = _CHECKSUMS in apsw.vfs_names()
    if has_checksums:
        apsw.unregister_vfs(_CHECKSUMS)
    files = _RecordingFiles(disk)
    if has_checksums:
        # On top again, so that what is recorded is what reaches the disk.
        index_files.register_checksums()
    if checkpoint_pages is not None:
        apsw.connection_hooks.append(lambda opened: opened.wal_autocheckpoint(checkpoint_pages))
    try:
        with _recorded_calls(disk):
            yield disk
    finally:
        apsw.connection_hooks[:] = hooks
        disk.fault = None
        if has_checksums:
            apsw.unregister_vfs(_CHECKSUMS)
        files.unregister()
        if has_checksums:
            index_files.register_checksums()
        # A connection that could not be closed for a fault still calls them when it is collected.
        _UNREGISTERED.append(files)


@contextmanager
def _recorded_calls(disk: Disk) -> Iterator[None]:
    """`os.fsync`, `os.replace`, `os.rename` and `os.unlink` with what they do to the folder noted first."""
    fsync, unlink = os.fsync, os.unlink

    def recorded_fsync(descriptor: Any) -> None:
        there = os.fstat(descriptor if isinstance(descriptor, int) else descriptor.fileno())
        for path in disk.folder.iterdir():
            name = disk.name_of(str(path))
            if name is not None and os.path.samestat(path.stat(), there):
                disk.note_content(name)
                disk.note(Operation("sync", name))
        fsync(descriptor)

    def recorded_move(move: Callable[..., None]) -> Callable[..., None]:
        def recorded(source: Any, target: Any, **options: Any) -> None:
            name, new = disk.name_of(os.fspath(source)), disk.name_of(os.fspath(target))
            if name is not None and new is not None:
                disk.note_content(name)
                disk.note(Operation("rename", name, target=new))
                disk.known[new] = disk.known.pop(name)
            move(source, target, **options)

        return recorded

    def recorded_unlink(path: Any, **options: Any) -> None:
        name = disk.name_of(os.fspath(path)) if isinstance(path, str | os.PathLike) else None
        if name is not None and (disk.folder / name).exists():
            # A file that vanishes cannot fail for want of space, and what tidies up after a fault must be able to.
            disk.log.append(Operation("unlink", name))
            disk.known.pop(name, None)
        unlink(path, **options)

    originals = {name: getattr(os, name) for name in ("fsync", "replace", "rename", "unlink")}
    replacements = {
        "fsync": recorded_fsync,
        "replace": recorded_move(originals["replace"]),
        "rename": recorded_move(originals["rename"]),
        "unlink": recorded_unlink,
    }
    try:
        for name, function in replacements.items():
            setattr(os, name, function)
        yield
    finally:
        for name, original in originals.items():
            setattr(os, name, original)
