"""Documents, collections and their configuration in every engine."""

import os
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from qmd.analysis.note_names import name_key
from qmd.errors import NotFoundError, UsageError
from qmd.indexing.update import update_collection
from qmd.records import Collection, DateFilter, LexicalTerm, Scope
from qmd.status import INDEXED, SkippedFile
from qmd.store.base import IndexWriter
from qmd.store.records import ChunkRecord
from qmd.times import UNKNOWN_TIME_NS
from tests.store.conftest import MakeDocument
from tests.store.contract.conftest import ADDRESSES, Place

TICK_NS = 1_600_000_000_123_456_789


def found(writer: IndexWriter, text: str, scope: Scope = Scope(), *, anchors: bool = False) -> list[str]:
    candidates = writer.search_lexical([LexicalTerm(text, f'"{text}"')], 10, scope, anchors=anchors)
    stored = writer.documents([candidate.document_id for candidate in candidates])
    return [stored[candidate.document_id].path for candidate in candidates]


@pytest.fixture
def notes(tmp_path: Path) -> Collection:
    (tmp_path / "notes").mkdir()
    return Collection("notes", tmp_path / "notes")


def test_a_document_comes_back_with_its_text_and_typed_metadata(writer: IndexWriter, make: MakeDocument) -> None:
    made = make("a/ü 'b.md", "Grüße\n", title="T", tags=["x", "y"], draft=True, n=1.5)
    writer.put_documents("notes", [made])
    stored = writer.find_path("notes", "a/ü 'b.md")
    assert stored is not None
    assert (stored.title, stored.size, stored.uri) == ("T", 6, "qmd://notes/a/ü 'b.md")
    assert stored.metadata == {"tags": ("x", "y"), "draft": True, "n": 1.5}
    assert writer.texts([stored.hash, "0" * 64]) == {stored.hash: "Grüße\n"}
    assert writer.find_docid(stored.hash[:6].upper()) == [stored]
    assert writer.find_docid("") == []
    assert writer.documents([stored.id, 999]) == {stored.id: stored}
    assert writer.find_path("other", stored.path) is None
    known = writer.known_files("notes")[stored.path]
    assert (known.document_id, known.hash, known.mtime_ns) == (stored.id, stored.hash, 1)


def test_a_text_with_half_a_character_comes_back(writer: IndexWriter, make: MakeDocument) -> None:
    text = "half \ud83d of a pair"
    packed = zlib.compress(text.encode("utf-8", "surrogatepass"))
    writer.put_documents("n", [replace(make("a", "half"), doc=packed)])
    [stored] = writer.iter_documents()
    assert writer.texts([stored.hash]) == {stored.hash: text}


def test_replacing_a_document_forgets_its_old_terms_and_text(writer: IndexWriter, make: MakeDocument) -> None:
    writer.put_documents("notes", [make("a.md", "apple")])
    before = writer.find_path("notes", "a.md")
    writer.put_documents("notes", [make("a.md", "banana")])
    after = writer.find_path("notes", "a.md")
    assert found(writer, "apple") == []
    assert found(writer, "banana") == ["a.md"]
    assert before is not None and after is not None
    assert after.id > before.id
    assert writer.texts([before.hash]) == {}
    assert writer.check() == []


def test_removing_and_renaming_collections(writer: IndexWriter, make: MakeDocument) -> None:
    writer.mirror_config([Collection("one", Path("/o")), Collection("two", Path("/t"))], None, "h")
    writer.put_documents("one", [make("a.md", "shared words"), make("b.md", "own words")])
    writer.put_documents("two", [make("c.md", "shared words")])
    shared = make("c.md", "shared words").hash
    writer.put_vectors("f", 2, {b"k" * 16: np.eye(2, dtype="f4")[0]})
    writer.put_chunks("f", 2, {shared: [ChunkRecord(0, 0, 6, b"k" * 16)]})
    writer.record_folders("two", {"": 5, "x": 6})
    writer.put_skipped("two", [SkippedFile("two", "bad.md", "'bad.md' is binary")])
    writer.mark_updated("two")
    writer.set_version_stamp("analysis:two", "7")
    assert writer.collections_with_documents() == ["one", "two"]
    with pytest.raises(UsageError, match="already exists: two"):
        writer.rename_collection("one", "two")
    assert writer.remove_collection("one") == 2
    assert found(writer, "words") == ["c.md"]
    assert writer.texts([shared]) == {shared: "shared words"}
    assert list(writer.pending("f")) == []
    writer.rename_collection("two", "new")
    assert found(writer, "words", Scope(collections=("new",))) == ["c.md"]
    assert found(writer, "words", Scope(collections=("two",))) == []
    assert [one.name for one in writer.collections()] == ["new"]
    assert writer.recorded_folders("new") == {"": 5, "x": 6}
    assert [one.path for one in writer.left_out("new")] == ["bad.md"]
    assert writer.version_stamp("analysis:new") == "7"
    assert writer.version_stamp("analysis:two") is None
    assert writer.updated_at() is not None
    assert writer.remove_documents("new", ["c.md", "unknown"]) == 1
    assert writer.collections_with_documents() == []


