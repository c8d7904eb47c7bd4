"""Flipped bits: the errors of a reader, the findings of `doctor`, and the repair by the next `qmd index`."""

import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import apsw
import numpy as np
import pytest

from qmd.records import LexicalTerm, Scope
from qmd.store.records import ChunkRecord
from qmd.store.sqlite import salvage
from qmd.store.sqlite.connection import DamagedIndexError
from qmd.store.sqlite.files import CHECKSUM_BYTES, PAGE_BYTES
from qmd.store.sqlite.opening import open_reader, open_writer
from qmd.store.sqlite.salvage import rebuild, restore_checksums
from qmd.store.sqlite.schema import MIGRATIONS
from qmd.store.sqlite.writer import SqliteWriter
from tests.old_schema import take_back
from tests.robustness import flip_bits, plain_programs
from tests.store.conftest import MakeDocument

DIM = 64


def test_a_flipped_bit_is_an_error_or_nothing_and_the_next_index_mends_it(tmp_path: Path) -> None:
    for outcome in flip_bits.run(tmp_path, n_flips=24, seed=11):
        assert outcome.read in flip_bits.FINE, outcome
        assert outcome.healed in ("untouched", "rebuilt"), outcome


def fill(writer: SqliteWriter, make: MakeDocument, n: int) -> dict[bytes, np.ndarray]:
    """Store `n` documents with a vector each; return the vectors by key."""
    documents = [make(f"{number}.md", f"text{number} words") for number in range(n)]
    writer.put_documents("n", documents)
    random = np.random.default_rng(3)
    keys = [random.bytes(16) for _ in range(n)]
    values = random.standard_normal((n, DIM)).astype(np.float32)
    vectors = dict(zip(keys, values / np.linalg.norm(values, axis=1, keepdims=True), strict=True))
    contents = {one.hash: [ChunkRecord(0, 0, 4, key)] for one, key in zip(documents, keys, strict=True)}
    writer.put_vectors("f", DIM, vectors)
    writer.put_chunks("f", DIM, contents)
    return vectors


def damage(path: Path, table: str, share: float, by: bytes | None = None, *, place: int = 2_000) -> None:
    """Change one bit on the page at `share` of a table's pages, or write `by` to it; the index is closed."""
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA checksum_verification = OFF")
    sql = "SELECT pageno FROM dbstat WHERE name = ? ORDER BY pageno"
    pages = [number for (number,) in connection.execute(sql, (table,))]
    connection.close()
    raw = bytearray(path.read_bytes())
    place += (pages[int(share * (len(pages) - 1))] - 1) * PAGE_BYTES
    raw[place : place + len(by or b"x")] = by or bytes([raw[place] ^ 16])
    path.write_bytes(raw)


@pytest.mark.parametrize("table", ["terms_data", "content", "vectors_1_vector_chunks00", "documents", "chunks"])
def test_damage_in_any_table_is_found_by_the_reader_that_meets_it_and_by_check(
    writer: SqliteWriter, index_path: Path, make: MakeDocument, table: str
) -> None:
    vectors = fill(writer, make, 400)
    writer.close()
    damage(index_path, table, 0.5)
    with open_reader(index_path) as reader:
        assert reader.check()
        with pytest.raises(DamagedIndexError, match="is damaged") as caught:
            documents = list(reader.iter_documents())
            reader.texts([one.hash for one in documents])
            for number in range(400):
                reader.search_lexical([LexicalTerm(f"text{number}", f"text{number}")], 5, Scope())
            reader.search_dense(next(iter(vectors.values())), 400, Scope(), "f")
        assert "qmd index" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("table", "lost"), [("terms_data", 0), ("vectors_1_vector_chunks00", 64), ("vector_keys", 400)]
)
def test_a_rebuilt_index_has_every_vector_whose_pages_are_sound(
    writer: SqliteWriter, index_path: Path, make: MakeDocument, table: str, lost: int
) -> None:
    vectors = fill(writer, make, 2_000)
    writer.close()
    damage(index_path, table, 0.5)
    rebuilt = rebuild(index_path, index_path.stat())
    assert rebuilt is not None
    assert rebuilt.aside == index_path.with_name("index.sqlite.damaged")
    assert 2_000 - lost <= rebuilt.vectors <= 2_000
    with open_writer(index_path) as writer:
        assert writer.check() == []
        kept = writer.existing_keys("f", list(vectors))
        assert len(kept) == rebuilt.vectors
        documents = [make(f"{number}.md", f"text{number} words") for number in range(2_000)]
        writer.put_documents("n", documents)
        sound = [(one.hash, key) for one, key in zip(documents, vectors, strict=True) if key in kept]
        writer.put_chunks("f", DIM, {content: [ChunkRecord(0, 0, 4, key)] for content, key in sound})
        for number, (key, vector) in list(enumerate(vectors.items()))[::97]:
            if key in kept:
                [found] = writer.search_dense(vector, 1, Scope(), "f")
                assert writer.documents([found.document_id])[found.document_id].path == f"{number}.md"


