"""Relevance: bounded, monotone, and low for queries that no document answers."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from qmd.retrieval.calibration import GOOD, NAMED, WEAK, Evidence, non_increasing, relevance, strength, verdict

SHARE = st.floats(0, 1)


@given(st.lists(SHARE, max_size=30))
def test_relevances_never_rise_and_keep_their_mean(values: list[float]) -> None:
    result = non_increasing(values)
    assert all(left >= right - 1e-12 for left, right in pairwise(result))
    assert sum(result) == pytest.approx(sum(values))


@given(SHARE, st.floats(0, 100), st.floats(-1, 1), SHARE)
def test_relevance_stays_in_bounds(window: float, mass: float, cosine: float, names: float) -> None:
    assert 0.0 <= relevance(Evidence(window, mass, cosine, names)) <= 1.0


def test_more_evidence_means_more_relevance() -> None:
    assert relevance(Evidence(0.5, 2.0, 0.6)) > relevance(Evidence(0.5, 2.0, 0.3))
    assert relevance(Evidence(1.0, 2.0)) > relevance(Evidence(0.5, 2.0)) > relevance(Evidence(0.0, 2.0))


def test_half_of_a_long_question_is_more_evidence_than_half_of_two_words() -> None:
    assert relevance(Evidence(0.5, 8.0)) > relevance(Evidence(0.5, 2.0))


@given(SHARE, st.floats(0, 9), st.floats(-1, 1), SHARE, st.floats(-9, 9), st.booleans())
def test_more_of_any_evidence_never_means_less(
    window: float, mass: float, cosine: float, names: float, lead: float, dense: bool
) -> None:
    less = Evidence(window, mass, cosine if dense else None, names, lead=lead)
    for field in ("window", "in_names", "lead", *(["cosine"] if dense else [])):
        more = replace(less, **{field: getattr(less, field) + 0.1})
        assert relevance(more) >= relevance(less) - 1e-12


def test_a_first_note_with_a_clear_lead_is_more_relevant_than_one_of_several_alike() -> None:
    for cosine in (None, 0.5):
        alike = Evidence(0.5, 2.0, cosine, lead=0.1)
        assert relevance(replace(alike, lead=1.0)) > relevance(alike)


def test_an_identifier_found_literally_needs_no_vector() -> None:
    assert relevance(Evidence(1.0, 1.0, 0.1, is_typed=True)) > GOOD


def test_half_of_some_random_words_is_no_answer_where_the_meaning_is_far() -> None:
    assert relevance(Evidence(0.5, 3.0, 0.1, lead=0.5)) < WEAK
    assert relevance(Evidence(0.5, 3.0, 0.6, lead=0.5)) > WEAK


def test_nothing_found_is_weak_and_everything_found_together_before_all_others_is_good_in_every_mode() -> None:
    for cosine in (None, 0.3):
        assert relevance(Evidence(0.0, 3.0, cosine)) < WEAK
    for cosine in (None, 0.7):
        assert relevance(Evidence(1.0, 1.0, cosine, lead=1.0)) > GOOD


@pytest.mark.parametrize(("first", "expected"), [(0.9, "good"), (0.3, "weak"), (0.1, "none")])
def test_the_first_hit_decides_the_verdict(first: float, expected: str) -> None:
    assert verdict([first, 0.01]) == expected


def test_an_empty_list_is_none() -> None:
    assert verdict([]) == "none"


def test_a_note_that_the_query_names_is_an_answer() -> None:
    assert relevance(Evidence(0.0, 0.0, is_named=True)) == NAMED


def test_a_topic_in_the_title_is_an_answer() -> None:
    assert relevance(Evidence(1.0, 0.6, in_names=1.0)) > GOOD
    assert relevance(Evidence(1.0, 0.6, 0.4, in_names=1.0)) > GOOD


def test_less_evidence_will_do_among_a_few_notes() -> None:
    few, many = Evidence(0.5, 4.0, 0.4, n_documents=3, lead=1.0), Evidence(0.5, 4.0, 0.4, n_documents=5_000, lead=1.0)
    assert relevance(few) > GOOD > relevance(many)
    assert relevance(Evidence(0.0, 3.0, 0.1, n_documents=3)) < WEAK


@given(st.lists(SHARE, min_size=1))
def test_a_verdict_is_good_where_the_first_hit_is_not_called_weak(values: list[float]) -> None:
    assert (verdict(values) == "good") == (strength(values[0]) != "weak")
