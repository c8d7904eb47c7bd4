"""Opening an index, wherever it lies and whichever version wrote it."""

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
"""How long a reader waits to bring an index of an older version up to date."""


def open_reader(path: Path) -> SqliteReader:
    """Open an index for reading, as `qmd.store.opening` says."""
    own = own_index(path)
    try:
        return SqliteReader(_checked(connect_for_reading(own), check_schema))
    except OutdatedIndexError as outdated:
        try:
            open_writer(own, busy_timeout_ms=_MIGRATION_TIMEOUT_MS).close()
        except StoreError:
            raise outdated from None
        return SqliteReader(_checked(connect_for_reading(own), check_schema))
    except (ForeignIndexError, MixedIndexError, DamagedIndexError) as exc:
        return open_reader(_place_beside(own, exc))


def open_writer(path: Path, *, busy_timeout_ms: int | None = None) -> SqliteWriter:
    """Open an index for writing, as `qmd.store.opening` says."""
    from qmd.store.sqlite.writer import SqliteWriter

    own = own_index(path)
    try:
        writer = SqliteWriter(_checked(connect_for_writing(own, busy_timeout_ms), _migrated))
    except (ForeignIndexError, MixedIndexError, DamagedIndexError) as exc:
        return open_writer(_place_beside(own, exc), busy_timeout_ms=busy_timeout_ms)
    # Only now it is known to be an index of ours; an older version left it readable by everybody.
    for name in (writer.path.name, f"{writer.path.name}-wal", f"{writer.path.name}-shm", f".{writer.path.name}.lock"):
        restrict_to_owner(writer.path.with_name(name))
    restrict_to_owner(verified_mark(writer.path))
    return writer


def _place_beside(own: Path, error: StoreError) -> Path:
    """Where the index lies, or has been put, when the file at `own` is another program's; else raises `error`."""
    beside = index_next_to(own)
    if beside == own:
        raise error
    if not isinstance(error, ForeignIndexError):
        from qmd.store.sqlite.salvage import separate

        # What the original writes into an index looks like damage, because it does not know of checksums.
        if separate(own) is None:
            raise error
    return beside


def _migrated(database: Database) -> None:
    migrate(database)
    record_origin(database, database.path)


def _checked(database: Database, check: Callable[[Database], None]) -> Database:
    try:
        check_origin(database)
        check(database)
    except BaseException:
        database.close()
        raise
    return database
