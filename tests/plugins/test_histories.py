"""Sessions of agents: what `qmd index` and `qmd install --history` make of their folders, and who searches them."""

import json
import os
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from qmd.cli.invocation import Invocation
from qmd.masks import HISTORY
from qmd.plugins.histories import history_name, project_names
from qmd.plugins.install.prompt_hook import notes_for
from tests.plugins.mcp.test_cli_serve import serving
from tests.plugins.mcp.test_stdio import INITIALIZE, lines_of
from tests.program import Qmd, write_notes


@pytest.fixture
def projects(home: Path) -> Path:
    """Sessions of the projects `app` and `other`, as Claude Code keeps them, one of Codex, and a note."""
    folder = home / ".claude" / "projects"
    for name in ("app", "other"):
        (home / name / "src").mkdir(parents=True)
        entry = {"type": "user", "cwd": str(home / name), "sessionId": "s", "timestamp": "2025-11-03T10:00:00Z"}
        line = json.dumps(entry | {"message": {"role": "user", "content": f"zebrafish of {name}"}}) + "\n"
        own = re.sub("[^a-zA-Z0-9]", "-", str(home / name))
        write_notes(folder / own, {f"{name}.jsonl": line, f"{name}/subagents/a.jsonl": line})
    write_notes(home / ".codex" / "sessions", {"2025/11/03/rollout.jsonl": line})
    write_notes(home / "notes", {"note.md": "# Zebrafish\n"})
    return folder


def _found(qmd: Qmd, *words: str) -> set[str]:
    return {
        row["file"].rpartition("/")[2].partition(":")[0] for row in qmd("search", "zebrafish", *words, "--json").json
    }


def test_a_folder_of_sessions_is_a_collection_searched_by_its_name(projects: Path, home: Path, qmd: Qmd) -> None:
    app = next(projects.glob("*-app"))
    folders = {"claude-history": projects, "codex-history": home / ".codex/sessions", app.name.strip("-"): app}
    for name, folder in reversed(folders.items()):
        assert (
            f"{name}: private; searches include it only with -c {name}" in qmd("index", str(folder), "--no-embed").err
        )
    listed = {one["name"]: one for one in qmd("collection", "list", "--json").json}
    assert [listed[name]["files"] for name in folders] == [2, 1, 1]
    assert {(one["pattern"], one["include"]) for one in listed.values()} == {(HISTORY, False)}
    assert (_found(qmd), _found(qmd, "-c", "claude-history")) == (set(), {"app.jsonl", "other.jsonl"})


def test_sessions_of_a_project_are_searched_in_it_alone(
    projects: Path, home: Path, qmd: Qmd, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in (home / "notes", next(projects.glob("*-app")), projects):
        assert qmd("index", str(folder), "--no-embed").status == 0
    for place in ("app", "app/src", "other", ".", "/"):
        monkeypatch.chdir(home / place)
        assert _found(qmd) == ({"note.md", "app.jsonl"} if "app" in place else {"note.md"})
    monkeypatch.chdir(home / "app")
    hook = Invocation("hook prompt", os.environ, home / "app")
    assert "app.jsonl" not in notes_for(b'{"prompt": "what is the zebrafish of app?"}', hook, None)
    # A server on stdio is one program's; another over HTTP has clients in other folders.
    called = {"name": "search", "arguments": {"query": "zebrafish"}}
    lines = lines_of([INITIALIZE, {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": called}])
    answered = subprocess.run([sys.executable, "-m", "qmd", "mcp"], input=lines, capture_output=True, check=True)
    assert b"app.jsonl" in answered.stdout
    own = {name: os.environ[name] for name in ("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME")}
    with serving(home / "app", "--port", "0", **own) as (_, address):
        query = json.dumps({"searches": [{"type": "lex", "query": "zebrafish"}], "rerank": False}).encode()
        asked = urllib.request.Request(f"{address}query", query, {"Content-Type": "application/json"})
        assert "app.jsonl" not in urllib.request.urlopen(asked, timeout=60).read().decode()


def test_sessions_and_their_projects_are_known_by_their_paths(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert project_names(home) == project_names(Path("/")) == []
    assert [one.rpartition("-home-")[2] for one in project_names(home / "a/é b")] == ["a---b", "a"]
    for other in ("", ".claude", "projects", "sessions", ".claude/projects/-a/memory"):
        assert history_name(home / other) is None
    assert history_name(home / "copy/.claude/projects/-") == "claude-history"
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(home / "link"))
    (home / "link").symlink_to(home / "data")
    assert history_name(home / "data/projects/-srv-app") == "srv-app"


def test_a_mask_of_the_user_stays_and_a_folder_around_sessions_has_none(projects: Path, home: Path, qmd: Qmd) -> None:
    assert qmd("index", str(projects), "--mask", "*/*.jsonl", "--no-embed").status == 0
    (one,) = qmd("collection", "list", "--json").json
    assert (one["pattern"], one["include"]) == ("*/*.jsonl", False)
    assert qmd("index", str(home), "--all", "--yes", "--no-embed").status == 0
    assert _found(qmd) == {"note.md"}


def test_a_clone_cannot_name_sessions(projects: Path, qmd: Qmd, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = {"mine": {"path": str(next(projects.glob("*-app"))), "pattern": HISTORY}, "docs": {"path": "."}}
    clone = projects.parents[1] / "app"
    write_notes(clone, {".qmd/index.yml": json.dumps({"collections": entries}), "a.md": "# Zebrafish\n"})
    monkeypatch.chdir(clone)
    assert "Skipping collection 'mine'" in qmd("index", "--no-embed").err
    assert _found(qmd) == {"a.md"}


def test_install_adds_and_removes_sessions(projects: Path, qmd: Qmd, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "hint: qmd install claude --history --yes" in qmd("install", "claude", "--history").err
    assert qmd("install", "claude", "--history", "--print").out == f"qmd index {projects} --index index\n"
    monkeypatch.chdir(projects.parents[1] / "app")
    added = qmd("install", "claude", "--history", "--project", "--yes")
    assert "to undo it: qmd install claude --project --history --remove" in added.err
    assert qmd("install", "claude", "--history", "--yes").status == 0
    assert qmd("install", "claude", "--history", "--project", "--remove", "--yes").status == 0
    assert [one["name"] for one in qmd("collection", "list", "--json").json] == ["claude-history"]
    assert "qmd reads sessions of codex, and of claude" in qmd("install", "codex", "--project", "--history").err
