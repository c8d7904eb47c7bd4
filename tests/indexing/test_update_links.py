"""Links and anchors after updates: any change of notes must leave the contents of a new index."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qmd.indexing.reading import read_files
from qmd.indexing.update import update_collection
from qmd.records import Collection, FileEntry, LexicalTerm, Scope
from qmd.store.sqlite.opening import open_writer
from qmd.store.sqlite.writer import SqliteWriter

NAMES = ("alpha", "beta", "gamma", "sub/alpha", "sub/delta")
TEXTS = ("apple", "banana", "alpha", "two words")
VOCABULARY = ("apple", "banana", "alpha", "two", "beta")
LINK = st.builds(
    "{}[[{}|{}]]".format,
    st.sampled_from(["", "!"]),
    st.sampled_from([*NAMES, "cherry", "../alpha"]),
    st.sampled_from(TEXTS),
)  # fmt: skip
NOTE = st.builds(
    lambda alias, heading, found: f"---\naliases: [{alias}]\n---\n{heading}\n{' '.join(found)}\n",
    st.sampled_from(["cherry", "apple", "none"]),
    st.sampled_from(["", "# Apple", "# Cherry", "# alpha"]),
    st.lists(LINK, max_size=3),
)
VAULT = st.dictionaries(st.sampled_from(NAMES), NOTE, max_size=4)


def update(writer: SqliteWriter, folder: Path, notes: Mapping[str, str]) -> None:
    """Make the folder contain exactly these notes, and update the index."""
    folder.mkdir(exist_ok=True)
    for file in folder.rglob("*.md"):
        if str(file.relative_to(folder)).removesuffix(".md") not in notes:
            file.unlink()
    for name, text in notes.items():
        file = folder / f"{name}.md"
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    update_collection(writer, Collection("notes", folder), verify=True)


def state(writer: SqliteWriter) -> object:
    """Return every title, every link with its target, and the notes that each word of the anchors finds."""
    documents = list(writer.iter_documents())
    paths = {one.id: one.path for one in documents}
    links = {
        one.path: (
            [(link.link, paths.get(link.target or 0)) for link in writer.links_from(one)],
            [(paths[link.source], link.link) for link in writer.links_to(one)],
        )
        for one in documents
    }
    return {one.path: one.title for one in documents}, links, {word: found(writer, word) for word in VOCABULARY}


def found(writer: SqliteWriter, word: str) -> list[str]:
    rows = writer.database.rows("SELECT rowid FROM anchors WHERE anchors MATCH ?", (f'"{word}"',))
    return sorted(one.path for one in writer.documents([row[0] for row in rows]).values())


@settings(max_examples=40, deadline=None)
@given(st.lists(VAULT, min_size=2, max_size=4))
def test_links_and_anchors_after_updates_are_those_of_a_fresh_index(vaults: list[dict[str, str]]) -> None:
    with TemporaryDirectory() as scratch:
        folder = Path(scratch) / "notes"
        with open_writer(Path(scratch) / "grown.sqlite") as grown:
            for notes in vaults:
                update(grown, folder, notes)
            with open_writer(Path(scratch) / "fresh.sqlite") as fresh:
                update(fresh, folder, vaults[-1])
                assert state(grown) == state(fresh)


def test_a_title_is_settled_with_all_that_share_its_heading(writer: SqliteWriter, tmp_path: Path) -> None:
    def titles() -> dict[str, str]:
        return {one.path: one.title for one in writer.iter_documents()}

    notes = dict.fromkeys(("red", "green"), "# Fruit\n") | {"blue": "---\naliases: [other]\n---\n# Fruit\n"}
    update(writer, tmp_path / "n", notes)
    shared = {"red.md": "red", "green.md": "green", "blue.md": "blue"}
    assert titles() == shared
    # Another note with one of their names does not make the heading less common.
    update(writer, tmp_path / "n", notes | {"other": "text\n"})
    assert titles() == shared | {"other.md": "other"}
    update(writer, tmp_path / "n", {name: notes[name] for name in ("red", "blue")})
    assert titles() == {"red.md": "Fruit", "blue.md": "Fruit"}
    update(writer, tmp_path / "n", notes)
    assert titles() == shared


def test_a_note_is_found_by_what_links_call_it_and_its_own_names_are_not_repeated(
    writer: SqliteWriter, tmp_path: Path
) -> None:
    update(writer, tmp_path / "notes", {"beta": "text", "alpha": "[[beta|the second letter]] and [[beta|Beta]]"})
    assert found(writer, "letter") == ["beta.md"]
    assert found(writer, "beta") == []
    terms = [LexicalTerm("letter", '"letter"')]
    (best, *_) = writer.search_lexical(terms, 5, Scope(), anchors=True)
    assert {one.path for one in writer.documents([best.document_id]).values()} == {"beta.md"}
    assert all(one.path != "beta.md" for one in writer.documents(
        [one.document_id for one in writer.search_lexical(terms, 5, Scope())]
    ).values())  # fmt: skip


def test_a_word_that_only_links_hold_is_no_unknown_word(writer: SqliteWriter, tmp_path: Path) -> None:
    update(writer, tmp_path / "notes", {"beta": "text", "alpha": "[[beta|letters]]"})
    update(writer, tmp_path / "notes", {"beta": "text", "alpha": "[[beta|second]]"})
    assert writer.document_frequencies([LexicalTerm("second", '"second"')]) == [1]
    assert writer.document_frequencies([LexicalTerm("letters", '"letters"')]) == [0]


@pytest.mark.parametrize(
    ("text", "touched"),
    [("more [[beta|b]]", {"alpha"}), ("[[beta|c]]", {"alpha", "beta"}), ("[[gamma]]", {"alpha", "beta", "gamma"})],
)
def test_a_changed_note_makes_anchors_anew_only_where_its_links_differ(
    writer: SqliteWriter, tmp_path: Path, text: str, touched: set[str]
) -> None:
    folder = tmp_path / "notes"
    update(writer, folder, {"alpha": "[[beta|b]]", "beta": "", "gamma": ""})
    (folder / "alpha.md").write_text(text)
    [read] = read_files([FileEntry("alpha.md", folder, len(text), 1)])
    assert read.document is not None
    writer.put_documents("notes", [read.document])
    assert {key for (key,) in writer.database.rows("SELECT key FROM touched")} == touched


def test_what_a_note_must_not_hold_is_not_brought_back_by_its_anchors(writer: SqliteWriter, tmp_path: Path) -> None:
    update(writer, tmp_path / "notes", {"beta": "fruit and rot", "gamma": "fruit", "alpha": "[[beta|apple]]"})
    terms = [LexicalTerm("apple", '"apple"'), LexicalTerm("rot", '"rot"', excluded=True)]
    ids = [one.document_id for one in writer.search_lexical(terms, 5, Scope(), anchors=True)]
    assert "beta.md" not in {one.path for one in writer.documents(ids).values()}


def test_anchors_of_a_scope_do_not_depend_on_other_collections(writer: SqliteWriter, tmp_path: Path) -> None:
    notes = {"beta": "fruit", "alpha": "[[beta|green apple]]", "gamma": "an apple"}
    update(writer, tmp_path / "notes", notes)
    terms, scope = [LexicalTerm("apple", '"apple"')], Scope(collections=("notes",))
    alone = [one.score for one in writer.search_lexical(terms, 5, scope, anchors=True)]
    other = tmp_path / "other"
    for number in range(5):
        file = other / f"{number}.md"
        other.mkdir(exist_ok=True)
        file.write_text(f"apple [[{(number + 1) % 5}|apple pie]]")
    update_collection(writer, Collection("other", other))
    assert [one.score for one in writer.search_lexical(terms, 5, scope, anchors=True)] == pytest.approx(alone)


def test_a_collection_that_goes_takes_its_links_along_and_one_that_is_renamed_keeps_them(
    writer: SqliteWriter, tmp_path: Path
) -> None:
    update(writer, tmp_path / "notes", {"beta": "text", "alpha": "[[beta|apple]]"})
    writer.rename_collection("notes", "renamed")
    assert found(writer, "apple") == ["beta.md"]
    writer.remove_collection("renamed")
    for table in ("links", "link_keys", "touched", "anchors"):
        assert writer.database.value(f"SELECT count(*) FROM {table}") == 0
