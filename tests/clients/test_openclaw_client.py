"""OpenClaw's memory back end: private XDG folders, one call per collection, read-only access to the SQLite file."""

import json
import re
import sqlite3
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from tests.clients.conftest import Client, MakeClient

SNIPPET_HEADER = re.compile(r"^@@ -(\d+),(\d+) @@", re.MULTILINE)
VECTORS = re.compile(r"^\s*Vectors:\s*(\d+)", re.MULTILINE)


def parse_results(stdout: str) -> list[dict[str, Any]]:
    """Parse the array, which starts at the beginning of a line; "no results found" means none."""
    text = stdout.strip()
    if not text or "no results found" in text.lower():
        return []
    start = 0 if text.startswith("[") else text.find("\n[") + 1
    rows = json.loads(text[start:])
    parsed = []
    for row in rows:
        lines = (row.get("start_line"), row.get("end_line"))
        if lines[0] is None:
            match = SNIPPET_HEADER.search(row["snippet"])
            assert match
            lines = (int(match[1]), int(match[1]) + int(match[2]) - 1)
        file = row["file"]
        path = unquote(file.split("/", 3)[3]) if file.startswith("qmd://") else file
        parsed.append(
            {"docid": row["docid"].lstrip("#"), "score": float(row["score"]), "path": path, "lines": lines, "row": row}
        )
    return parsed


@pytest.fixture
def openclaw(make_client: MakeClient, tmp_path: Path) -> Client:
    agent = tmp_path / "agent" / "qmd"
    config = agent / "xdg-config"
    cache = agent / "xdg-cache"
    return make_client(
        XDG_CONFIG_HOME=str(config), QMD_CONFIG_DIR=str(config / "qmd"), XDG_CACHE_HOME=str(cache), NO_COLOR="1"
    )


@pytest.fixture
def indexed(openclaw: Client) -> Client:
    openclaw.ok("collection", "add", str(openclaw.notes), "--name", "memory-dir-main", "--glob", "**/*.md")
    openclaw.ok("update")
    openclaw.ok("embed")
    return openclaw


def database(client: Client) -> Path:
    return Path(client.env["XDG_CACHE_HOME"]) / "qmd" / "index.sqlite"


def test_collections_are_added_listed_and_removed(openclaw: Client) -> None:
    openclaw.ok("collection", "add", str(openclaw.notes), "--name", "memory-dir-main", "--glob", "**/*.md")
    rows = json.loads(openclaw.ok("collection", "list", "--json"))
    assert [(r["name"], r["pattern"]) for r in rows] == [("memory-dir-main", "**/*.md")]
    assert Path(rows[0]["path"]).samefile(openclaw.notes)
    openclaw.ok("collection", "remove", "memory-dir-main")
    assert json.loads(openclaw.ok("collection", "list", "--json")) == []


def test_a_second_add_says_already_exists(openclaw: Client) -> None:
    args = ("collection", "add", str(openclaw.notes), "--name", "memory-dir-main", "--glob", "**/*.md")
    openclaw.ok(*args)
    again = openclaw.run(*args)
    assert again.returncode != 0
    assert "already exists" in (again.stdout + again.stderr).lower()


def test_one_folder_with_two_patterns_makes_two_collections(openclaw: Client) -> None:
    openclaw.ok("collection", "add", str(openclaw.notes), "--name", "memory-root-main", "--glob", "pricing.md")
    openclaw.ok("collection", "add", str(openclaw.notes), "--name", "memory-dir-main", "--glob", "daily/**/*.md")
    rows = {r["name"]: r["files"] for r in json.loads(openclaw.ok("collection", "list", "--json"))}
    assert rows == {"memory-root-main": 1, "memory-dir-main": 1}


@pytest.mark.parametrize("mode", ["search", "vsearch", "query"])
def test_results_have_docid_score_path_and_lines(indexed: Client, mode: str) -> None:
    arguments = (mode, "rate limiter sliding window", "--json", "-n", "6", "-c", "memory-dir-main")
    hits = parse_results(indexed.ok(*arguments, limit_s=4))
    assert {"deploy.md", "daily/2026-03-01.md"} <= {h["path"] for h in hits[:2]}
    for hit in hits:
        assert re.fullmatch(r"[0-9a-f]{6}", hit["docid"])
        assert 0 <= hit["score"] <= 1
        assert 1 <= hit["lines"][0] <= hit["lines"][1]


def test_nothing_found_is_an_empty_array(indexed: Client) -> None:
    assert json.loads(indexed.ok("search", "zzyzxqq", "--json", "-n", "6", "-c", "memory-dir-main")) == []


def test_a_missing_collection_names_both_words_it_greps_for(indexed: Client) -> None:
    done = indexed.run("search", "x", "--json", "-n", "6", "-c", "gone")
    assert done.returncode != 0
    said = (done.stdout + done.stderr).lower()
    assert "collection" in said
    assert "not found" in said


def test_status_reports_vectors_in_the_form_it_greps(indexed: Client) -> None:
    done = indexed.run("status", limit_s=5)
    match = VECTORS.search(done.stdout + done.stderr)
    assert match
    # The built-in model knows English: only lexical search finds the Chinese note.
    assert int(match[1]) == len(list(indexed.notes.rglob("*.md"))) - 1


def test_the_index_answers_a_foreign_read_only_connection(indexed: Client) -> None:
    hits = parse_results(indexed.ok("search", "pricing", "--json", "-n", "1", "-c", "memory-dir-main"))
    foreign = sqlite3.connect(f"file:{database(indexed)}?mode=ro", uri=True)
    try:
        foreign.execute("PRAGMA busy_timeout = 1000")
        rows = foreign.execute(
            "SELECT collection, path, hash FROM documents WHERE hash LIKE ? AND active = 1", (hits[0]["docid"] + "%",)
        ).fetchall()
        assert [(r[0], r[1]) for r in rows] == [("memory-dir-main", "pricing.md")]
        assert re.fullmatch(r"[0-9a-f]{64}", rows[0][2])
        assert foreign.execute(
            "SELECT collection, path FROM documents WHERE hash = ? AND active = 1", (rows[0][2],)
        ).fetchall()
        counts = foreign.execute(
            "SELECT collection, COUNT(*) FROM documents WHERE active=1 GROUP BY collection"
        ).fetchall()
        assert counts == [("memory-dir-main", len(list(indexed.notes.rglob("*.md"))))]
    finally:
        foreign.close()


def test_a_models_folder_that_is_a_symlink_will_do(indexed: Client, tmp_path: Path) -> None:
    shared = tmp_path / "shared-models"
    shared.mkdir()
    link = database(indexed).parent / "models"
    if link.exists():
        link.rmdir()
    link.symlink_to(shared, target_is_directory=True)
    assert parse_results(indexed.ok("query", "pricing", "--json", "-n", "2", "-c", "memory-dir-main"))
