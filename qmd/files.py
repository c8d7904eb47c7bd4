"""Private files of qmd: atomic writes, locks between processes, owner-only permissions.

qmd creates its files as 0600 and its folders as 0700. Opening an existing file of qmd for writing restores those
permissions, but only if this user owns it and never through a symlink: a configuration may lie in a repository of
dotfiles. On Windows the permissions of the user's profile apply instead.

A project's `.qmd` may come with a clone. In a folder of that name qmd follows no links and accepts only regular files
without hard links that this user owns.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path

PRIVATE_FILE = 0o600
PRIVATE_FOLDER = 0o700
"""An index contains the text of notes, so others must not read it even if the notes' folder already excludes them."""

PROJECT_FOLDER = ".qmd"

_OTHERS = 0o077
_NAME_SURROGATE = 0x20000000
"""Tag bit of a Windows reparse point that leads elsewhere; reparse points of synchronised folders lack it."""
_LOCK_POLL_S = 0.02
_ABANDONED_S = 600.0
_UNLOCKED_S = 1.0
"""A write takes milliseconds, and locks its temporary file; only a killed one leaves an older or unlocked one."""


def make_private_folder(folder: Path) -> None:
    """Create a private folder and its parents; leave an existing one unchanged.

    Raises:
        OSError: If it cannot be created.
    """
    try:
        folder.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
    except FileNotFoundError:
        if folder == folder.parent:
            raise
        make_private_folder(folder.parent)
        folder.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)


def restrict_to_owner(path: Path) -> None:
    """Remove the permissions of group and others from a file or folder of qmd; ignore a missing one."""
    if os.name != "posix":
        return
    with suppress(OSError):
        found = path.lstat()
        if found.st_mode & _OTHERS and not stat.S_ISLNK(found.st_mode) and found.st_uid == os.geteuid():
            path.chmod(stat.S_IMODE(found.st_mode) & ~_OTHERS)


