"""A bounded run of `edits`: killed commands, and a program that writes at the same time."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.robustness import edits


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="kills by signal")
def test_files_of_others_are_old_or_new_and_lose_no_update(tmp_path: Path) -> None:
    rows = edits.run(n_kills=40, n_installs=40, seed=7, home=tmp_path / "home")
    assert [failure for row in rows for failure in row.failures] == []
    assert sum(row.tries for row in rows) > 100
