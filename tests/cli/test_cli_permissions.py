"""Permissions of qmd's files, which contain private notes."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

import qmd as package
from qmd.store.opening import open_writer
from tests.program import Qmd

pytestmark = pytest.mark.skipif(os.name != "posix", reason="permission bits are POSIX's")


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def _open_paths(*folders: Path) -> list[str]:
    """Return files and folders with permissions for the group or others."""
    paths = [path for folder in folders for path in (folder, *folder.rglob("*"))]
    return [f"{stat.S_IMODE(path.stat().st_mode):o} {path}" for path in paths if path.stat().st_mode & 0o077]


def _spoil(*folders: Path) -> None:
    """Set the permissions of an older version."""
    for folder in folders:
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)


def test_an_index_of_private_notes_is_private(qmd: Qmd, notes: Path, tmp_path: Path) -> None:
    os.umask(0)
    assert qmd("index", str(notes)).status == 0
    assert qmd("context", "add", "qmd://notes/", "what we decided").status == 0
    reader = package.open_index(tmp_path / "cache" / "qmd" / "index.sqlite")
    with reader:
        # Side files exist only while the index is open.
        assert reader.status().documents == 3
        assert _open_paths(tmp_path / "cache", tmp_path / "config") == []


def test_a_project_keeps_its_index_private_too(qmd: Qmd, notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(notes)
    monkeypatch.setenv("PWD", str(notes))
    qmd("init")
    assert qmd("index", ".").status == 0
    assert qmd("trust").status == 0
    assert _open_paths(notes / ".qmd") == []
    assert notes.stat().st_mode & 0o077


def test_what_an_older_version_left_open_is_closed_by_the_next_write(qmd: Qmd, notes: Path, tmp_path: Path) -> None:
    qmd("index", str(notes))
    ours = (tmp_path / "cache" / "qmd", tmp_path / "config" / "qmd")
    _spoil(*ours)
    qmd("search", "pricing")
    assert len(_open_paths(*ours)) >= 4
    assert qmd("index").status == 0
    qmd("context", "add", "qmd://notes/", "what we decided")
    assert _open_paths(*ours) == []


def test_a_folder_that_the_user_chose_stays_as_it_is(
    qmd: Qmd, notes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen, settings = tmp_path / "shared", tmp_path / "settings"
    for folder in (chosen, settings):
        folder.mkdir(mode=0o755)
    monkeypatch.setenv("INDEX_PATH", str(chosen / "notes.sqlite"))
    monkeypatch.setenv("QMD_CONFIG_DIR", str(settings))
    assert qmd("index", str(notes)).status == 0
    assert [stat.S_IMODE(folder.stat().st_mode) for folder in (chosen, settings)] == [0o755] * 2
    assert [path for path in _open_paths(chosen, settings) if not path.startswith("755 ")] == []


def test_a_database_of_another_program_keeps_its_permissions_and_ours_beside_it_is_private(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs.db"
    connection = apsw.Connection(str(theirs))
    connection.execute("PRAGMA application_id = 77; CREATE TABLE bills (n); INSERT INTO bills VALUES (1)")
    connection.close()
    theirs.chmod(0o644)
    with open_writer(theirs) as ours:
        assert stat.S_IMODE(ours.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(theirs.stat().st_mode) == 0o644
