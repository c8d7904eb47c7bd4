"""Files that qmd itself keeps: written in one step, locked between processes, readable by their owner alone.

The rule: what qmd makes is private from its first byte (files 0600, folders 0700), and a file of its own that others
could read is closed when it is next opened for writing. Only what belongs to this user is closed, never what a symlink
leads to: a configuration may lie in a repository of dotfiles. On Windows the rights of the user's profile hold instead.

A project's `.qmd` is another matter: a clone may bring it along. In a folder of that name no link is followed, and
nothing is taken but regular files of this user's that have no second name.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import BinaryIO

PRIVATE_FILE = 0o600
PRIVATE_FOLDER = 0o700
"""An index holds the text of notes, so others must not read it even where the notes' folder would keep them out."""

PROJECT_FOLDER = ".qmd"

_OTHERS = 0o077
_NAME_SURROGATE = 0x20000000
"""The bit in the tag of a reparse point of Windows that leads elsewhere; those of synchronised folders do not."""
_LOCK_POLL_S = 0.02
_ABANDONED_S = 600.0
"""A write takes milliseconds; only a killed one leaves a temporary file that is older."""


def make_private_folder(folder: Path) -> None:
    """Make a folder of qmd's own, and those above it; one that is there stays as it is.

    Raises:
        OSError: If it cannot be made.
    """
    try:
        folder.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
    except FileNotFoundError:
        if folder == folder.parent:
            raise
        make_private_folder(folder.parent)
        folder.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)


def tighten(path: Path) -> None:
    """Take from everybody else what they may do with a file or folder of qmd's own; a missing one is nothing."""
    if os.name != "posix":
        return
    with suppress(OSError):
        found = path.lstat()
        if found.st_mode & _OTHERS and not stat.S_ISLNK(found.st_mode) and found.st_uid == os.geteuid():
            path.chmod(stat.S_IMODE(found.st_mode) & ~_OTHERS)


