from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qmd.inference.runtime.sampling import Sampler, SamplingSettings, adjust_logits, token_probabilities

LOGITS = np.log(np.array([0.5, 0.25, 0.15, 0.1], np.float32))


def _distribution(**options: float) -> dict[int, float]:
    tokens, probabilities = token_probabilities(LOGITS, SamplingSettings(**options))  # type: ignore[arg-type]
    return dict(zip(tokens.tolist(), probabilities.round(6).tolist(), strict=True))


def test_without_filters_the_distribution_is_the_softmax() -> None:
    assert _distribution() == {0: 0.5, 1: 0.25, 2: 0.15, 3: 0.1}


def test_temperature_sharpens() -> None:
    squares = [0.25, 0.0625, 0.0225, 0.01]
    expected = {token: round(value / sum(squares), 6) for token, value in enumerate(squares)}
    assert _distribution(temperature=0.5) == pytest.approx(expected, abs=2e-6)


def test_top_k_keeps_the_likeliest() -> None:
    assert _distribution(top_k=2) == pytest.approx({0: 2 / 3, 1: 1 / 3}, abs=1e-5)


def test_top_p_keeps_the_token_that_crosses_the_sum() -> None:
    assert set(_distribution(top_p=0.5)) == {0}
    assert set(_distribution(top_p=0.51)) == {0, 1}
    assert set(_distribution(top_p=0.01)) == {0}


def test_top_p_counts_what_top_k_left() -> None:
    # Of the first two, token 0 holds 2/3 after renormalising: 0.6 keeps it alone, though it had 0.5 of the whole.
    assert set(_distribution(top_k=2, top_p=0.6)) == {0}


def test_min_p_drops_what_is_small_beside_the_likeliest() -> None:
    assert set(_distribution(min_p=0.4)) == {0, 1}


def test_ties_at_the_border_of_top_k_go_to_the_smaller_token() -> None:
    tokens, _ = token_probabilities(np.zeros(6, np.float32), SamplingSettings(top_k=3))
    assert tokens.tolist() == [0, 1, 2]


def test_repetition_penalty_divides_positive_and_multiplies_negative_logits_of_prompt_and_text() -> None:
    logits = np.array([2.0, -2.0, 2.0, -2.0], np.float32)
    adjusted = adjust_logits(logits, SamplingSettings(repetition_penalty=2.0), prompt=[0], generated=[1, 1])
    assert adjusted.tolist() == [1.0, -4.0, 2.0, -2.0]


def test_presence_penalty_counts_generated_tokens_once_and_the_prompt_never() -> None:
    logits = np.zeros(3, np.float32)
    adjusted = adjust_logits(logits, SamplingSettings(presence_penalty=0.5), prompt=[0], generated=[1, 1])
    assert adjusted.tolist() == [0.0, -0.5, 0.0]


def test_bias_is_added_and_can_forbid() -> None:
    adjusted = adjust_logits(np.zeros(3, np.float32), SamplingSettings(logit_bias={0: 1.5, 2: -math.inf}))
    assert adjusted.tolist() == [1.5, 0.0, -math.inf]


def test_a_mask_shorter_than_the_logits_forbids_the_rest() -> None:
    adjusted = adjust_logits(np.zeros(4, np.float32), SamplingSettings(), allowed=np.array([True, False]))
    assert adjusted.tolist() == [0.0, -math.inf, -math.inf, -math.inf]


def test_temperature_zero_is_greedy_under_the_mask() -> None:
    sampler = Sampler(SamplingSettings(temperature=0))
    assert sampler.choose(LOGITS, []) == 0
    assert sampler.choose(LOGITS, [], np.array([False, False, True, True])) == 2


def test_nothing_allowed_is_an_error_in_either_mode() -> None:
    for temperature in (0.0, 1.0):
        with pytest.raises(ValueError, match="no token"):
            Sampler(SamplingSettings(temperature=temperature)).choose(LOGITS, [], np.zeros(4, np.bool_))


def test_the_same_seed_gives_the_same_draws_and_another_seed_others() -> None:
    def draws(seed: int) -> list[int]:
        sampler = Sampler(SamplingSettings(seed=seed))
        return [sampler.choose(LOGITS, []) for _ in range(40)]

    assert draws(1) == draws(1)
    assert draws(1) != draws(2)


def test_draws_follow_the_probabilities() -> None:
    sampler = Sampler(SamplingSettings(seed=5))
    counts = np.bincount([sampler.choose(LOGITS, []) for _ in range(4000)], minlength=4) / 4000
    assert np.abs(counts - [0.5, 0.25, 0.15, 0.1]).max() < 0.03


def test_the_input_array_is_left_alone() -> None:
    before = LOGITS.copy()
    Sampler(SamplingSettings(repetition_penalty=2.0, logit_bias={0: 3.0})).choose(LOGITS, [0], np.ones(4, np.bool_))
    assert np.array_equal(LOGITS, before)


@settings(max_examples=60)
@given(
    st.lists(st.floats(-20, 20, width=32), min_size=1, max_size=50),
    st.integers(0, 60),
    st.floats(0.01, 1.0),
    st.floats(0, 1.0),
    st.floats(0.05, 3.0),
)
def test_filters_always_leave_a_normalised_distribution_with_the_likeliest_first(
    values: list[float], top_k: int, top_p: float, min_p: float, temperature: float
) -> None:
    logits = np.array(values, np.float32)
    options = SamplingSettings(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    tokens, probabilities = token_probabilities(logits, options)
    assert tokens[0] == logits.argmax()
    assert probabilities.sum() == pytest.approx(1.0)
    assert (np.diff(probabilities) <= 1e-12).all()
    assert len(set(tokens.tolist())) == len(tokens)
