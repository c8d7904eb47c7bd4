"""Migration from tobi/qmd: its index under our file name, its configuration, its pinned models."""

import hashlib
import json
import sqlite3
from pathlib import Path

import pytest

from tests.clients.conftest import Client, MakeClient

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


OPENING = """
DROP TABLE IF EXISTS path_contexts;
DROP TABLE IF EXISTS collections;
CREATE TABLE IF NOT EXISTS content (hash TEXT PRIMARY KEY, doc TEXT NOT NULL, created_at TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS idx_documents_collection ON documents(collection, active);
CREATE INDEX IF NOT EXISTS idx_documents_hash ON documents(hash);
CREATE INDEX IF NOT EXISTS idx_documents_path ON documents(path, active);
CREATE TABLE IF NOT EXISTS llm_cache (hash TEXT PRIMARY KEY, result TEXT NOT NULL, created_at TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS content_vectors (
  hash TEXT NOT NULL, seq INTEGER NOT NULL DEFAULT 0, pos INTEGER NOT NULL DEFAULT 0, model TEXT NOT NULL,
  embed_fingerprint TEXT NOT NULL DEFAULT '', total_chunks INTEGER NOT NULL DEFAULT 1, embedded_at TEXT NOT NULL,
  PRIMARY KEY (hash, seq));
CREATE INDEX IF NOT EXISTS idx_content_vectors_model_fingerprint
  ON content_vectors(model, embed_fingerprint, hash, seq, total_chunks);
CREATE TABLE IF NOT EXISTS store_collections (
  name TEXT PRIMARY KEY, path TEXT NOT NULL, pattern TEXT NOT NULL DEFAULT '**/*.md', ignore_patterns TEXT,
  include_by_default INTEGER DEFAULT 1, update_command TEXT, context TEXT);
CREATE TABLE IF NOT EXISTS store_config (key TEXT PRIMARY KEY, value TEXT);
CREATE VIRTUAL TABLE IF NOT EXISTS documents_fts USING fts5(filepath, title, body, tokenize='porter unicode61');
"""
"""Statements of 2.8.3 on the file that it opens; with our file it then fails at the first text, which is no string."""

TRIGGERS = """
CREATE TRIGGER documents_ai AFTER INSERT ON documents WHEN new.active = 1 BEGIN
  INSERT INTO documents_fts(rowid, filepath, title, body)
  SELECT new.id, new.collection || '/' || new.path, new.title, (SELECT doc FROM content WHERE hash = new.hash);
END;
CREATE TRIGGER documents_ad AFTER DELETE ON documents BEGIN DELETE FROM documents_fts WHERE rowid = old.id; END;
"""
"""Triggers that it adds to a file whose `user_version` is 0; earlier versions add them to every file."""


@pytest.fixture
def migrant(make_client: MakeClient) -> Client:
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


def database(client: Client) -> Path:
    return Path(client.env["HOME"]) / ".cache" / "qmd" / "index.sqlite"


def ours(client: Client) -> Path:
    return database(client).with_name("index.qmd.sqlite")


def test_reading_recognises_it_and_changes_nothing(migrant: Client) -> None:
    before = database(migrant).read_bytes()
    for command in (("search", "pricing", "--json"), ("get", "pricing.md"), ("ls", "notes")):
        done = migrant.run(*command)
        assert done.returncode == 3
        assert done.stderr.startswith("error: ")
        assert "qmd update" in done.stderr or "qmd index" in done.stderr
    assert database(migrant).read_bytes() == before


def test_update_leaves_it_as_it_is_and_says_once_where_ours_lies(migrant: Client) -> None:
    before = database(migrant).read_bytes()
    done = migrant.run("update")
    assert done.returncode == 0
    assert "Indexed: 5 new" in done.stdout
    assert [line for line in done.stderr.splitlines() if "another program" in line] == [
        f"'{database(migrant)}' belongs to another program and stays as it is; this index is '{ours(migrant)}'"
    ]
    assert "another program" not in migrant.run("update").stderr
    assert json.loads(migrant.ok("search", "pricing", "--json"))[0]["path"] == "pricing.md"
    assert database(migrant).read_bytes() == before


