"""Program that opens the index itself, read-only, with its own SQLite, at any time."""

import hashlib
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.clients.conftest import Client, MakeClient


@pytest.fixture
def indexed(make_client: MakeClient) -> Client:
    client = make_client()
    client.ok("collection", "add", str(client.notes), "--name", "notes")
    return client


def database(client: Client) -> Path:
    return Path(client.env["HOME"]) / ".cache" / "qmd" / "index.sqlite"


@contextmanager
def opened(client: Client) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(f"file:{database(client)}?mode=ro", uri=True)
    try:
        connection.execute("PRAGMA busy_timeout = 1000")
        yield connection
    finally:
        connection.close()


def test_the_columns_that_foreign_programs_name_exist(indexed: Client) -> None:
    with opened(indexed) as foreign:
        columns = [row[1] for row in foreign.execute("PRAGMA table_info(documents)")]
        assert {"id", "collection", "path", "title", "hash", "created_at", "modified_at", "active"} <= set(columns)
        content = [row[1] for row in foreign.execute("PRAGMA table_info(content)")]
        assert {"hash", "doc", "created_at"} <= set(content)


def test_hashes_are_those_of_the_texts(indexed: Client) -> None:
    with opened(indexed) as foreign:
        rows = dict(foreign.execute("SELECT path, hash FROM documents WHERE collection = ? AND active = 1", ("notes",)))
    for path, digest in rows.items():
        assert digest == hashlib.sha256((indexed.notes / path).read_bytes()).hexdigest()
    assert len(rows) == 5


def test_the_exact_path_is_looked_up_in_its_collection(indexed: Client) -> None:
    sql = "SELECT path FROM documents WHERE collection=? AND path=? AND active=1"
    with opened(indexed) as foreign:
        assert foreign.execute(sql, ("notes", "we ird/c & d.md")).fetchall() == [("we ird/c & d.md",)]
        assert foreign.execute(sql, ("notes", "none.md")).fetchall() == []


def test_a_deleted_file_leaves_the_active_rows(indexed: Client) -> None:
    (indexed.notes / "pricing.md").unlink()
    indexed.ok("update")
    with opened(indexed) as foreign:
        counts = foreign.execute("SELECT collection, COUNT(*) FROM documents WHERE active=1 GROUP BY collection")
        assert counts.fetchall() == [("notes", 4)]


def test_the_file_can_be_read_while_it_is_written(indexed: Client) -> None:
    for number in range(400):
        (indexed.notes / f"many-{number}.md").write_text(f"# Note {number}\n\n" + f"word{number} " * 200)
    command = [*indexed.command, "update"]
    writing = subprocess.Popen(command, env=dict(indexed.env), cwd=indexed.cwd, stdout=subprocess.DEVNULL)
    seen = set()
    while True:
        is_done = writing.poll() is not None
        with opened(indexed) as foreign:
            seen.add(foreign.execute("SELECT COUNT(*) FROM documents WHERE active=1").fetchone()[0])
        if is_done:
            break
    assert writing.returncode == 0
    assert max(seen) == 405


def test_an_open_foreign_reader_does_not_stop_an_update(indexed: Client) -> None:
    with opened(indexed) as foreign:
        cursor = foreign.execute("SELECT path FROM documents")
        cursor.fetchone()
        (indexed.notes / "new.md").write_text("# New\n")
        assert "Indexed: 1 new" in indexed.ok("update")
