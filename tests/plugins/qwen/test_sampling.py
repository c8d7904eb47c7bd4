import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qmd.plugins.qwen.sampling import History, Sampler, apply_steps, possible_tokens
from qmd.plugins.qwen.settings import DEFAULT_SAMPLING, ORDERS, SamplingSettings
from tests.plugins.qwen import sampling_reference as reference

LOGITS = np.log(np.array([0.5, 0.25, 0.15, 0.1], np.float32))
LETTERS = "abcdefghij"


def _after(
    logits: Sequence[float],
    options: SamplingSettings,
    *,
    generated: Sequence[int] = (),
    breakers: frozenset[int] = frozenset(),
    chance: float = 0.0,
) -> dict[int, float]:
    """Return token → logit after every step, relative to the largest."""
    candidates = possible_tokens(np.array(logits, np.float32), options)
    left = apply_steps(candidates, options.steps, options, History(generated, breakers, chance))
    return _relative(dict(zip(left.tokens.tolist(), left.logits.tolist(), strict=True)))


def _relative(logits: dict[int, float]) -> dict[int, float]:
    return {token: value - max(logits.values()) for token, value in sorted(logits.items())}


def _distribution(**options: Any) -> dict[int, float]:
    chosen = SamplingSettings(**options)
    left = apply_steps(possible_tokens(LOGITS, chosen), chosen.steps, chosen, History(chance=0.0))
    return dict(zip(left.tokens.tolist(), left.probabilities().round(6).tolist(), strict=True))


def test_without_filters_the_distribution_is_the_softmax() -> None:
    assert _distribution() == pytest.approx({0: 0.5, 1: 0.25, 2: 0.15, 3: 0.1}, abs=1e-6)


def test_temperature_sharpens() -> None:
    squares = [0.25, 0.0625, 0.0225, 0.01]
    expected = {token: round(value / sum(squares), 6) for token, value in enumerate(squares)}
    assert _distribution(temperature=0.5) == pytest.approx(expected, abs=2e-6)


def test_top_k_keeps_the_likeliest() -> None:
    assert _distribution(top_k=2) == pytest.approx({0: 2 / 3, 1: 1 / 3}, abs=1e-5)


KEPT: dict[str, list[tuple[dict[str, float], set[int]]]] = {
    "top p keeps the token that crosses the sum": [
        ({"top_p": 0.49}, {0}),
        ({"top_p": 0.51}, {0, 1}),
        ({"top_p": 0.01}, {0}),
    ],
    # Of the first two, token 0 has 2/3 after renormalising: 0.6 keeps it alone, though it had 0.5 of the whole.
    "top p counts what top k left": [({"top_k": 2, "top_p": 0.6}, {0})],
    "min p drops what is small beside the likeliest": [({"min_p": 0.4}, {0, 1})],
    # The logits' standard deviation is 0.60; the third is 1.20 below the first, the fourth 1.61.
    "top n sigma drops what is far below the largest logit": [
        ({"top_n_sigma": 1.0}, {0}),
        ({"top_n_sigma": 2.1}, {0, 1, 2}),
    ],
    # The entropy is 1.21 nats; surprises are 0.69, 1.39, 1.90 and 2.30: the second token is the most typical.
    "typical sampling prefers expected surprise to likelihood": [
        ({"typical_p": 0.2}, {1}),
        ({"typical_p": 0.7}, {0, 1}),
    ],
    "xtc leaves the least of the likely tokens and all unlikely ones": [
        ({"xtc_probability": 1.0, "xtc_threshold": 0.2}, {1, 2, 3}),
        ({"xtc_probability": 1.0, "xtc_threshold": 0.3}, {0, 1, 2, 3}),
    ],
}


@pytest.mark.parametrize("rule", KEPT)
def test_a_filter_keeps_the_tokens_of_its_rule(rule: str) -> None:
    for options, kept in KEPT[rule]:
        assert set(_distribution(**options)) == kept, options


def test_ties_at_the_border_of_top_k_go_to_the_smaller_token() -> None:
    assert list(_after([0.0] * 6, SamplingSettings(top_k=3))) == [0, 1, 2]


def test_of_tokens_equally_likely_xtc_leaves_one() -> None:
    assert list(_after([0.0] * 4, SamplingSettings(xtc_probability=1.0, xtc_threshold=0.2))) == [3]