def test_collections_contexts_and_comments_are_taken_over(migrant: Client) -> None:
    config = Path(migrant.env["HOME"]) / ".config" / "qmd" / "index.yml"
    before = config.read_text()
    migrant.ok("update")
    rows = json.loads(migrant.ok("search", "Ana sliding window", "--json"))
    contexts = {row["path"]: row.get("context") for row in rows}
    assert contexts == {"daily/2026-03-01.md": "Notes taken day by day", "deploy.md": None}
    assert config.read_text() == before


def test_its_pinned_models_are_no_obstacle(migrant: Client) -> None:
    migrant.ok("update")
    done = migrant.run("embed")
    assert done.returncode == 0
    asked = migrant.run("query", "what do customers pay", "--json")
    assert asked.returncode == 0
    assert json.loads(asked.stdout)[0]["path"] == "pricing.md"
    # A warning on every query would be noise: every configuration of tobi/qmd contains these models.
    assert "gguf" not in asked.stderr.lower()


@pytest.fixture
def met(make_client: MakeClient) -> Client:
    """Client with our index after a run of tobi/qmd, which wrote into it and failed."""
    client = make_client()
    client.ok("index", str(client.notes), "--name", "notes")
    open_as_the_original(client)
    return client


def open_as_the_original(client: Client, *, triggers: bool = False) -> None:
    with sqlite3.connect(database(client)) as original:
        original.executescript(OPENING + (TRIGGERS if triggers else ""))
    original.close()


@pytest.mark.parametrize("command", ["search pricing", "status", "update", "query pricing", "cleanup"])
def test_the_first_command_after_the_original_wrote_into_our_index_begins_it_anew(met: Client, command: str) -> None:
    done = met.run(*command.split())
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stderr.splitlines() if "tobi/qmd" in line] == [
        f"tobi/qmd had put its tables into '{database(met)}', which is now '{database(met)}.mixed'; the index is"
        f" '{ours(met)}' and has its 4 vectors; fill it from your files: qmd index"
    ]
    assert "original" not in met.run(*command.split()).stderr


@pytest.mark.parametrize("triggers", [False, True])
def test_no_vector_is_lost_to_the_original(met: Client, triggers: bool) -> None:
    if triggers:
        open_as_the_original(met, triggers=True)
    (met.notes / "tea.md").write_text("# Tea\n\ngreen tea\n")
    done = met.run("index")
    assert "✓ notes  6 notes  " in done.stdout
    assert "Embedded 5 chunks (4 reused) from 6 documents" in done.stdout
    assert json.loads(met.ok("search", "tea", "--json"))[0]["path"] == "tea.md"
    assert "sound" in met.ok("doctor")


def test_the_original_finds_its_place_free_afterwards_and_keeps_what_it_puts_there(met: Client) -> None:
    met.ok("search", "pricing")
    assert not database(met).exists()
    with sqlite3.connect(database(met)) as original:
        original.executescript(SCHEMA)
    original.close()
    before = database(met).read_bytes()
    for command in (("update",), ("search", "pricing"), ("embed",), ("cleanup",), ("collection", "list")):
        assert met.run(*command).stderr == ""
    assert database(met).read_bytes() == before


def test_the_original_may_come_between_in_a_project_and_in_a_named_index_too(make_client: MakeClient) -> None:
    client = make_client()
    named = database(client).with_name("work.sqlite")
    client.ok("index", str(client.notes), "--index", "work", "--no-embed")
    with sqlite3.connect(named) as original:
        original.executescript(OPENING)
    original.close()
    client.ok("update", "--index", "work")
    assert json.loads(client.ok("search", "pricing", "--index", "work", "--json"))[0]["path"] == "pricing.md"
    assert named.with_name("work.qmd.sqlite").exists()
    assert not named.exists()


def test_an_index_without_a_configuration_file_keeps_its_collections(met: Client) -> None:
    config = Path(met.env["HOME"]) / ".config" / "qmd" / "index.yml"
    config.unlink()
    assert "notes" in met.ok("collection", "list")
