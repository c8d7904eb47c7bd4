"""The program with an empty home of its own, run in this process."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from qmd.cli.app import main
from tests.conformance.world import Run, World


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> World:
    for name in list(os.environ):
        if name.startswith(("QMD_", "XDG_")) or name in ("INDEX_PATH", "CI", "NO_COLOR"):
            monkeypatch.delenv(name)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PWD", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("QMD_DAEMON", "0")
    monkeypatch.chdir(home)

    def run(*argv: str) -> Run:
        capsys.readouterr()
        status = main(argv)
        streams = capsys.readouterr()
        return Run(status, streams.out, streams.err)

    return World(home, tmp_path / "config" / "qmd" / "index.yml", tmp_path / "cache" / "qmd" / "index.sqlite", run)
