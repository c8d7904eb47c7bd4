"""`qmd index` of a home folder or a whole disk, which needs a confirmation."""

import os
import shlex
import subprocess
import sys
from pathlib import Path, PurePath, PureWindowsPath

import pytest

from qmd.cli import indexing
from qmd.cli.indexing import covers_all_collections
from tests.processes import unmeasured
from tests.program import Qmd


def names(qmd: Qmd) -> list[str]:
    return [row["name"] for row in qmd("collection", "list", "--json").json]


@pytest.mark.parametrize("form", [".", "~", "{home}", "{home}/notes/..", "{above}", "{link}"])
def test_the_home_folder_is_not_indexed_without_a_question(qmd: Qmd, home: Path, notes: Path, form: str) -> None:
    link = home.parent / "link"
    link.symlink_to(home)
    typed = form.format(home=home, above=home.parent, link=link)
    run = qmd("index", typed, "--no-embed")
    folder = home.parent if form == "{above}" else home
    assert (run.status, run.out) == (2, "")
    assert run.err == (
        f"error: '{folder}' is a whole disk or home folder; files of prose: 3\n"
        f"hint: name the folder of your notes, or: qmd index {shlex.quote(str(folder))} --yes\n"
    )
    assert names(qmd) == []
    assert "3 notes" in qmd("index", typed, "--no-embed", "--yes").out


def test_a_home_folder_that_is_a_link_is_known_by_its_place(
    qmd: Qmd, home: Path, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home.parent / "link").symlink_to(home)
    monkeypatch.setenv("HOME", str(home.parent / "link"))
    assert qmd("index", str(home), "--no-embed").status == 2


def test_a_home_folder_that_is_a_collection_is_refreshed_without_a_question(qmd: Qmd, home: Path, notes: Path) -> None:
    assert qmd("index", ".", "--yes", "--no-embed").status == 0
    assert "3 notes" in qmd("index", ".", "--no-embed").out
    assert "3 notes" in qmd("index", "--no-embed").out


def test_a_program_that_adds_the_home_folder_as_a_collection_is_not_asked(qmd: Qmd, home: Path, notes: Path) -> None:
    assert qmd("collection", "add", str(home), "--name", "all").status == 0


def test_a_link_into_a_folder_that_may_not_be_entered_does_not_end_the_count(qmd: Qmd, home: Path, notes: Path) -> None:
    closed = home / "closed"
    (closed / "deep").mkdir(parents=True)
    (home / "link").symlink_to(closed / "deep")
    closed.chmod(0)
    try:
        run = qmd("index", ".", "--no-embed")
    finally:
        closed.chmod(0o700)
    assert (run.status, "files of prose: 3" in run.err) == (2, True)


@pytest.mark.parametrize(
    ("path", "home", "is_everything"),
    [
        ("/", "/home/me", True),
        ("/home", "/home/me", True),
        ("/home/me", "/home/me", True),
        ("/home/me/notes", "/home/me", False),
        ("/home/you", "/home/me", False),
        ("D:\\", "C:\\Users\\me", True),
        ("C:\\", "C:\\Users\\me", True),
        ("c:\\users\\ME", "C:\\Users\\me", True),
        ("D:\\notes", "C:\\Users\\me", False),
        ("\\\\server\\share\\", "C:\\Users\\me", True),
    ],
)
def test_what_holds_everything(path: str, home: str, is_everything: bool) -> None:
    kind = PureWindowsPath if "\\" in path else PurePath
    assert covers_all_collections(kind(path), kind(home)) is is_everything


def test_the_root_of_the_disk_is_counted_for_a_while_only(
    qmd: Qmd, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexing, "_COUNTING_S", 0.2)
    run = qmd("index", "/", "--glob", "**/*", "--no-embed")
    assert run.status == 2
    assert run.err.startswith("error: '/' is a whole disk or home folder; files that match **/*: ")
    assert run.err.endswith("hint: name the folder of your notes, or: qmd index / --yes\n")


@pytest.mark.skipif(os.name != "posix", reason="there is no pseudo-terminal")
@pytest.mark.parametrize(("answer", "status"), [("y\n", 0), ("\n", 2), ("n\n", 2)])
def test_a_person_is_asked_with_the_count(home: Path, notes: Path, answer: str, status: int) -> None:
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "qmd", "index", ".", "--no-embed"]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE, env=unmeasured()) as run:
        os.close(theirs)
        os.write(ours, answer.encode())
        assert run.stderr is not None
        said = run.stderr.read().decode()
        shown = b"" if status else os.read(ours, 4096)
        assert run.wait() == status
    os.close(ours)
    assert f"'{home}' is a whole disk or home folder; files of prose: 3. Index them all? [y/N] " in said
    assert (b"3 notes" in shown) is (status == 0)
