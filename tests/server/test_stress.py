"""A bounded run of `tests/benchmarks/stress.py`: readers, writers, a watcher and a server, some of them killed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.benchmarks.stress import stress


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="kills by signal")
def test_nobody_fails_and_nothing_is_lost_while_processes_are_killed(tmp_path: Path) -> None:
    world = stress(seconds=8, readers=3, documents=20, seed=7, home=tmp_path)
    assert world.errors == []
    assert any(what.startswith("killed") for what in world.counts)
