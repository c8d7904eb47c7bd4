"""Choice of the next token from logits. Pure numpy; the same seed gives the same text."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from qmd.plugins.qwen.settings import SamplingSettings, Step

_LARGEST_POWER = 80.0
"""Natural logarithm of the largest factor of a penalty, which keeps it a number in float32."""


class History(Struct, frozen=True):
    """Tokens so far and the random value of a step."""

    generated: Sequence[int] = ()
    breakers: Collection[int] = frozenset()
    """Tokens at which a repetition ends (DRY)."""
    chance: float = 1.0
    """In [0, 1): below XTC's probability the likeliest tokens are removed."""


class Candidates(Struct, frozen=True):
    """Possible next tokens, in ascending order."""

    tokens: npt.NDArray[np.int64]
    logits: npt.NDArray[np.float32]
    """The candidates' own array, which a step may overwrite: fresh memory costs more than the arithmetic."""

    def select(self, places: npt.NDArray[np.int64]) -> Candidates:
        """Return the candidates at some places."""
        return Candidates(self.tokens[places], self.logits[places])

    def probabilities(self) -> npt.NDArray[np.float64]:
        """Return the softmax over the candidates."""
        # In single precision 150,000 powers take a tenth of a millisecond, in double one and a half.
        powers = np.exp(self.logits - self.logits.max()).astype(np.float64)
        result: npt.NDArray[np.float64] = powers / powers.sum()
        return result

    def surprises(self) -> npt.NDArray[np.float32]:
        """Return negative logarithms of the probabilities."""
        below = self.logits.max() - self.logits
        result: npt.NDArray[np.float32] = below + np.float32(math.log(np.exp(-below).sum(dtype=np.float64)))
        return result


def possible_tokens(
    logits: npt.NDArray[np.float32], settings: SamplingSettings, allowed: npt.NDArray[np.bool_] | None = None
) -> Candidates:
    """Return every token that is not forbidden, with its bias.

    Args:
        logits: Shape (vocabulary,).
        allowed: Shape (up to vocabulary,); tokens that are false, or beyond its end, are impossible.

    Raises:
        ValueError: None is left.
    """
    result = logits.astype(np.float32, copy=bool(settings.logit_bias))
    for token, bias in settings.logit_bias.items():
        if 0 <= token < len(result):
            result[token] += bias
    is_possible = result > -np.inf
    if allowed is not None:
        is_possible = is_possible[: len(allowed)] & allowed[: len(result)]
    tokens = np.flatnonzero(is_possible)
    if not len(tokens):
        raise ValueError("no token is possible")
    return Candidates(tokens, result[tokens])


def apply_steps(
    candidates: Candidates, steps: Sequence[Step], settings: SamplingSettings, history: History
) -> Candidates:
    """Apply `steps` in their order; each filters the candidates of the one before. At least one token stays.

    The logits of `candidates` are overwritten.
    """
    for step in steps:
        candidates = _STEPS[step](candidates, settings, history)
    return candidates


class Sampler:
    """Sampler of tokens; its random state advances with each draw.

    Args:
        breakers: Tokens that contain one of the settings' `dry_breakers`.
    """

    def __init__(self, settings: SamplingSettings, breakers: Collection[int] = frozenset()) -> None:
        self.settings = settings
        self._history = History((), breakers)
        self._random = np.random.default_rng(settings.seed)

    def choose(
        self, logits: npt.NDArray[np.float32], generated: Sequence[int], allowed: npt.NDArray[np.bool_] | None = None
    ) -> int:
        """Choose the next token.

        Raises:
            ValueError: If `allowed` and the bias leave no token.
        """
        settings = self.settings
        candidates = possible_tokens(logits, settings, allowed)
        if settings.temperature == 0:
            penalties: list[Step] = [step for step in settings.steps if step in ("penalties", "dry")]
            left = apply_steps(candidates, penalties, settings, replace(self._history, generated=generated))
            return int(left.tokens[left.logits.argmax()])
        chance = self._random.random() if settings.xtc_probability else 1.0
        history = replace(self._history, generated=generated, chance=chance)
        left = apply_steps(candidates, settings.steps, settings, history)
        place = int((left.probabilities().cumsum() <= self._random.random()).sum())
        return int(left.tokens[min(place, len(left.tokens) - 1)])


def _penalties(candidates: Candidates, settings: SamplingSettings, history: History) -> Candidates:
    """Penalize repetition (Keskar et al. 2019, negative logits multiplied), presence and frequency (as OpenAI)."""
    divisor, presence, frequency = settings.repetition_penalty, settings.presence_penalty, settings.frequency_penalty
    if (divisor, presence, frequency) == (1.0, 0.0, 0.0):
        return candidates
    logits = candidates.logits
    written, counts = _counts(candidates, _last(history.generated, settings.penalty_last_n))
    logits[written] = np.where(logits[written] > 0, logits[written] / divisor, logits[written] * divisor)
    logits[written] -= (presence + frequency * counts).astype(np.float32)
    return candidates


def _dry(candidates: Candidates, settings: SamplingSettings, history: History) -> Candidates:
    """Subtract multiplier x base^(n - allowed) from a token that makes a repeated run of n tokens longer (DRY).

    Source: p-e-w, text-generation-webui pull request 5677; lengths as llama.cpp counts them.
    """
    if not settings.dry_multiplier:
        return candidates
    lengths = _run_lengths(_last(history.generated, settings.dry_last_n), history.breakers)
    longer = {token: n - settings.dry_allowed_length for token, n in lengths.items() if token not in history.breakers}
    most = _LARGEST_POWER / max(math.log(settings.dry_base), 1e-6)
    for token, excess in longer.items():
        if excess >= 0:
            place, _ = _counts(candidates, [token])
            penalty = settings.dry_multiplier * settings.dry_base ** min(excess, most)
            candidates.logits[place] -= np.float32(penalty)
    return candidates


