from __future__ import annotations

import json
from pathlib import Path

import pytest

from qmd.cli.app import main


def test_the_shipped_skill_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["skill", "show"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("QMD Skill\n\n---\nname: qmd\n")
    assert "qmd query" in shown


def test_skills_are_listed_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["skills", "list", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["success"] is True
    assert [skill["name"] for skill in answer["data"]] == ["qmd"]
    assert "passages that answer" in answer["data"][0]["description"]


def test_another_folder_of_skills_replaces_the_shipped_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own" / "references").mkdir(parents=True)
    (tmp_path / "own" / "SKILL.md").write_text("---\nname: own\ndescription: one\n  two\n---\nbody\n")
    (tmp_path / "own" / "references" / "a.md").write_text("more\n")
    monkeypatch.setenv("QMD_SKILLS_DIR", str(tmp_path))
    assert main(["skills", "get", "own", "--full", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)["data"]
    assert data[0]["files"] == [{"path": "references/a.md", "content": "more\n"}]


def test_an_unknown_skill_fails_in_words_and_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["skills", "get", "nope"]) != 0
    assert "Skill not found: nope" in capsys.readouterr().err
    assert main(["skills", "get", "nope", "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == {"success": False, "error": "Skill not found: nope"}


def test_installing_twice_needs_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["skill", "install", "--yes"]) == 0
    assert "qmd skill show" in (tmp_path / ".claude" / "skills" / "qmd" / "SKILL.md").read_text()
    assert main(["skill", "install"]) == 1
    assert "already exists" in capsys.readouterr().err
    assert main(["skill", "install", "--force"]) == 0
