"""A fixed few of the kills, damages and minutes that LanceDB tables go through in the long runs; see README.md."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("lancedb", reason="LanceDB has no wheel for this system")

from tests.robustness import lance_damage, lance_kills, side_by_side
from tests.robustness.crash_states import memory_folder

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="kills by signal"),
]


@pytest.fixture
def memory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=memory_folder()) as folder:
        yield Path(folder).resolve()


def test_whatever_a_killed_writer_leaves_opens_and_the_repeated_command_completes_it(memory: Path) -> None:
    rows = lance_kills.run(4, seed=11, home=memory)
    assert sum(row.tries for row in rows) == 4
    assert [failure for row in rows for failure in row.failures] == []


def test_a_damaged_file_is_one_line_or_a_right_answer_and_is_mended(memory: Path) -> None:
    rows = lance_damage.run(2, seed=11, home=memory)
    assert sum(row.tries for row in rows) == 2
    assert [failure for row in rows for failure in row.failures] == []


def test_nobody_fails_and_nothing_is_lost_side_by_side(tmp_path: Path) -> None:
    world = side_by_side.run(seconds=4, readers=2, documents=15, seed=7, home=tmp_path, store="lance")
    assert world.errors == []
    assert any(what.startswith("killed") for what in world.counts)
