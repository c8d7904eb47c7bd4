"""Opening an index in LanceDB tables, on this disk or in an object store, whose keys are in the environment.

Implements `qmd.store.opening.StoreModule`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from qmd.errors import NotFoundError, StoreError
from qmd.files import make_private_folder
from qmd.plugins.lance.dense import Dense
from qmd.plugins.lance.health import Health
from qmd.plugins.lance.lexical import Lexical
from qmd.plugins.lance.tables import REBUILD, STATE, Connection
from qmd.plugins.lance.writer import LanceWriter
from qmd.switches import busy_timeout_ms as default_timeout_ms

_connection = lru_cache(maxsize=4)(Connection)
"""Kept with its readers' cache of indexes and files, which never change, so that the next request skips the fetch."""


class LanceReader(Lexical, Dense, Health):
    """The read side: sees the state at its opening; any number at a time, on any machine."""


def open_reader(address: str, path: Path) -> LanceReader:
    """Open an index for reading; it shows the state at its opening."""
    return LanceReader(_connection(address), path)


def open_writer(address: str, path: Path, *, busy_timeout_ms: int | None = None) -> LanceWriter:
    """Open an index for writing, creating it."""
    connection = Connection(address)
    try:
        connection.open_state()
    except NotFoundError:
        if connection.folder is not None:
            with connection.failing():
                make_private_folder(connection.folder)
        connection.create_state()
    return LanceWriter(connection, path, (default_timeout_ms() if busy_timeout_ms is None else busy_timeout_ms) / 1000)


def mend(address: str, path: Path, *, thorough: bool) -> Sequence[str]:
    """Reset damaged tables, which the next update and embedding fill; return their names."""
    connection = Connection(address)
    try:
        connection.read_state(connection.open_state())
    except NotFoundError:
        return ()
    except StoreError as error:
        if error.hint != REBUILD:
            raise
        # The record of the table versions that belong together is lost.
        for name in (names := connection.names()):
            connection.drop(name)
        return names
    with open_writer(address, path) as writer:
        damaged = writer.forget_damaged(thorough=thorough)
    if STATE in damaged:
        # An older version of the one row is unreadable; tidying would fail each time.
        state = connection.read_state(connection.open_state())
        connection.drop(STATE)
        connection.create_state(state)
    return damaged
