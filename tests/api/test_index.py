"""Public `Index` class, with real indexes in a temporary folder."""

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import qmd
from qmd.indexing.update import update_collection
from qmd.records import Collection
from qmd.store.opening import open_writer
from qmd.store.runs import EmbeddingLock

NOTES = {"collections": {"notes": {"path": "notes"}}}


@pytest.fixture
def index(folder: Path) -> Iterator[qmd.Index]:
    """Index of `notes` without vectors."""
    with qmd.open_index("index.sqlite", config=NOTES) as opened:
        opened.update()
        yield opened


def paths(response: qmd.SearchResponse) -> list[str]:
    return [hit.document.path for hit in response.hits]


def test_without_arguments_it_is_the_index_of_the_command_line(folder: Path, tmp_path: Path) -> None:
    with qmd.open_index() as index:
        assert index.path == tmp_path / "cache" / "qmd" / "index.sqlite" == qmd.default_index_path()
        index.add_collection("notes", "notes", ignore=["daily/**"])
        index.update()
        assert [document.path for document in index.documents()] == ["pricing.md"]
    written = (tmp_path / "config" / "qmd" / "index.yml").read_text()
    assert "daily/**" in written


def test_an_index_can_be_named(folder: Path, tmp_path: Path) -> None:
    assert qmd.open_index(index="work").path == tmp_path / "cache" / "qmd" / "work.sqlite"


def test_a_mode_that_there_is_not_is_refused(folder: Path) -> None:
    with qmd.open_index("index.sqlite", config={}) as index, pytest.raises(qmd.UsageError, match="unknown mode 'bm25'"):
        index.search("limiter", mode="bm25")  # type: ignore[arg-type]


def test_edits_keep_the_comments_of_a_configuration_file(folder: Path) -> None:
    file = folder / "conf" / "my.yml"
    file.parent.mkdir()
    file.write_text("# mine\ncollections:\n  notes:\n    path: ../notes  # all of them\n")
    with qmd.open_index("index.sqlite", config=file) as index:
        index.update()
        index.add_context("notes", "", "Everything")
        assert index.search("limiter", mode="lexical").hits[0].context == "Everything"
    assert "# mine" in file.read_text() and "# all of them" in file.read_text()


def test_a_configuration_file_edited_meanwhile_is_followed(folder: Path) -> None:
    file = folder / "my.yml"
    file.write_text("collections:\n  notes:\n    path: notes\n")
    with qmd.open_index("index.sqlite", config="my.yml") as index:
        index.update()
        assert paths(index.search("limiter", mode="lexical")) == ["daily/sunday.md"]
        file.write_text("collections:\n  notes:\n    path: notes\n    includeByDefault: false\n")
        response = index.search("limiter", mode="lexical")
        assert paths(response) == []
        assert response.warnings[0].startswith("every collection is excluded")


def test_edits_of_a_mapping_stay_in_memory(folder: Path) -> None:
    with qmd.open_index("index.sqlite", config=NOTES) as index:
        index.add_collection("code", "src", pattern="*.py")
        assert [one.name for one in index.collections()] == ["notes", "code"]
    with qmd.open_index("other.sqlite", config=NOTES) as index:
        assert [one.name for one in index.collections()] == ["notes"]
    assert not list(folder.glob("*.yml"))


def test_what_a_mapping_leaves_out_is_only_searched_by_name_until_the_next_update(index: qmd.Index) -> None:
    with qmd.open_index(index.path, config={"collections": {"code": {"path": "src", "pattern": "*.py"}}}) as other:
        assert paths(other.search("limiter", mode="lexical")) == []
        assert paths(other.search("limiter", collections="notes", mode="lexical")) == ["daily/sunday.md"]
        other.update()
        assert [document.path for document in other.documents()] == ["store.py"]


def test_an_index_alone_remembers_its_collections_and_edits(index: qmd.Index) -> None:
    index.close()
    with qmd.open_index(index.path) as alone:
        assert [one.path for one in alone.collections()] == [index.path.parent / "notes"]
        alone.add_collection("code", "src", pattern="*.py", ignore=["x"])
        alone.add_context("notes", "daily/", "By day")
        alone.set_global_context("Mine")
        alone.set_included("code", False)
    with qmd.open_index(index.path) as again:
        assert again.default_collections() == ("notes",)
        assert again.contexts() == (qmd.ContextNote("", "", "Mine"), qmd.ContextNote("notes", "daily", "By day"))
        again.rename_collection("notes", "diary")
        again.remove_context("diary", "/daily")
        assert {document.collection for document in again.documents()} == {"diary"}
        assert again.contexts() == (qmd.ContextNote("", "", "Mine"),)