def test_the_configuration_is_mirrored_whole(place: Place) -> None:
    wiki = Collection("wiki", Path("/w/\udce9"), "**/*.txt", ("x/**",), {"/": "about"}, "git pull", False, False)
    notes = Collection("notes", Path("/n"))
    with place.writer() as writer:
        writer.mirror_config([Collection("gone", Path("/g"))], "old", "1")
        writer.mirror_config([wiki, notes], "everything", "2")
    with place.reader() as reader:
        assert reader.collections() == [wiki, notes]
        assert (reader.global_context(), reader.config_hash()) == ("everything", "2")
        assert reader.updated_at() is None


def test_files_folders_and_what_was_left_out_are_remembered(writer: IndexWriter, make: MakeDocument) -> None:
    writer.put_documents("n", [make(f"{n}.md", f"text {n}") for n in (2, 1)])
    ids = {one.path: one.id for one in writer.iter_documents()}
    writer.touch(ids["1.md"], 77, 88, "2026-01-01T00:00:00.000Z")
    files = [file for part in writer.recorded_files("n") for file in part]
    assert files == [("1.md", 77, 88), ("2.md", 6, 1)]
    writer.put_documents("m", [make(path, path) for path in ("a/b", "a/b.md", "a/b/c", "a/bc", "b")])
    below = {path: [*writer.known_files("m", path)] for path in ("a/b", "a/b.md", "a", "c")}
    assert below["a/b.md"] == ["a/b.md"] and sorted(below["a/b"]) == ["a/b", "a/b/c"]
    assert len(below["a"]) == 4 and not below["c"] and len(writer.known_files("m")) == 5
    assert sorted({one.modified_at[:4] for one in writer.iter_documents()}) == ["2025", "2026"]
    writer.record_folders("n", {"": 1, "a": 2, "a/b": 3, "ab": 4})
    writer.record_folders("n", {"a": 9}, "a")
    assert writer.recorded_folders("n") == {"": 1, "a": 9, "ab": 4}
    assert writer.recorded_folders("m") == {}
    left = [SkippedFile("n", f"{name}.md", f"'{name}.md' is too large", 5, 6, "1.0") for name in "ba"]
    writer.put_skipped("n", left)
    writer.put_skipped("n", left)
    assert writer.left_out("n") == [left[1], left[0]]
    assert writer.status(None).left_out == (left[1], left[0])
    lossy = SkippedFile("n", "c.md", "front matter cannot be read", 0, 0, INDEXED, 4)
    writer.put_skipped("n", [lossy])
    assert writer.left_out("n") == [lossy]
    # The form that other versions of the program store.
    writer.put_skipped("n", [replace(lossy, message=lossy.reason, line=None)])
    assert writer.left_out("n") == [lossy]
    writer.put_skipped("n", [])
    assert writer.left_out("n") == []


