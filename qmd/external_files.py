"""Changes of files that other programs change too: their settings, the user's notes, `index.yml`.

A file is replaced as a transaction: the new content is written and synced next to it, and takes its place in one step
if the file is still as it was read. Text is appended to a note in one piece, or not at all.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from qmd.errors import BusyError
from qmd.files import (
    PRIVATE_FILE,
    is_recent,
    open_folder,
    read_regular_file,
    refusal_reason,
    sweep_temporaries,
    temporary_beside,
)

_TRIES = 3
_EMPTY_S = 1.0
"""A program that writes into its file instead of replacing it empties it first, for less than this."""


def resolve_external_file(path: Path, *, follows_links: bool) -> Path:
    """Resolve another program's file that qmd is about to change: missing, or a regular file of this user.

    Raises:
        OSError: It is something else, not writable, or, unless links are followed, a link or below one.
    """
    place = Path(os.path.realpath(path)) if follows_links else path
    reason = "is a link to nothing" if path.is_symlink() else None
    with suppress(FileNotFoundError), open_folder(place.parent):
        status = place.lstat()
        is_writable = status.st_mode & stat.S_IWUSR
        reason = refusal_reason(status, takes_any_owner=False) or (None if is_writable else "is read-only")
    if reason is not None:
        raise OSError(errno.ELOOP, f"'{path}' {reason}")
    return place


def edit_file(target: Path, edit: Callable[[bytes | None], bytes | None], most: int, mode: int | None = None) -> None:
    """Replace the content of a file by what `edit` returns for it, again if another program changes it meanwhile.

    None is no file; of more than `most` bytes `edit` gets the beginning. The owner stays; the mode stays if none is
    given, as for a file of another program, which loses no change even during the replacement.

    Raises:
        BusyError: Another program changed the file three times.
        OSError: It cannot be written, or its owner cannot be kept.
    """
    sweep_temporaries(target)
    for _ in range(_TRIES):
        while (before := read_if_there(target, most)) == b"" and is_recent(target, _EMPTY_S):
            time.sleep(_EMPTY_S / 20)
        after = edit(before)
        if after == before or _replace(target, before, after, mode):
            return
    raise BusyError(f"'{target}' was changed by another program meanwhile", "try again")


def _replace(target: Path, before: bytes | None, after: bytes | None, mode: int | None) -> bool:
    """Replace a file, or remove it for None; return False, with nothing changed, if its content is not `before`."""
    most, swaps = max(len(before or b""), len(after or b"")), mode is None and before is not None
    if after is None:
        if is_same := read_if_there(target, most) == before:
            target.unlink()
        return is_same
    if mode is None:
        mode = PRIVATE_FILE if before is None else stat.S_IMODE(target.lstat().st_mode)
    with temporary_beside(target, after, mode) as temporary:
        if read_if_there(target, most) != before:
            return False
        own = temporary.lstat().st_ino
        if not swaps or not _swap(temporary, target):
            temporary.replace(target)
            return True
        if read_if_there(temporary, most) == before:
            return True
        # Another program was faster: what it wrote last, into either file, goes back.
        while _written_ns(temporary, own, after) > _written_ns(target, own, after) and _swap(temporary, target):
            pass
        return False


def _written_ns(file: Path, own: int, content: bytes) -> int:
    """Return the time at which another program wrote a file; 0 for our own, which has this number and content."""
    status = file.lstat()
    is_own = status.st_ino == own and read_if_there(file, len(content)) == content
    return 0 if is_own else status.st_mtime_ns


def read_if_there(path: Path, most: int) -> bytes | None:
    """Return a file's content, of one of more than `most` bytes one byte more; None without a file."""
    try:
        return read_regular_file(path, most + 1)
    except FileNotFoundError:
        return None


def _swap(one: Path, other: Path) -> bool:
    """Exchange two files in one step; return False where the system or the file system cannot."""
    names, folder = (os.fsencode(one), os.fsencode(other)), -100  # AT_FDCWD
    try:
        from ctypes import CDLL

        if sys.platform == "darwin":
            return bool(CDLL(None).renamex_np(*names, 2) == 0)
        return bool(CDLL(None).renameat2(folder, names[0], folder, names[1], 2) == 0)
    except (AttributeError, ImportError, TypeError):  # an older system, or Windows
        return False


@contextmanager
def open_below(root: Path, path: str, *, is_new: bool) -> Iterator[int]:
    """Open a user's file below a folder to read it and `append` to it, or create one, whole or not at all.

    Missing folders are created. Links below `root` are not followed, nor a link that replaces a folder meanwhile.

    Raises:
        OSError: It cannot be opened, is not a regular file, has a second name, or already exists although it is new.
    """
    place = Path(os.path.realpath(root))
    *folders, name = path.split("/")
    flags = os.O_RDWR | os.O_APPEND | (os.O_CREAT | os.O_EXCL if is_new else 0)
    flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    with ExitStack() as opened:
        folder = opened.enter_context(open_folder(place))
        for one in folders:
            place /= one
            with suppress(FileExistsError):
                os.mkdir(place if folder is None else one, dir_fd=folder)
            folder = opened.enter_context(open_folder(place, folder))
        place /= name
        nameless = _open_nameless(folder) if is_new else None
        here = place if folder is None else Path(name)
        handle = os.open(here, flags, 0o666, dir_fd=folder) if nameless is None else nameless
        opened.callback(os.close, handle)
        reason = refusal_reason(os.fstat(handle), takes_any_owner=True)
        if folder is None and os.path.normcase(os.path.realpath(place)) != os.path.normcase(place):
            reason = "has changed while it was opened"
        if reason is not None:
            raise OSError(errno.ELOOP, reason)
        try:
            yield handle
            if nameless is not None:
                os.link(f"/proc/self/fd/{nameless}", name, dst_dir_fd=folder)
        except BaseException:
            if is_new and nameless is None:
                os.unlink(here, dir_fd=folder)
            raise


def _open_nameless(folder: int | None) -> int | None:
    """Open a new file without a name, of which a killed process leaves nothing; None where there are no such files."""
    if sys.platform == "linux" and folder is not None and Path("/proc/self/fd").is_dir():
        with suppress(OSError):
            return os.open(".", os.O_TMPFILE | os.O_RDWR, 0o666, dir_fd=folder)
    return None


def append(handle: int, content: bytes) -> None:
    """Write to the end of a file of `open_below`; if that fails, cut off the part that was written."""
    written = 0
    try:
        while written < len(content):
            written += os.write(handle, content[written:])
        os.fsync(handle)
    except BaseException:
        end = os.lseek(handle, 0, os.SEEK_CUR)
        # Another program may have appended something since.
        if written and os.fstat(handle).st_size == end:
            os.ftruncate(handle, end - written)
        raise
