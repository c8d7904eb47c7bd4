"""Projects from strangers: their `.qmd` has no effect outside, and its index is not used."""

import os
import shutil
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import apsw
import pytest

import qmd as api
from qmd.errors import QmdError
from qmd.files import create_private, exclusive_lock, is_locked, open_private, read_regular_file, write_atomically
from qmd.store.sqlite.files import CHECKSUM_BYTES
from tests.program import Qmd

pytestmark = pytest.mark.skipif(os.name != "posix", reason="links need rights on Windows")

NAMES = (
    *("index.sqlite", "index.sqlite-wal", "index.sqlite-shm", "index.sqlite-journal", "index.qmd.sqlite", "index.yml"),
    *(".index.sqlite.lock", ".index.sqlite.embed.lock", ".index.sqlite.embed.json", ".index.sqlite.embed-wanted.lock"),
    *(".index.sqlite.made", ".index.sqlite.large", ".index.sqlite.verified", ".index.yml.lock", "index.sqlite.damaged"),
)
COMMANDS = (
    *(("index", "--no-embed"), ("update",), ("embed",), ("search", "private"), ("get", "a.md"), ("status",), ("ls",)),
    *(("context", "add", "/", "note"), ("collection", "list"), ("cleanup",), ("mcp",), ("doctor",), ("init",)),
)


