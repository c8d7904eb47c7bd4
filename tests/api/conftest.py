"""Working directory with notes, and an environment without the user's own index."""

import os
from pathlib import Path

import pytest

from tests.program import write_notes

FILES = {
    "notes/pricing.md": "# Pricing decision\n\nWe chose per-seat pricing after the interviews.\n",
    "notes/daily/sunday.md": "# Sunday\n\nTalked about the rate limiter.\nIt has a sliding window.\n",
    "src/store.py": '"""Stores."""\n\n\nclass Store:\n    def open(self) -> None:\n        """Open the index."""\n',
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in list(os.environ):
        if name.startswith(("QMD_", "XDG_")) or name == "INDEX_PATH":
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    work = write_notes(tmp_path / "work", FILES)
    monkeypatch.chdir(work)
    return work
