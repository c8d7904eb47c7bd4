"""One index, in each engine, and what is put into it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from qmd.store.base import IndexReader, IndexWriter
from qmd.store.opening import open_reader, open_writer


class Place:
    """Where an index of an engine lies.

    Args:
        folder: A new one.
        engine: `sqlite` or `lance`.
    """

    def __init__(self, folder: Path, engine: str) -> None:
        if engine == "lance":
            pytest.importorskip("lancedb", reason="LanceDB has no wheel for this system")
        self.path = folder / "cache" / "index.sqlite"
        self.address = f"lance:{folder / 'tables'}" if engine == "lance" else None

    def reader(self) -> IndexReader:
        return open_reader(self.path, self.address)

    def writer(self, busy_timeout_ms: int = 200) -> IndexWriter:
        return open_writer(self.path, self.address, busy_timeout_ms=busy_timeout_ms)


@pytest.fixture(params=["sqlite", "lance"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(tmp_path, request.param)


@pytest.fixture
def contract_writer(place: Place) -> Iterator[IndexWriter]:
    with place.writer() as opened:
        yield opened
