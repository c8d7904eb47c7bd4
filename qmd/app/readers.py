"""Readers shared by the requests to one index: opened when one is wanted, kept for the next, never stale."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from qmd.store.base import IndexReader

_IDLE_READERS = 2
"""Readers kept open. Each may hold the vectors it scanned, so no more than usually run at once."""

_Identity = tuple[object, ...]


class ReaderPool:
    """Readers of one index. A reader serves one request at a time.

    Args:
        open_reader: Opens one more.
        watched: The index file, which is opened anew when another one takes its place, and files (the configuration)
            after whose change readers are opened anew as well.
        keeps_idle: Whether a reader that has served a request may serve another one.
    """

    def __init__(
        self, open_reader: Callable[[], IndexReader], watched: tuple[Path, ...] = (), *, keeps_idle: bool = True
    ) -> None:
        self._open = open_reader
        self._watched = watched
        self._most_idle = _IDLE_READERS if keeps_idle else 0
        self._idle: list[tuple[_Identity, IndexReader]] = []
        self._lock = threading.Lock()

    @contextmanager
    def reader(self) -> Iterator[IndexReader]:
        """A reader for the block; after an error it is closed instead of being kept.

        Raises:
            NotFoundError: If there is no index.
            StoreError: If it cannot be opened.
        """
        identity = self._identity()
        reader = self._take(identity) or self._open()
        try:
            yield reader
        except BaseException:
            reader.close()
            raise
        self._give_back(identity, reader)

    def close(self) -> None:
        """Close the idle readers."""
        with self._lock:
            idle, self._idle = self._idle, []
        for _, reader in idle:
            reader.close()

    def _identity(self) -> _Identity:
        """What tells a replaced index file or an edited configuration from the one that is open."""
        return tuple(_file_identity(path, by_content=number > 0) for number, path in enumerate(self._watched))

    def _take(self, identity: _Identity) -> IndexReader | None:
        with self._lock:
            stale = [reader for known, reader in self._idle if known != identity]
            self._idle = [entry for entry in self._idle if entry[0] == identity]
            taken = self._idle.pop()[1] if self._idle else None
        for reader in stale:
            reader.close()
        return taken

    def _give_back(self, identity: _Identity, reader: IndexReader) -> None:
        with self._lock:
            keep = len(self._idle) < self._most_idle
            if keep:
                self._idle.append((identity, reader))
        if not keep:
            reader.close()


def _file_identity(path: Path, *, by_content: bool) -> tuple[int, ...] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return (stat.st_dev, stat.st_ino, *((stat.st_size, stat.st_mtime_ns) if by_content else ()))
