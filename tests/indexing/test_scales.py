"""The scale of a model's cosines: measured once, and mapped onto the built-in model's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest

from qmd.indexing.embed import embed_pending
from qmd.indexing.precomputed import PrecomputedChunks
from qmd.indexing.scales import measure_scale
from qmd.inference.engines.embedder import load_embedder
from qmd.inference.models.builtin import MINILM, MULTILINGUAL, locate_builtin
from qmd.inference.records import MINILM_SCALE, CosineScale
from qmd.retrieval.calibration import Evidence
from qmd.retrieval.pipeline import search
from qmd.retrieval.query import parse_query
from qmd.retrieval.request import SearchRequest
from tests.fakes import HashingEmbedder, fake_engines
from tests.note_index import NoteIndex


@dataclass(frozen=True)
class FlatEmbedder(HashingEmbedder):
    """A model in whose vectors all texts share a direction, so that a cosine c becomes share + (1 - share) c."""

    share: float = 0.8
    scale: CosineScale | None = None
    fingerprint: str = "fedcba9876543210"

    def embed_documents(
        self, texts: Sequence[str], on_progress: Callable[[int], None] | None = None
    ) -> npt.NDArray[np.float32]:
        vectors = super().embed_documents(texts, on_progress)
        vectors[:, 0] = 0
        vectors *= np.float32(np.sqrt(1 - self.share)) / np.maximum(
            np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9
        )
        vectors[:, 0] = np.sqrt(self.share)
        return vectors


def test_the_built_in_model_maps_to_itself_exactly_and_its_numbers_are_measured_ones() -> None:
    found = measure_scale(load_embedder(locate_builtin(), MINILM))
    assert (found.best, found.third) == pytest.approx((MINILM_SCALE.best, MINILM_SCALE.third), abs=0.01)
    assert MINILM.scale is not None and [MINILM.scale.mapped(one) for one in (0.1, 1 / 3, 0.97)] == [0.1, 1 / 3, 0.97]


def test_the_multilingual_models_numbers_are_measured_ones() -> None:
    pytest.importorskip("qmd_multilingual")
    found = measure_scale(load_embedder(locate_builtin(MULTILINGUAL), MULTILINGUAL))
    assert MULTILINGUAL.scale is not None
    assert (found.best, found.third) == pytest.approx((MULTILINGUAL.scale.best, MULTILINGUAL.scale.third), abs=0.005)


def test_a_model_with_narrow_cosines_gives_those_of_the_wide_one() -> None:
    """A scale maps two models onto each other if one's cosines are a straight line over the other's."""
    wide, narrow = measure_scale(FlatEmbedder(share=0.0)), measure_scale(FlatEmbedder())
    assert narrow.third > 0.75
    for cosine in (0.0, 0.3, 1.0):
        assert narrow.mapped(0.8 + 0.2 * cosine) == pytest.approx(wide.mapped(cosine), abs=0.001)


@pytest.mark.parametrize(
    "fact", ["0.9000 0.9000", "0.1000 0.9000", "nan nan", "inf 0.1000", "0.9000", "9e99 0.1000", "0.9 0.1", "\u06609 1"]
)
def test_an_unusable_fact_leaves_the_cosines_as_they_are(fact: str) -> None:
    assert CosineScale.of({"scale:f": fact}, "f").mapped(0.7) == 0.7


@pytest.mark.parametrize("numbers", [(float("nan"), 0.1), (0.5, float("nan")), (0.5, 0.5), (float("-inf"), 0.0)])
def test_a_model_that_cannot_tell_texts_apart_keeps_its_cosines(numbers: tuple[float, float]) -> None:
    assert CosineScale(*numbers).mapped(0.7) == 0.7


def test_only_languages_that_the_model_reads_are_measured() -> None:
    @dataclass(frozen=True)
    class English(HashingEmbedder):
        def query_trust(self, text: str) -> float:
            return 1.0 if "sourdough" in text or text.isascii() else 0.0

    embedder = English()
    measure_scale(embedder)
    assert len(embedder.texts) == 25 + 8


def test_the_scale_is_measured_once() -> None:
    embedder = FlatEmbedder()
    index = NoteIndex(embedder)
    index.add("a.md", "# Tomatoes\n\nThey need sun.\n")
    first = len(embedder.texts)
    embed_pending(index, embedder)
    assert len(embedder.texts) == first > 100


def test_every_cosine_of_an_answer_is_on_the_scale_of_the_built_in_model() -> None:
    """Those of stored vectors, of computed ones, and of a document that only the words find."""
    embedder = FlatEmbedder()
    index = NoteIndex(embedder)
    index.add("later.md", "# Kettle\n\nThe kettle needs water.\n", embed=False)
    index.add("far.md", "# Storm\n\n" + "Zucchini rot in the cellar, all others stay. " * 9)
    for number in range(120):
        index.add(f"{number}.md", f"# Tomatoes {number}\n\nTomatoes need sun, bed {number}.\n" * (1 + number % 3))
    asked = "tomatoes need sun, zucchini, water"
    request = SearchRequest(rerank=False, explain=True, limit=200)
    answer = search(index, fake_engines(embedder), parse_query(asked), request, open_source=PrecomputedChunks)
    scale, [query] = CosineScale.of(index.facts(), embedder.fingerprint), embedder.embed_queries([asked])
    [later] = embedder.embed_documents(["Kettle\nThe kettle needs water."])
    raw = index.dense_scores(query, [one.id for one in index.iter_documents()], embedder.fingerprint)
    seen: dict[str, float] = {}
    for hit in answer.hits:
        found = raw.get(hit.document.id)
        cosine = float(query @ later) if found is None else found.score
        for part in hit.explanation.contributions if hit.explanation else ():
            if part.source == "dense" and part.rank is not None:
                seen[hit.document.path] = part.score
                assert part.score == pytest.approx(scale.mapped(cosine), abs=0.05)
    assert {"later.md", "far.md", "7.md"} <= seen.keys() and seen["far.md"] < 0.75


def test_a_mapped_cosine_above_one_counts_as_one() -> None:
    embedder = FlatEmbedder()
    index = NoteIndex(embedder)
    index.add("a.md", "tomatoes\n")
    seen: list[Evidence] = []

    def judge(evidence: Evidence) -> float:
        seen.append(evidence)
        return 0.5

    search(index, fake_engines(embedder), parse_query("tomatoes"), SearchRequest(), judge=judge)
    assert [one.cosine for one in seen] == [1.0]
