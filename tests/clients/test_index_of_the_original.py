"""A user who comes from the original: its index under our file name, its configuration, its pinned models."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

SCHEMA = """
CREATE TABLE content (hash TEXT PRIMARY KEY, doc TEXT NOT NULL, created_at TEXT NOT NULL);
CREATE TABLE documents (
  id INTEGER PRIMARY KEY AUTOINCREMENT, collection TEXT NOT NULL, path TEXT NOT NULL, title TEXT NOT NULL,
  hash TEXT NOT NULL, created_at TEXT NOT NULL, modified_at TEXT NOT NULL, active INTEGER NOT NULL DEFAULT 1,
  FOREIGN KEY (hash) REFERENCES content(hash) ON DELETE CASCADE, UNIQUE(collection, path));
CREATE TABLE content_vectors (
  hash TEXT NOT NULL, seq INTEGER NOT NULL DEFAULT 0, pos INTEGER NOT NULL DEFAULT 0, model TEXT NOT NULL,
  embed_fingerprint TEXT NOT NULL DEFAULT '', total_chunks INTEGER NOT NULL DEFAULT 1, embedded_at TEXT NOT NULL,
  PRIMARY KEY (hash, seq));
CREATE TABLE llm_cache (hash TEXT PRIMARY KEY, result TEXT NOT NULL, created_at TEXT NOT NULL);
CREATE TABLE store_collections (
  name TEXT PRIMARY KEY, path TEXT NOT NULL, pattern TEXT NOT NULL DEFAULT '**/*.md', ignore_patterns TEXT,
  include_by_default INTEGER DEFAULT 1, update_command TEXT, context TEXT);
CREATE TABLE store_config (key TEXT PRIMARY KEY, value TEXT);
CREATE VIRTUAL TABLE documents_fts USING fts5(filepath, title, body, tokenize='porter unicode61');
PRAGMA user_version = 1;
"""
CONFIG = """\
# written by hand
collections:
  notes:
    path: {path}
    pattern: "**/*.md"
    context:
      "/daily": Notes taken day by day
models:
  embed: hf:ggml-org/embeddinggemma-300M-GGUF/embeddinggemma-300M-Q8_0.gguf
  generate: hf:tobil/qmd-query-expansion-1.7B-gguf/qmd-query-expansion-1.7B-q4_k_m.gguf
  rerank: hf:ggml-org/Qwen3-Reranker-0.6B-Q8_0-GGUF/qwen3-reranker-0.6b-q8_0.gguf
"""


@pytest.fixture
def migrant(make_client: Callable):
    client = make_client()
    home = Path(client.env["HOME"])
    (home / ".config" / "qmd").mkdir(parents=True)
    (home / ".config" / "qmd" / "index.yml").write_text(CONFIG.format(path=client.notes))
    (home / ".cache" / "qmd").mkdir(parents=True)
    with sqlite3.connect(database(client)) as original:
        original.executescript(SCHEMA)
        text = (client.notes / "pricing.md").read_text()
        digest = hashlib.sha256(text.encode()).hexdigest()
        moment = "2026-01-01T00:00:00.000Z"
        original.execute("INSERT INTO content VALUES (?, ?, ?)", (digest, text, moment))
        row = ("notes", "pricing.md", "Pricing decision", digest, moment, moment)
        original.execute(
            "INSERT INTO documents (collection, path, title, hash, created_at, modified_at) VALUES (?,?,?,?,?,?)", row
        )
    original.close()
    return client


def database(client) -> Path:
    return Path(client.env["HOME"]) / ".cache" / "qmd" / "index.sqlite"


def test_reading_recognises_it_and_changes_nothing(migrant) -> None:
    before = database(migrant).read_bytes()
    for command in (("search", "pricing", "--json"), ("get", "pricing.md"), ("ls", "notes"), ("status",)):
        done = migrant.run(*command)
        assert done.returncode != 0
        assert done.stderr.startswith("error: ")
        assert "qmd update" in done.stderr or "qmd index" in done.stderr
    assert database(migrant).read_bytes() == before


def test_update_keeps_it_whole_beside_ours_and_says_so_in_one_line(migrant) -> None:
    before = database(migrant).read_bytes()
    done = migrant.run("update")
    assert done.returncode == 0
    assert "Indexed: 5 new" in done.stdout
    assert len([line for line in done.stderr.splitlines() if "another program" in line]) == 1
    aside = database(migrant).with_name("index.sqlite.original")
    assert str(aside) in done.stderr
    assert aside.read_bytes() == before
    assert "another program" not in migrant.run("update").stderr


def test_collections_contexts_and_comments_are_taken_over(migrant) -> None:
    config = Path(migrant.env["HOME"]) / ".config" / "qmd" / "index.yml"
    before = config.read_text()
    migrant.ok("update")
    rows = json.loads(migrant.ok("search", "Ana sliding window", "--json"))
    assert {row["path"]: row.get("context") for row in rows} == {
        "daily/2026-03-01.md": "Notes taken day by day",
        "deploy.md": None,
    }
    assert config.read_text() == before


def test_its_pinned_models_are_no_obstacle(migrant) -> None:
    migrant.ok("update")
    done = migrant.run("embed")
    assert done.returncode == 0
    asked = migrant.run("query", "what do customers pay", "--json")
    assert asked.returncode == 0
    assert json.loads(asked.stdout)[0]["path"] == "pricing.md"
    # A standing warning on every query would only be noise: these models stand in every configuration of the original.
    assert "gguf" not in asked.stderr.lower()