def create_private(path: Path) -> None:
    """Create an empty private file if none exists.

    An existing file is not even opened: closing it would drop the locks that SQLite has on it in this process.

    Raises:
        OSError: If it cannot be created.
    """
    with suppress(FileExistsError):
        os.close(_open(resolve_own_file(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL))


def renew_mark(mark: Path) -> None:
    """Create an empty file or renew its time; ignore failures."""
    with suppress(OSError):
        create_private(mark)
        os.utime(mark)


def is_recent(mark: Path, age_s: float) -> bool:
    """Return whether a file exists and was created or renewed less than `age_s` seconds ago."""
    try:
        return 0 <= time.time() - mark.stat().st_mtime < age_s
    except OSError:
        return False


def open_private(path: Path, flags: int) -> int:
    """Open a private file, created if missing, and return a descriptor that child processes do not inherit.

    Args:
        path: The file; its folder must exist.
        flags: As for `os.open`.

    Raises:
        OSError: If it cannot be created or opened.
    """
    descriptor = _open(path, flags | os.O_CREAT)
    restrict_to_owner(path)
    return descriptor


def refusal_reason(status: os.stat_result, *, takes_any_owner: bool) -> str | None:
    """Return the reason not to use a file of a project's `.qmd`, as a predicate for its name; None if there is none."""
    if _is_link(status):
        return "is a link"
    if not stat.S_ISREG(status.st_mode):
        return "is not a regular file"
    if status.st_nlink > 1:
        return "is a hard link"
    # A user who works as another user in their own folder means their own files.
    is_own = os.name != "posix" or str(status.st_uid) in (str(os.geteuid()), os.environ.get("SUDO_UID"))
    return None if takes_any_owner or is_own else "belongs to another user"


def resolve_own_file(path: Path, *, takes_any_owner: bool = True) -> Path:
    """Resolve the links of a private file's path; refuse links in a project's `.qmd`.

    Raises:
        OSError: The file there is a link, not regular, a hard link, or another user's where that matters.
    """
    if path.parent.name != PROJECT_FOLDER:
        return Path(os.path.realpath(path))
    with suppress(FileNotFoundError), open_folder(path.parent):
        reason = refusal_reason(path.lstat(), takes_any_owner=takes_any_owner)
        if reason is not None:
            raise OSError(errno.ELOOP, f"'{path}' {reason}, which qmd does not use in a project's {PROJECT_FOLDER}")
    return Path(os.path.realpath(path.parent), path.name)


def _open(path: Path, flags: int) -> int:
    """Open a private file; in a project's `.qmd` relative to the folder itself and never through a link."""
    if PROJECT_FOLDER not in str(path) or path.parent.name != PROJECT_FOLDER:
        return os.open(path, flags, PRIVATE_FILE)
    resolve_own_file(path)
    flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    with open_folder(path.parent) as folder:
        descriptor = os.open(path if folder is None else path.name, flags, PRIVATE_FILE, dir_fd=folder)
    # If the system cannot open relative to a folder, compare the opened file with the one of that name.
    if folder is None and not os.path.samestat(os.fstat(descriptor), path.lstat()):
        os.close(descriptor)
        raise OSError(errno.ELOOP, f"'{path}' has changed while it was opened")
    return descriptor


@contextmanager
def open_folder(folder: Path, above: int | None = None) -> Iterator[int | None]:
    """Yield a handle of a folder that is not a link, relative to its parent; None if the system has no handles."""
    if above is None and _is_link(folder.lstat()):
        raise OSError(errno.ELOOP, f"'{folder}' is a link")
    if os.open not in os.supports_dir_fd:
        yield None
        return
    name = folder if above is None else folder.name
    descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _is_link(status: os.stat_result) -> bool:
    return stat.S_ISLNK(status.st_mode) or bool(getattr(status, "st_reparse_tag", 0) & _NAME_SURROGATE)


def is_open_to_others(path: Path) -> bool:
    """Return whether group or others can read a file or list a folder, links and parent folders considered.

    False for a missing or inaccessible path.
    """
    if os.name != "posix":
        return False
    try:
        real = path.resolve()
        mode = real.stat().st_mode
        above = [folder.stat().st_mode for folder in real.parents]
    except (OSError, RuntimeError):  # ValueError for NUL, RuntimeError for a loop of links
        return False
    return any(
        mode & may_read and all(folder & may_enter for folder in above)
        for may_read, may_enter in ((stat.S_IRGRP, stat.S_IXGRP), (stat.S_IROTH, stat.S_IXOTH))
    )


def folder_identity(path: Path) -> str | None:
    """Return machine, device and inode of a folder or file, which stay when it moves; None if it is missing."""
    import platform

    with suppress(OSError, ValueError):
        found, machine = path.stat(), sha256(platform.node().encode(errors="replace"))[:8]
        return f"{machine}:{found.st_dev}:{found.st_ino}"
    return None


def write_atomically(path: Path, text: str) -> None:
    """Replace the file at `path` in one step; follow a symlink to its target, except in a project's `.qmd`.

    An existing file becomes private, and keeps its owner.

    Raises:
        OSError: If the folder or the file cannot be written.
    """
    target = resolve_own_file(path)
    sweep_temporaries(target)
    with temporary_beside(target, text.encode(), private_mode(path, target)) as temporary:
        temporary.replace(target)


def private_mode(path: Path, target: Path) -> int:
    """Return the mode of the file that replaces `target`: unchanged for a linked or foreign file, else owner-only."""
    try:
        found = target.stat()
    except FileNotFoundError:
        return PRIVATE_FILE
    is_linked = path.is_symlink() or path.parent.is_symlink()
    is_foreign = os.name == "posix" and found.st_uid != os.geteuid()
    mode = stat.S_IMODE(found.st_mode)
    return mode if is_linked or is_foreign else mode & ~_OTHERS


@contextmanager
def temporary_beside(target: Path, content: bytes, mode: int) -> Iterator[Path]:
    """Yield a synced file with the owner of `target`, locked until it gets that name or is removed; create the folder.

    Raises:
        OSError: It cannot be written, or not get that owner.
    """
    make_private_folder(target.parent)
    temporary = target.with_name(f".{target.name}.qmd-{os.urandom(4).hex()}")
    handle = _open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0))
    try:
        with os.fdopen(handle, "wb") as file:
            _try_lock(handle)
            file.write(content)
            file.flush()
            os.fsync(handle)
            if os.name == "posix":
                with suppress(FileNotFoundError):
                    owner, made = ((one.st_uid, one.st_gid) for one in (target.lstat(), os.fstat(handle)))
                    if owner != made:
                        os.fchown(handle, *owner)
                os.fchmod(handle, mode)
            else:
                file.close()  # Windows does not rename an open file.
            yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def sweep_temporaries(target: Path) -> None:
    """Remove the temporary files of killed writes to `target`, and older versions' to it and its backup."""
    name = re.compile(rf"\.{re.escape(target.name)}(\.qmd-backup)?\.(qmd-)?[a-z0-9_]{{8}}")
    # A temporary file that others lock or remove meanwhile must not prevent the write.
    with suppress(OSError):
        for path in target.parent.iterdir():
            if found := name.fullmatch(path.name):
                # After the clock went back, a time may be years ahead.
                age_s = abs(time.time() - path.lstat().st_mtime)
                has_lock = found[2] is not None and os.name == "posix"
                if age_s > (_UNLOCKED_S if has_lock else _ABANDONED_S) and not is_locked(path):
                    path.unlink()


