from pathlib import Path

import pytest
from msgspec.structs import replace

from qmd.cli.invocation import Invocation
from qmd.masks import DEFAULT_PATTERN, PROSE
from qmd.render.drawing import Screen
from tests.program import Qmd


def test_adding_prints_the_block_that_programs_know(qmd: Qmd, notes: Path) -> None:
    run = qmd("collection", "add", str(notes), "--name", "my.notes_1")
    assert (run.status, run.err) == (0, "")
    assert run.out == (
        f"Creating collection 'my.notes_1'...\nCollection: {notes} ({DEFAULT_PATTERN})\n\n"
        "Indexed: 3 new, 0 updated, 0 unchanged, 0 removed\n\n"
        "Run 'qmd embed' to update embeddings (3 unique hashes need vectors)\n"
        "✓ Collection 'my.notes_1' created successfully\n"
    )


def test_a_dot_means_the_current_folder(qmd: Qmd, notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(notes)
    monkeypatch.setenv("PWD", str(notes))
    assert qmd("collection", "add", ".").status == 0
    assert qmd("collection", "list", "--json").json[0]["name"] == "notes"


def test_a_second_collection_of_that_name_or_place_is_refused(qmd: Qmd, notes: Path) -> None:
    qmd("collection", "add", str(notes))
    same_name = qmd("collection", "add", str(notes / "daily"), "--name", "notes")
    assert same_name.status == 1
    assert "Collection already exists: notes" in same_name.err
    same_place = qmd("collection", "add", str(notes), "--name", "again")
    assert same_place.status == 1
    assert "A collection already exists for this path and pattern" in same_place.err


def test_one_folder_may_be_two_collections_with_two_masks(qmd: Qmd, notes: Path) -> None:
    qmd("collection", "add", str(notes), "--name", "one", "--glob", "pricing.md")
    qmd("collection", "add", str(notes), "--name", "two", "--mask", "daily/**/*.md")
    rows = {row["name"]: row["files"] for row in qmd("collection", "list", "--json").json}
    assert rows == {"one": 1, "two": 1}


def test_a_missing_path_changes_nothing(qmd: Qmd, tmp_path: Path) -> None:
    run = qmd("collection", "add", str(tmp_path / "nope"))
    assert run.status == 1
    assert "Collection path does not exist." in run.err
    assert "Received:" in run.err
    assert not (tmp_path / "config/qmd/index.yml").exists()


def test_a_file_is_no_folder(qmd: Qmd, notes: Path) -> None:
    run = qmd("collection", "add", str(notes / "pricing.md"))
    assert run.status == 1
    assert "Collection path is not a directory." in run.err


def test_a_person_reads_figures_in_thousands_and_a_program_as_ever() -> None:
    run = Invocation("update", {}, Path.cwd())
    assert run.figure(6571) == "6571"
    assert replace(run, screen=Screen()).figure(6571) == "6,571"


def test_a_person_reads_of_removing_that_nothing_of_theirs_is_lost(indexed: Qmd, notes: Path) -> None:
    run = indexed("collection", "remove", "notes", "--color", "always")
    assert (run.out, run.err) == ("Removed 'notes' from the index (3 notes). The files stay.\n", "")


def test_removing_says_how_many_documents_went_and_that_the_files_stay(indexed: Qmd, notes: Path) -> None:
    run = indexed("collection", "rm", "notes")
    assert (run.status, run.err) == (0, f"the files in {notes} stay\n")
    assert len(list(notes.rglob("*.md"))) == 3
    assert run.out == "✓ Removed collection 'notes'\n  Deleted 3 documents\n"
    assert indexed("collection", "remove", "notes").err.startswith("error: Collection not found: notes\n")
    assert indexed("status", "--json").json["totalDocuments"] == 0


def test_show_has_the_labels_that_programs_parse(indexed: Qmd, notes: Path) -> None:
    indexed("collection", "exclude", "notes")
    indexed("collection", "update-cmd", "notes", "git", "pull")
    assert indexed("collection", "info", "notes").out == (
        f"Collection: notes\n  Path:     {notes}\n  Pattern:  {PROSE}\n  Include:  no\n  Update:   git pull\n"
    )


def test_a_context_is_added_listed_and_removed(indexed: Qmd, monkeypatch: pytest.MonkeyPatch, notes: Path) -> None:
    monkeypatch.chdir(notes / "daily")
    assert indexed("context", "add", "day", "--index", "index").status == 0
    assert indexed("context", "add", "/we ird", "odd", "-c", "notes").status == 0
    assert "notes\n  daily\n    day\n  we ird\n    odd\n" in indexed("context", "list").out
    assert indexed("context", "rm", "qmd://notes/daily").status == 0
    missing = indexed("context", "rm", "qmd://notes/daily")
    assert missing.status == 1
    assert "No context found for: qmd://notes/daily" in missing.err


def test_context_check_lists_what_has_none(indexed: Qmd) -> None:
    shown = indexed("context", "check").out
    assert "qmd://notes/ has no context" in shown
    assert "qmd://notes/daily/ has no context of its own" in shown
