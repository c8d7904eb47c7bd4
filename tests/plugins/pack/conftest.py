"""An index of the module's own notes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import qmd
from qmd.app.index import Index
from tests.program import write_notes


@pytest.fixture(scope="module")
def index(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    """Index of the `TREE` of a test module, which its tests only read."""
    folder = tmp_path_factory.mktemp("packs")
    write_notes(folder / "tree", request.module.TREE)
    with qmd.open_index(folder / "index.sqlite") as opened:
        opened.add_collection("tree", folder / "tree")
        opened.update()
        opened.embed()
        yield opened