def read_regular_file(path: Path, max_bytes: int) -> bytes:
    """Return the first `max_bytes` of a file without waiting, whatever replaced the file since it was listed.

    Reading a pipe without a writer, a device or a growing file would never end.

    Raises:
        OSError: If it cannot be read, or is a folder, pipe, socket or device.
    """
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)
    descriptor = _open(path, flags)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        # Asking for `max_bytes` at once would clear as much memory for every note.
        found = read_up_to(descriptor, min(status.st_size + 1, max_bytes))
        has_grown = len(found) > status.st_size
        return found + read_up_to(descriptor, max_bytes - len(found)) if has_grown else found
    finally:
        os.close(descriptor)


def read_up_to(descriptor: int, n_bytes: int) -> bytes:
    pieces = []
    while n_bytes > 0 and (piece := os.read(descriptor, n_bytes)):
        pieces.append(piece)
        n_bytes -= len(piece)
    return b"".join(pieces)


@contextmanager
def exclusive_lock(path: Path, wait_s: float = 0.0) -> Iterator[bool]:
    """Lock the file at `path` while the block runs; yield False if another process keeps it longer than `wait_s`.

    The system drops the lock when its process dies, so a stale one cannot exist. Two locks in one process exclude each
    other too.

    Raises:
        OSError: If the lock file cannot be created.
    """
    make_private_folder(path.parent)
    descriptor = open_private(path, os.O_RDWR)
    try:
        deadline = time.monotonic() + wait_s
        held = _try_lock(descriptor)
        while not held and time.monotonic() < deadline:
            time.sleep(_LOCK_POLL_S)
            held = _try_lock(descriptor)
        yield held
    finally:
        os.close(descriptor)


def is_locked(path: Path) -> bool:
    """Return whether a process has locked the file at `path`; False for a missing or unreadable file."""
    try:
        descriptor = _open(path, os.O_RDWR)
    except OSError:
        return False
    try:
        return not _try_lock(descriptor, shared=True)
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int, *, shared: bool = False) -> bool:
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def sha256(content: bytes) -> str:
    """The digest in hexadecimal; by OpenSSL, six times as fast and slow to load, where hashlib is imported."""
    # Without the other version's name: a failed import takes as long as reading a small file.
    own = "_sha2" if sys.version_info >= (3, 12) else "_sha256"
    for name in ("hashlib",) if "hashlib" in sys.modules else (own, "hashlib"):
        with suppress(ImportError):
            return str(import_module(name).sha256(content).hexdigest())
    raise AssertionError("hashlib is always there")
