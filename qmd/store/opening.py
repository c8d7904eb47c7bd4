"""Opening an index, whichever engine holds it."""

from __future__ import annotations

from pathlib import Path

from qmd.store.base import IndexReader, IndexWriter


def open_reader(path: Path) -> IndexReader:
    """Open an index for reading; a writer elsewhere does not disturb it.

    Args:
        path: The database file; where that is another program's, the index beside it is meant.

    Raises:
        NotFoundError: No index there.
        StoreError: The file is damaged or cannot be opened.
    """
    from qmd.store.sqlite import opening

    return opening.open_reader(path)


def open_writer(path: Path, *, busy_timeout_ms: int | None = None) -> IndexWriter:
    """Open an index for writing, creating or migrating it.

    Args:
        path: The database file, its folder is made when missing; where that is another program's, the index lies
            beside it.
        busy_timeout_ms: How long any statement waits for another process; None = environment or two minutes.

    Raises:
        BusyError: Another process kept the index for longer.
        StoreError: The file is damaged or the place not writable.
    """
    from qmd.store.sqlite import opening

    return opening.open_writer(path, busy_timeout_ms=busy_timeout_ms)