def _run_lengths(past: Sequence[int], breakers: Collection[int]) -> dict[int, int]:
    """Return token → length of the longest run before it that repeats the last tokens, up to a breaker."""
    longest = next((back for back, token in enumerate(reversed(past)) if token in breakers), len(past))
    found: dict[int, int] = {}
    for end in range(len(past) - 1):
        length = 0
        while length < min(longest, end + 1) and past[end - length] == past[-1 - length]:
            length += 1
        found[past[end + 1]] = max(length, found.get(past[end + 1], 0))
    return found


def _temperature(candidates: Candidates, settings: SamplingSettings, history: History) -> Candidates:
    # Not so small that logits lose their differences in single precision.
    logits = candidates.logits
    logits /= np.float32(max(settings.temperature, 1e-4))
    return candidates


def _top_k(candidates: Candidates, settings: SamplingSettings, history: History) -> Candidates:
    if not 0 < settings.top_k < len(candidates.tokens):
        return candidates
    return candidates.select(np.sort(_largest(candidates.logits, settings.top_k)))


def _top_p(candidates: Candidates, settings: SamplingSettings, history: History) -> Candidates:
    """Keep the nucleus (Holtzman et al., ICLR 2020)."""
    if settings.top_p >= 1.0:
        return candidates
    return candidates.select(_fewest(candidates.logits, candidates.probabilities(), settings.top_p))


def _min_p(candidates: Candidates, settings: SamplingSettings, history: History) -> Candidates:
    """Keep tokens by a share of the largest probability (Nguyen et al., 2024)."""
    if not settings.min_p:
        return candidates
    least = candidates.logits.max() + np.float32(math.log(settings.min_p))
    return candidates.select(np.flatnonzero(candidates.logits >= least))


def _typical_p(candidates: Candidates, settings: SamplingSettings, history: History) -> Candidates:
    """Keep locally typical tokens (Meister et al., TACL 2023)."""
    if settings.typical_p >= 1.0:
        return candidates
    probabilities, surprises = candidates.probabilities(), candidates.surprises()
    expected = np.float32((probabilities * surprises).sum())
    return candidates.select(_fewest(-np.abs(surprises - expected), probabilities, settings.typical_p))


def _top_n_sigma(candidates: Candidates, settings: SamplingSettings, history: History) -> Candidates:
    """Keep logits near the largest, in standard deviations (Tang et al., 2024)."""
    if not settings.top_n_sigma:
        return candidates
    logits = candidates.logits
    least = logits.max() - settings.top_n_sigma * logits.std(dtype=np.float64)
    return candidates.select(np.flatnonzero(logits >= least))


def _xtc(candidates: Candidates, settings: SamplingSettings, history: History) -> Candidates:
    """Exclude top choices (p-e-w, text-generation-webui pull request 6335): of the likely tokens the last one stays."""
    if history.chance >= settings.xtc_probability:
        return candidates
    probabilities = candidates.probabilities()
    likely = np.flatnonzero(probabilities >= settings.xtc_threshold)
    if len(likely) < 2:
        return candidates
    # Of equals the one with the larger number stays.
    least = likely[::-1][probabilities[likely[::-1]].argmin()]
    return candidates.select(np.delete(np.arange(len(probabilities)), likely[likely != least]))


_STEPS: Mapping[Step, Callable[[Candidates, SamplingSettings, History], Candidates]] = {
    "penalties": _penalties,
    "dry": _dry,
    "top_n_sigma": _top_n_sigma,
    "top_k": _top_k,
    "typical_p": _typical_p,
    "top_p": _top_p,
    "min_p": _min_p,
    "xtc": _xtc,
    "temperature": _temperature,
}


def _last(tokens: Sequence[int], n: int) -> Sequence[int]:
    """Return the last n tokens; all for -1."""
    return tokens if n < 0 else tokens[max(0, len(tokens) - n) :]


def _counts(candidates: Candidates, seen: Sequence[int]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the places of the candidates that were seen, and the count of each."""
    tokens, counts = np.unique(np.array(seen, np.int64), return_counts=True)
    places = np.minimum(candidates.tokens.searchsorted(tokens), len(candidates.tokens) - 1)
    is_there = candidates.tokens[places] == tokens
    return places[is_there], counts[is_there]


def _largest(values: npt.NDArray[np.floating], n: int) -> npt.NDArray[np.int64]:
    """Return the places of the n largest values, largest first; ties in the order of their places."""
    # A partial sort first: a full one over 150,000 logits costs twenty times as much. Ties at the border stay in.
    border = np.partition(values, len(values) - n)[len(values) - n] if n < len(values) else -np.inf
    places = np.flatnonzero(values >= border)
    result: npt.NDArray[np.int64] = places[np.argsort(-values[places], kind="stable")[:n]]
    return result


def _fewest(
    worth: npt.NDArray[np.floating], probabilities: npt.NDArray[np.float64], share: float
) -> npt.NDArray[np.int64]:
    """Return the places of the fewest entries, most worth first, whose probabilities reach `share`; at least one."""
    n = 256
    while True:
        places = _largest(worth, n)
        before = probabilities[places].cumsum() - probabilities[places]
        keep = int((before < share).sum())
        if keep < len(places) or len(places) == len(probabilities):
            return np.sort(places[: max(1, keep)])
        n *= 16
