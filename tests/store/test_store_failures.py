"""Errors of a missing, damaged, foreign, busy or unwritable file."""

import shutil
import sqlite3
import threading
from contextlib import AbstractContextManager
from pathlib import Path

import apsw
import pytest

from qmd.errors import BusyError, NotFoundError, QmdError, StoreError
from qmd.records import Collection
from qmd.store.sqlite.connection import DamagedIndexError, ForeignIndexError, as_qmd_error
from qmd.store.sqlite.files import APPLICATION_ID, connect_for_reading, connect_for_writing
from qmd.store.sqlite.opening import open_reader, open_writer
from qmd.store.sqlite.schema import MIGRATIONS, migrate
from qmd.store.sqlite.writer import SqliteWriter
from qmd.switches import busy_timeout_ms
from tests.store.conftest import MakeDocument


def assert_one_line_with_hint(error: QmdError) -> None:
    assert "\n" not in error.message
    assert not error.message.endswith(".")
    assert error.hint


def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "index.sqlite"
    path.write_bytes(b"these are notes, not a database. " * 50)
    for open_index in (open_reader, open_writer):
        with pytest.raises(StoreError, match="is not a SQLite database") as caught:
            open_index(path)
        assert_one_line_with_hint(caught.value)
    assert path.read_bytes().startswith(b"these are notes")


@pytest.mark.parametrize("table", ["documents_fts", "photos"])
def test_a_database_of_another_program_is_left_alone_and_ours_lies_next_to_it(tmp_path: Path, table: str) -> None:
    path = tmp_path / "index.sqlite"
    other = sqlite3.connect(path)
    other.execute(f"CREATE TABLE {table} (id)")
    other.close()
    before = path.read_bytes()
    with pytest.raises(NotFoundError, match=r"index\.qmd\.sqlite") as caught:
        open_reader(path)
    assert_one_line_with_hint(caught.value)
    open_writer(path).close()
    with open_reader(path) as reader:
        assert reader.path == tmp_path / "index.qmd.sqlite"
    assert path.read_bytes() == before


def test_a_database_of_another_program_under_our_own_name_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "index.qmd.sqlite"
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE photos (id)")
    other.close()
    with pytest.raises(ForeignIndexError, match="another program") as caught:
        open_writer(tmp_path / "index.sqlite")
    assert_one_line_with_hint(caught.value)


def test_a_newer_schema_is_refused_with_advice(writer: SqliteWriter, index_path: Path) -> None:
    writer.close()
    raw = apsw.Connection(str(index_path))
    raw.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    raw.close()
    with pytest.raises(StoreError, match="newer qmd") as caught:
        open_reader(index_path)
    assert caught.value.hint == "upgrade qmd"


def test_an_empty_file_counts_as_no_index_but_can_become_one(tmp_path: Path) -> None:
    path = tmp_path / "index.sqlite"
    path.touch()
    with pytest.raises(NotFoundError, match="is empty"):
        open_reader(path)
    open_writer(path).close()
    with open_reader(path) as reader:
        assert reader.status(None).documents == 0


def test_a_reader_shows_nothing_of_a_rewrite_that_was_cut_short(index_path: Path, tmp_path: Path) -> None:
    with open_writer(index_path) as writer:
        writer.mirror_config([Collection("before", Path("/srv"))], None, "x")
    rewriting = apsw.Connection(str(index_path))
    rewriting.execute("PRAGMA journal_mode = DELETE; PRAGMA cache_size = 1; BEGIN").fetchall()
    rewriting.execute("UPDATE qmd_collections SET name = 'after'")
    # More than fits in the cache, so that it gets into the file.
    rewriting.execute("INSERT INTO meta (key, value) VALUES ('filler', hex(zeroblob(200000)))")
    (tmp_path / "cut").mkdir()
    cut = tmp_path / "cut" / index_path.name
    for ending in ("", "-journal"):
        shutil.copy(f"{index_path}{ending}", f"{cut}{ending}")
    rewriting.close()
    with open_reader(cut) as reader:
        assert [collection.name for collection in reader.collections()] == ["before"]
        assert reader.check() == []


def test_the_file_carries_our_mark(writer: SqliteWriter, index_path: Path) -> None:
    raw = sqlite3.connect(index_path)
    assert raw.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
    raw.close()


def test_a_reader_cannot_write(writer: SqliteWriter, index_path: Path) -> None:
    with pytest.raises(StoreError, match="read-only"):
        connect_for_reading(index_path).run("DELETE FROM documents")


