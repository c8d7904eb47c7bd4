from pathlib import Path

import pytest

from tests.program import Qmd


def test_the_shipped_skill_is_shown(qmd: Qmd) -> None:
    shown = qmd("skill", "show").out
    assert shown.startswith("QMD Skill\n\n---\nname: qmd\n")
    assert "qmd query" in shown


def test_skills_are_listed_as_json(qmd: Qmd) -> None:
    answer = qmd("skills", "list", "--json").json
    assert answer["success"] is True
    assert [skill["name"] for skill in answer["data"]] == ["qmd"]
    assert "passages that answer" in answer["data"][0]["description"]


def test_another_folder_of_skills_replaces_the_shipped_ones(
    qmd: Qmd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own" / "references").mkdir(parents=True)
    (tmp_path / "own" / "SKILL.md").write_text("---\nname: own\ndescription: one\n  two\n---\nbody\n")
    (tmp_path / "own" / "references" / "a.md").write_text("more\n")
    monkeypatch.setenv("QMD_SKILLS_DIR", str(tmp_path))
    data = qmd("skills", "get", "own", "--full", "--json").json["data"]
    assert data[0]["files"] == [{"path": "references/a.md", "content": "more\n"}]


def test_an_unknown_skill_fails_in_words_and_in_json(qmd: Qmd) -> None:
    run = qmd("skills", "get", "nope")
    assert (run.status != 0, "Skill not found: nope" in run.err) == (True, True)
    run = qmd("skills", "get", "nope", "--json")
    assert (run.status, run.json) == (1, {"success": False, "error": "Skill not found: nope"})


def test_installing_twice_needs_force(qmd: Qmd, home: Path) -> None:
    assert qmd("skill", "install", "--yes").status == 0
    assert "qmd skill show" in (home / ".claude" / "skills" / "qmd" / "SKILL.md").read_text()
    run = qmd("skill", "install")
    assert (run.status, "already exists" in run.err) == (1, True)
    assert qmd("skill", "install", "--force").status == 0
