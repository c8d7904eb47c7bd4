"""The caller of a search receives its stages and can end it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from qmd.inference.base import Expansion
from qmd.records import Query, SearchResponse
from qmd.retrieval.pipeline import search
from qmd.retrieval.request import SearchRequest
from qmd.retrieval.trace import CancelledSearch, Listener
from tests.fakes import FixedExpander, HashingEmbedder, OverlapReranker, fake_engines
from tests.note_index import NoteIndex

EMBEDDER = HashingEmbedder()
FORCED = SearchRequest(expand=True)


class Recorder(Listener):
    """Listener that records the stages, and cancels on request."""

    def __init__(self, *, has_gone: bool = False) -> None:
        self.stages: list[str] = []
        self.has_gone = has_gone

    @property
    def is_cancelled(self) -> bool:
        return self.has_gone

    def stage(self, name: str, /) -> None:
        self.stages.append(name)


@dataclass
class LeavingReranker(OverlapReranker):
    """Reranker whose listener cancels after the second passage."""

    listener: Recorder = field(default_factory=Recorder)
    n_read: int = 0

    def score(self, query: str, passages: Sequence[str], **options: Any) -> Sequence[float | None]:
        for _ in passages:
            if options["is_cancelled"]():
                break
            self.n_read += 1
            self.listener.has_gone = self.n_read == 2
        return [None for _ in passages]


def ask(listener: Listener, reranker: OverlapReranker | None = None) -> SearchResponse:
    """Search with all three models."""
    with NoteIndex(embedder=EMBEDDER) as reader:
        for number in range(5):
            reader.add(f"{number}.md", f"# Apples {number}\n\nApples and pears, {number} of them.\n")
        engines = fake_engines(EMBEDDER, reranker or OverlapReranker(), FixedExpander())
        return search(reader, engines, Query("apples and pears"), FORCED, listener)


def test_it_hears_of_each_model_in_order() -> None:
    listener = Recorder()
    assert ask(listener).hits
    assert listener.stages == ["expanding", "embedding", "reranking"]


def test_no_model_runs_after_a_cancellation() -> None:
    listener = Recorder(has_gone=True)
    with pytest.raises(CancelledSearch):
        ask(listener)
    assert listener.stages == []


def test_reranking_ends_between_passages_after_a_cancellation() -> None:
    reranker = LeavingReranker(listener=Recorder())
    with pytest.raises(CancelledSearch):
        ask(reranker.listener, reranker)
    assert reranker.n_read == 2


def test_no_model_runs_after_a_cancelled_expansion() -> None:
    listener = Recorder()

    class LeavingExpander(FixedExpander):
        def expand(self, query: str, **_: object) -> Expansion:
            listener.has_gone = True
            return Expansion(())

    class NoEmbedder(HashingEmbedder):
        def embed_queries(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
            raise AssertionError("embedded after a cancellation")

    with NoteIndex(embedder=EMBEDDER) as reader, pytest.raises(CancelledSearch):
        reader.add("a.md", "# Apples\n")
        search(reader, fake_engines(NoEmbedder(), None, LeavingExpander()), Query("apples"), FORCED, listener)
    assert listener.stages == ["expanding"]
