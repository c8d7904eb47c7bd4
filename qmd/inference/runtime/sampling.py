"""Picks the next token from logits. Pure numpy; the same seed gives the same text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field


class SamplingSettings(Struct, frozen=True):
    """How to pick. The defaults change nothing and draw from the whole distribution."""

    temperature: float = 1.0
    """0 takes the likeliest token (greedy) and ignores every filter below."""
    top_k: int = 0
    """Keep the k likeliest tokens; 0 keeps all."""
    top_p: float = 1.0
    """Keep the fewest tokens whose probabilities reach this sum."""
    min_p: float = 0.0
    """Drop tokens less likely than this share of the likeliest."""
    repetition_penalty: float = 1.0
    """Divides positive and multiplies negative logits of tokens seen in prompt or text."""
    presence_penalty: float = 0.0
    """Subtracted once from the logit of every token already generated."""
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    """Added to the logits of single tokens; `-inf` forbids one."""
    seed: int | None = 0
    """None draws differently each time."""


def adjust_logits(
    logits: npt.NDArray[np.float32],
    settings: SamplingSettings,
    *,
    prompt: Sequence[int] = (),
    generated: Sequence[int] = (),
    allowed: npt.NDArray[np.bool_] | None = None,
) -> npt.NDArray[np.float32]:
    """Logits after bias, repetition penalty, presence penalty and mask, in that order; a new array.

    Args:
        logits: Shape (vocabulary,).
        settings: See there.
        prompt: Tokens the repetition penalty counts besides the generated ones.
        generated: Tokens generated so far.
        allowed: Shape (up to vocabulary,); tokens that are false, or beyond its end, become impossible.
    """
    result = logits.astype(np.float32, copy=True)
    for token, bias in settings.logit_bias.items():
        result[token] += bias
    if settings.repetition_penalty != 1.0:
        seen = np.unique(np.array([*prompt, *generated], np.int64))
        values = result[seen]
        penalty = np.float32(settings.repetition_penalty)
        result[seen] = np.where(values > 0, values / penalty, values * penalty)
    if settings.presence_penalty and generated:
        result[np.unique(np.array(generated, np.int64))] -= settings.presence_penalty
    if allowed is not None:
        result[: len(allowed)][~allowed[: len(result)]] = -np.inf
        result[len(allowed) :] = -np.inf
    return result


def token_probabilities(
    logits: npt.NDArray[np.float32], settings: SamplingSettings
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Tokens that survive temperature, top-k, top-p and min-p, in that order, likeliest first, and their probabilities.

    Each filter works on the probabilities of what the filters before it kept, renormalised. Ties go to the smaller
    token. At least one token always survives.

    Raises:
        ValueError: If every logit is `-inf`, or `temperature` is not positive.
    """
    if settings.temperature <= 0:
        raise ValueError(f"temperature {settings.temperature} is not positive")
    tokens = np.flatnonzero(logits > -np.inf)
    if not len(tokens):
        raise ValueError("no token is possible")
    if 0 < settings.top_k < len(tokens):
        # A partial sort first: a full one over 150,000 logits costs ten times as much. Ties at the border stay in.
        border = np.partition(logits[tokens], -settings.top_k)[-settings.top_k]
        tokens = tokens[logits[tokens] >= border]
    order = np.argsort(-logits[tokens], kind="stable")
    tokens = tokens[order[: settings.top_k or None]]
    scaled = logits[tokens].astype(np.float64) / settings.temperature
    probabilities = _normalise(np.exp(scaled - scaled.max()))
    if settings.top_p < 1.0:
        before = np.cumsum(probabilities) - probabilities
        keep = max(1, int((before < settings.top_p).sum()))
        tokens, probabilities = tokens[:keep], _normalise(probabilities[:keep])
    if settings.min_p > 0.0:
        keep = max(1, int((probabilities >= settings.min_p * probabilities[0]).sum()))
        tokens, probabilities = tokens[:keep], _normalise(probabilities[:keep])
    return tokens, probabilities


class Sampler:
    """Draws tokens; its random state advances with each draw.

    Args:
        settings: How to pick.
        prompt: Tokens the repetition penalty counts besides the generated ones.
    """

    def __init__(self, settings: SamplingSettings, prompt: Sequence[int] = ()) -> None:
        self.settings = settings
        self._prompt = tuple(prompt)
        self._random = np.random.default_rng(settings.seed)

    def choose(
        self,
        logits: npt.NDArray[np.float32],
        generated: Sequence[int],
        allowed: npt.NDArray[np.bool_] | None = None,
    ) -> int:
        """The next token.

        Raises:
            ValueError: If `allowed` and the bias leave no token.
        """
        adjusted = adjust_logits(logits, self.settings, prompt=self._prompt, generated=generated, allowed=allowed)
        if self.settings.temperature == 0:
            best = int(adjusted.argmax())
            if adjusted[best] == float("-inf"):
                raise ValueError("no token is possible")
            return best
        tokens, probabilities = token_probabilities(adjusted, self.settings)
        place = int((probabilities.cumsum() <= self._random.random()).sum())
        return int(tokens[min(place, len(tokens) - 1)])


def _normalise(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    result: npt.NDArray[np.float64] = values / values.sum()
    return result
