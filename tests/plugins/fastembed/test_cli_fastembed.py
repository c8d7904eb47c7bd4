"""fastembed's models by command: listed, pulled from a hub, checked, moved, removed, and used in an index."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from qmd import open_index
from qmd.plugins.fastembed.available import draw_available
from qmd.plugins.fastembed.catalogue import fastembed_models
from qmd.render.drawing import Screen
from tests.plugins.fastembed.tiny_fastembed import CROSS_ENCODER, EMBEDDER, LATE, REPOSITORIES, STATIC, files_of
from tests.plugins.models.model_hub import FakeHub, serve_hub
from tests.program import Qmd, Run, write_notes


@pytest.fixture(autouse=True)
def hub(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    monkeypatch.setenv("no_proxy", "*")
    with serve_hub() as running:
        monkeypatch.setenv("HF_ENDPOINT", running.url)
        yield running


def _pull(qmd: Qmd, hub: FakeHub, name: str) -> Run:
    hub.files, hub.repository = files_of(name), REPOSITORIES[name]
    return qmd("models", "pull", name)


def test_the_models_of_fastembed_are_listed_as_text_and_json(qmd: Qmd) -> None:
    lines = qmd("models", "list", "--available").out.splitlines()
    assert any(row.startswith("embedder ") and EMBEDDER in row and " en " in row and " mit" in row for row in lines)
    rows = {row["name"]: row for row in qmd("models", "list", "--available", "--json").json}
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
    marked = [line for line in lines if line.startswith("✓")]
    assert marked == [line for line in lines if line.split()[1:2] == ["BAAI/bge-small-en-v1.5"]]
    # A name that does not fit breaks only after the organisation.
    assert all(line.split()[0].endswith("/") for line in lines if line.split()[:1] and "/" in line.split()[0][-1])


@pytest.mark.parametrize("name", [EMBEDDER, CROSS_ENCODER, LATE, STATIC])
def test_a_model_is_pulled_listed_checked_and_removed(name: str, qmd: Qmd, hub: FakeHub) -> None:
    run = _pull(qmd, hub, name)
    assert (run.status, "prepare" in run.err) == (0, False)
    assert all(path.startswith(f"/{REPOSITORIES[name]}/resolve/") for path in hub.paths)
    assert hub.agents == {"qmd"}
    folder = Path(qmd("models", "path", name.upper()).out.strip())
    assert {path: (folder / path).read_bytes() for path in files_of(name)} == files_of(name)
    assert name in [row["name"] for row in qmd("models", "list", "--json").json if row["present"]]
    assert [row["name"] for row in qmd("models", "list", "--available", "--json").json if row["present"]] == [name]
    run = qmd("models", "verify")
    assert (run.status, f"ok        {name}: tokenizer.json" in run.out) == (0, True)
    (folder / "tokenizer.json").write_bytes(b"{}")
    assert qmd("models", "verify", name).status == 1
    assert qmd("models", "remove", name).status == 0
    assert not folder.exists()


@pytest.mark.parametrize("target", ["model.tar", "copy"])
def test_a_model_is_moved_to_a_machine_without_network(
    target: str, qmd: Qmd, hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _pull(qmd, hub, EMBEDDER).status == 0
    assert qmd("models", "export", EMBEDDER, str(tmp_path / target)).status == 0
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
    monkeypatch.setenv("QMD_OFFLINE", "1")
    run = qmd("models", "import", str(tmp_path / target))
    assert (run.status, f"Imported {EMBEDDER}" in run.out) == (0, True)
    assert qmd("models", "verify", EMBEDDER).status == 0


def test_a_plain_download_is_taken_by_name(qmd: Qmd, tmp_path: Path) -> None:
    for path, content in files_of(LATE).items():
        (tmp_path / "plain").mkdir(exist_ok=True)
        (tmp_path / "plain" / path).write_bytes(content)
    assert qmd("models", "import", str(tmp_path / "plain"), "--name", LATE).status == 0
    assert qmd("models", "verify", LATE).status == 0


def test_a_model_of_fastembed_has_no_other_forms(qmd: Qmd, hub: FakeHub) -> None:
    assert _pull(qmd, hub, CROSS_ENCODER).status == 0
    run = qmd("models", "prepare", CROSS_ENCODER)
    assert (run.status, "no other forms" in run.err) == (2, True)
    assert qmd("models", "prepare").status == 3


def test_a_mistyped_name_is_answered_with_the_nearest(qmd: Qmd) -> None:
    run = qmd("models", "pull", "fastembed:bge-small-en-v1.5")
    assert run.status == 3
    assert f"did you mean '{EMBEDDER}'" in run.err and "qmd models list --available" in run.err


def test_offline_nothing_is_asked_of_the_hub(qmd: Qmd, hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QMD_OFFLINE", "1")
    run = _pull(qmd, hub, EMBEDDER)
    assert (run.status, hub.requests, "QMD_OFFLINE" in run.err) == (4, [], True)


def test_an_index_uses_a_fastembed_model(qmd: Qmd, hub: FakeHub, notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QMD_EMBED_MODEL", EMBEDDER)
    run = qmd("index", str(notes))
    assert run.status == 4
    assert f"get it: qmd models pull {EMBEDDER}" in " ".join(run.err.split())
    assert _pull(qmd, hub, EMBEDDER).status == 0
    assert f"Model: {EMBEDDER} fp32" in qmd("index", str(notes)).out
    assert qmd("vsearch", "Gardening and tomatoes.", "--json").json[0]["file"].endswith("c & d.md")


@pytest.mark.parametrize("name", [CROSS_ENCODER, LATE])
def test_an_answer_is_reranked_by_a_model_of_fastembed(
    name: str, qmd: Qmd, hub: FakeHub, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {
        "bread.md": "# Bread\n\nFlour, water and salt are mixed and baked for an hour.\n",
        "backup.md": "# Backup\n\nStop the service and restore the archive to its place.\n",
        "login.md": "# Login\n\nReset a forgotten password in the settings of the account.\n",
    }
    write_notes(home / "notes", texts)
    assert qmd("index", "notes").status == 0
    monkeypatch.setenv("QMD_RERANK_MODEL", name)
    assert _pull(qmd, hub, name).status == 0
    run = qmd("query", "restore the archive of the service", "--json")
    assert run.json[0]["file"].endswith("backup.md")
    assert "warning" not in run.err
    with open_index() as index:
        response = index.search("restore the archive of the service")
    assert f"{name} fp32 (full)" in response.models and response.warnings == ()
