"""What one search showed of what was expected, and what many of these come to."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from msgspec import Struct

from qmd.plugins.bench.fixture import MIN_DEPTH, Case, holds_any, same_file
from qmd.records import SearchResponse, Verdict

SHOWN = 10
"""Hits that a person is shown; a passage further down answers nobody."""

METRICS = ("nDCG@10", "recall@20", "MRR@10", "P@10")


class FixtureScore(Struct, frozen=True):
    """The original's figures of one query; every share in [0, 1]."""

    precision_at_k: float
    recall: float
    recall_at_1: float
    recall_at_3: float
    recall_at_5: float
    mrr: float
    f1: float
    hits_at_k: int
    matched_files: tuple[str, ...]
    unmatched_expected_files: tuple[str, ...]
    total_expected: int
    latency_ms: float
    top_files: tuple[str, ...]


class Answer(Struct, frozen=True):
    """What one search showed.

    Attributes:
        n_expected: Files expected; 0 where no file answers.
        ranks: Of the expected files among those found, ascending; each file found counts for one expected.
        passage_holds: Whether the first of them is among the first `SHOWN` and its passage holds an expected text;
            None where no text is expected.
        verdict: What the list was called.
        files: What was found, best first, as the index calls it.
        latency_ms: Wall time.
    """

    kind: str
    n_expected: int
    ranks: tuple[int, ...]
    passage_holds: bool | None
    verdict: Verdict
    files: tuple[str, ...]
    latency_ms: float
    score: FixtureScore

    @property
    def rank(self) -> int | None:
        """Of the first expected file."""
        return self.ranks[0] if self.ranks else None

    @property
    def is_kept(self) -> bool:
        """Whether the list was taken for an answer."""
        return self.verdict != "none"


def judge_answer(case: Case, files: Sequence[str], response: SearchResponse, latency_ms: float) -> Answer:
    """What `response` shows of what a case expects; `files` are its hits as the index calls them."""
    ranks = _expected_ranks(case, files)
    passage = response.hits[ranks[0] - 1].passage.text if ranks and ranks[0] <= SHOWN else ""
    return Answer(
        kind=case.kind,
        n_expected=len(set(case.expected_files)),
        ranks=ranks,
        passage_holds=holds_any(passage, case.expected_text) if case.expected_text else None,
        verdict=response.verdict,
        files=tuple(files),
        latency_ms=latency_ms,
        score=score_case(case, files[: case.depth], round(latency_ms, 1)),
    )


def score_case(case: Case, files: Sequence[str], latency_ms: float) -> FixtureScore:
    """Score one ranking of files (addresses or paths, best first) against what a query expects."""
    ranks: dict[str, int] = {}
    for expected in case.expected_files:
        rank = next((n for n, name in enumerate(files, start=1) if same_file(expected, name)), None)
        if rank is not None:
            ranks[expected] = rank
    total = len(case.expected_files)
    k = case.expected_in_top_k
    n_first = {depth: sum(rank <= depth for rank in ranks.values()) for depth in (1, 3, 5, k)}
    precision, recall = _ratio(n_first[k], min(k, total)), _ratio(len(ranks), total)
    return FixtureScore(
        precision_at_k=precision,
        recall=recall,
        recall_at_1=_ratio(n_first[1], total),
        recall_at_3=_ratio(n_first[3], total),
        recall_at_5=_ratio(n_first[5], total),
        mrr=1.0 / min(ranks.values()) if ranks else 0.0,
        f1=_ratio(2 * precision * recall, precision + recall),
        hits_at_k=n_first[k],
        matched_files=tuple(ranks),
        unmatched_expected_files=tuple(name for name in case.expected_files if name not in ranks),
        total_expected=total,
        latency_ms=latency_ms,
        top_files=tuple(files[:MIN_DEPTH]),
    )


# --- many answers ---------------------------------------------------------------------------------


def average(values: Sequence[float]) -> float:
    """Arithmetic mean; 0 of nothing."""
    return math.fsum(values) / len(values) if values else 0.0


def mean_metrics(answers: Iterable[Answer]) -> dict[str, float]:
    """The mean of each of `METRICS`, as trec_eval computes them, over the queries that expect a file."""
    rows = [_metrics(answer) for answer in answers if answer.n_expected]
    return {name: average([row[column] for row in rows]) for column, name in enumerate(METRICS)}


def mean_scores(scores: Sequence[FixtureScore]) -> dict[str, float]:
    """Means under the original's names; what expects no file has only a latency."""
    answerable = [score for score in scores if score.total_expected]
    return {
        "avg_precision": average([score.precision_at_k for score in answerable]),
        "avg_recall": average([score.recall for score in answerable]),
        "avg_recall_at_1": average([score.recall_at_1 for score in answerable]),
        "avg_recall_at_3": average([score.recall_at_3 for score in answerable]),
        "avg_recall_at_5": average([score.recall_at_5 for score in answerable]),
        "avg_mrr": average([score.mrr for score in answerable]),
        "avg_f1": average([score.f1 for score in answerable]),
        "avg_latency_ms": average([score.latency_ms for score in scores]),
    }


def summarise_answers(answers: Sequence[Answer]) -> dict[str, float | None]:
    """Number of cases, and the share of those for which each thing is true; None where it can be asked of no query.

    Success is that an expected file is among the first k. A verdict is right where an answerable query is kept (called
    anything but `none`) or an unanswerable one refused.
    """
    answerable = [answer for answer in answers if answer.n_expected]
    return {
        "cases": len(answers),
        **{f"success@{k}": _share(a.rank is not None and a.rank <= k for a in answerable) for k in (1, 3, 10)},
        "passage_holds": _share(a.passage_holds for a in answers if a.passage_holds is not None),
        **{word: _share(answer.verdict == word for answer in answers) for word in ("good", "weak", "none")},
        "kept": _share(answer.is_kept for answer in answerable),
        "refused": _share(not answer.is_kept for answer in answers if not answer.n_expected),
        "verdict_right": _share(answer.is_kept == bool(answer.n_expected) for answer in answers),
    }


def _expected_ranks(case: Case, files: Sequence[str]) -> tuple[int, ...]:
    missing = list(dict.fromkeys(case.expected_files))
    ranks = []
    for rank, file in enumerate(files, start=1):
        match = next((name for name in missing if same_file(name, file)), None)
        if match is not None:
            missing.remove(match)
            ranks.append(rank)
    return tuple(ranks)


def _metrics(answer: Answer) -> tuple[float, float, float, float]:
    """`METRICS` of one query. Source of the first: Järvelin, Kekäläinen, ACM TOIS 20(4), 2002."""
    first = [rank for rank in answer.ranks if rank <= 10]
    gained = math.fsum(1 / math.log2(rank + 1) for rank in first)
    ideal = math.fsum(1 / math.log2(rank + 1) for rank in range(1, min(answer.n_expected, 10) + 1))
    recall = sum(rank <= 20 for rank in answer.ranks) / answer.n_expected
    return gained / ideal, recall, 1 / first[0] if first else 0.0, len(first) / 10


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _share(statements: Iterable[bool]) -> float | None:
    """How many of them are true, in [0, 1]; None without any."""
    values = [float(statement) for statement in statements]
    return average(values) if values else None
