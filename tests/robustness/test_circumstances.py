"""A fixed few of the notes, clocks and read-only folders that the long runs try; see README.md."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.robustness import clock_jumps, many_notes, read_only
from tests.robustness.crash_states import memory_folder

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform == "win32", reason="file names and processes of POSIX")]


@pytest.fixture
def memory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=memory_folder()) as folder:
        yield Path(folder).resolve()


def test_commands_over_many_notes_answer_rightly_and_in_few_words(memory: Path) -> None:
    row = many_notes.run([300, 1_500], seed=11, home=memory)
    assert row.tries > 80
    assert row.failures == []


def test_no_note_is_missed_however_the_clock_jumps(memory: Path) -> None:
    row = clock_jumps.run(25, seed=11, home=memory)
    assert row.tries == 25
    assert row.failures == []


def test_what_cannot_be_written_is_one_line_and_loses_nothing() -> None:
    if not read_only.is_possible():
        pytest.skip("mounting needs root on Linux")
    # Where another user may enter.
    with tempfile.TemporaryDirectory() as folder:
        rows = read_only.run(16, seed=11, home=Path(folder).resolve())
    assert sum(row.tries for row in rows) == 16
    assert [failure for row in rows for failure in row.failures] == []
