"""One index in each engine, and its content: an engine must pass this suite.

To test an engine of another package, installed next to qmd, set `QMD_CONTRACT_ADDRESS=scheme:…{name}…`: an address of
its own, with another word for `{name}` in each index.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from qmd.store.base import IndexReader, IndexWriter
from qmd.store.opening import open_reader, open_writer

ADDRESSES: dict[str, str | None] = {"sqlite": None, "lance": "lance:{folder}"}
if given := os.environ.get("QMD_CONTRACT_ADDRESS"):
    ADDRESSES = {given.partition(":")[0]: given}


class Place:
    """Return the address of an engine's index.

    Args:
        folder: A new one.
        engine: One of `ADDRESSES`.
    """

    def __init__(self, folder: Path, engine: str) -> None:
        if engine == "lance":
            pytest.importorskip("lancedb", reason="LanceDB has no wheel for this system")
        address = ADDRESSES[engine]
        self.engine = engine
        self.path = folder / "cache" / "index.sqlite"
        self.address = address.format(folder=folder / "tables", name=uuid4().hex) if address else None

    def reader(self) -> IndexReader:
        return open_reader(self.path, self.address)

    def writer(self, busy_timeout_ms: int = 200) -> IndexWriter:
        return open_writer(self.path, self.address, busy_timeout_ms=busy_timeout_ms)


@pytest.fixture(params=ADDRESSES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(tmp_path, request.param)


@pytest.fixture
def writer(place: Place) -> Iterator[IndexWriter]:
    with place.writer() as opened:
        yield opened