def create_private(path: Path) -> None:
    """Make an empty file of qmd's own, where there is none.

    One that is there is not even opened: closing it again would drop the locks that SQLite holds on it in this process.

    Raises:
        OSError: If it cannot be made.
    """
    with suppress(FileExistsError):
        os.close(_open(resolve_own_file(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL))


def renew_mark(mark: Path) -> None:
    """Make an empty file, or one that is there new; where it cannot be made things go on without."""
    with suppress(OSError):
        create_private(mark)
        os.utime(mark)


def is_recent(mark: Path, age_s: float) -> bool:
    """Whether a file is there and was made, or renewed, less than so many seconds ago."""
    try:
        return 0 <= time.time() - mark.stat().st_mtime < age_s
    except OSError:
        return False


def open_private(path: Path, flags: int) -> int:
    """Open a file of qmd's own, made when missing; the descriptor, which child processes do not inherit.

    Args:
        path: The file; its folder must exist.
        flags: As for `os.open`.

    Raises:
        OSError: If it cannot be made or opened.
    """
    descriptor = _open(path, flags | os.O_CREAT)
    tighten(path)
    return descriptor


def _refusal_reason(status: os.stat_result, *, takes_any_owner: bool) -> str | None:
    """What keeps a file of a project's `.qmd`, by its own status, from being used; to follow its name."""
    if _is_link(status):
        return "is a link"
    if not stat.S_ISREG(status.st_mode):
        return "is not a regular file"
    if status.st_nlink > 1:
        return "is a hard link"
    # Who works as another user in a folder of their own means their own files.
    is_own = os.name != "posix" or str(status.st_uid) in (str(os.geteuid()), os.environ.get("SUDO_UID"))
    return None if takes_any_owner or is_own else "belongs to another user"


def resolve_own_file(path: Path, *, takes_any_owner: bool = True) -> Path:
    """Where a file of qmd's own lies once links are followed, which in a project's `.qmd` they are not.

    Raises:
        OSError: It is refused there: a link, no regular file, a hard link, or another user's where that matters.
    """
    if path.parent.name != PROJECT_FOLDER:
        return Path(os.path.realpath(path))
    with suppress(FileNotFoundError), _folder(path.parent):
        reason = _refusal_reason(path.lstat(), takes_any_owner=takes_any_owner)
        if reason is not None:
            raise OSError(errno.ELOOP, f"'{path}' {reason}, which qmd does not use in a project's {PROJECT_FOLDER}")
    return Path(os.path.realpath(path.parent), path.name)


def resolve_external_file(path: Path, *, follows_links: bool) -> Path:
    """Where a file of another program's lies that is to be changed: there is none, or a regular one of this user's.

    Raises:
        OSError: It is another, or may not be written; or a link, or below one, unless those are followed.
    """
    place = Path(os.path.realpath(path)) if follows_links else path
    reason = "is a link to nothing" if path.is_symlink() else None
    with suppress(FileNotFoundError), _folder(place.parent):
        status = place.lstat()
        is_writable = status.st_mode & stat.S_IWUSR
        reason = _refusal_reason(status, takes_any_owner=False) or (None if is_writable else "is read-only")
    if reason is not None:
        raise OSError(errno.ELOOP, f"'{path}' {reason}")
    return place


def _open(path: Path, flags: int) -> int:
    """`os.open` for a file of qmd's own: in a project's `.qmd` relative to the folder itself, and never by a link."""
    if PROJECT_FOLDER not in str(path) or path.parent.name != PROJECT_FOLDER:
        return os.open(path, flags, PRIVATE_FILE)
    resolve_own_file(path)
    flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    with _folder(path.parent) as folder:
        descriptor = os.open(path if folder is None else path.name, flags, PRIVATE_FILE, dir_fd=folder)
    # Where the system opens nothing relative to a folder, what was opened must be what lies there under that name.
    if folder is None and not os.path.samestat(os.fstat(descriptor), path.lstat()):
        os.close(descriptor)
        raise OSError(errno.ELOOP, f"'{path}' has changed while it was opened")
    return descriptor


@contextmanager
def _folder(folder: Path, above: int | None = None) -> Iterator[int | None]:
    """A handle of a folder that is no link itself, by one of the folder it lies in; None where the system has none."""
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


@contextmanager
def open_below(root: Path, path: str, *, is_new: bool) -> Iterator[BinaryIO]:
    """Make a user's file below a folder, or open one to read it and write at its end, up to a MiB in one piece.

    Folders are made where they are missing. No link below `root` is followed, nor one that takes a folder's place
    meanwhile.

    Raises:
        OSError: It cannot be opened, is no regular file or has a second name; a new one, there is something.
    """
    place = Path(os.path.realpath(root))
    *folders, name = path.split("/")
    flags = os.O_RDWR | os.O_APPEND | (os.O_CREAT | os.O_EXCL if is_new else 0)
    flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    with ExitStack() as opened:
        handle = opened.enter_context(_folder(place))
        for folder in folders:
            place /= folder
            with suppress(FileExistsError):
                os.mkdir(place if handle is None else folder, dir_fd=handle)
            handle = opened.enter_context(_folder(place, handle))
        place /= name
        descriptor = os.open(place if handle is None else name, flags, 0o666, dir_fd=handle)
        opened.callback(os.close, descriptor)
        reason = _refusal_reason(os.fstat(descriptor), takes_any_owner=True)
        if handle is None and os.path.normcase(os.path.realpath(place)) != os.path.normcase(place):
            reason = "has changed while it was opened"
        if reason is not None:
            raise OSError(errno.ELOOP, reason)
        yield opened.enter_context(open(descriptor, "a+b", 1 << 20, closefd=False))


def _is_link(status: os.stat_result) -> bool:
    return stat.S_ISLNK(status.st_mode) or bool(getattr(status, "st_reparse_tag", 0) & _NAME_SURROGATE)


def is_open_to_others(path: Path) -> bool:
    """Whether the group or everybody can read a file or list a folder, links and the folders above it considered.

    False for what is missing, or cannot be looked at.
    """
    if os.name != "posix":
        return False
    try:
        real = path.resolve()
        mode = real.stat().st_mode
        above = [folder.stat().st_mode for folder in real.parents]
    except (OSError, RuntimeError):  # the latter for a loop of links
        return False
    return any(
        mode & may_read and all(folder & may_enter for folder in above)
        for may_read, may_enter in ((stat.S_IRGRP, stat.S_IXGRP), (stat.S_IROTH, stat.S_IXOTH))
    )


def write_atomically(path: Path, text: str, *, keeps_mode: bool = False) -> None:
    """Replace the file at `path` in one step; a symlink keeps pointing at its target, save in a project's `.qmd`.

    One that is there is closed to others, as qmd's own, unless it `keeps_mode`.

    Raises:
        OSError: If the folder or the file cannot be written.
    """
    target = resolve_own_file(path)
    make_private_folder(target.parent)
    _sweep_temporaries(target)
    mode = _mode_for(path, target, keeps_mode=keeps_mode)
    temporary = target.with_name(f".{target.name}.{os.urandom(4).hex()}")
    handle = _open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0))
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(mode)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def _mode_for(path: Path, target: Path, *, keeps_mode: bool) -> int:
    """The permissions of what replaces `target`: its own where it is linked to or another's, else the owner's alone."""
    try:
        found = target.stat()
    except FileNotFoundError:
        return PRIVATE_FILE
    is_linked = path.is_symlink() or path.parent.is_symlink()
    is_foreign = os.name == "posix" and found.st_uid != os.geteuid()
    mode = stat.S_IMODE(found.st_mode)
    return mode if keeps_mode or is_linked or is_foreign else mode & ~_OTHERS