def test_an_untrusted_project_reads_only_itself(folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    outside = tmp_path / "secret"
    outside.mkdir()
    (outside / "key.md").write_text("# key\n")
    (folder / ".qmd").mkdir()
    (folder / ".qmd" / "index.yml").write_text(
        f"collections:\n  notes:\n    path: notes\n  secret:\n    path: {outside}\nmodels:\n  embed: /elsewhere\n"
    )
    with caplog.at_level(logging.WARNING, logger="qmd"), qmd.open_index() as index:
        assert index.path == folder / ".qmd" / "index.sqlite"
        index.update()
        assert {document.collection for document in index.documents()} == {"notes"}
    assert "not trusted" in caplog.text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"config": NOTES}, "a configuration needs the path of an index"),
        ({"path": "a.sqlite", "index": "work"}, "both a path and the index name 'work' are given"),
        ({"path": "a.sqlite", "config": "no.yml"}, "configuration 'no.yml' does not exist"),
        ({"path": "a.sqlite", "config": {"collections": [1]}}, "collections in"),
    ],
)
def test_contradictory_arguments_are_refused(folder: Path, arguments: dict[str, object], message: str) -> None:
    with pytest.raises(qmd.QmdError, match=message):
        qmd.open_index(**arguments)  # type: ignore[arg-type]


def test_before_anything_is_indexed_the_state_is_zeros_and_a_search_says_so(folder: Path) -> None:
    index = qmd.open_index("none.sqlite")
    assert index.status().documents == 0
    assert index.health() == qmd.IndexHealth(0, 0, None)
    assert index.collections() == ()
    with pytest.raises(qmd.NotFoundError):
        index.search("anything", mode="lexical")
    assert not (folder / "none.sqlite").exists()


def test_words_find_documents_with_numbered_passages(index: qmd.Index) -> None:
    (hit,) = index.search("window", full_body=True, mode="lexical").hits
    assert (hit.document.uri, hit.passage.line) == ("qmd://notes/daily/sunday.md", 4)
    assert hit.body is not None and hit.body.startswith("# Sunday")
    assert 0 < hit.score <= 1
    assert hit.score == hit.relevance


def test_meaning_finds_documents_once_they_are_embedded(index: qmd.Index) -> None:
    report = index.embed()
    assert (report.documents, index.embed().documents) == (2, 0)
    assert paths(index.search("what customers pay", mode="dense"))[0] == "pricing.md"
    response = index.search("what customers pay", explain=True, limit=1)
    assert paths(response) == ["pricing.md"]
    assert response.hits[0].explanation is not None


def test_texts_that_an_older_version_cut_are_embedded_again_although_every_vector_is_in_place(index: qmd.Index) -> None:
    first = index.embed()
    with open_writer(index.path) as writer:
        (model,) = writer.models()
        writer.set_version_stamp(f"chunks:{model.fingerprint}", "1")
    again = index.embed()
    assert (again.documents, again.reused, again.embedded) == (first.documents, first.chunks, 0)


def test_source_code_shows_the_lines_of_the_declaration(folder: Path) -> None:
    with qmd.open_index("code.sqlite", config={"collections": {"src": {"path": "src", "pattern": "**/*.py"}}}) as index:
        index.update()
        index.embed()
        assert index.search("open", mode="lexical").hits[0].passage.line == 5
        assert "def open" in index.search("how is the index opened", mode="dense").hits[0].passage.text


def test_typed_subqueries_are_searched_and_checked(index: qmd.Index) -> None:
    assert paths(index.search([qmd.SubQuery("lex", "tomato"), qmd.SubQuery("lex", "interviews")])) == ["pricing.md"]
    with pytest.raises(qmd.UsageError, match="Structured search"):
        index.search([qmd.SubQuery("vec", "two\nlines")])


@pytest.mark.parametrize("query", ["", "  \n", []])
def test_an_empty_query_is_refused(index: qmd.Index, query: str) -> None:
    with pytest.raises(qmd.UsageError, match="the query is empty"):
        index.search(query)