def test_a_full_disk_is_named_and_does_no_damage(writer: SqliteWriter, index_path: Path, make: MakeDocument) -> None:
    writer.put_documents("n", [make("a", "apple")])
    pages = writer.database.value("PRAGMA page_count")
    writer.database.run(f"PRAGMA max_page_count = {pages + 2}")
    random_text = " ".join(str(n * 7919) for n in range(20_000))
    with pytest.raises(StoreError, match="no space left") as caught:
        writer.put_documents("n", [make("b", random_text)])
    assert_one_line_with_hint(caught.value)
    assert [document.path for document in writer.iter_documents()] == ["a"]
    assert writer.check() == []


def test_an_index_on_read_only_media_is_immutable(writer: SqliteWriter, index_path: Path, make: MakeDocument) -> None:
    writer.put_documents("n", [make("a", "apple")])
    writer.close()
    # A folder in place of the shared-memory file keeps SQLite from opening the log, as read-only media do; permissions
    # would not stop the superuser.
    index_path.with_name("index.sqlite-shm").mkdir()
    with open_reader(index_path) as reader:
        assert [document.path for document in reader.iter_documents()] == ["a"]


@pytest.mark.parametrize(
    ("failure", "expected", "words"),
    [
        (apsw.BusyError(), BusyError, "in use"),
        (apsw.CorruptError(), DamagedIndexError, "damaged"),
        (apsw.FullError(), StoreError, "no space"),
        (apsw.ReadOnlyError(), StoreError, "read-only"),
        (apsw.CantOpenError(), StoreError, "cannot be opened"),
        (apsw.IOError("disk I/O error"), StoreError, "disk I/O error"),
    ],
)
def test_each_sqlite_failure_becomes_one_line(failure: apsw.Error, expected: type[QmdError], words: str) -> None:
    error = as_qmd_error(failure, Path("/x/index.sqlite"))
    assert type(error) is expected
    assert words in error.message
    assert "'/x/index.sqlite'" in error.message


@pytest.mark.parametrize(
    ("value", "expected"),
    [("250", 250), ("", 120_000), ("soon", 120_000), ("-5", 120_000), ("9" * 12, 2**31 - 1), ("9" * 5000, 120_000)],
)
def test_the_busy_timeout_is_set_by_environment(monkeypatch: pytest.MonkeyPatch, value: str, expected: int) -> None:
    monkeypatch.setenv("QMD_SQLITE_BUSY_TIMEOUT", value)
    assert busy_timeout_ms() == expected


def test_a_path_with_uri_characters_opens(tmp_path: Path) -> None:
    path = tmp_path / "a?b#c %20" / "index.sqlite"
    open_writer(path).close()
    path.with_name("index.sqlite-shm").mkdir()
    with open_reader(path) as reader:
        assert reader.status(None).documents == 0


def test_who_opens_an_index_while_it_is_made_finds_none_or_a_whole_one(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.sqlite" for number in range(30)]
    met: list[str] = []

    def open_early() -> None:
        for path in paths:
            while True:
                try:
                    open_reader(path).close()
                    break
                except NotFoundError:
                    continue
                except StoreError as error:
                    met.append(error.message)
                    break

    thread = threading.Thread(target=open_early)
    thread.start()
    for path in paths:
        open_writer(path).close()
    thread.join()
    assert met == []


def test_another_program_reads_while_we_write(writer: SqliteWriter, index_path: Path, make: MakeDocument) -> None:
    writer.put_documents("notes", [make("a.md", "apple")])
    stored = writer.find_path("notes", "a.md")
    assert stored is not None
    with writer.transaction():
        writer.put_documents("notes", [make("b.md", "banana")])
        foreign = sqlite3.connect(f"file:{index_path}?mode=ro", uri=True)
        sql = "SELECT collection, path FROM documents WHERE hash = ? AND active = 1"
        assert foreign.execute(sql, (stored.hash,)).fetchall() == [("notes", "a.md")]
        counts = "SELECT collection, COUNT(*) FROM documents WHERE active=1 GROUP BY collection"
        assert foreign.execute(counts).fetchall() == [("notes", 1)]
        columns = {row[1] for row in foreign.execute("PRAGMA table_info(documents)")}
        assert columns >= {"id", "collection", "path", "title", "hash", "created_at", "modified_at", "active"}
        foreign.close()


def test_a_file_that_another_process_has_brought_up_to_date_meanwhile_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "index.sqlite"
    open_writer(path).close()
    database = connect_for_writing(path)
    database.run("DROP TABLE folders; PRAGMA user_version = 6")
    with pytest.MonkeyPatch.context() as patch:
        begin = database.transaction

        def late() -> AbstractContextManager[None]:
            database.run(f"CREATE TABLE folders (a); PRAGMA user_version = {len(MIGRATIONS)}")
            return begin()

        patch.setattr(database, "transaction", late)
        migrate(database)
    assert [name for _, name, *_ in database.rows("PRAGMA table_info(folders)")] == ["a"]
    database.close()