def _sweep_temporaries(target: Path) -> None:
    """Remove what writes of `target` left behind that were killed, some minutes after the last could have been one."""
    name = re.compile(rf"\.{re.escape(target.name)}\.[a-z0-9_]{{8}}")
    # What others hold or remove meanwhile must not keep the file from being written.
    with suppress(OSError):
        for path in target.parent.iterdir():
            if name.fullmatch(path.name) and time.time() - path.lstat().st_mtime > _ABANDONED_S:
                path.unlink()


def read_regular_file(path: Path, max_bytes: int) -> bytes:
    """The first `max_bytes` of a file; never waits, whatever has taken the file's place since it was listed.

    A pipe without a writer would keep its reader for ever, and a device or a file that grows would never end.

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
        found = _read_up_to(descriptor, min(status.st_size + 1, max_bytes))
        has_grown = len(found) > status.st_size
        return found + _read_up_to(descriptor, max_bytes - len(found)) if has_grown else found
    finally:
        os.close(descriptor)


def _read_up_to(descriptor: int, n_bytes: int) -> bytes:
    pieces = []
    while n_bytes > 0 and (piece := os.read(descriptor, n_bytes)):
        pieces.append(piece)
        n_bytes -= len(piece)
    return b"".join(pieces)


@contextmanager
def exclusive_lock(path: Path, wait_s: float = 0.0) -> Iterator[bool]:
    """Hold the lock file at `path` while the block runs; yields False when another holds it longer than `wait_s`.

    The system drops the lock when its holder dies, however it dies, so a stale one cannot exist. Two holders in one
    process exclude each other too.

    Raises:
        OSError: If the lock file cannot be made.
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
    """Whether some process holds the lock file at `path`; a missing one, or one that cannot be opened, is not held."""
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
    for name in ("hashlib",) if "hashlib" in sys.modules else ("_sha2", "_sha256", "hashlib"):
        with suppress(ImportError):
            return str(import_module(name).sha256(content).hexdigest())
    raise AssertionError("hashlib is always there")