def test_status_counts_documents_and_collections(writer: IndexWriter, make: MakeDocument, tmp_path: Path) -> None:
    writer.mirror_config([Collection("notes", tmp_path), Collection("empty", tmp_path)], None, "h")
    made = [make("a.md", "same"), make("b.md", "same"), make("c", "x")]
    writer.put_documents("notes", made)
    writer.mark_updated("notes", "2026-02-03T04:05:06.000Z")
    status = writer.status("f")
    assert (status.documents, status.pending_documents, status.embedded_documents, status.vectors) == (3, 2, 0, 0)
    assert [(one.name, one.documents) for one in status.collections] == [("notes", 3), ("empty", 0)]
    assert (status.updated_at, writer.updated_at()) == ("2026-02-03T04:05:06.000Z",) * 2
    assert status.size_bytes > 0
    writer.put_vectors("f", 2, {b"k" * 16: np.eye(2, dtype="f4")[0]})
    writer.put_chunks("f", 2, {made[0].hash: [ChunkRecord(0, 0, 4, b"k" * 16)]})
    after = writer.status("f")
    assert (after.pending_documents, after.embedded_documents, after.chunks, after.vectors) == (1, 2, 1, 1)
    assert writer.status(None) == after
    assert writer.status("another model").pending_documents == 2


def test_notes_are_found_by_day(writer: IndexWriter, make: MakeDocument, set_zone: Callable[[str], None]) -> None:
    set_zone("UTC")
    writer.put_documents("n", [make("day", "a", date="2024-02-02"), make("month", "b", date="2024-02")])
    writer.put_documents("n", [make("file", "c", modified_at="2024-02-02T12:00:00.000Z")])
    ids = {one.path: one.id for one in writer.iter_documents()}
    february, day = ("2024-02-01", "2024-02-29"), ("2024-02-02", "2024-02-02")
    assert writer.find_by_date([february], Scope(), 9) == sorted([ids["day"], ids["month"]])
    assert writer.find_by_date([day], Scope(), 9) == [ids["day"]]
    assert writer.find_by_date([day], Scope(), 9, by_file_time=True) == [ids["file"]]
    assert writer.find_by_date([day, february], Scope(), 1) == [min(ids["day"], ids["month"])]
    assert writer.find_by_date([day], Scope(collections=("m",)), 9) == []


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "Pacific/Pago_Pago"])
def test_a_note_without_a_date_is_of_the_day_on_which_it_was_written_where_the_user_is(
    writer: IndexWriter, make: MakeDocument, set_zone: Callable[[str], None], zone: str
) -> None:
    set_zone(zone)
    for hour in range(24):
        moment = f"2024-02-02T{hour:02}:30:00.000Z"
        writer.put_documents("n", [make(f"{hour}.md", f"text {hour}", modified_at=moment)])
    for stored in writer.iter_documents():
        found_by_day = writer.find_by_date([(stored.day, stored.day)], Scope(), 24, by_file_time=True)
        assert stored.id in found_by_day
        on_that_day = Scope(filters=(DateFilter("on", stored.day, stored.day),))
        assert stored.id in [one.id for one in writer.iter_documents(on_that_day)]
    noon = writer.find_path("n", "12.md")
    assert noon is not None
    assert noon.day == {"Pacific/Kiritimati": "2024-02-03"}.get(zone, "2024-02-02")


