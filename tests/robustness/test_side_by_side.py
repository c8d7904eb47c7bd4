"""A bounded run of `side_by_side`: readers, writers, a watcher and a server, some of them killed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.robustness.side_by_side import run


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="kills by signal")
def test_nobody_fails_and_nothing_is_lost_while_processes_are_killed(tmp_path: Path) -> None:
    world = run(seconds=8, readers=2, documents=15, seed=7, home=tmp_path)
    assert world.errors == []
    assert any(what.startswith("killed") for what in world.counts)
    assert world.counts["collection add"] > 0
