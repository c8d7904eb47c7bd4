"""Evidence for one document → relevance in [0, 1] with one meaning in every command."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from qmd.records import Verdict

GOOD = 0.5
"""Relevance of the first hit from which the list is called good."""

WEAK = 0.2
"""Relevance of the first hit below which nothing in the list is taken for an answer."""

POOL = 10
"""Hits that are always judged, however few are shown: `-n 1` and `-n 10` must not disagree about the first one."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What speaks for one document.

    Attributes:
        coverage: Weighted share of the query's terms anywhere in title, path and text, in [0, 1].
        window: Weighted share inside the best 400 code points, in [0, 1].
        cosine: Cosine of the best chunk, None where no vector was asked.
        background: Mean cosine of this query with the documents it has nothing to do with, None as above.
    """

    coverage: float
    window: float
    cosine: float | None = None
    background: float | None = None


@dataclass(frozen=True, slots=True)
class LogisticModel:
    """Weights of a logistic regression over `Evidence`; `cosine` weighs its distance from the background."""

    intercept: float
    coverage: float
    window: float
    cosine: float = 0.0


LEXICAL = LogisticModel(intercept=-6.0, coverage=4.0, window=5.0)
WITH_COSINE = LogisticModel(intercept=-6.0, coverage=2.0, window=4.0, cosine=8.0)


def relevance(evidence: Evidence) -> float:
    """Probability-like relevance of one document, in [0, 1], from what is known of it."""
    model = LEXICAL if evidence.cosine is None or evidence.background is None else WITH_COSINE
    value = model.intercept + model.coverage * evidence.coverage + model.window * evidence.window
    if evidence.cosine is not None and evidence.background is not None:
        value += model.cosine * (evidence.cosine - evidence.background)
    return 1.0 / (1.0 + math.exp(-value))


def background_cosine(cosines: Sequence[float]) -> float | None:
    """Mean cosine of the tail of a dense ranking (best first), the query's own background; None without one."""
    if not cosines:
        return None
    tail = cosines[len(cosines) // 2 :]
    return math.fsum(tail) / len(tail)


def non_increasing(values: Sequence[float]) -> list[float]:
    """The closest list (least squares) that never rises: neighbours that disagree with the rank order share their mean.

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
    """What the list is worth, judged by its first hit."""
    if not relevances or relevances[0] < WEAK:
        return "none"
    return "good" if relevances[0] >= GOOD else "weak"
