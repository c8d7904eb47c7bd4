"""One embedding run per index at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def embed_lock(database: Path) -> Iterator[bool]:
    """Hold the embedding lock of an index; yields False when another process has it.

    The operating system releases it with the process, so a killed run leaves nothing behind.
    """
    database.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(database.with_name(f".{database.name}.embed.lock"), os.O_RDWR | os.O_CREAT, 0o644)
    try:
        yield _try_lock(handle)
    finally:
        os.close(handle)


def _try_lock(handle: int) -> bool:
    try:
        if os.name == "nt":
            import msvcrt

            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        else:
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
