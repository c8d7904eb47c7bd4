"""Ranking metrics of one query: a ranking of names and the grades of the judged ones in, a number in [0, 1] out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence


def ndcg_at(ranking: Sequence[str], grades: Mapping[str, float], k: int) -> float:
    """Return the normalised discounted cumulative gain of the first `k`, with the grade as gain and log2(rank + 1).

    0 when nothing is relevant. Source: Järvelin, Kekäläinen, ACM TOIS 20(4), 2002; trec_eval's `ndcg_cut`.
    """
    ideal = sorted((grade for grade in grades.values() if grade > 0), reverse=True)[:k]
    if not ideal:
        return 0.0
    return _discounted([grades.get(name, 0.0) for name in ranking[:k]]) / _discounted(ideal)


def recall_at(ranking: Sequence[str], grades: Mapping[str, float], k: int) -> float:
    """Return the share of the relevant documents among the first `k`; 0 when nothing is relevant."""
    relevant = _relevant(grades)
    return len(relevant.intersection(ranking[:k])) / len(relevant) if relevant else 0.0


def precision_at(ranking: Sequence[str], grades: Mapping[str, float], k: int) -> float:
    """Return the relevant documents among the first `k`, divided by `k`, also for shorter rankings, as in trec_eval."""
    return len(_relevant(grades).intersection(ranking[:k])) / k


def mrr_at(ranking: Sequence[str], grades: Mapping[str, float], k: int) -> float:
    """Return one over the rank of the first relevant document among the first `k`, else 0.

    Source: Voorhees, TREC-8 question answering track report, 1999.
    """
    relevant = _relevant(grades)
    return next((1.0 / rank for rank, name in enumerate(ranking[:k], start=1) if name in relevant), 0.0)


def average(values: Sequence[float]) -> float:
    """Return the arithmetic mean; 0 of nothing."""
    return math.fsum(values) / len(values) if values else 0.0


def _relevant(grades: Mapping[str, float]) -> frozenset[str]:
    return frozenset(name for name, grade in grades.items() if grade > 0)


def _discounted(gains: Sequence[float]) -> float:
    return math.fsum(max(gain, 0.0) / math.log2(rank + 1) for rank, gain in enumerate(gains, start=1))
