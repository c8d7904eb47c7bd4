"""The program as a user runs it, in this process: an empty home, a folder of notes, `main` with its two streams."""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from qmd import plugins
from qmd.app import freshness
from qmd.cli.app import main

NOTES = {
    "pricing.md": "# Pricing decision\n\nWe chose per-seat pricing after the interviews.\n\n## Why\n\nBills, simply.\n",
    "daily/sunday.md": "# Sunday\n\nTalked about the rate limiter.\nIt has a sliding window.\n",
    "we ird/c & d.md": "# Beta & co\n\nGardening and tomatoes.\n",
}


@dataclass(frozen=True)
class Run:
    """What one command did."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What standard output says as JSON."""
        return json.loads(self.out)


Qmd = Callable[..., Run]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in list(os.environ):
        if name.startswith(("QMD_", "XDG_")) or name == "INDEX_PATH":
            monkeypatch.delenv(name)
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("QMD_DAEMON", "0")
    monkeypatch.setenv("QMD_PAGER", "")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PWD", str(folder))
    return folder


@contextmanager
def foreign_rows(site: Path, name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package of another author is installed in `site`: one module, whose rows qmd asks for."""
    facts = site / f"{name}-1.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    (facts / "entry_points.txt").write_text(f"[{plugins.GROUP}]\n{name} = {name}\n")
    (site / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(site)
    plugins.foreign.cache_clear()
    yield
    plugins.foreign.cache_clear()


def write_notes(folder: Path, texts: Mapping[str, str]) -> Path:
    for name, text in texts.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    # What is of this very moment would be looked at again by the next search.
    for place in (folder, *folder.rglob("*")):
        os.utime(place, (1_700_000_000, 1_700_000_000))
    return folder


@pytest.fixture
def notes(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_notes(home / "notes", NOTES)
    monkeypatch.setattr(freshness, "_LOOK_S", 60.0)
    return home / "notes"


@pytest.fixture
def qmd(home: Path, capsys: pytest.CaptureFixture[str]) -> Qmd:
    def run(*argv: str) -> Run:
        capsys.readouterr()
        status = main(argv)
        streams = capsys.readouterr()
        return Run(status, streams.out, streams.err)

    return run


@pytest.fixture
def indexed(qmd: Qmd, notes: Path) -> Qmd:
    assert qmd("index", str(notes), "--no-embed").status == 0
    return qmd


@pytest.fixture
def tree(qmd: Qmd, home: Path, request: pytest.FixtureRequest) -> Qmd:
    """With an index of what the module of the test has as its `TREE`."""
    write_notes(home / "tree", request.module.TREE)
    assert qmd("index", str(home / "tree"), "--no-embed").status == 0
    return qmd
