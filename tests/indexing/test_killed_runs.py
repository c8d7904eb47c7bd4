"""An index run killed at any point, then run again, leaves the tables of an undisturbed one."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from qmd.indexing.embed import embed_pending
from qmd.indexing.update import update_collection
from qmd.records import Collection, Scope
from qmd.store.opening import open_reader, open_writer
from tests.fakes import HashingEmbedder

# Counts every statement that changes the index, and ends the process without warning before statement N.
# Commits are frequent, so that there are many states to end in.
_RUN_UNTIL_KILLED = """
import os, signal, sys
from pathlib import Path
import qmd.indexing.update as update
from qmd.indexing.embed import embed_pending
from qmd.records import Collection
from qmd.store.opening import open_writer
from tests.fakes import HashingEmbedder
update.COMMIT_BYTES = 1
index, folder, die_before = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
changes = 0
def count(cursor, statement, bindings):
    global changes
    changes += not statement.lstrip().upper().startswith(("SELECT", "PRAGMA", "WITH"))
    if changes == die_before:
        os.kill(os.getpid(), signal.SIGKILL)
    return True
with open_writer(index) as writer:
    writer.database.connection.exec_trace = count
    update.update_collection(writer, Collection("notes", folder))
    embed_pending(writer, HashingEmbedder())
print(changes)
"""

_TABLES = (
    "SELECT id, collection, path, title, hash, modified_at, active, n_chars, size_bytes, mtime_ns, metadata"
    " FROM documents ORDER BY path",
    "SELECT hash, n_chars, doc FROM content ORDER BY hash",
    "SELECT term, doc, cnt FROM vocabulary ORDER BY term",
    "SELECT hash, embedded.n_chunks FROM embedded JOIN content ON content.id = embedded.content ORDER BY hash",
    "SELECT hash, seq, start, end, key FROM chunks JOIN content ON content.id = chunks.content"
    " JOIN vector_keys USING (model, slot) ORDER BY hash, seq",
    "SELECT path, reason, program FROM left_out ORDER BY path",
)


@pytest.fixture(scope="module")
def notes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("notes")
    rng = random.Random(3)
    for number in range(60):
        words = rng.choices(["pricing", "river", "planet", "getUserName", "limiter"], k=rng.randrange(5, 400))
        file = folder / f"{number:02}.md"
        # Every tenth is indexed without its front matter.
        unreadable = "---\nalias: @x\n---\n" if number % 10 == 0 else ""
        file.write_text(f"{unreadable}# Note {number}\n\n{' '.join(words)}", encoding="utf-8")
        os.utime(file, ns=(1_600_000_000_123_456_789, 1_600_000_000_123_456_789))
    return folder


def run(index: Path, notes: Path, die_before: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", _RUN_UNTIL_KILLED, str(index), str(notes), str(die_before)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.run(command, capture_output=True, encoding="utf-8", env=environment, check=False)


def tables(index: Path) -> list[list[tuple[object, ...]]]:
    connection = apsw.Connection(str(index), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return [connection.execute(sql).fetchall() for sql in _TABLES]
    finally:
        connection.close()


def nearest(index: Path, word: str) -> list[tuple[str, float]]:
    embedder = HashingEmbedder()
    with open_reader(index) as reader:
        assert reader.check() == []
        hits = reader.search_dense(embedder.embed_queries([word])[0], 20, Scope(), embedder.fingerprint)
        paths = reader.documents([hit.document_id for hit in hits])
        return [(paths[hit.document_id].path, hit.score) for hit in hits]


def test_a_run_killed_anywhere_and_repeated_equals_an_undisturbed_one(tmp_path: Path, notes: Path) -> None:
    whole = tmp_path / "whole.sqlite"
    n_changes = int(run(whole, notes, -1).stdout)
    assert n_changes > 150
    expected = tables(whole)
    for share in (0.02, 0.3, 0.55, 0.8, 0.97):
        index = tmp_path / f"killed-{share}.sqlite"
        assert run(index, notes, round(n_changes * share)).returncode == -signal.SIGKILL
        assert tables(index) != expected
        with open_writer(index) as writer:
            update_collection(writer, Collection("notes", notes))
            embed_pending(writer, HashingEmbedder())
        assert tables(index) == expected
        assert nearest(index, "river") == nearest(whole, "river")
