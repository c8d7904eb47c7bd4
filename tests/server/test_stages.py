"""Engines that announce their stages are otherwise the same engines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest

from qmd.inference.base import Reranker
from qmd.retrieval.reranking import CollectionAware
from qmd.server.stages import CancelledSearch, NoListener, announce_stages
from tests.fakes import FixedExpander, HashingEmbedder, OverlapReranker, fake_engines


@dataclass
class WeighingReranker(OverlapReranker):
    """A reranker whose scores are the weight that the collection gives to the query."""

    weight: float = 0.0

    def with_idf(self, idf: Callable[[Sequence[str]], Sequence[float]]) -> Reranker:
        return replace(self, weight=idf(["word"])[0])

    def score(self, query: str, passages: Sequence[str], **_: object) -> Sequence[float | None]:
        return [self.weight for _ in passages]


@dataclass
class Recorder:
    """A listener that notes the stages."""

    stages: list[str] = field(default_factory=list)
    is_gone: bool = False

    def stage(self, stage: str) -> None:
        self.stages.append(stage)


def test_a_reranker_that_weighs_words_by_rarity_still_does() -> None:
    listener = Recorder()
    reranker = announce_stages(fake_engines(reranker=WeighingReranker()), listener).reranker
    assert isinstance(reranker, CollectionAware)
    assert reranker.with_idf(lambda words: [7.0 for _ in words]).score("word", ["a", "b"]) == [7.0, 7.0]
    assert listener.stages == ["reranking"]


def test_a_plain_reranker_gets_no_word_weights() -> None:
    reranker = announce_stages(fake_engines(reranker=OverlapReranker()), NoListener()).reranker
    assert not isinstance(reranker, CollectionAware)


def test_reranking_ends_between_passages_when_nobody_waits_any_more() -> None:
    listener = Recorder()
    read: list[str] = []

    class OneByOne(OverlapReranker):
        def score(  # type: ignore[override]
            self, query: str, passages: Sequence[str], *, is_cancelled: Callable[[], bool], **_: object
        ) -> Sequence[float | None]:
            for passage in passages:
                if is_cancelled():
                    break
                read.append(passage)
                listener.is_gone = len(read) == 2
            return [None for _ in passages]

    reranker = announce_stages(fake_engines(reranker=OneByOne()), listener).reranker
    assert reranker is not None
    with pytest.raises(CancelledSearch):
        reranker.score("query", ["a", "b", "c", "d"])
    assert read == ["a", "b"]


def test_no_stage_begins_once_nobody_waits() -> None:
    engines = announce_stages(
        fake_engines(HashingEmbedder(), OverlapReranker(), FixedExpander()), listener := Recorder(is_gone=True)
    )
    assert engines.embedder and engines.reranker and engines.expander
    for work in (
        lambda: engines.embedder.embed_queries(["a"]),
        lambda: engines.reranker.score("a", ["b"]),
        lambda: engines.expander.expand("a"),
    ):
        with pytest.raises(CancelledSearch):
            work()
    assert listener.stages == []
