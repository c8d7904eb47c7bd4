"""Searches of an index without vectors, with the built-in model: they compute a few, store them, and do not fail."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import qmd
from qmd.store.opening import open_writer

CONFIG = "collections:\n  notes:\n    path: {}\n"
QUESTION = "what do customers pay for the product"
COMPUTED = "vectors of 1 of the best notes were missing and computed now"


@pytest.fixture
def index(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[qmd.Index]:
    """Index without vectors, as the command line opens it; one of its two notes contains a word of the query."""
    monkeypatch.setenv("QMD_EMBED_MODEL", "built-in")
    monkeypatch.setenv("QMD_RERANK_MODEL", "built-in")
    (tmp_path / "config/qmd").mkdir(parents=True)
    (tmp_path / "config/qmd/index.yml").write_text(CONFIG.format(folder / "notes"))
    (folder / "notes/pricing.md").write_text("# Pricing decision\n\nEach customer pays by the seat.\n")
    with qmd.open_index() as opened:
        opened.update()
        yield opened


def test_an_answer_leaves_vectors_and_the_next_one_computes_none(index: qmd.Index) -> None:
    first = index.search(QUESTION)
    assert first.hits[0].document.path == "pricing.md"
    assert COMPUTED in first.warnings
    assert index.status().pending_documents == 1
    again = index.search(QUESTION)
    assert COMPUTED not in again.warnings
    assert [hit.document for hit in again.hits] == [hit.document for hit in first.hits]
    assert index.embed().embedded == 1


def test_a_search_by_meaning_is_answered_by_meaning(index: qmd.Index) -> None:
    answer = index.search(QUESTION, mode="dense")
    assert answer.hits[0].document.path == "pricing.md"
    assert COMPUTED in answer.warnings


def test_a_search_by_words_computes_nothing(index: qmd.Index) -> None:
    index.search("customer", mode="lexical")
    assert index.status().vectors == 0


def test_an_index_that_another_process_writes_answers_and_keeps_nothing(index: qmd.Index) -> None:
    with open_writer(index.path) as writer, writer.transaction():
        assert COMPUTED in index.search(QUESTION).warnings
    assert index.status().vectors == 0


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes where it may not")
def test_an_index_that_cannot_be_written_answers(index: qmd.Index) -> None:
    index.path.parent.chmod(0o500)
    try:
        assert COMPUTED in index.search(QUESTION).warnings
    finally:
        index.path.parent.chmod(0o700)


def test_searches_that_may_change_nothing_keep_nothing(index: qmd.Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QMD_AUTO_UPDATE", "0")
    with qmd.open_index() as other:
        assert COMPUTED in other.search(QUESTION).warnings
    monkeypatch.delenv("QMD_AUTO_UPDATE")
    with qmd.open_index(index.path) as other:
        assert COMPUTED in other.search(QUESTION).warnings
    assert index.status().vectors == 0