def test_an_unknown_collection_is_an_error_that_names_the_nearest(index: qmd.Index) -> None:
    with pytest.raises(qmd.NotFoundError, match="Collection not found: nots") as caught:
        index.search("limiter", collections=["nots"], mode="lexical")
    assert caught.value.hint is not None and "notes" in caught.value.hint


def test_without_an_expansion_model_expanding_says_so(index: qmd.Index) -> None:
    with pytest.raises(qmd.ModelError):
        index.expand_query("limiter")


def test_lines_are_taken_from_the_reference_or_the_arguments(index: qmd.Index) -> None:
    assert index.get("sunday.md:3:1").text == "Talked about the rate limiter."
    assert index.get("sunday.md:3", from_line=4, max_lines=1).text == "It has a sliding window."
    assert index.get(index.documents()[0].docid).document == index.documents()[0]


def test_what_a_pattern_cannot_give_is_told(index: qmd.Index) -> None:
    found = index.multi_get("pricing.md, nothing.md, sunday.md", max_bytes=67)
    assert [one.document.path for one in found.documents] == ["daily/sunday.md"]
    (skipped,) = found.skipped
    assert (skipped.document.path, skipped.reason.split(" (")[0]) == ("pricing.md", "File too large")
    assert [problem.split(" (")[0] for problem in found.problems] == ["File not found: nothing.md"]


def test_several_threads_may_search(index: qmd.Index) -> None:
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: paths(index.search("limiter", mode="lexical")), range(40)))
    assert answers == [["daily/sunday.md"]] * 40


def test_a_closed_store_opens_again_when_it_is_used(index: qmd.Index) -> None:
    index.close()
    assert paths(index.search("limiter", mode="lexical")) == ["daily/sunday.md"]


def test_removing_a_collection_removes_its_documents(index: qmd.Index) -> None:
    assert index.remove_collection("notes") == 2
    assert index.documents() == ()
    assert index.collections() == ()
    with pytest.raises(qmd.NotFoundError):
        index.remove_collection("notes")


def test_what_an_update_writes_to_a_removed_collection_goes_with_the_next_write(index: qmd.Index, folder: Path) -> None:
    index.remove_collection("notes")
    with open_writer(index.path) as late:
        update_collection(late, Collection("notes", folder / "notes"))
    index.update()
    assert paths(index.search("limiter", mode="lexical")) == []


def test_a_renamed_collection_keeps_its_documents_and_vectors(index: qmd.Index) -> None:
    index.embed()
    index.rename_collection("notes", "diary")
    assert index.search("limiter", mode="lexical").hits[0].document.uri == "qmd://diary/daily/sunday.md"
    assert [report.unchanged for report in index.update()] == [2]
    assert index.embed().documents == 0


def test_a_name_that_is_taken_or_unusable_is_refused(index: qmd.Index) -> None:
    index.add_collection("code", "src")
    for action in (
        lambda: index.add_collection("code", "notes"),
        lambda: index.rename_collection("code", "notes"),
        lambda: index.rename_collection("code", "/"),
        lambda: index.add_collection("other", "nowhere"),
        lambda: index.add_context("nots", "", "text"),
        lambda: index.add_context("notes", "", " "),
    ):
        with pytest.raises(qmd.QmdError):
            action()
    assert [one.name for one in index.collections()] == ["notes", "code"]


def test_update_tells_its_progress_by_collection(folder: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    with qmd.open_index("index.sqlite", config=NOTES) as index:
        index.update(on_progress=lambda *progress: seen.append(progress))
    assert seen[-1] == ("notes", 2, 2)


def test_two_embeddings_of_one_index_do_not_run_at_once(index: qmd.Index) -> None:
    with EmbeddingLock(index.path), pytest.raises(qmd.BusyError, match=r"another process \(.*\) is computing vectors"):
        index.embed()


def test_force_computes_vectors_anew(index: qmd.Index) -> None:
    first = index.embed()
    again = index.embed(force=True)
    assert (again.chunks, again.embedded) == (first.chunks, first.embedded)


def test_the_index_can_be_checked_and_cleaned(index: qmd.Index) -> None:
    index.remove_collection("notes")
    assert index.check() == ()
    assert set(index.cleanup(dry_run=True)) == set(index.cleanup())
