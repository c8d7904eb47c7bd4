"""Relevance: map the evidence for a document to [0, 1], with one meaning in every command."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from qmd.records import Verdict

GOOD = 0.5
"""Relevance of the first hit from which the verdict is `good`."""

WEAK = 0.2
"""Relevance of the first hit below which the verdict is `none`."""

STRONG = 0.75
"""Relevance from which a hit is strong: three chances in four."""

POOL = 10
"""Hits that are always judged, however few are shown: `-n 1` and `-n 10` must not disagree about the first one."""


class Evidence(Struct, frozen=True):
    """Evidence for one document.

    Attributes:
        window: Weighted share of the query's terms inside the best 400 code points, in [0, 1].
        mass: Weight of all the query's terms, in units of the rarest possible term's: about the number of rare words.
        cosine: Cosine of the best chunk, None without vectors.
        in_names: Weighted share in title, aliases and path, in [0, 1].
        n_documents: Documents in scope.
        lead: Distance of the first document to the next one that is no version of it, in deviations; of others at most
            half of `MAX_LEAD`.
        is_named: Whether the query is the name of the document or of a part of it.
        is_typed: Whether the query is one word or phrase, which the document contains as typed.
    """

    window: float
    mass: float
    cosine: float | None = None
    in_names: float = 0.0
    n_documents: int = 1_000
    lead: float = 0.0
    is_named: bool = False
    is_typed: bool = False


NAMED = 0.95
"""Relevance of a document that the query names."""

TYPED = 0.55
"""Lowest relevance of a document with the only word or phrase as typed: likely, despite all other evidence. For two or
three words the floor called as many other notes good as right ones."""

CLOSE, MEANT = 0.5, 0.25
"""Cosine of a close meaning, and the lowest relevance of a document with it: weak, however few of the words it has.
With each of six vaults left out, right first hits kept .97 instead of .94 (three vaults gain, none loses), nonsense
refused .98 with and without; answers in another language than the question rarely have any of its words."""

MAX_LEAD = 1.0
"""Lead, in deviations, above which more does not count, as one stray word in one document makes it large; also that of
the only document."""

# Fitted by tests/benchmarks/fit_relevance.py on the first hits of questions about six vaults, asked with their answers
# and without them, of questions about other vaults, headings, topics and nonsense. Cosines of all-MiniLM-L6-v2.
BY_WORDS = (-4.82, 3.53, 2.06, 2.06, -1.23, 1.13)
WITH_COSINE = (-5.17, 2.89, 1.59, 1.85, -1.15, 1.52, 2.06)


def relevance(
    evidence: Evidence, by_words: Sequence[float] = BY_WORDS, with_cosine: Sequence[float] = WITH_COSINE
) -> float:
    """Return the probability-like relevance of one document, in [0, 1].

    Without a cosine only the lexical evidence counts.

    Args:
        by_words: Weights of `features` without a cosine; only fitting replaces them.
        with_cosine: Weights of `features` with a cosine.
    """
    if evidence.is_named:
        return NAMED
    weights = by_words if evidence.cosine is None else with_cosine
    is_close = evidence.cosine is not None and evidence.cosine >= CLOSE
    return max(_logistic(weights, features(evidence)), TYPED * evidence.is_typed, MEANT * is_close)


def features(evidence: Evidence) -> list[float]:
    """Return the inputs of the logistic regressions, 1 first for their intercept.

    Next to the share there is a logarithm of the found weight: a share alone would make one word of a two-word noise
    more relevant than six words of a long question. The share found anywhere is not an input: long minutes contain most
    words of any question.
    """
    values = [
        1.0,
        evidence.window,
        evidence.in_names,
        math.log1p(evidence.window * evidence.mass),
        math.log1p(evidence.n_documents) / 10.0,
        _clamp(evidence.lead, (0.0, MAX_LEAD)),
    ]
    return values if evidence.cosine is None else [*values, evidence.cosine]


def _clamp(value: float, span: tuple[float, float]) -> float:
    return min(max(value, span[0]), span[1])


def _logistic(weights: Sequence[float], values: Sequence[float]) -> float:
    value = math.fsum(weight * feature for weight, feature in zip(weights, values, strict=True))
    return 1.0 / (1.0 + math.exp(-_clamp(value, (-50.0, 50.0))))


def non_increasing(values: Sequence[float]) -> list[float]:
    """Return the closest list (least squares) that never rises: neighbours that violate the order get their mean.

    Source: pool-adjacent-violators; Ayer et al., Annals of Mathematical Statistics 26, 1955.
    """
    blocks: list[tuple[float, int]] = []
    for value in values:
        total, size = value, 1
        while blocks and blocks[-1][0] / blocks[-1][1] < total / size:
            before, length = blocks.pop()
            total, size = total + before, size + length
        blocks.append((total, size))
    return [total / size for total, size in blocks for _ in range(size)]


def verdict(relevances: Sequence[float]) -> Verdict:
    """Return the verdict on a list, by its first hit."""
    if not relevances or relevances[0] < WEAK:
        return "none"
    return "good" if relevances[0] >= GOOD else "weak"


def strength(relevance: float) -> Literal["strong", "likely", "weak"]:
    """Return the word shown to people for a relevance; `weak` is below a `good` verdict."""
    if relevance < GOOD:
        return "weak"
    return "strong" if relevance >= STRONG else "likely"