def test_a_file_without_a_schema_is_set_aside(writer: SqliteWriter, index_path: Path, make: MakeDocument) -> None:
    fill(writer, make, 50)
    writer.close()
    raw = bytearray(index_path.read_bytes())
    raw[100:4096] = bytes(3996)
    index_path.write_bytes(raw)
    rebuilt = rebuild(index_path, index_path.stat())
    assert rebuilt is not None
    assert rebuilt.vectors == 0
    assert rebuilt.aside.read_bytes() == raw
    with open_reader(index_path) as reader:
        assert reader.count_documents() == 0


def test_a_second_damaged_file_takes_the_place_of_the_first_once_the_new_index_is_verified(
    index_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        open_writer(index_path).close()
        whole = index_path.read_bytes()
        index_path.with_name("index.sqlite.damaged-wal").write_bytes(b"of the first")
        assert rebuild(index_path, index_path.stat()) is not None
        assert [path.name for path in index_path.parent.glob("*.damaged*")] == ["index.sqlite.damaged"]
        assert index_path.with_name("index.sqlite.damaged").read_bytes() == whole
    monkeypatch.setattr(salvage, "check", lambda _: ["a broken disk"])
    with pytest.raises(DamagedIndexError):
        rebuild(index_path, index_path.stat())
    assert index_path.exists()
    assert index_path.with_name("index.sqlite.damaged").read_bytes() == whole


def let_another_program_write(path: Path, sql: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "VACUUM",
        "UPDATE documents SET title = title || 'longer'",
        "INSERT INTO meta VALUES (1, 1)",
        "CREATE TABLE theirs (a)",
    ],
)
def test_pages_of_another_program_get_checksums_and_nothing_is_lost(
    writer: SqliteWriter, index_path: Path, make: MakeDocument, sql: str
) -> None:
    vectors = fill(writer, make, 80)
    writer.close()
    let_another_program_write(index_path, sql)
    with pytest.raises(DamagedIndexError), open_reader(index_path) as reader:
        reader.facts()
        list(reader.iter_documents())
    assert restore_checksums(index_path)
    assert not list(index_path.parent.glob("*.damaged*"))
    with open_reader(index_path) as reader:
        assert reader.check() == []
        assert len(reader.vectors("f", list(vectors))) == 80


@pytest.mark.parametrize("table", ["documents", "terms_data", "content", "chunks", "vector_keys", "models"])
def test_one_or_two_changed_bits_are_not_taken_for_the_work_of_another_program(
    writer: SqliteWriter, index_path: Path, make: MakeDocument, table: str
) -> None:
    fill(writer, make, 80)
    writer.close()
    for place in (2_000, 5_000):
        damage(index_path, table, 0, place=place)
        before = index_path.read_bytes()
        assert not restore_checksums(index_path)
        assert index_path.read_bytes() == before


@pytest.mark.parametrize("table", ["vectors_1_vector_chunks00", "content"])
def test_damage_next_to_pages_of_another_program_is_found(
    writer: SqliteWriter, index_path: Path, make: MakeDocument, table: str
) -> None:
    fill(writer, make, 80)
    writer.close()
    let_another_program_write(index_path, "UPDATE documents SET title = title || 'longer'")
    damage(index_path, table, 0.5, b"garbage!" * 8, place=7_000)
    assert not restore_checksums(index_path)


def test_vectors_whose_pages_lack_checksums_are_kept_when_the_index_is_rebuilt(
    writer: SqliteWriter, index_path: Path, make: MakeDocument
) -> None:
    fill(writer, make, 80)
    writer.close()
    let_another_program_write(index_path, "VACUUM")
    damage(index_path, "content", 0.5, b"garbage!" * 8, place=7_000)
    assert not restore_checksums(index_path)
    rebuilt = rebuild(index_path, index_path.stat())
    assert rebuilt is not None and rebuilt.vectors == 80


@pytest.mark.skipif(sys.platform == "win32", reason="kills by signal")
def test_a_program_that_opens_the_index_after_a_kill_loses_nothing(tmp_path: Path) -> None:
    assert [row.failures for row in plain_programs.run(5, 1, tmp_path)] == [[]] * len(plain_programs.PROGRAMS)


