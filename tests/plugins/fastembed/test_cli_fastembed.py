"""fastembed's models by command: listed, pulled from a hub, checked, moved, removed, and used in an index."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import qmd
from qmd.cli.app import main
from qmd.plugins.fastembed.available import draw_available
from qmd.plugins.fastembed.catalogue import fastembed_models
from qmd.render.drawing import Screen
from tests.plugins.fastembed.tiny_fastembed import CROSS_ENCODER, EMBEDDER, LATE, REPOSITORIES, STATIC, files_of
from tests.plugins.models.model_hub import FakeHub, serve_hub


@pytest.fixture(autouse=True)
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("no_proxy", "*")
    with serve_hub() as running:
        monkeypatch.setenv("HF_ENDPOINT", running.url)
        yield running


def _pull(hub: FakeHub, name: str) -> int:
    hub.files, hub.repository = files_of(name), REPOSITORIES[name]
    return main(["models", "pull", name])


def test_the_models_of_fastembed_are_listed_as_text_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "list", "--available"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(
        line.startswith("embedder ") and EMBEDDER in line and " en " in line and " mit" in line for line in lines
    )
    assert main(["models", "list", "--available", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert len(rows) == len(lines)
    assert rows[LATE]["kind"] == "late interaction" and rows[LATE]["role"] == "rerank"
    bge = rows[EMBEDDER]
    assert (bge["dimensions"], bge["size_bytes"], bge["licence"], bge["languages"]) == (384, 67_000_000, "mit", ["en"])
    assert bge["present"] is False and bge["path"] is None


@pytest.mark.parametrize("width", [80, 120])
def test_the_models_of_fastembed_fit_a_terminal(width: int) -> None:
    shown = draw_available(Screen(width), [(model, model.record.name == EMBEDDER) for model in fastembed_models()])
    lines = shown.splitlines()
    assert max(map(len, lines)) <= width
    assert [line for line in lines if line.startswith("✓")] == [
        line for line in lines if line.split()[1:2] == ["BAAI/bge-small-en-v1.5"]
    ]
    # A name that does not fit is broken behind the organisation and nowhere else.
    assert all(line.split()[0].endswith("/") for line in lines if line.split()[:1] and "/" in line.split()[0][-1])


@pytest.mark.parametrize("name", [EMBEDDER, CROSS_ENCODER, LATE, STATIC])
def test_a_model_is_pulled_listed_checked_and_removed(
    name: str, hub: FakeHub, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _pull(hub, name) == 0
    assert all(path.startswith(f"/{REPOSITORIES[name]}/resolve/") for path in hub.paths)
    assert hub.agents == {"qmd"}
    shown = capsys.readouterr()
    assert "prepare" not in shown.err
    assert main(["models", "path", name.upper()]) == 0
    folder = Path(capsys.readouterr().out.strip())
    assert {path: (folder / path).read_bytes() for path in files_of(name)} == files_of(name)
    assert main(["models", "list", "--json"]) == 0
    assert name in [row["name"] for row in json.loads(capsys.readouterr().out) if row["present"]]
    assert main(["models", "list", "--available", "--json"]) == 0
    assert [row["name"] for row in json.loads(capsys.readouterr().out) if row["present"]] == [name]
    assert main(["models", "verify"]) == 0
    assert f"ok        {name}: tokenizer.json" in capsys.readouterr().out
    (folder / "tokenizer.json").write_bytes(b"{}")
    assert main(["models", "verify", name]) == 1
    assert main(["models", "remove", name]) == 0
    assert not folder.exists()


@pytest.mark.parametrize("target", ["model.tar", "copy"])
def test_a_model_is_moved_to_a_machine_without_network(
    target: str, hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _pull(hub, EMBEDDER) == 0
    assert main(["models", "export", EMBEDDER, str(tmp_path / target)]) == 0
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
    monkeypatch.setenv("QMD_OFFLINE", "1")
    assert main(["models", "import", str(tmp_path / target)]) == 0
    assert f"Imported {EMBEDDER}" in capsys.readouterr().out
    assert main(["models", "verify", EMBEDDER]) == 0


def test_a_plain_download_is_taken_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path, content in files_of(LATE).items():
        (tmp_path / "plain").mkdir(exist_ok=True)
        (tmp_path / "plain" / path).write_bytes(content)
    assert main(["models", "import", str(tmp_path / "plain"), "--name", LATE]) == 0
    assert main(["models", "verify", LATE]) == 0


def test_a_model_of_fastembed_has_no_other_forms(hub: FakeHub, capsys: pytest.CaptureFixture[str]) -> None:
    assert _pull(hub, CROSS_ENCODER) == 0
    assert main(["models", "prepare", CROSS_ENCODER]) == 2
    assert "no other forms" in capsys.readouterr().err
    assert main(["models", "prepare"]) == 3


def test_a_mistyped_name_is_answered_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "pull", "fastembed:bge-small-en-v1.5"]) == 3
    shown = capsys.readouterr().err
    assert f"did you mean '{EMBEDDER}'" in shown and "qmd models list --available" in shown


def test_offline_nothing_is_asked_of_the_hub(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("QMD_OFFLINE", "1")
    assert _pull(hub, EMBEDDER) == 4
    assert hub.requests == [] and "QMD_OFFLINE" in capsys.readouterr().err


def _notes(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "bread.md").write_text("# Bread\n\nFlour, water and salt are mixed and baked for an hour.\n")
    (folder / "backup.md").write_text("# Backup\n\nStop the service and restore the archive to its place.\n")
    (folder / "login.md").write_text("# Login\n\nReset a forgotten password in the settings of the account.\n")
    return folder


def test_an_index_is_made_and_asked_with_a_model_of_fastembed(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    notes = _notes(tmp_path)
    monkeypatch.setenv("QMD_EMBED_MODEL", EMBEDDER)
    assert main(["index", str(notes)]) == 4
    assert f"get it: qmd models pull {EMBEDDER}" in " ".join(capsys.readouterr().err.split())
    assert _pull(hub, EMBEDDER) == 0
    capsys.readouterr()
    assert main(["index", str(notes)]) == 0
    assert f"Model: {EMBEDDER} fp32" in capsys.readouterr().out
    assert main(["vsearch", "reset a forgotten password in the settings of the account", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert rows[0]["file"].endswith("login.md")


@pytest.mark.parametrize("name", [CROSS_ENCODER, LATE])
def test_an_answer_is_reranked_by_a_model_of_fastembed(
    name: str, hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["index", str(_notes(tmp_path))]) == 0
    monkeypatch.setenv("QMD_RERANK_MODEL", name)
    assert _pull(hub, name) == 0
    capsys.readouterr()
    assert main(["query", "restore the archive of the service", "--json"]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)[0]["file"].endswith("backup.md")
    assert "warning" not in shown.err
    with qmd.open_index() as index:
        response = index.search("restore the archive of the service")
    assert f"{name} fp32 (full)" in response.models and response.warnings == ()
