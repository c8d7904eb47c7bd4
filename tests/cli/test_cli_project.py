from pathlib import Path

import pytest

from tests.program import Qmd


@pytest.fixture
def project(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = home / "project"
    (folder / "docs").mkdir(parents=True)
    (folder / "docs/a.md").write_text("# Inside\n")
    (home / "secret.md").write_text("# Secret plans\n")
    monkeypatch.chdir(folder)
    return folder


def write_config(project: Path, text: str) -> None:
    (project / ".qmd").mkdir(exist_ok=True)
    (project / ".qmd/index.yml").write_text(text)


def test_init_makes_an_index_of_this_folder_and_may_be_repeated(qmd: Qmd, project: Path) -> None:
    assert qmd("init").out == "ready to go with new local index\n"
    assert qmd("init", "--color", "always").out == "Created an index for this folder: .qmd\n"
    assert qmd("init").status == 0
    assert (project / ".qmd/index.sqlite").exists()
    qmd("index", "docs", "--no-embed")
    text = (project / ".qmd/index.yml").read_text()
    assert text.startswith("# The index") and "\ncollections:\n  docs:\n" in text


def test_init_refuses_the_home_folder(qmd: Qmd) -> None:
    run = qmd("init")
    assert run.status == 1
    assert "Refusing to initialize a local index in $HOME." in run.err


def test_trusting_lets_the_hook_run_until_it_changes(qmd: Qmd, project: Path) -> None:
    write_config(project, "collections:\n  in: {path: docs, update: touch ran}\n")
    assert "✓ Trusted" in qmd("trust").out
    qmd("update")
    assert (project / "docs/ran").exists()
    assert ".qmd/index.yml (trusted 2" in qmd("trust", "list").out
    write_config(project, "collections:\n  in: {path: docs, update: touch worse}\n")
    qmd("update")
    assert not (project / "docs/worse").exists()


def test_trust_can_be_revoked(qmd: Qmd, project: Path) -> None:
    write_config(project, "collections:\n  in: {path: docs, update: touch ran}\n")
    qmd("trust")
    assert "✓ Revoked trust" in qmd("trust", "revoke").out
    assert "was not trusted" in qmd("trust", "revoke").out
    assert qmd("trust", "frobnicate").err == "Usage: qmd trust [list|revoke]\n"


def test_an_edit_of_an_untrusted_project_trusts_nothing_of_it(qmd: Qmd, project: Path) -> None:
    write_config(project, "collections:\n  in: {path: docs, update: touch ran}\n")
    (project / "more").mkdir()
    (project / "more/b.md").write_text("# More\n")
    assert qmd("index", "more", "--no-embed").status == 0
    assert qmd("collection", "add", str(project), "--name", "all").status == 0
    assert qmd("collection", "update-cmd", "all", "touch mine").status == 0
    qmd("update")
    assert not list(project.rglob("ran"))
    assert qmd("trust", "list").out == "No trusted project configs.\n"


def test_an_edit_of_a_trusted_project_is_trusted(qmd: Qmd, project: Path) -> None:
    qmd("init")
    qmd("index", "docs", "--no-embed")
    assert qmd("collection", "update-cmd", "docs", "touch mine").status == 0
    qmd("update")
    assert (project / "docs/mine").exists()
