"""Opening an index, whichever engine holds it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, TypeVar, cast

from qmd import plugins
from qmd.errors import NotFoundError, QmdError, StoreError
from qmd.store.base import IndexReader, IndexWriter

_Index = TypeVar("_Index", bound=IndexReader)

_UNFINISHED = "unfinished copy of "


class Opening(Protocol):
    """The module that a row of `plugins.STORES` names; `path` is that beside which this machine keeps what is its own.

    Whatever it opens has to pass the tests in `tests/store/contract`.
    """

    def open_reader(self, address: str, path: Path) -> IndexReader:
        """Open an index for reading; raises `NotFoundError` where there is none."""

    def open_writer(self, address: str, path: Path, *, busy_timeout_ms: int | None = None) -> IndexWriter:
        """Open an index for writing, creating it; a writer waits so long for another one, then `BusyError`."""

    def mend(self, address: str, path: Path, *, thorough: bool) -> Sequence[str]:
        """Look for damage, in all that there is where `thorough`, and begin those parts anew; their names."""


def open_reader(path: Path, address: str | None = None) -> IndexReader:
    """Open an index for reading; a writer elsewhere does not disturb it.

    Args:
        path: The database file; where that is another program's, the index beside it is meant. For an index at an
            address the place beside which its local state lies.
        address: Where it lies, unless in a file of SQLite's; see `Locations.address`.

    Raises:
        NotFoundError: No index there.
        QmdError: What opens an address is not installed.
        StoreError: The index is damaged, unfinished or cannot be opened.
    """
    if address is None:
        from qmd.store.sqlite import opening

        return _finished(opening.open_reader(path), str(path))
    return _finished(opening_at(address).open_reader(address, path), address)


def open_writer(
    path: Path, address: str | None = None, *, busy_timeout_ms: int | None = None, takes_unfinished: bool = False
) -> IndexWriter:
    """Open an index for writing, creating or migrating it.

    Args:
        path: The database file, its folder is made when missing; where that is another program's, the index lies
            beside it. For an index at an address as for `open_reader`.
        address: As for `open_reader`.
        busy_timeout_ms: How long any statement waits for another process; None = environment or two minutes.
        takes_unfinished: Whether it may be one that a copy has begun, which is then to be finished.

    Raises:
        BusyError: Another process kept the index for longer.
        QmdError: As for `open_reader`.
        StoreError: The index is damaged or unfinished, or the place not writable.
    """
    writer: IndexWriter
    if address is None:
        from qmd.store.sqlite import opening

        writer = opening.open_writer(path, busy_timeout_ms=busy_timeout_ms)
    else:
        writer = opening_at(address).open_writer(address, path, busy_timeout_ms=busy_timeout_ms)
    return writer if takes_unfinished else _finished(writer, address or str(path))


def index_exists(path: Path, address: str | None = None) -> bool:
    """Whether there is an index; at an address it is opened to find out."""
    if address is None:
        return path.exists()
    try:
        open_reader(path, address).close()
    except NotFoundError:
        return False
    return True


def unfinished_state(source: str) -> str:
    """What stands for the hash of a configuration in an index that is being filled from `source`."""
    return f"{_UNFINISHED}{source}"


def unfinished_source(index: IndexReader) -> str | None:
    """What an index was being filled from when that was ended; None for every other index."""
    state = index.config_hash() or ""
    return state.removeprefix(_UNFINISHED) if state.startswith(_UNFINISHED) else None


def _finished(index: _Index, place: str) -> _Index:
    """`index`, unless it lacks a part of what it is to be a copy of."""
    try:
        source = unfinished_source(index)
        if source is not None:
            raise StoreError(
                f"index '{place}' is an unfinished copy of '{source}'",
                f"finish it with the same command as before: qmd store copy {source} …",
            )
    except BaseException:
        index.close()
        raise
    return index


def opening_at(address: str) -> Opening:
    """What opens the index at an address.

    Raises:
        QmdError: It is not installed.
    """
    store = plugins.store_at(address)
    try:
        # A module has no type of its own; `tests/store/contract` calls its functions.
        return cast(Opening, plugins.load(store.opening))
    except ImportError as exc:
        from qmd.installation import install_command

        hint = install_command(store.name) if store in plugins.STORES.values() else None
        raise QmdError(f"index '{address}' needs {store.product}, which is not installed", hint) from exc
