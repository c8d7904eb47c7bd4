"""Evidence for one document → relevance in [0, 1] with one meaning in every command."""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct

from qmd.records import Verdict

GOOD = 0.5
"""Relevance of the first hit from which the list is called good."""

WEAK = 0.2
"""Relevance of the first hit below which nothing in the list is taken for an answer."""

POOL = 10
"""Hits that are always judged, however few are shown: `-n 1` and `-n 10` must not disagree about the first one."""


class Evidence(Struct, frozen=True):
    """What speaks for one document.

    Attributes:
        coverage: Weighted share of the query's terms anywhere in names, path and text, in [0, 1].
        window: Weighted share inside the best 400 code points, in [0, 1].
        mass: Weight of all the query's terms, in units of the rarest possible term's: about the number of rare words.
        cosine: Cosine of the best chunk, None where no vector was asked.
        background: Mean cosine of this query with the documents it has nothing to do with, None as above.
        in_names: Weighted share in title, aliases and path, in [0, 1].
        n_terms: Terms of the query.
        n_documents: Documents in scope.
        spread: Standard deviation of the cosines of this query, None as above.
        is_named: Whether the query is what the document, or a part of it, is called.
    """

    coverage: float
    window: float
    mass: float
    cosine: float | None = None
    background: float | None = None
    in_names: float = 0.0
    n_terms: int = 3
    n_documents: int = 1_000
    spread: float | None = None
    is_named: bool = False


class LogisticModel(Struct, frozen=True):
    """Weights of a logistic regression.

    `window` weighs the share of the query said together; `found` and `near` weigh log(1 + mass) of what occurs anywhere
    and together; `cosine` and `background` are those of `Evidence`. A share alone would call one word of a two-word
    noise more relevant than six words of a long question.
    """

    intercept: float
    window: float
    found: float
    near: float
    cosine: float = 0.0
    background: float = 0.0


LITERAL = 0.7
"""Share of the query inside the best stretch from which words alone may speak for a document whose cosine is known."""

# Fitted by tests/benchmarks/fit_relevance.py on cacm, cranfield and cmrc and on two sets of program documentation
# (about 330 answerable and 1,500 nonsense queries), the lexical slopes halved to be read as probabilities, intercepts
# set so that the 95th percentile of nonsense stays below 0.2 on each of the five. The model is all-MiniLM-L6-v2.
LEXICAL = LogisticModel(intercept=-7.25, window=4.9, found=0.17, near=4.7)
WITH_COSINE = LogisticModel(intercept=-9.75, window=1.04, found=0.0, near=3.75, cosine=13.01, background=-1.89)


def relevance(evidence: Evidence) -> float:
    """Probability-like relevance of one document, in [0, 1], from what is known of it.

    Words with meaning, or words alone where there is no cosine. A query that stands nearly whole in one place is read
    both ways and the stronger counts: an identifier found letter by letter is an answer although its vector says
    little, while half of some random words is none.
    """
    by_words = _logistic(LEXICAL, evidence)
    if evidence.cosine is None or evidence.background is None:
        return by_words
    with_meaning = _logistic(WITH_COSINE, evidence)
    return max(by_words, with_meaning) if evidence.window >= LITERAL else with_meaning


def _logistic(model: LogisticModel, evidence: Evidence) -> float:
    value = model.intercept + model.window * evidence.window
    value += model.found * math.log1p(evidence.coverage * evidence.mass)
    value += model.near * math.log1p(evidence.window * evidence.mass)
    value += model.cosine * (evidence.cosine or 0.0) + model.background * (evidence.background or 0.0)
    return 1.0 / (1.0 + math.exp(-value))


def background_cosine(cosines: Sequence[float]) -> float | None:
    """Mean cosine of the tail of a dense ranking (best first), the query's own background; None without one."""
    if not cosines:
        return None
    tail = cosines[len(cosines) // 2 :]
    return math.fsum(tail) / len(tail)


def spread_of(cosines: Sequence[float]) -> float | None:
    """Standard deviation of the cosines of a dense ranking; None without one."""
    if not cosines:
        return None
    mean = math.fsum(cosines) / len(cosines)
    return math.sqrt(math.fsum((cosine - mean) ** 2 for cosine in cosines) / len(cosines))


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
