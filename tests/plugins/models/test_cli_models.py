from __future__ import annotations

import json
from pathlib import Path

import pytest

from qmd.cli.app import main


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "cache"


def test_only_the_built_in_model_is_present_at_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "list", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["role"] for row in rows} == {"embed", "rerank", "expand"}
    assert [row["name"] for row in rows if row["present"]] == ["all-MiniLM-L6-v2"]


def test_the_built_in_files_pass_their_checksums(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "verify"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines
    assert all(line.startswith("ok ") for line in lines)


def test_pulling_offline_says_how_to_bring_the_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("QMD_OFFLINE", "1")
    assert main(["pull"]) == 4
    shown = capsys.readouterr().err
    assert "QMD_OFFLINE" in shown
    assert "qmd models import" in shown


@pytest.mark.parametrize("command", ["path", "remove"])
def test_an_unknown_model_is_named(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", command, "nope-7b"]) == 3
    assert "'nope-7b'" in capsys.readouterr().err
