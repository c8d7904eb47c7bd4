"""An empty folder and an empty index."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from qmd.store.sqlite.opening import open_writer
from qmd.store.sqlite.writer import SqliteWriter


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    return folder


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[SqliteWriter]:
    with open_writer(tmp_path / "index.sqlite") as opened:
        yield opened