def test_repetition_penalty_divides_positive_and_multiplies_negative_logits_of_the_text() -> None:
    logits = [2.0, -2.0, 2.0, -2.0]
    after = _after(logits, SamplingSettings(repetition_penalty=2.0), generated=[0, 1, 1])
    assert after == pytest.approx({0: -1.0, 1: -6.0, 2: 0.0, 3: -4.0})


def test_presence_penalty_counts_generated_tokens_once() -> None:
    after = _after([0.0] * 3, SamplingSettings(presence_penalty=0.5), generated=[1, 1])
    assert after == {0: 0.0, 1: -0.5, 2: 0.0}


def test_frequency_penalty_counts_each_time_and_the_window_forgets() -> None:
    options: dict[str, Any] = {"frequency_penalty": 0.5, "presence_penalty": 0.25}
    assert _after([0.0] * 3, SamplingSettings(**options), generated=[1, 2, 1])[1] == -1.25
    assert _after([0.0] * 3, SamplingSettings(**options, penalty_last_n=2), generated=[1, 2, 1])[1] == -0.75
    assert _after([0.0] * 3, SamplingSettings(**options, penalty_last_n=0), generated=[1, 2, 1])[1] == 0.0


def _dry(past: str, breakers: str = "", **options: Any) -> dict[str, float]:
    chosen = SamplingSettings(dry_multiplier=1.0, dry_base=2.0, **options)
    stops = frozenset(map(LETTERS.index, breakers))
    after = _after([0.0] * len(LETTERS), chosen, generated=list(map(LETTERS.index, past)), breakers=stops)
    return {LETTERS[token]: -value for token, value in after.items() if value}


def test_dry_penalises_the_token_that_makes_a_repeated_run_longer_by_the_power_of_its_length() -> None:
    assert _dry("abcdabc") == {"d": 2.0}
    assert _dry("abcdbc") == {"d": 1.0}
    assert _dry("abcdc") == {}
    # The last three came before `c`, the last two before `h`: each gets the penalty of its own run.
    assert _dry("abccbchabc") == {"c": 2.0, "h": 1.0}


def test_dry_looks_no_further_back_than_its_window_and_over_no_breaker() -> None:
    assert _dry("abcdabc", dry_last_n=5) == {}
    assert _dry("abcdabc", breakers="a") == {"d": 1.0}
    assert _dry("abcdabc", breakers="b") == {}
    assert _dry("abcdabc", breakers="d") == {}
    assert _dry("abcdabc", dry_allowed_length=4) == {}


def test_a_run_of_any_length_has_a_penalty_that_is_a_number() -> None:
    options = SamplingSettings(dry_multiplier=100, dry_base=100)
    assert math.isfinite(_after([0.0, 0.0], options, generated=[0] * 900)[0])


def test_bias_is_added_and_can_forbid() -> None:
    after = _after([0.0] * 3, SamplingSettings(logit_bias={0: 1.5, 2: -math.inf, 99: 1.0}))
    assert after == {0: 0.0, 1: -1.5}


_CHAINS = st.fixed_dictionaries(
    {
        "temperature": st.floats(0.2, 3.0),
        "top_k": st.integers(0, 30),
        "top_p": st.floats(0.05, 1.0),
        "min_p": st.floats(0.0, 0.5),
        "typical_p": st.floats(0.05, 1.0),
        "top_n_sigma": st.sampled_from([0.0, 0.7, 1.5]),
        "xtc_threshold": st.floats(0.02, 0.5),
        "xtc_probability": st.sampled_from([0.0, 1.0]),
        "repetition_penalty": st.floats(0.8, 1.5),
        "presence_penalty": st.floats(-0.5, 0.5),
        "frequency_penalty": st.floats(-0.5, 0.5),
        "penalty_last_n": st.integers(-1, 12),
        "dry_multiplier": st.sampled_from([0.0, 0.8]),
        "dry_allowed_length": st.integers(1, 3),
        "dry_last_n": st.integers(-1, 12),
        "order": st.sampled_from(["transformers", "llama.cpp"])
        | st.permutations(ORDERS["llama.cpp"]).map(lambda steps: tuple(steps[:6])),
    }
)
_PAST = st.lists(st.integers(0, 7), max_size=28)


