"""Fusion: order-independent, deterministic, and the effect of each rule."""

from random import Random
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qmd.records import Candidate, NameKind, Ranking
from qmd.retrieval.fusion import INFLUENCES, add_influence, blend_rerank, fuse_zscores, z_scores


def ranking(scores: dict[int, float], source: str = "dense") -> Ranking:
    ordered = sorted(scores.items(), key=lambda item: (-item[1], item[0]))
    return Ranking("bm25" if source == "bm25" else "dense", "original", "q", tuple(Candidate(n, s) for n, s in ordered))


SCORES = st.dictionaries(st.integers(1, 40), st.floats(0, 30), max_size=30)


@given(st.lists(st.tuples(SCORES, st.sampled_from(["bm25", "dense"]), st.floats(0, 1)), max_size=5), st.randoms())
def test_the_order_of_rankings_is_irrelevant(inputs: list[tuple[dict[int, float], str, float]], random: Random) -> None:
    pairs = [(ranking(scores, source), weight) for scores, source, weight in inputs]
    shuffled = list(pairs)
    random.shuffle(shuffled)
    left = fuse_zscores([p[0] for p in pairs], [p[1] for p in pairs])
    right = fuse_zscores([p[0] for p in shuffled], [p[1] for p in shuffled])
    assert [(f.document_id, f.score) for f in left] == [(f.document_id, f.score) for f in right]


@given(SCORES, SCORES)
def test_every_document_comes_back_once_best_first(left: dict[int, float], right: dict[int, float]) -> None:
    fused = fuse_zscores([ranking(left), ranking(right, "bm25")], [0.5, 0.5])
    assert sorted(f.document_id for f in fused) == sorted({*left, *right})
    assert [f.score for f in fused] == sorted((f.score for f in fused), reverse=True)


def test_ties_are_ordered_by_document_id() -> None:
    fused = fuse_zscores([ranking({5: 1.0, 2: 1.0, 9: 1.0})], [1.0])
    assert [f.document_id for f in fused] == [2, 5, 9]


def test_a_document_absent_from_a_full_list_takes_its_lowest_score() -> None:
    full = {number: 200.0 - number for number in range(1, 101)}
    fused = fuse_zscores([ranking(full, "bm25"), ranking({1000: 0.9, 1: 0.1})], [1.0, 0.0])
    by_id = {f.document_id: f.score for f in fused}
    assert by_id[1000] == by_id[100]


def test_a_document_absent_from_a_short_lexical_list_scores_below_it() -> None:
    fused = fuse_zscores([ranking({1: 5.0}, "bm25"), ranking({1: 0.5, 2: 0.5})], [0.5, 0.5])
    assert [f.document_id for f in fused] == [1, 2]
    assert fused[0].score > fused[1].score


def test_empty_rankings_are_ignored() -> None:
    assert fuse_zscores([ranking({}), ranking({1: 1.0})], [0.5, 0.5])[0].document_id == 1
    assert fuse_zscores([], []) == ()


def test_the_cosine_that_words_make_likely_rises_no_faster_than_they_do() -> None:
    words = {1: 10.0, 2: 9.9, 3: 9.8, 4: 9.7, 5: 9.6, 6: 20.0}
    meaning = {1: 0.9, 2: 0.7, 3: 0.5, 4: 0.3, 5: 0.1}
    fused = fuse_zscores([ranking(words, "bm25"), ranking(meaning)], [1.0, 1.0], unknown={6})
    by_words, by_meaning = ({one.document_id: one.contributions[at].contribution for one in fused} for at in range(2))
    # About 3 deviations by words; by the slope of the others it would be a hundred by meaning.
    level = (sum(by_meaning[n] for n in meaning) - sum(by_words[n] for n in meaning)) / len(meaning)
    assert by_meaning[6] == pytest.approx(by_words[6] + level)


def test_a_clear_first_of_one_list_is_not_outvoted_by_the_other() -> None:
    words = {1: 2.4, 2: 5.0, 3: 4.8, **dict.fromkeys(range(4, 20), 1.0)}
    meaning = {1: 0.9, 2: 0.5, 3: 0.5, **dict.fromkeys(range(4, 20), 0.1)}
    assert fuse_zscores([ranking(words, "bm25"), ranking(meaning)], [0.5, 0.5])[0].document_id == 1


def test_ranks_begin_at_one() -> None:
    fused = fuse_zscores([ranking({**{n: 0.9 - n / 1000 for n in range(1, 40)}, 40: 0.1})], [1.0])
    by_id = {one.document_id: one.contributions[0] for one in fused}
    assert (by_id[1].rank, by_id[40].rank) == (1, 40)


def test_weights_must_match_the_rankings() -> None:
    with pytest.raises(ValueError, match="shorter"):
        fuse_zscores([ranking({1: 1.0})], [])


def test_equal_scores_have_z_scores_of_zero() -> None:
    assert z_scores([3.0, 3.0]) == [0.0, 0.0]
    # Scores that differ only by rounding are equal.
    assert z_scores([0.1 + 0.2, 0.3]) == pytest.approx([0.0, 0.0], abs=1e-6)


def test_the_weight_of_reranking_decides_between_the_two_orders() -> None:
    first, second = blend_rerank([2.0, 1.0], [0.1, 0.9], 0.4)
    assert first > second
    first, second = blend_rerank([2.0, 1.0], [0.1, 0.9], 0.6)
    assert first < second


def test_a_large_lead_of_the_fused_scores_survives_reranking() -> None:
    close, far = blend_rerank([1.2, 1.0], [0.1, 0.9], 0.6), blend_rerank([4.0, 1.0], [0.1, 0.9], 0.6)
    assert close[0] < close[1]
    assert far[0] > far[1]


def test_reranking_can_change_the_first_place() -> None:
    blended = blend_rerank([0.9, 0.8, 0.1], [0.1, 0.9, 0.1], 0.6)
    assert max(range(3), key=blended.__getitem__) == 1


def test_every_kind_of_name_and_date_has_its_influence() -> None:
    names = {f"name: {kind}" for kind in (*get_args(NameKind), "heading")}
    dates = {f"{group}: {kind}" for group in ("date", "long date") for kind in ("day", "file time", "mention")}
    assert names | dates <= INFLUENCES.keys()


def test_an_influence_adds_documents_that_no_list_contains() -> None:
    fused = add_influence(fuse_zscores([ranking({1: 2.0, 2: 1.0})], [1.0]), {2: "day", 3: "mention"}, "date", "today")
    assert [(one.document_id, one.contributions[-1].contribution) for one in fused[:2]] == [(2, 16.0), (3, 13.0)]
