"""Copies of an index between stores: the copy answers the same, and cannot be used before it is complete."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from qmd.errors import StoreError, UsageError
from qmd.indexing.copy import begin_copy, copy_index
from qmd.indexing.embed import embed_pending
from qmd.indexing.stamps import Stamp
from qmd.indexing.update import update_collection
from qmd.inference.base import Engines
from qmd.records import Collection, Scope
from qmd.retrieval.pipeline import search
from qmd.retrieval.query import parse_query
from qmd.retrieval.request import SearchRequest
from qmd.store.base import IndexReader, IndexWriter
from qmd.store.opening import open_reader, open_writer
from tests.fakes import HashingEmbedder
from tests.store.contract.conftest import Place

OLD_NS = 1_700_000_000_000_000_000

NOTES = {
    "garden/tomato.md": "---\naliases: [love apple]\ndate: 2024-05-01\n---\n# Tomato\n\nRed, needs sun.\n",
    "garden/index.md": "# Overview\n\nSee [[Tomato|the red one]], [[basil]].\n\n## Water\n\nIn the morning.\n",
    "basil.md": "# Basil\n\nGrows beside [[tomato]]. Needs sun and water.\n",
    "same a.md": "# Template\n\nNothing here yet.\n",
    "same b.md": "# Template\n\nNothing here yet.\n",
    "same c.md": "# Template\n\nNot the same.\n",
    "odd.md": "# Odd\n\n" + "words before it. " * 600 + "a\0b after\n",
    "empty.md": "",
}
CODE = {"store.py": 'class Store:\n    """Keeps tomatoes."""\n\n    def open_box(self):\n        return 1\n'}
QUESTIONS = ("tomato sun", "love apple", "water in the morning", "the red one", "open box", "template", '"needs sun"')


@pytest.fixture
def source(tmp_path: Path) -> Iterator[IndexReader]:
    """Two collections with vectors, a skipped file, and notes."""
    collections = []
    for name, files, pattern in (("notes", NOTES, "**/*.md"), ("code", CODE, "**/*.py")):
        for path, text in files.items():
            file = tmp_path / name / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(text.encode())
            os.utime(file, ns=(OLD_NS, OLD_NS))
        collections.append(Collection(name, tmp_path / name, pattern, context={"/garden": "What grows"}))
    (tmp_path / "notes" / "binary.md").write_bytes(b"\0\1\2\0" * 100)
    with open_writer(tmp_path / "source.sqlite") as writer:
        writer.mirror_config(collections, "all of it", "digest")
        for collection in collections:
            update_collection(writer, collection)
        for embedder in (HashingEmbedder(dim=64, fingerprint="an-older-model", scale=None), HashingEmbedder()):
            embed_pending(writer, embedder)
    with open_reader(tmp_path / "source.sqlite") as reader:
        yield reader


def copied(source: IndexReader, place: Path, address: str | None = None) -> IndexReader:
    with open_writer(place, address, takes_unfinished=True) as writer:
        begin_copy(writer, "source", "copy")
        copy_index(source, writer)
    return open_reader(place, address)


@pytest.fixture
def copy(source: IndexReader, tmp_path: Path) -> Iterator[IndexReader]:
    with copied(source, tmp_path / "copy.sqlite") as reader:
        yield reader


def all_files(reader: IndexReader) -> list[object]:
    return [file for part in reader.stored_files() for file in part]


def all_vectors(reader: IndexReader, fingerprint: str) -> dict[bytes, bytes]:
    return {key: one.tobytes() for part in reader.all_vectors(fingerprint) for key, one in part.items()}


def all_chunks(reader: IndexReader, fingerprint: str) -> dict[str, list[object]]:
    return {one: list(chunks) for part in reader.chunk_sets(fingerprint) for one, chunks in part.items()}


def test_a_copy_answers_with_the_same_documents_and_scores(source: IndexReader, copy: IndexReader) -> None:
    engines = Engines(HashingEmbedder(), None, None)
    for question in QUESTIONS:
        for mode in ("lexical", "dense", "hybrid"):
            options = SearchRequest(mode=mode)
            hits = [
                [
                    (hit.document.uri, hit.relevance, hit.passage)
                    for hit in search(one, engines, parse_query(question), options).hits
                ]
                for one in (source, copy)
            ]
            assert hits[0] == hits[1], (question, mode)


def test_a_copy_knows_of_documents_what_the_index_knows(source: IndexReader, copy: IndexReader) -> None:
    assert all_files(copy) == all_files(source)
    documents = [list(one.iter_documents()) for one in (source, copy)]
    assert documents[0] == documents[1]
    hashes = [document.hash for document in documents[0]]
    assert copy.texts(hashes) == source.texts(hashes)
    assert "a\0b" in "".join(copy.texts([doc.hash for doc in documents[0] if doc.path == "odd.md"]).values())
    for document in documents[0]:
        assert copy.links_from(document) == source.links_from(document)
        assert copy.links_to(document) == source.links_to(document)


def test_a_copy_has_the_scales_of_the_models(source: IndexReader, copy: IndexReader) -> None:
    assert copy.facts()["scale:an-older-model"] == source.facts()["scale:an-older-model"]


def test_a_copy_has_the_collections_what_was_left_out_and_when_it_was_updated(
    source: IndexReader, copy: IndexReader
) -> None:
    assert copy.collections() == source.collections()
    assert copy.global_context() == "all of it"
    assert [one.path for one in copy.left_out("notes")] == ["binary.md"]
    for name in ("notes", "code"):
        assert copy.left_out(name) == source.left_out(name)
        assert copy.recorded_folders(name) == source.recorded_folders(name)
        assert Stamp.parse(copy.version_stamp(f"analysis:{name}")) == Stamp.parse(
            source.version_stamp(f"analysis:{name}")
        )
    assert copy.status(None).collections == source.status(None).collections


def test_vectors_and_chunks_of_every_model_are_bit_equal(source: IndexReader, copy: IndexReader) -> None:
    assert copy.models() == source.models()
    assert len(source.models()) == 2
    for model in source.models():
        assert all_vectors(copy, model.fingerprint) == all_vectors(source, model.fingerprint) != {}
        assert all_chunks(copy, model.fingerprint) == all_chunks(source, model.fingerprint) != {}
        stamp = f"chunks:{model.fingerprint}"
        assert copy.version_stamp(stamp) == source.version_stamp(stamp)
    assert copy.status(None).fingerprint == HashingEmbedder().fingerprint


def test_an_update_of_a_copy_reads_no_file_and_embeds_nothing(source: IndexReader, tmp_path: Path) -> None:
    copied(source, tmp_path / "copy.sqlite").close()
    with open_writer(tmp_path / "copy.sqlite") as writer:
        for collection in writer.collections():
            report = update_collection(writer, collection)
            assert (report.new, report.updated, report.removed) == (0, 0, 0)
        assert embed_pending(writer, HashingEmbedder()).embedded == 0


def test_an_index_that_holds_something_is_not_copied_over(source: IndexReader, tmp_path: Path) -> None:
    copied(source, tmp_path / "copy.sqlite").close()
    with (
        open_writer(tmp_path / "copy.sqlite") as writer,
        pytest.raises(UsageError, match="'copy' already contains documents"),
    ):
        begin_copy(writer, "source", "copy")


class _Interrupted(Exception):
    pass


def _copy_until(source: IndexReader, place: Path, stage: str, address: str | None = None) -> None:
    def interrupt(what: str, done: int, total: int) -> None:
        if what == stage:
            raise _Interrupted

    with open_writer(place, address, takes_unfinished=True) as writer, pytest.raises(_Interrupted):
        begin_copy(writer, "source", "copy")
        copy_index(source, writer, interrupt)


@pytest.mark.parametrize("stage", ["Texts", "Vectors"])
@pytest.mark.parametrize("engine", ["sqlite", "lance"])
def test_an_interrupted_copy_is_no_index_and_the_next_one_completes_it(
    source: IndexReader, tmp_path: Path, stage: str, engine: str
) -> None:
    target = Place(tmp_path, engine)
    place, address = target.path, target.address
    _copy_until(source, place, stage, address)
    for opening in (open_reader, open_writer):
        with pytest.raises(StoreError, match="unfinished copy of 'source'") as refused:
            opening(place, address)
        assert "qmd store copy source" in str(refused.value.hint)
    unfinished = open_writer(place, address, takes_unfinished=True)
    with unfinished as writer, pytest.raises(UsageError, match="copy of 'source'"):
        begin_copy(writer, "another", "copy")
    with copied(source, place, address) as reader:
        assert sorted(map(str, all_files(reader))) == sorted(map(str, all_files(source)))
        for model in source.models():
            kept, all_there = all_vectors(reader, model.fingerprint), all_vectors(source, model.fingerprint)
            assert kept.keys() == all_there.keys()
            assert address is not None or kept == all_there


def test_a_copy_that_goes_on_drops_what_has_gone_meanwhile(source: IndexReader, tmp_path: Path) -> None:
    place = tmp_path / "copy.sqlite"
    _copy_until(source, place, "Vectors")
    with open_writer(tmp_path / "source.sqlite") as writer:
        writer.remove_documents("notes", ["basil.md"])
        writer.remove_collection("code")
    with copied(source, place) as reader:
        assert reader.find_path("notes", "basil.md") is None
        assert not list(reader.iter_documents(Scope(("code",))))
        assert reader.count_documents() == source.count_documents()


def test_what_embeds_meanwhile_does_not_end_a_copy(source: IndexReader, tmp_path: Path) -> None:
    def change(what: str, done: int, total: int) -> None:
        if what != "Vectors":
            return
        with open_writer(tmp_path / "source.sqlite") as busy:
            embed_pending(busy, HashingEmbedder(), cut_declarations=False)
            busy.forget_chunks(HashingEmbedder().fingerprint)
            embed_pending(busy, HashingEmbedder(max_tokens=20))

    with open_writer(tmp_path / "copy.sqlite", takes_unfinished=True) as writer:
        begin_copy(writer, "source", "copy")
        copy_index(source, writer, change)
    assert _is_complete(tmp_path / "copy.sqlite")


def _is_complete(place: Path) -> bool:
    with open_reader(place) as reader:
        return not reader.check() and reader.status(None).pending_documents == 0


def test_a_text_that_cannot_be_analysed_is_left_out_with_a_warning(tmp_path: Path, source: IndexReader) -> None:
    class Odd:
        """Index with one text that is no text."""

        def __getattr__(self, name: str) -> object:
            return getattr(source, name)

        def texts(self, hashes: list[str]) -> dict[str, object]:
            found = source.find_path("notes", "basil.md")
            assert found is not None
            return {**source.texts(hashes), found.hash: None}

    writer: IndexWriter
    with open_writer(tmp_path / "copy.sqlite", takes_unfinished=True) as writer:
        begin_copy(writer, "source", "copy")
        report = copy_index(Odd(), writer)  # type: ignore[arg-type]
        assert report.documents == source.count_documents() - 1
    assert [warning.split("'")[1] for warning in report.warnings] == ["notes/basil.md"]


def test_an_index_comes_back_from_the_other_engine_as_it_went(source: IndexReader, tmp_path: Path) -> None:
    pytest.importorskip("lancedb")
    there = copied(source, tmp_path / "state", f"lance:{tmp_path}/shared")
    with there as shared, copied(shared, tmp_path / "back.sqlite") as back:
        assert all_files(back) == all_files(source)
        assert back.collections() == source.collections()
        assert back.status(None).collections == source.status(None).collections
        assert [one.path for one in back.left_out("notes")] == ["binary.md"]
        assert back.models() == source.models()
        for model in source.models():
            assert all_vectors(back, model.fingerprint) == all_vectors(source, model.fingerprint)
            assert all_chunks(back, model.fingerprint) == all_chunks(source, model.fingerprint)
