"""What notes are called, in the index."""

from __future__ import annotations

from pathlib import Path

import pytest

from qmd.analysis.note_names import name_key
from qmd.indexing.update import update_collection
from qmd.records import Collection
from qmd.store.sqlite.index import SqliteWriter
from qmd.store.sqlite.opening import open_writer


@pytest.fixture
def notes(tmp_path: Path) -> Collection:
    (tmp_path / "notes").mkdir()
    return Collection("notes", tmp_path / "notes")


def titles(writer: SqliteWriter, notes: Collection) -> dict[str, str]:
    update_collection(writer, notes)
    return {document.path: document.title for document in writer.iter_documents()}


def test_a_heading_that_many_notes_have_gives_way_to_their_names(index_path: Path, notes: Collection) -> None:
    with open_writer(index_path) as writer:
        for name in ("plan", "review"):
            (notes.path / f"{name}.md").write_text("# Project\n\ntext")
        (notes.path / "3f9a01c2.md").write_text("# Other\n\ntext")
        assert titles(writer, notes) == {"3f9a01c2.md": "Other", "plan.md": "Project", "review.md": "Project"}
        (notes.path / "budget.md").write_text("# Project\n\ntext")
        assert titles(writer, notes) == {
            "3f9a01c2.md": "Other", "budget.md": "budget", "plan.md": "plan", "review.md": "review"
        }  # fmt: skip
        (notes.path / "budget.md").unlink()
        assert titles(writer, notes)["plan.md"] == "Project"


def test_names_go_with_their_note(index_path: Path, notes: Collection) -> None:
    with open_writer(index_path) as writer:
        (notes.path / "plan.md").write_text("---\naliases: [Road map]\n---\n# Project\n")
        update_collection(writer, notes)
        assert [one.kind for name in ("plan", "project", "road map") for one in writer.find_named(name)] == [
            "file", "title", "alias"
        ]  # fmt: skip
        (notes.path / "plan.md").write_text("text")
        update_collection(writer, notes)
        assert not writer.find_named("road map")
        (notes.path / "plan.md").unlink()
        update_collection(writer, notes)
        assert not writer.find_named("plan")


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("Road map", "road_map"), ("Road map", "Road-Map!"), ("🗂️ hub", "Hub"), ("#reading", "reading"),
        ("Straße", "STRASSE"), ("Simpson’s paradox", "simpson's paradox"), ("ﬁle", "file"), ("Café", "cafe"),
    ],
)  # fmt: skip
def test_names_are_compared_without_case_and_signs(left: str, right: str) -> None:
    assert name_key(left) == name_key(right)


@pytest.mark.parametrize(("left", "right"), [("C", "C++"), ("C", "C#"), ("🗂️", "📝"), ("@x", "x")])
def test_other_names_stay_apart(left: str, right: str) -> None:
    assert name_key(left) != name_key(right)
