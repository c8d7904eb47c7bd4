"""The sampling steps straight from their definitions, in plain Python on lists of (token, logit): slow and independent.

A distribution is a dict of token → logit; what a step removes is no longer in it.
"""

import math
from collections.abc import Mapping, Sequence

from qmd.plugins.qwen.settings import SamplingSettings

Logits = dict[int, float]


def softmax(logits: Logits) -> dict[int, float]:
    """Return token → probability."""
    top = max(logits.values())
    powers = {token: math.exp(value - top) for token, value in logits.items()}
    return {token: power / sum(powers.values()) for token, power in powers.items()}


def ranked(values: Mapping[int, float]) -> list[int]:
    """Return tokens by descending value, ties by token."""
    return sorted(values, key=lambda token: (-values[token], token))


def penalties(logits: Logits, text: Sequence[int], options: SamplingSettings) -> Logits:
    """Apply CTRL's repetition penalty with negative logits multiplied; OpenAI's presence and frequency penalties."""
    n = options.penalty_last_n
    written = list(text)[len(text) - min(n, len(text)) :] if n >= 0 else list(text)
    result = dict(logits)
    for token in result:
        if token in written:
            result[token] *= options.repetition_penalty if result[token] < 0 else 1 / options.repetition_penalty
        count = written.count(token)
        result[token] -= count * options.frequency_penalty + (count > 0) * options.presence_penalty
    return result


def dry(logits: Logits, past: Sequence[int], breakers: frozenset[int], options: SamplingSettings) -> Logits:
    """Compare every suffix of the past with every earlier run of the same length."""
    past = list(past)[len(past) - options.dry_last_n :] if 0 <= options.dry_last_n < len(past) else list(past)
    result = dict(logits)
    for token in result:
        longest = 0
        for length in range(1, len(past)):
            suffix = past[-length:]
            if breakers & set(suffix):
                break
            runs = [past[start : start + length + 1] for start in range(len(past) - length)]
            if [*suffix, token] in runs:
                longest = length
        if token not in breakers and longest >= options.dry_allowed_length:
            result[token] -= options.dry_multiplier * options.dry_base ** (longest - options.dry_allowed_length)
    return result


def top_k(logits: Logits, k: int) -> Logits:
    """Keep the k likeliest."""
    return {token: logits[token] for token in ranked(logits)[:k]} if k else logits


def top_p(logits: Logits, p: float) -> Logits:
    """Keep the fewest likeliest tokens whose probabilities reach p."""
    return _reaching(logits, ranked(logits), p)


def typical_p(logits: Logits, p: float) -> Logits:
    """Keep tokens as `top_p`, those whose information content is nearest the entropy first."""
    probabilities = softmax(logits)
    entropy = -sum(share * math.log(share) for share in probabilities.values())
    nearness = {token: -abs(-math.log(share) - entropy) for token, share in probabilities.items()}
    return _reaching(logits, ranked(nearness), p)


def _reaching(logits: Logits, order: Sequence[int], p: float) -> Logits:
    if p >= 1:
        return logits
    probabilities, kept, total = softmax(logits), {}, 0.0
    for token in order:
        kept[token] = logits[token]
        total += probabilities[token]
        if total >= p:
            break
    return kept


def min_p(logits: Logits, p: float) -> Logits:
    """Keep tokens at least p times as likely as the likeliest."""
    probabilities = softmax(logits)
    least = p * max(probabilities.values())
    return {token: value for token, value in logits.items() if probabilities[token] >= least}


def top_n_sigma(logits: Logits, n: float) -> Logits:
    """Keep logits within n standard deviations of the largest."""
    if not n:
        return logits
    mean = sum(logits.values()) / len(logits)
    sigma = math.sqrt(sum((value - mean) ** 2 for value in logits.values()) / len(logits))
    return {token: value for token, value in logits.items() if value >= max(logits.values()) - n * sigma}


def xtc(logits: Logits, threshold: float) -> Logits:
    """Remove all tokens over the threshold but the least likely of them."""
    probabilities = softmax(logits)
    over = [token for token in ranked(probabilities) if probabilities[token] >= threshold]
    return {token: value for token, value in logits.items() if token not in over[:-1]}


def temperature(logits: Logits, options: SamplingSettings) -> Logits:
    """Divide by T."""
    return {token: logit / options.temperature for token, logit in logits.items()}