def test_a_file_written_twice_within_the_tick_of_its_reading_is_found_by_its_second_text(
    writer: IndexWriter, notes: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_in_tick(notes, "apple")
    with monkeypatch.context() as patch:
        patch.setattr(time, "time_ns", lambda: TICK_NS + 1)
        update_collection(writer, notes)
    write_in_tick(notes, "mango")
    report = update_collection(writer, notes)
    assert (report.updated, report.unchanged) == (1, 0)
    assert (found(writer, "apple"), found(writer, "mango")) == ([], ["a.md"])


def test_a_file_read_in_the_tick_of_its_writing_is_compared_once_when_that_is_over(
    writer: IndexWriter, notes: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_in_tick(notes, "apple")
    with monkeypatch.context() as patch:
        patch.setattr(time, "time_ns", lambda: TICK_NS + 1)
        for _ in range(2):
            update_collection(writer, notes)
            assert writer.known_files("notes")["a.md"].mtime_ns == UNKNOWN_TIME_NS
    before = writer.find_path("notes", "a.md")
    report = update_collection(writer, notes)
    assert (report.updated, report.unchanged, report.n_bytes) == (0, 1, 0)
    assert writer.known_files("notes")["a.md"].mtime_ns == TICK_NS
    assert writer.find_path("notes", "a.md") == before
    write_in_tick(notes, "mango")
    assert update_collection(writer, notes).unchanged == 1


def write_in_tick(notes: Collection, text: str) -> None:
    (notes.path / "a.md").write_text(text)
    os.utime(notes.path / "a.md", ns=(TICK_NS, TICK_NS))


def test_titles_names_and_links_follow_the_files(writer: IndexWriter, notes: Collection) -> None:
    root = notes.path
    for name in ("plan", "review"):
        (root / f"{name}.md").write_text("# Project\n\ntext")
    (root / "hub.md").write_text("# Hub\n\n[[plan|the grand scheme]] and [[review]] and [[nowhere]]\n")
    (root / "other.md").write_text("---\naliases: [Road map]\n---\n# Other\n\nsee [[plan]]\n")
    update_collection(writer, notes)
    stored = {one.path: one for one in writer.iter_documents()}
    assert stored["plan.md"].title == "Project"
    assert [(one.target, one.link.text) for one in writer.links_from(stored["hub.md"])] == [
        (stored["plan.md"].id, "the grand scheme"), (stored["review.md"].id, ""), (None, ""),
    ]  # fmt: skip
    to_plan = writer.links_to(stored["plan.md"])
    assert [one.source for one in to_plan] == [stored["hub.md"].id, stored["other.md"].id]
    assert len(writer.links_to(stored["plan.md"], 1)) == 1
    assert writer.count_shared_links(stored["other.md"]) == {stored["hub.md"].id: 0.5}
    assert [one.kind for one in writer.find_named(name_key("Road map"))] == ["alias"]
    assert writer.find_named(name_key("Road map"), Scope(path_prefix="sub/")) == []
    assert found(writer, "scheme") == ["hub.md"]
    assert set(found(writer, "scheme", anchors=True)) == {"hub.md", "plan.md"}
    signs = [LexicalTerm("!", '"!"'), LexicalTerm("scheme", '"scheme"')]
    assert len(writer.search_lexical(signs, 5, Scope(), anchors=True)) == 2
    assert writer.document_frequencies([LexicalTerm("grand", '"grand"')]) == [1]
    (root / "budget.md").write_text("# Project\n\ntext")
    (root / "hub.md").write_text("# Hub\n\n[[review|the grand scheme]]\n")
    update_collection(writer, notes)
    stored = {one.path: one for one in writer.iter_documents()}
    assert [stored[f"{name}.md"].title for name in ("plan", "review", "budget")] == ["plan", "review", "budget"]
    assert set(found(writer, "scheme", anchors=True)) == {"hub.md", "review.md"}
    (root / "review.md").unlink()
    report = update_collection(writer, notes)
    assert (report.removed, report.unchanged) == (1, 4)
    assert found(writer, "scheme", anchors=True) == ["hub.md"]
    assert writer.links_from(stored["hub.md"])[0].target is None
    (root / "budget.md").unlink()
    (root / "other.md").write_text("# Other\n")
    update_collection(writer, notes)
    assert {one.path: one.title for one in writer.iter_documents()}["plan.md"] == "Project"
    assert not writer.find_named(name_key("Road map")) and not writer.find_named(name_key("budget"))
    assert writer.check() == []


def test_a_missing_index_is_not_found_and_not_created(place: Place, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no index at") as caught:
        place.reader()
    assert caught.value.hint
    assert list(tmp_path.iterdir()) == []


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(st.booleans(), st.sampled_from("abc"), st.sampled_from(["apple", "banana", "cherry apple"])),
        max_size=8,
    ),
    st.sampled_from(list(ADDRESSES)),
)
def test_any_order_of_changes_leaves_the_index_equal_to_the_last_state(
    tmp_path_factory: pytest.TempPathFactory, make: MakeDocument, changes: list[tuple[bool, str, str]], engine: str
) -> None:
    expected: dict[str, str] = {}
    with Place(tmp_path_factory.mktemp("any"), engine).writer() as writer, writer.transaction():
        for put, path, text in changes:
            if put:
                writer.put_documents("notes", [make(path, text)])
                expected[path] = text
            else:
                assert writer.remove_documents("notes", [path]) == (expected.pop(path, None) is not None)
        for fruit in ("apple", "banana", "cherry"):
            assert sorted(found(writer, fruit)) == sorted(path for path, text in expected.items() if fruit in text)
        assert writer.check() == []
