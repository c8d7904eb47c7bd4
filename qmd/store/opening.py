"""Opening an index, whatever its engine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, TypeVar, cast

from qmd import plugins
from qmd.errors import NotFoundError, QmdError, StoreError
from qmd.store.base import IndexReader, IndexWriter

_Index = TypeVar("_Index", bound=IndexReader)

_UNFINISHED = "unfinished copy of "


class StoreModule(Protocol):
    """The module that a row of `plugins.STORES` names; local state lies next to `path`.

    The index that it opens must pass the tests in `tests/store/contract`.
    """

    def open_reader(self, address: str, path: Path) -> IndexReader:
        """Open an index for reading; raises `NotFoundError` if there is none."""

    def open_writer(self, address: str, path: Path, *, busy_timeout_ms: int | None = None) -> IndexWriter:
        """Open an index for writing, creating it; wait that long for another writer, then raise `BusyError`."""

    def mend(self, address: str, path: Path, *, thorough: bool) -> Sequence[str]:
        """Look for damage, everywhere if `thorough`, and reset the damaged parts; return their names."""


def open_reader(path: Path, address: str | None = None) -> IndexReader:
    """Open an index for reading; a writer elsewhere does not disturb it.

    Args:
        path: The database file; if it is another program's, the index next to it. For an index at an address the path
            next to which its local state lies.
        address: Its address, unless it is an SQLite file; see `Locations.address`.

    Raises:
        NotFoundError: No index there.
        QmdError: The package for the address is not installed.
        StoreError: The index is damaged, unfinished or cannot be opened.
    """
    if address is None:
        from qmd.store.sqlite import opening

        return _check_finished(opening.open_reader(path), str(path))
    return _check_finished(load_store_module(address).open_reader(address, path), address)


def open_writer(
    path: Path, address: str | None = None, *, busy_timeout_ms: int | None = None, takes_unfinished: bool = False
) -> IndexWriter:
    """Open an index for writing, creating or migrating it.

    Args:
        path: The database file, its folder is created if missing; if it is another program's, the index lies next to
            it. For an index at an address as for `open_reader`.
        address: As for `open_reader`.
        busy_timeout_ms: Longest wait of a statement for another process; None = environment or two minutes.
        takes_unfinished: Whether to accept the unfinished target of a copy, in order to finish it.

    Raises:
        BusyError: Another process used the index for longer.
        QmdError: As for `open_reader`.
        StoreError: The index is damaged or unfinished, or the place not writable.
    """
    writer: IndexWriter
    if address is None:
        from qmd.store.sqlite import opening

        writer = opening.open_writer(path, busy_timeout_ms=busy_timeout_ms)
    else:
        writer = load_store_module(address).open_writer(address, path, busy_timeout_ms=busy_timeout_ms)
    return writer if takes_unfinished else _check_finished(writer, address or str(path))


def index_exists(path: Path, address: str | None = None) -> bool:
    """Return whether there is an index; at an address it is opened to find out."""
    if address is None:
        return path.exists()
    try:
        open_reader(path, address).close()
    except NotFoundError:
        return False
    return True


def unfinished_state(source: str) -> str:
    """Return the marker that replaces the configuration hash while an index is filled from `source`."""
    return f"{_UNFINISHED}{source}"


def unfinished_source(index: IndexReader) -> str | None:
    """Return the source of an unfinished copy; None for every other index."""
    state = index.config_hash() or ""
    return state.removeprefix(_UNFINISHED) if state.startswith(_UNFINISHED) else None


def _check_finished(index: _Index, place: str) -> _Index:
    """Return `index`, unless it is an unfinished copy."""
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


def load_store_module(address: str) -> StoreModule:
    """Return the module that opens the index at an address.

    Raises:
        QmdError: It is not installed.
    """
    store = plugins.store_at(address)
    try:
        # A module has no type of its own; `tests/store/contract` calls its functions.
        return cast(StoreModule, plugins.load(store.opening))
    except ImportError as exc:
        from qmd.installation import install_command

        hint = install_command(store.name) if store in plugins.STORES.values() else None
        raise QmdError(f"index '{address}' needs {store.product}, which is not installed", hint) from exc
