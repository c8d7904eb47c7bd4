"""Embedding of pending texts: computed and reused vectors, and the loss through a stop or a kill."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from qmd.indexing.embed import chunk_key, embed_pending, embedded_text
from qmd.indexing.update import update_collection
from qmd.progress import Progress
from qmd.records import Chunk, Collection, Scope
from qmd.store.sqlite.opening import open_reader, open_writer
from qmd.store.sqlite.writer import SqliteWriter
from tests.fakes import HashingEmbedder
from tests.parsing import parse_document


def index(writer: SqliteWriter, folder: Path) -> None:
    update_collection(writer, Collection("notes", folder), verify=True)


def long_text(subject: str, sections: int = 4) -> str:
    """A note of several chunks."""
    words = [f"## Part {number}\n\n" + f"{subject} in part {number} says little. " * 40 for number in range(sections)]
    return f"# On {subject}\n\n" + "\n\n".join(words)


def test_every_text_is_found_by_meaning_once_embedded(writer: SqliteWriter, notes: Path) -> None:
    for subject in ("apples", "rivers", "planets"):
        (notes / f"{subject}.md").write_text(long_text(subject))
    index(writer, notes)
    embedder = HashingEmbedder()
    report = embed_pending(writer, embedder)
    assert (report.documents, report.stopped) == (3, False)
    assert report.embedded == report.chunks == len(embedder.texts)
    query = embedder.embed_queries(["rivers"])[0]
    best = writer.search_dense(query, 1, Scope(), embedder.fingerprint)[0]
    assert writer.documents([best.document_id])[best.document_id].path == "rivers.md"
    assert writer.status(embedder.fingerprint).pending_documents == 0


def test_a_second_run_has_nothing_to_do(writer: SqliteWriter, notes: Path) -> None:
    (notes / "a.md").write_text(long_text("apples"))
    index(writer, notes)
    embed_pending(writer, HashingEmbedder())
    again = HashingEmbedder()
    assert embed_pending(writer, again).documents == 0
    assert again.texts == []


def test_a_renamed_or_returning_file_costs_no_embedding(writer: SqliteWriter, notes: Path) -> None:
    (notes / "a.md").write_text(long_text("apples"))
    index(writer, notes)
    embed_pending(writer, HashingEmbedder())
    (notes / "a.md").rename(notes / "b.md")
    index(writer, notes)
    assert list(writer.pending(HashingEmbedder().fingerprint)) == []
    (notes / "b.md").rename(notes / "away.txt")
    index(writer, notes)
    (notes / "away.txt").rename(notes / "c.md")
    index(writer, notes)
    embedder = HashingEmbedder()
    report = embed_pending(writer, embedder)
    assert (report.documents, report.embedded) == (1, 0)
    assert report.reused == report.chunks > 0
    assert embedder.texts == []


def test_an_edit_embeds_only_the_chunks_it_changed(writer: SqliteWriter, notes: Path) -> None:
    text = long_text("apples", sections=12)
    (notes / "a.md").write_text(text)
    index(writer, notes)
    first = embed_pending(writer, HashingEmbedder())
    (notes / "a.md").write_text(text.replace("apples in part 6", "pears in part 6"))
    index(writer, notes)
    second = embed_pending(writer, HashingEmbedder())
    assert 0 < second.embedded < first.chunks / 2
    assert second.embedded + second.reused == second.chunks


def test_one_text_in_two_files_is_embedded_once(writer: SqliteWriter, notes: Path) -> None:
    for name in ("a.md", "b.md"):
        (notes / name).write_text(long_text("apples"))
    index(writer, notes)
    embedder = HashingEmbedder()
    assert embed_pending(writer, embedder).documents == 1
    assert len(embedder.texts) == len(set(embedder.texts))
    assert writer.status(embedder.fingerprint).embedded_documents == 2


def test_the_model_reads_title_and_headings_but_no_front_matter_and_no_meaningless_file_name() -> None:
    titled = parse_document("x.md", b"---\nstatus: draft\n---\n# Guide\n\n## Set-up\n\nbody text")
    chunk = Chunk(0, 0, 9, "body text", ("Guide", "Set-up"))
    assert embedded_text(titled, chunk) == "Guide > Set-up\nbody text"
    untitled = parse_document("3f9a01c2.md", b"body text")
    assert embedded_text(untitled, Chunk(0, 0, 9, "body text", ())) == "body text"


def test_the_model_reads_every_name_of_a_note_once() -> None:
    named = parse_document("a/Control flow.md", b"---\naliases: [CFG, control-flow]\n---\n# Flow graphs\n\nbody text")
    assert embedded_text(named, Chunk(0, 0, 9, "body text", ("Flow graphs",))) == (
        "Flow graphs, Control flow, CFG\nbody text"
    )


def test_headings_in_front_of_a_chunk_are_not_read_twice() -> None:
    text = "# Guide\n\n## `Set-up`\n\nbody\n\n## Guide\n\nmore"
    document = parse_document("x.md", text.encode())
    chunk = Chunk(0, 0, len(text), text, ("Guide", "Set-up"))
    assert embedded_text(document, chunk) == "Guide > Set-up\nbody\n\n## Guide\n\nmore"


def test_front_matter_is_not_embedded(writer: SqliteWriter, notes: Path) -> None:
    (notes / "a.md").write_text("---\nsecretkey: zebra\n---\n# Title\n\nplain body")
    index(writer, notes)
    embedder = HashingEmbedder()
    embed_pending(writer, embedder)
    assert embedder.texts and not [text for text in embedder.texts if "zebra" in text]


def test_chunks_that_the_engine_declines_are_left_out_and_the_text_is_complete(
    writer: SqliteWriter, notes: Path
) -> None:
    class Declining(HashingEmbedder):
        def embeds(self, text: str) -> bool:
            return "apples" in text

    (notes / "a.md").write_text("# A\n\napples")
    (notes / "b.md").write_text("# B\n\n0x1f 0x2e 0x3d")
    (notes / "empty.md").write_text("")
    index(writer, notes)
    embedder = Declining()
    assert embed_pending(writer, embedder).documents == 3
    assert len(embedder.texts) == 1
    assert writer.status(embedder.fingerprint).pending_documents == 0


def test_only_the_given_collections_are_embedded(writer: SqliteWriter, notes: Path, tmp_path: Path) -> None:
    (notes / "a.md").write_text("apples")
    other = tmp_path / "other"
    other.mkdir()
    (other / "b.md").write_text("banana")
    index(writer, notes)
    update_collection(writer, Collection("other", other))
    assert embed_pending(writer, HashingEmbedder(), collections=["other"]).documents == 1
    assert [content.path for content in writer.pending(HashingEmbedder().fingerprint)] == ["a.md"]


def test_a_stop_keeps_what_was_computed_and_the_next_run_finishes(writer: SqliteWriter, notes: Path) -> None:
    (notes / "long.md").write_text(long_text("apples", sections=60))
    index(writer, notes)
    asked = iter([True])
    stopped = embed_pending(writer, HashingEmbedder(), should_stop=lambda: next(asked))
    assert stopped.stopped and stopped.documents == 0 and stopped.embedded > 0
    embedder = HashingEmbedder()
    finished = embed_pending(writer, embedder)
    assert finished.documents == 1
    assert len(embedder.texts) == finished.chunks - stopped.embedded


def test_runs_that_are_stopped_at_once_finish_all_the_same_when_they_are_repeated(
    writer: SqliteWriter, notes: Path
) -> None:
    (notes / "long.md").write_text(long_text("apples", sections=60))
    index(writer, notes)
    while embed_pending(writer, HashingEmbedder(), should_stop=lambda: True).stopped:
        pass
    assert writer.status(HashingEmbedder().fingerprint).pending_documents == 0


def test_a_crash_of_the_model_loses_only_the_batch_it_happened_in(writer: SqliteWriter, notes: Path) -> None:
    (notes / "long.md").write_text(long_text("apples", sections=60))
    index(writer, notes)

    def crash(texts: Sequence[str]) -> None:
        if embedder.texts:
            raise MemoryError

    embedder = HashingEmbedder(before=crash)
    with pytest.raises(MemoryError):
        embed_pending(writer, embedder)
    assert writer.status(HashingEmbedder().fingerprint).vectors > 0
    assert embed_pending(writer, HashingEmbedder()).documents == 1
    assert writer.check() == []


def test_the_size_of_a_run_is_known_from_the_start_and_reached_at_its_end(writer: SqliteWriter, notes: Path) -> None:
    for number in range(5):
        (notes / f"{number}.md").write_text(long_text(f"subject{number}"))
    index(writer, notes)
    seen: list[Progress] = []
    embed_pending(writer, HashingEmbedder(), on_progress=seen.append)
    n_chars = 5 * len(long_text("subject0"))
    assert {progress.total for progress in seen} == {n_chars}
    assert [progress.done for progress in seen] == sorted(progress.done for progress in seen)
    assert seen[-1].done == n_chars


def test_what_has_its_vectors_already_counts_as_done_at_once(writer: SqliteWriter, notes: Path) -> None:
    text = long_text("apples", sections=40)
    (notes / "a.md").write_text(text)
    index(writer, notes)
    embed_pending(writer, HashingEmbedder())
    (notes / "a.md").write_text(text.replace("apples in part 6", "pears in part 6"))
    index(writer, notes)
    seen: list[Progress] = []
    embed_pending(writer, HashingEmbedder(), on_progress=seen.append)
    assert seen[0].percent > 90


def test_the_newest_notes_get_their_vectors_first(writer: SqliteWriter, notes: Path) -> None:
    ages = {"b.md": 2, "old.md": 900, "a.md": 2, "new.md": 0}
    for name, days in ages.items():
        (notes / name).write_text(name)
        os.utime(notes / name, (1_700_000_000 - 86_400 * days,) * 2)
    (notes / "dated 2023-11-20.md").write_text("a file copied today keeps its own date")
    index(writer, notes)
    order = [content.path for content in writer.pending(HashingEmbedder().fingerprint)]
    assert order == ["dated 2023-11-20.md", "new.md", "a.md", "b.md", "old.md"]


def test_no_lock_is_held_while_the_model_computes(writer: SqliteWriter, notes: Path) -> None:
    (notes / "a.md").write_text(long_text("apples"))
    index(writer, notes)
    path = writer.database.path

    def write_and_read(texts: Sequence[str]) -> None:
        with open_writer(path, busy_timeout_ms=0) as second:
            second.mark_updated("other")
        with open_reader(path) as reader:
            assert reader.status(None).documents == 1

    assert embed_pending(writer, HashingEmbedder(before=write_and_read)).documents == 1


def test_a_key_names_the_embedded_text() -> None:
    assert len(chunk_key("a")) == 16
    assert chunk_key("a") != chunk_key("b")


CODE = "import os\n\n\nclass Store:\n" + "".join(
    f"    def method_{number}(self):\n        # Opens door {number}.\n" + "        step(self.door, self.key)\n" * 12
    for number in range(4)
)


def index_code(writer: SqliteWriter, folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text)
    update_collection(writer, Collection("notes", folder, "**/*"), verify=True)


def test_source_code_is_embedded_by_declaration_under_its_qualified_name(writer: SqliteWriter, notes: Path) -> None:
    index_code(writer, notes, "store.py", CODE)
    embedder = HashingEmbedder()
    embed_pending(writer, embedder)
    heads = {text.split("\n")[0] for text in embedder.texts}
    assert {f"store > class Store > def method_{number}" for number in range(4)} <= heads


def test_source_code_is_cut_as_plain_text_when_asked(writer: SqliteWriter, notes: Path) -> None:
    index_code(writer, notes, "store.py", CODE)
    embedder = HashingEmbedder()
    embed_pending(writer, embedder, cut_declarations=False)
    assert not [text for text in embedder.texts if " > " in text]


@pytest.mark.parametrize("text", ["def broken((:\n  class\n" * 50, "\0\0", "((((((" * 500, "def ok(): pass\n" + "'''"])
def test_broken_source_is_embedded_all_the_same(writer: SqliteWriter, notes: Path, text: str) -> None:
    index_code(writer, notes, "a.rs", text.replace("\0", " "))
    assert not embed_pending(writer, HashingEmbedder()).warnings
    assert writer.count_pending(HashingEmbedder().fingerprint) == (0, 0)


def test_texts_that_an_older_chunker_cut_are_cut_again_and_equal_chunks_cost_nothing(
    writer: SqliteWriter, notes: Path
) -> None:
    (notes / "apples.md").write_text(long_text("apples"))
    index(writer, notes)
    embedder = HashingEmbedder()
    first = embed_pending(writer, embedder)
    assert embed_pending(writer, embedder).chunks == 0
    writer.set_version_stamp(f"chunks:{embedder.fingerprint}", "1")
    again = embed_pending(writer, embedder)
    assert (again.chunks, again.embedded) == (first.chunks, 0)
    assert embed_pending(writer, embedder).chunks == 0


def test_a_text_stays_searchable_while_it_waits_to_be_cut_again(writer: SqliteWriter, notes: Path) -> None:
    (notes / "apples.md").write_text(long_text("apples"))
    index(writer, notes)
    embedder = HashingEmbedder()
    embed_pending(writer, embedder)
    writer.set_version_stamp(f"chunks:{embedder.fingerprint}", "1")
    embed_pending(writer, embedder, should_stop=lambda: True, collections=[])
    assert writer.count_pending(embedder.fingerprint)[0] == 1
    assert writer.search_dense(embedder.embed_queries(["apples"])[0], 5, Scope(), embedder.fingerprint)


def test_only_the_files_of_a_grammar_that_was_missing_are_cut_again(
    writer: SqliteWriter, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (notes / "apples.md").write_text(long_text("apples"))
    index_code(writer, notes, "store.PY", CODE)
    embedder = HashingEmbedder()
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "tree_sitter_python", None)
        report = embed_pending(writer, embedder)
        assert report.warnings == (
            "Python files are cut as plain text: package 'tree-sitter-python' is not installed;"
            " pip install tree-sitter-python",
        )
    assert not [text for text in embedder.texts if " > def" in text]
    assert embed_pending(writer, embedder).documents == 1
    assert [text for text in embedder.texts if " > def" in text]
    assert embed_pending(writer, embedder).documents == 0


def test_a_cleanup_in_the_middle_costs_an_embedding_run_nothing_but_time(
    writer: SqliteWriter, notes: Path, tmp_path: Path
) -> None:
    for number in range(80):
        (notes / f"{number}.md").write_text(f"# Note {number}\n\nword{number} and more\n")
    index(writer, notes)

    def clean_up_elsewhere(texts: Sequence[str]) -> None:
        calls.append(len(texts))
        if len(calls) == 2:
            with open_writer(tmp_path / "index.sqlite") as other:
                assert other.cleanup()["unused vectors"] > 0

    calls: list[int] = []
    embedder = HashingEmbedder(dim=4096, before=clean_up_elsewhere)
    report = embed_pending(writer, embedder)
    assert len(calls) >= 2
    assert report.documents == 80
    assert report.embedded > 80
    assert writer.status(embedder.fingerprint).embedded_documents == 80
    assert writer.check() == []
    [found] = writer.search_dense(embedder.embed_queries(["word7 note"])[0], 1, Scope(), embedder.fingerprint)
    assert writer.documents([found.document_id])[found.document_id].path == "7.md"
