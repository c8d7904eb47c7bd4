"""Files that qmd itself keeps: written in one step, locked between processes, readable by their owner alone."""

from __future__ import annotations

import errno
import os
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PRIVATE_FILE = 0o600
PRIVATE_FOLDER = 0o700
"""An index holds the text of notes, so others must not read it even where the notes' folder would keep them out."""

_LOCK_POLL_S = 0.02


def make_private_folder(folder: Path) -> None:
    """Make a folder of qmd's own, and those above it; one that is there stays as it is.

    Raises:
        OSError: If it cannot be made.
    """
    folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)


def write_atomically(path: Path, text: str) -> None:
    """Replace the file at `path` in one step; a symlink keeps pointing at its target, a file its permissions.

    Raises:
        OSError: If the folder or the file cannot be written.
    """
    import tempfile

    target = Path(os.path.realpath(path))
    make_private_folder(target.parent)
    mode = target.stat().st_mode & 0o777 if target.exists() else PRIVATE_FILE
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(mode)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def read_regular_file(path: Path, max_bytes: int) -> bytes:
    """The first `max_bytes` of a file; never waits, whatever has taken the file's place since it was listed.

    A pipe without a writer would keep its reader for ever, and a device or a file that grows would never end.

    Raises:
        OSError: If it cannot be read, or is a folder, pipe, socket or device.
    """
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)
    descriptor = os.open(path, flags)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(max_bytes)
    finally:
        os.close(descriptor)


@contextmanager
def exclusive_lock(path: Path, wait_s: float = 0.0) -> Iterator[bool]:
    """Hold the lock file at `path` while the block runs; yields False when another holds it longer than `wait_s`.

    The system drops the lock when its holder dies, however it dies, so a stale one cannot exist. Two holders in one
    process exclude each other too.

    Raises:
        OSError: If the lock file cannot be made.
    """
    make_private_folder(path.parent)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, PRIVATE_FILE)
    try:
        deadline = time.monotonic() + wait_s
        held = _try_lock(descriptor)
        while not held and time.monotonic() < deadline:
            time.sleep(_LOCK_POLL_S)
            held = _try_lock(descriptor)
        yield held
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