@pytest.fixture
def clone(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a fresh clone of a project."""
    folder = home / "clone"
    (folder / ".qmd").mkdir(parents=True)
    (folder / ".qmd/index.yml").write_text("collections:\n  p:\n    path: .\n")
    (folder / "a.md").write_text("# Alpha\n\nfirst note\n")
    monkeypatch.chdir(folder)
    return folder


def contents(folder: Path) -> dict[str, bytes | None]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))}


LINKS: dict[str, Callable[[Path, Path], None]] = {
    "to a file": lambda place, outside: place.symlink_to(outside / "precious"),
    "to nothing": lambda place, outside: place.symlink_to(outside / "new"),
    "second name": lambda place, outside: place.hardlink_to(outside / "precious"),
    "pipe": lambda place, outside: os.mkfifo(place),
    "folder": lambda place, outside: place.mkdir(),
}


@pytest.mark.parametrize("kind", LINKS)
@pytest.mark.parametrize("name", NAMES)
def test_a_link_among_the_files_of_a_project_is_refused_by_name_and_leads_nowhere(
    qmd: Qmd, clone: Path, tmp_path: Path, name: str, kind: str
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("collections: {precious: {path: /}}\n")
    (clone / ".qmd" / name).unlink(missing_ok=True)
    LINKS[kind](clone / ".qmd" / name, outside)
    before = contents(outside)
    for words in COMMANDS:
        run = qmd(*words)
        assert run.status == 1, words
        assert f"{clone}/.qmd/{name}' is " in run.err
        assert len(run.err.splitlines()) == 2
        assert "precious" not in run.out + run.err
    assert contents(outside) == before


def test_the_users_own_index_is_not_reached_through_a_link(qmd: Qmd, home: Path, clone: Path, tmp_path: Path) -> None:
    (home / "notes").mkdir()
    (home / "notes/mine.md").write_text("# Private plans\n")
    os.chdir(home)
    assert qmd("index", "notes", "--no-embed").status == 0
    os.chdir(clone)
    (clone / ".qmd/index.sqlite").symlink_to(tmp_path / "cache/qmd/index.sqlite")
    for words in (("search", "private", "-c", "notes"), ("update",)):
        assert "is a link" in qmd(*words).err
    os.chdir(home)
    assert "mine.md" in qmd("search", "private").out


def test_a_linked_folder_works_once_trust_has_named_its_target(
    qmd: Qmd, clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "kept elsewhere"
    (clone / ".qmd").rename(target)
    (clone / ".qmd").symlink_to(target)
    for words in COMMANDS:
        run = qmd(*words)
        assert (run.status, run.err.splitlines()[0]) == (1, f"error: '{clone}/.qmd' is a link to '{target}'")
    assert not (target / "index.sqlite").exists()
    assert f"is a link to '{target}'" in qmd("trust").out
    assert qmd("index", "--no-embed").status == 0
    assert "a.md" in qmd("search", "alpha").out
    # Another target needs another answer, and so does another clone with the same target.
    shutil.copytree(target, tmp_path / "other")
    (clone / ".qmd").unlink()
    (clone / ".qmd").symlink_to(tmp_path / "other")
    assert "is a link to" in qmd("search", "alpha").err
    second = clone.parent / "second"
    second.mkdir()
    (second / ".qmd").symlink_to(target)
    monkeypatch.chdir(second)
    assert "is a link to" in qmd("search", "alpha").err


def test_a_linked_folder_that_is_no_project_gets_no_index(qmd: Qmd, clone: Path, tmp_path: Path) -> None:
    shutil.rmtree(clone / ".qmd")
    (tmp_path / "empty").mkdir()
    (clone / ".qmd").symlink_to(tmp_path / "empty")
    assert qmd("init").status == 1
    assert not list((tmp_path / "empty").iterdir())


def test_home_and_the_working_folder_may_be_links(
    qmd: Qmd, home: Path, clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "way home").symlink_to(home)
    monkeypatch.setenv("HOME", str(tmp_path / "way home"))
    monkeypatch.setenv("PWD", str(tmp_path / "way home/clone"))
    monkeypatch.chdir(tmp_path / "way home" / "clone")
    assert qmd("index", "--no-embed").status == 0
    assert "a.md" in qmd("search", "alpha").out


def test_links_of_the_users_own_configuration_and_index_keep_working(qmd: Qmd, home: Path, tmp_path: Path) -> None:
    kept = tmp_path / "dotfiles"
    kept.mkdir()
    (kept / "index.yml").write_text("collections: {}\n")
    for folder, name in (("config", "index.yml"), ("cache", "index.sqlite")):
        (tmp_path / folder / "qmd").mkdir(parents=True)
        (tmp_path / folder / "qmd" / name).symlink_to(kept / name)
    (home / "notes").mkdir()
    (home / "notes/b.md").write_text("# Beta\n")
    assert qmd("index", "notes", "--no-embed").status == 0
    assert "b.md" in qmd("search", "beta").out
    assert "notes" in (kept / "index.yml").read_text()
    assert (kept / "index.sqlite").stat().st_size > 0
    assert (tmp_path / "config/qmd/index.yml").is_symlink()


def test_files_of_another_user_are_refused_unless_the_environment_vouches(
    qmd: Qmd, clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root gives files away")
    os.chown(clone / ".qmd/index.yml", 65534, 65534)
    assert "belongs to another user" in qmd("search", "alpha").err
    monkeypatch.setenv("SUDO_UID", "65534")
    assert qmd("index", "--no-embed").status == 0
    monkeypatch.delenv("SUDO_UID")
    monkeypatch.setenv("QMD_TRUST_LOCAL_CONFIG", "1")
    assert "a.md" in qmd("search", "alpha").out


def test_no_way_of_opening_a_file_of_qmds_own_follows_a_link_there(tmp_path: Path) -> None:
    folder = tmp_path / ".qmd"
    folder.mkdir()
    (tmp_path / "precious").write_text("mine")
    for name, target in (("there", "precious"), ("new", "missing")):
        link = folder / name
        link.symlink_to(tmp_path / target)
        for act in (
            lambda link=link: open_private(link, os.O_WRONLY | os.O_TRUNC),
            lambda link=link: write_atomically(link, "theirs"),
            lambda link=link: read_regular_file(link, 100),
            lambda link=link: exclusive_lock(link).__enter__(),
        ):
            with pytest.raises(OSError, match="is a link"):
                act()
        assert not is_locked(link)
        with pytest.raises(OSError, match="is a link"):
            create_private(link)
    assert (tmp_path / "precious").read_text() == "mine"
    assert not (tmp_path / "missing").exists()


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm", "-journal"])
def test_an_index_opened_by_its_path_is_held_to_the_same(
    clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (clone / f".qmd/index.sqlite{suffix}").symlink_to(tmp_path / "new")
    config = {"collections": {"p": {"path": str(clone)}}}
    with (
        api.open_index(clone / ".qmd/index.sqlite", config=config) as index,
        pytest.raises(QmdError, match="is a link"),
    ):
        index.update()
    assert not (tmp_path / "new").exists()


@pytest.fixture
def with_index(qmd: Qmd, clone: Path, tmp_path: Path) -> Path:
    """Add an index of other texts to the clone."""
    (clone / ".qmd/index.yml").write_text("collections: {p: {path: .}}\nauto_update: false\n")
    (clone / "a.md").write_text("# Alpha\n\nforged answer\n")
    assert qmd("index", "--no-embed").status == 0
    shutil.rmtree(tmp_path / "cache")
    (clone / "a.md").write_text("# Alpha\n\ntrue answer\n")
    return clone


def test_an_index_that_came_with_a_clone_answers_nothing_and_is_built_again(qmd: Qmd, with_index: Path) -> None:
    for words in (("search", "forged"), ("get", "a.md"), ("status",), ("ls",)):
        run = qmd(*words)
        assert run.status == 1
        assert "came with its folder and was not made here" in run.err
        assert "qmd index" in run.err
        assert "forged" not in run.out
    run = qmd("index", "--no-embed")
    assert run.status == 0
    assert "set aside as" in run.err
    assert (with_index / ".qmd/index.sqlite.strange").exists()
    assert "forged" not in qmd("search", "answer", "--json").out
    assert "true answer" in qmd("search", "answer", "--json").out


def test_its_vectors_are_not_kept_either(qmd: Qmd, with_index: Path) -> None:
    assert qmd("index").status == 0
    connection = apsw.Connection(str(with_index / ".qmd/index.sqlite"))
    assert connection.execute("SELECT count(*) FROM vector_keys").fetchall() == [(1,)]


def test_an_index_made_here_stays_and_a_copy_of_it_elsewhere_is_a_strangers(
    qmd: Qmd, clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert qmd("index", "--no-embed").status == 0
    assert "a.md" in qmd("search", "alpha").out
    assert qmd("index", "--no-embed").err.count("set aside") == 0
    shutil.copytree(clone, clone.parent / "copy")
    monkeypatch.chdir(clone.parent / "copy")
    assert qmd("search", "alpha").status == 1


def test_an_index_goes_on_where_its_project_is_moved(qmd: Qmd, clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert qmd("index", "--no-embed").status == 0
    moved = clone.rename(clone.parent / "moved")
    monkeypatch.chdir(moved)
    assert "a.md" in qmd("search", "alpha").out
    assert "set aside" not in qmd("index", "--no-embed").err
    # Its record moves too, so a stranger's copy at the old path is not trusted.
    shutil.copytree(moved, clone)
    monkeypatch.chdir(clone)
    assert qmd("search", "alpha").status == 1


def test_an_index_that_a_newer_version_has_written_is_not_taken_for_a_strangers(qmd: Qmd, clone: Path) -> None:
    assert qmd("index", "--no-embed").status == 0
    connection = apsw.Connection(str(clone / ".qmd/index.sqlite"))
    connection.execute("CREATE TABLE more (a); PRAGMA user_version = 99")
    connection.close()
    for words in (("search", "alpha"), ("index", "--no-embed")):
        assert "was written by a newer qmd (version 99)" in qmd(*words).err
    assert not (clone / ".qmd/index.sqlite.strange").exists()


def test_an_index_of_a_project_into_which_the_original_wrote_goes_on_beside_it(qmd: Qmd, clone: Path) -> None:
    assert qmd("index").status == 0
    connection = apsw.Connection(str(clone / ".qmd/index.sqlite"))
    connection.execute(
        "CREATE TABLE content_vectors (a); CREATE TRIGGER t AFTER INSERT ON documents BEGIN SELECT 1; END"
    )
    connection.close()
    assert qmd("vsearch", "alpha").status == 0
    assert "set aside" not in qmd("index").err
    assert "a.md" in qmd("vsearch", "alpha").out
    assert (clone / ".qmd/index.qmd.sqlite").exists()


HARMS = (
    "CREATE TRIGGER t AFTER INSERT ON documents BEGIN DELETE FROM documents; END",
    "CREATE VIEW v AS SELECT * FROM documents",
    "CREATE TABLE more (a)",
    "CREATE INDEX i ON documents (title)",
)


@pytest.mark.parametrize("harm", HARMS)
def test_an_index_with_more_in_it_than_we_make_is_set_aside(qmd: Qmd, clone: Path, harm: str) -> None:
    assert qmd("index", "--no-embed").status == 0
    connection = apsw.Connection(str(clone / ".qmd/index.sqlite"))
    assert connection.reserve_bytes("main") == CHECKSUM_BYTES
    connection.execute(harm)
    connection.close()
    assert qmd("search", "alpha").status == 1
    assert "set aside as" in qmd("index", "--no-embed").err
    assert "a.md" in qmd("search", "alpha").out


def test_a_table_of_settings_that_never_ends_does_not_keep_a_search(qmd: Qmd, with_index: Path) -> None:
    connection = apsw.Connection(str(with_index / ".qmd/index.sqlite"))
    connection.execute(
        "DROP TABLE meta; CREATE VIEW meta AS WITH RECURSIVE n(key) AS (SELECT 1 UNION ALL SELECT key + 1 FROM n)"
        " SELECT key, key AS value FROM n"
    )
    connection.close()
    assert qmd("search", "alpha").status == 1


@pytest.mark.parametrize("table", ["sqlite_schema", "meta"])
def test_a_damaged_index_that_came_along_gives_no_vectors(qmd: Qmd, clone: Path, tmp_path: Path, table: str) -> None:
    assert qmd("index").status == 0
    shutil.rmtree(tmp_path / "cache")
    file = clone / ".qmd/index.sqlite"
    with closing(apsw.Connection(str(file))) as connection:
        sql = "SELECT (pageno - 1) * pgsize FROM dbstat WHERE name = ?"
        place = int(str(connection.execute(sql, (table,)).fetchall()[0][0]))
    with file.open("r+b") as stream:
        stream.seek(place)
        stream.write(b"\0" * 16)
    assert qmd("index", "--no-embed").status == 0
    connection = apsw.Connection(str(file))
    assert connection.execute("SELECT count(*) FROM vector_keys").fetchall() == [(0,)]


def test_a_damaged_index_that_was_made_here_keeps_its_sound_vectors(qmd: Qmd, clone: Path) -> None:
    assert qmd("index").status == 0
    connection = apsw.Connection(str(clone / ".qmd/index.sqlite"))
    sql = "SELECT (rootpage - 1) * page_size FROM sqlite_schema, pragma_page_size WHERE name = 'documents'"
    [(place,)] = connection.execute(sql).fetchall()
    connection.close()
    with (clone / ".qmd/index.sqlite").open("r+b") as stream:
        stream.seek(int(str(place)))
        stream.write(b"flipped")
    assert "damaged" in qmd("search", "alpha").err
    assert "1 vectors were kept" in qmd("index", "--no-embed").err
    assert "a.md" in qmd("search", "alpha").out


def test_an_index_in_use_at_the_upgrade_goes_on_and_gets_its_record(qmd: Qmd, with_index: Path, tmp_path: Path) -> None:
    records = tmp_path / "cache/qmd/projects"
    records.mkdir(parents=True)
    (records / "before").write_text(str(time.time() + 60))
    assert "forged" in qmd("search", "forged").out
    assert qmd("index", "--no-embed").status == 0
    assert not (with_index / ".qmd/index.sqlite.strange").exists()
    # From then on the record counts.
    (records / "before").write_text("0")
    assert "a.md" in qmd("search", "alpha").out


def test_who_vouches_for_projects_vouches_for_their_indexes(
    qmd: Qmd, with_index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QMD_TRUST_LOCAL_CONFIG", "1")
    assert "forged" in qmd("search", "forged", "--json").out
