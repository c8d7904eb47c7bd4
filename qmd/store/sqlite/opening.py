"""Opening an index file of any place and version."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from qmd.config.paths import index_next_to, own_index
from qmd.errors import StoreError
from qmd.files import restrict_to_owner
from qmd.store.sqlite.connection import DamagedIndexError, Database, ForeignIndexError, verified_mark
from qmd.store.sqlite.files import connect_for_reading, connect_for_writing
from qmd.store.sqlite.index import SqliteReader
from qmd.store.sqlite.origin import check_origin, record_origin
from qmd.store.sqlite.schema import MixedIndexError, OutdatedIndexError, check_schema, migrate

if TYPE_CHECKING:
    from qmd.store.sqlite.writer import SqliteWriter

_MIGRATION_TIMEOUT_MS = 10_000
"""Longest wait of a reader that upgrades an index of an older version."""


def open_reader(path: Path) -> SqliteReader:
    """Open an index for reading; see `qmd.store.opening`."""
    own = own_index(path)
    try:
        return SqliteReader(_verify(connect_for_reading(own), check_schema))
    except OutdatedIndexError as outdated:
        try:
            open_writer(own, busy_timeout_ms=_MIGRATION_TIMEOUT_MS).close()
        except StoreError:
            raise outdated from None
        return SqliteReader(_verify(connect_for_reading(own), check_schema))
    except (ForeignIndexError, MixedIndexError, DamagedIndexError) as exc:
        return open_reader(_find_own_place(own, exc))


def open_writer(path: Path, *, busy_timeout_ms: int | None = None) -> SqliteWriter:
    """Open an index for writing; see `qmd.store.opening`."""
    from qmd.store.sqlite.writer import SqliteWriter

    own = own_index(path)
    try:
        writer = SqliteWriter(_verify(connect_for_writing(own, busy_timeout_ms), migrate, record_origin))
    except (ForeignIndexError, MixedIndexError, DamagedIndexError) as exc:
        return open_writer(_find_own_place(own, exc), busy_timeout_ms=busy_timeout_ms)
    # Only now is it known to be our index; an older version left it readable by everyone.
    for name in (writer.path.name, f"{writer.path.name}-wal", f"{writer.path.name}-shm", f".{writer.path.name}.lock"):
        restrict_to_owner(writer.path.with_name(name))
    restrict_to_owner(verified_mark(writer.path))
    return writer


def _find_own_place(own: Path, error: StoreError) -> Path:
    """Return the place of our index if the file at `own` is another program's, moving it if needed; else raise
    `error`.
    """
    beside = index_next_to(own)
    if beside == own:
        raise error
    if not isinstance(error, ForeignIndexError):
        from qmd.store.sqlite.salvage import separate

        # The original's writes into an index look like damage, because it does not know checksums.
        if separate(own) is None:
            raise error
    return beside


def _verify(database: Database, *steps: Callable[[Database], None]) -> Database:
    try:
        for step in (check_origin, *steps):
            step(database)
    except BaseException:
        database.close()
        raise
    return database
