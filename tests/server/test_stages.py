"""Engines that announce their stages are otherwise the same engines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from qmd.inference.base import Reranker
from qmd.retrieval.reranking import CollectionAware
from qmd.server.stages import announce_stages
from tests.fakes import OverlapReranker, fake_engines


@dataclass
class WeighingReranker(OverlapReranker):
    """A reranker whose scores are the weight that the collection gives to the query."""

    weight: float = 0.0

    def with_idf(self, idf: Callable[[Sequence[str]], Sequence[float]]) -> Reranker:
        return replace(self, weight=idf(["word"])[0])

    def score(self, query: str, passages: Sequence[str], **_: object) -> Sequence[float | None]:  # type: ignore[override]
        return [self.weight for _ in passages]


def test_a_reranker_that_weighs_words_by_rarity_still_does() -> None:
    stages: list[str] = []
    reranker = announce_stages(fake_engines(reranker=WeighingReranker()), stages.append).reranker
    assert isinstance(reranker, CollectionAware)
    assert reranker.with_idf(lambda words: [7.0 for _ in words]).score("word", ["a", "b"]) == [7.0, 7.0]
    assert stages == ["reranking"]


def test_a_plain_reranker_gets_no_word_weights() -> None:
    reranker = announce_stages(fake_engines(reranker=OverlapReranker()), lambda _: None).reranker
    assert not isinstance(reranker, CollectionAware)
