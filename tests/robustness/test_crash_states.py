"""A fixed few of the states and faults that the long runs try by the thousand; see README.md."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.robustness import crash_states, disk_faults
from tests.robustness.recording import Operation
from tests.robustness.replay import Accident, replay
from tests.robustness.scenarios import SCENARIOS, Scenario

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="an open file cannot be replaced there")


@pytest.fixture
def memory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=crash_states.memory_folder()) as folder:
        yield Path(folder)


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_whatever_a_crash_leaves_opens_and_the_repeated_command_completes_it(scenario: Scenario, memory: Path) -> None:
    (row,) = crash_states.run(40, seed=11, repeat_every=4, home=memory, scenarios=[scenario])
    assert row.tries > 20
    assert row.failures == []


@pytest.mark.slow
def test_a_full_or_broken_disk_is_one_line_and_loses_nothing(memory: Path) -> None:
    rows = disk_faults.run(60, seed=3, home=memory)
    assert sum(row.tries for row in rows) == 60
    assert [failure for row in rows for failure in row.failures] == []


def test_a_lost_write_is_one_that_no_sync_followed() -> None:
    log = [
        Operation("create", "a"),
        Operation("write", "a", 0, b"x" * 600),
        Operation("sync", "a"),
        Operation("write", "a", 600, b"y" * 600),
        Operation("rename", "a", target="b"),
    ]
    states = {replay({}, log, Accident("power loss", 5, seed))["b"].rstrip(b"\0") for seed in range(200)}
    assert all(state.startswith(b"x" * 600) for state in states)
    # Missing, whole, and up to the only sector border inside.
    assert states == {b"x" * 600, b"x" * 600 + b"y" * 600, b"x" * 600 + b"y" * 424}
    assert replay({}, log, Accident("crash", 4, 1)) == {"a": b"x" * 600 + b"y" * 600}