def test_of_two_that_find_the_damage_at_once_one_rebuilds(index_path: Path) -> None:
    open_writer(index_path).close()
    found = index_path.stat()
    assert rebuild(index_path, found) is not None
    assert rebuild(index_path, found) is None


def test_a_reader_that_has_the_damaged_file_open_does_not_disturb_its_successor(
    writer: SqliteWriter, index_path: Path, make: MakeDocument
) -> None:
    fill(writer, make, 50)
    with open_reader(index_path) as reader:
        rebuild(index_path, index_path.stat())
        assert reader.count_documents() == 50
        writer.put_documents("n", [make("late.md", "late")])
        with open_writer(index_path) as successor:
            successor.put_documents("n", [make("new.md", "new")])
            writer.close()
            assert [one.path for one in successor.iter_documents()] == ["new.md"]
    with open_reader(index_path) as reader:
        assert [one.path for one in reader.iter_documents()] == ["new.md"]
        assert reader.check() == []


def old_index(path: Path) -> apsw.Connection:
    """Make an index of the first version: without checksums, and its table of collections under its old name."""
    path.parent.mkdir(parents=True)
    old = apsw.Connection(str(path))
    assert isinstance(MIGRATIONS[0], str)
    old.execute(MIGRATIONS[0]).fetchall()
    old.execute("PRAGMA application_id = 1902994433; PRAGMA user_version = 1; PRAGMA journal_mode = WAL").fetchall()
    old.execute("INSERT INTO collections VALUES ('n', '/n', '**/*.md', '[]', '{}', NULL, 1, 0)")
    return old


def reserved_bytes(path: Path) -> int:
    with path.open("rb") as file:
        return file.read(21)[20]


def test_an_index_of_an_older_version_is_brought_up_to_date_by_a_reader_and_gets_checksums(index_path: Path) -> None:
    old_index(index_path).close()
    with open_reader(index_path) as reader:
        assert [one.name for one in reader.collections()] == ["n"]
    assert reserved_bytes(index_path) == CHECKSUM_BYTES


def test_an_old_index_loses_the_table_of_answers_and_keeps_its_documents(index_path: Path, make: MakeDocument) -> None:
    with open_writer(index_path) as writer:
        writer.put_documents("n", [make("a.md", "apple")])
        take_back(writer.database.connection, 3)
        writer.database.run("INSERT INTO cache (key, value) VALUES ('question', 'answer')")
        # An older version may have ended between storing link texts and recording them.
        writer.database.run("INSERT INTO meta (key, value) VALUES ('anchored:n', 'x')")
    open_writer(index_path).close()
    with open_reader(index_path) as reader:
        assert reader.database.value("SELECT 1 FROM meta WHERE key = 'anchored:n'") is None
        assert [one.path for one in reader.iter_documents()] == ["a.md"]
        assert reader.database.value("SELECT 1 FROM sqlite_schema WHERE name = 'cache'") is None
        assert reader.check() == []


def test_an_index_that_another_process_has_open_gets_its_checksums_with_the_next_cleanup(index_path: Path) -> None:
    other = old_index(index_path)
    other.execute("SELECT count(*) FROM documents").fetchall()
    with open_writer(index_path) as writer:
        assert [one.name for one in writer.collections()] == ["n"]
    other.close()
    assert reserved_bytes(index_path) == 0
    with open_writer(index_path) as writer:
        writer.cleanup()
        assert writer.check() == []
    assert reserved_bytes(index_path) == CHECKSUM_BYTES


def test_another_program_that_opens_the_index_after_a_search_has_written_does_not_damage_it(
    writer: SqliteWriter, index_path: Path, make: MakeDocument
) -> None:
    with open_reader(index_path) as reader:
        fill(writer, make, 20)
        writer.close()
        assert reader.count_documents() == 20
    other = sqlite3.connect(index_path)
    assert other.execute("SELECT count(*) FROM documents").fetchone() == (20,)
    other.close()
    with open_reader(index_path) as reader:
        assert reader.check() == []


def test_a_text_that_cannot_be_unpacked_is_damage_also_where_there_are_no_checksums(index_path: Path) -> None:
    old = old_index(index_path)
    old.execute("INSERT INTO content VALUES (1, 'abc', '', 3, x'00ff')")
    old.execute(
        "INSERT INTO documents (id, collection, path, title, hash, created_at, modified_at, n_chars, size_bytes,"
        " mtime_ns, metadata) VALUES (1, 'n', 'a.md', 'a', 'abc', '', '', 3, 3, 0, '{broken')"
    )
    with open_writer(index_path) as writer:
        with pytest.raises(DamagedIndexError):
            writer.texts(["abc"])
        with pytest.raises(DamagedIndexError):
            writer.find_path("n", "a.md")
    old.close()