def _by_definition(
    logits: Sequence[float], options: SamplingSettings, text: Sequence[int], breakers: frozenset[int]
) -> list[dict[int, float]]:
    """Return the candidates after each step."""
    steps: dict[str, Callable[[dict[int, float]], dict[int, float]]] = {
        "penalties": lambda now: reference.penalties(now, text, options),
        "dry": lambda now: reference.dry(now, text, breakers, options),
        "top_k": lambda now: reference.top_k(now, options.top_k),
        "top_p": lambda now: reference.top_p(now, options.top_p),
        "min_p": lambda now: reference.min_p(now, options.min_p),
        "typical_p": lambda now: reference.typical_p(now, options.typical_p),
        "top_n_sigma": lambda now: reference.top_n_sigma(now, options.top_n_sigma),
        "xtc": lambda now: reference.xtc(now, options.xtc_threshold) if options.xtc_probability else now,
        "temperature": lambda now: reference.temperature(now, options),
    }
    states = [dict(enumerate(logits))]
    for step in options.steps:
        states.append(steps[step](states[-1]))
    return states


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 400), _CHAINS, _PAST, st.frozensets(st.integers(0, 7), max_size=2))
def test_every_chain_in_every_order_leaves_what_its_definitions_leave(
    seed: int, size: int, chain: dict[str, Any], text: list[int], breakers: frozenset[int]
) -> None:
    # Random logits have no ties and no sums exactly on a border.
    logits = (3 * np.random.default_rng(seed).standard_normal(size)).astype(np.float32).tolist()
    options = SamplingSettings(**chain)
    text = [token % size for token in text]
    *_, expected = _by_definition(logits, options, text, breakers)
    got = _after(logits, options, generated=text, breakers=breakers)
    assert got == pytest.approx(_relative(expected), abs=2e-3, rel=2e-4)


def test_both_named_orders_are_about_every_step() -> None:
    assert {frozenset(steps) for steps in ORDERS.values()} == {frozenset(ORDERS["llama.cpp"])}
    assert ORDERS["llama.cpp"][-1] == "temperature"


def test_with_the_temperature_last_more_tokens_survive_than_with_it_first() -> None:
    logits = np.linspace(0, -6, 40)
    counts = {
        order: len(_after(logits.tolist(), SamplingSettings(temperature=0.5, top_p=0.8, order=order)))
        for order in ("transformers", "llama.cpp")
    }
    assert counts["transformers"] < counts["llama.cpp"]


def test_a_mask_shorter_than_the_logits_forbids_the_rest() -> None:
    left = possible_tokens(np.zeros(4, np.float32), SamplingSettings(), np.array([True, False]))
    assert left.tokens.tolist() == [0]


def test_temperature_zero_is_greedy_under_the_mask_and_after_the_penalties_whatever_the_order() -> None:
    for order in ("transformers", "llama.cpp"):
        sampler = Sampler(SamplingSettings(temperature=0, presence_penalty=1.0, top_k=1, order=order))
        assert sampler.choose(LOGITS, []) == 0
        assert sampler.choose(LOGITS, [0]) == 1
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


def test_xtc_strikes_as_often_as_it_says() -> None:
    sampler = Sampler(SamplingSettings(seed=5, xtc_probability=0.4, xtc_threshold=0.2))
    # Token 0 is drawn half the time, and never when XTC applies.
    share = np.mean([sampler.choose(LOGITS, []) == 0 for _ in range(4000)])
    assert abs(share - 0.6 * 0.5) < 0.03


def test_the_input_array_is_left_alone() -> None:
    before = LOGITS.copy()
    everything = SamplingSettings(
        repetition_penalty=2.0, dry_multiplier=1.0, dry_allowed_length=1, temperature=0.5, logit_bias={0: 3.0}
    )
    for chosen in (everything, SamplingSettings(repetition_penalty=2.0, temperature=0.5)):
        Sampler(chosen).choose(LOGITS, [0, 1, 0], np.ones(4, np.bool_))
        Sampler(chosen).choose(LOGITS, [0, 1, 0])
    assert np.array_equal(LOGITS, before)


def test_the_values_that_expansion_draws_with_are_those_of_the_models_card() -> None:
    card = (0.7, 20, 0.8, "transformers")
    held = DEFAULT_SAMPLING
    assert (held.temperature, held.top_k, held.top_p, held.order) == card
