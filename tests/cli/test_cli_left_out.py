"""Folders of which nothing, or not all, is indexed: what is there, and the option that takes it."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from tests.program import Qmd


def fill(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("text\n", encoding="utf-8")
    folder.mkdir(exist_ok=True)
    return folder


def names(qmd: Qmd) -> list[str]:
    return [row["name"] for row in qmd("collection", "list", "--json").json]


@pytest.mark.parametrize(
    ("files", "there", "hint"),
    [
        ("a.txt b.txt c.docx", "there are 2 .txt, 1 .docx (qmd does not read .docx)", "qmd index {} --glob '**/*.txt'"),
        ("a.pdf b.PDF c/d.rst", "there are 1 .pdf, 1 .PDF, 1 .rst (qmd does not read .pdf, .PDF)",
         "qmd index {} --glob '**/*.rst'"),
        ("a.docx", "there is 1 .docx (qmd does not read .docx)", "convert them to markdown or plain text"),
        ("README", "there is 1 without an ending", "qmd index {} --glob '**/*'"),
        ("", "the folder is empty", "to add it all the same: qmd collection add {}"),
    ],
)  # fmt: skip
def test_index_of_a_folder_without_notes_says_what_is_there(
    qmd: Qmd, home: Path, files: str, there: str, hint: str
) -> None:
    folder = fill(home / "x", *files.split())
    run = qmd("index", "x")
    assert (run.status, run.out) == (3, "")
    assert (
        run.err
        == f"error: no file in '{folder}' matches **/*.md; {there}\nhint: {hint.format(shlex.quote(str(folder)))}\n"
    )
    assert names(qmd) == []


def test_the_command_of_the_hint_works(qmd: Qmd, home: Path) -> None:
    fill(home / "x", "a.txt", "b.org")
    assert "x: 1 new" in qmd("index", "x", "--glob", "**/*.txt", "--no-embed").out


def test_index_of_a_folder_whose_notes_are_ignored_says_so(qmd: Qmd, home: Path) -> None:
    folder = fill(home / "x", "MEMORY.md", "out/a.md", "out/b.txt", "out/node_modules/c.md")
    (folder / ".gitignore").write_text("MEMORY.md\nout/\n")
    run = qmd("index", "x")
    assert run.status == 3
    assert run.err == (
        f"error: no file in '{folder}' to index: 2 left out by .gitignore (MEMORY.md, out/a.md)\n"
        f"hint: qmd index {shlex.quote(str(folder))} --no-ignore\n"
    )
    assert "x: 2 new" in qmd("index", "x", "--no-ignore", "--no-embed").out


def test_index_of_a_folder_whose_notes_qmdignore_leaves_out_names_the_rule(qmd: Qmd, home: Path) -> None:
    folder = fill(home / "x", "a.md")
    (folder / ".qmdignore").write_text("*.md\n")
    assert "an ignore rule leaves out all that matches **/*.md (a.md)\nhint: see .qmdignore" in qmd("index", "x").err


def test_a_new_collection_that_holds_nothing_is_added_with_a_warning(qmd: Qmd, home: Path) -> None:
    folder = fill(home / "x", "a.txt")
    run = qmd("collection", "add", "x")
    assert run.status == 0
    assert "No files found matching pattern.\n" in run.out
    command = f"qmd collection remove x && qmd index {shlex.quote(str(folder))} --glob '**/*.txt'"
    warning = f"warning: no file in '{folder}' matches **/*.md; there is 1 .txt\nhint: {command}\n"
    assert run.err == warning
    for argv in (("update",), ("index", "--no-embed")):
        run = qmd(*argv)
        assert (run.status, run.err) == (0, warning)


def test_a_folder_of_a_collection_that_holds_nothing_says_what_is_there(indexed: Qmd, notes: Path) -> None:
    folder = fill(notes / "lists", "a.txt")
    run = indexed("index", str(folder), "--no-embed")
    assert (run.status, run.err) == (
        0,
        f"warning: no file in '{folder}' matches **/*.md; there is 1 .txt\n"
        f"hint: qmd index {shlex.quote(str(folder))} --glob '**/*.txt'\n",
    )


def test_ignored_notes_are_counted_and_named_beside_the_others(qmd: Qmd, notes: Path) -> None:
    fill(notes, "a.md", "b.md", "out/c.md", "out/d.md", "x.txt")
    (notes / ".gitignore").write_text("a.md\nb.md\nx.txt\nout/\n")
    run = qmd("index", "notes", "--no-embed")
    assert (run.status, run.err) == (
        0,
        "notes: 4 left out by .gitignore (a.md, b.md, out/c.md, …): --no-ignore takes them\n",
    )
    assert qmd("index", "--no-embed").err == "", "a refresh of everything need not say it again"
    assert qmd("update").err == ""
    assert "4 left out" in qmd("collection", "add", "notes", "--name", "again", "--mask", "**/*.{md,x}").err


def test_no_ignore_is_remembered_shown_and_survives_other_edits(qmd: Qmd, notes: Path, tmp_path: Path) -> None:
    (notes / ".gitignore").write_text("pricing.md\n")
    qmd("index", "notes", "--no-embed")
    run = qmd("index", "notes", "--no-ignore", "--no-embed")
    assert "notes: 1 new" in run.out
    assert run.err == ""
    qmd("collection", "exclude", "notes")
    qmd("context", "add", "qmd://notes/", "all of it")
    qmd("collection", "rename", "notes", "mine")
    assert "gitignore: false" in (tmp_path / "config/qmd/index.yml").read_text()
    assert "0 removed" in qmd("index", "--no-embed").out
    assert "  Gitignore: not followed\n" in qmd("collection", "show", "mine").out
    assert "  Gitignore: not followed\n" in qmd("collection", "list").out
    assert [row["gitignore"] for row in qmd("collection", "list", "--json").json] == [False]


def test_no_ignore_on_a_part_of_a_collection_makes_a_collection_of_its_own(indexed: Qmd, notes: Path) -> None:
    (notes / ".gitignore").write_text("daily/\n")
    run = indexed("index", str(notes / "daily"), "--no-ignore", "--no-embed")
    assert "daily: 1 new" in run.out


def test_a_setting_of_gitignore_that_is_no_switch_is_refused(indexed: Qmd, tmp_path: Path) -> None:
    file = tmp_path / "config/qmd/index.yml"
    file.write_text(file.read_text() + "    gitignore: sometimes\n")
    run = indexed("update")
    assert run.status == 1
    assert "gitignore of collection 'notes'" in run.err


def test_what_to_do_without_collections_is_one_command(qmd: Qmd) -> None:
    for argv in (("collection", "list"), ("ls",), ("status",), ("update",), ("embed",)):
        assert "Run 'qmd index .'" in qmd(*argv).out
    assert qmd("search", "x").err.endswith("hint: make one: qmd index .\n")


def test_a_new_index_of_a_project_says_how_to_fill_it(qmd: Qmd, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(fill(home / "project"))
    assert qmd("init").err == "next: qmd index .\n"
    assert qmd("search", "x").err == "warning: nothing is indexed yet: run 'qmd index FOLDER'\n"
    assert qmd("search", "x").out == "No results found.\n"
    drawn = qmd("search", "x", "--color", "always")
    assert (drawn.out, drawn.err) == ("", "Nothing is indexed yet. Start: qmd index .\n")


@pytest.mark.skipif(sys.platform == "win32", reason="such a name cannot exist")
def test_a_warning_is_one_line_although_the_name_in_it_has_two(qmd: Qmd, tmp_path: Path) -> None:
    folder = tmp_path / "odd"
    folder.mkdir()
    (folder / "new\nerror: line.md").write_bytes(b"# Zebra \xff\n")
    warnings = [line for line in qmd("index", str(folder), "--no-embed").err.splitlines() if "UTF-8" in line]
    assert len(warnings) == 1
    assert warnings[0].startswith(r"warning: 'new\x0aerror: line.md'")
