"""The original's benchmark fixtures: JSON with expected files per query, scored per backend."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from qmd.errors import NotFoundError, UsageError
from qmd.plugins.bench.collections import JudgedQueries
from qmd.plugins.bench.metrics import average

MIN_DEPTH = 10

UNANSWERABLE = "unanswerable"
"""Kind of a query that no file answers."""

_OTHER = "other"
"""Kind of a query that names none."""


class FixtureQuery(Struct, frozen=True):
    """One query with the files that should be among its first `expected_in_top_k`."""

    id: str
    query: str
    type: str
    expected_files: tuple[str, ...]
    expected_in_top_k: int
    expected_text: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """What it is counted under."""
        return self.type or (_OTHER if self.expected_files else UNANSWERABLE)

    @property
    def depth(self) -> int:
        """Results to ask for."""
        return max(self.expected_in_top_k, MIN_DEPTH)


class Fixture(Struct, frozen=True):
    """A set of queries over one collection, or over all when it names none."""

    collection: str | None
    queries: tuple[FixtureQuery, ...]


class FixtureScore(Struct, frozen=True):
    """How one backend did on one query; every share in [0, 1]."""

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


def read_fixture(path: Path) -> Fixture:
    """Read a fixture.

    Raises:
        NotFoundError: No such file.
        UsageError: Not JSON, or not a fixture.
    """
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as exc:
        raise NotFoundError(f"no fixture '{path}'") from exc
    except (OSError, ValueError) as exc:
        raise UsageError(f"cannot read the fixture '{path}': {exc}") from exc
    if not isinstance(raw, dict) or not isinstance(raw.get("queries"), list):
        raise UsageError("Invalid fixture: missing 'queries' array")
    collection = raw.get("collection")
    return Fixture(
        collection=str(collection) if collection else None,
        queries=tuple(_query(number, row) for number, row in enumerate(raw["queries"], start=1)),
    )


def judge_fixture(fixture: Fixture) -> JudgedQueries:
    """Queries and judgements of a fixture, every expected file of grade 1; ids that repeat are told apart by `#2`…"""
    named = dict(zip(query_names(fixture), fixture.queries, strict=True))
    return JudgedQueries(
        queries={name: query.query for name, query in named.items()},
        qrels={name: dict.fromkeys(query.expected_files, 1.0) for name, query in named.items()},
        kinds={name: query.kind for name, query in named.items()},
        expected_texts={name: query.expected_text for name, query in named.items() if query.expected_text},
    )


def query_names(fixture: Fixture) -> list[str]:
    """A name for each query, unique inside the fixture: its id where that is."""
    seen: dict[str, int] = {}
    names = []
    for query in fixture.queries:
        seen[query.id] = seen.get(query.id, 0) + 1
        names.append(query.id if seen[query.id] == 1 else f"{query.id}#{seen[query.id]}")
    return names


def expected_names(files: Sequence[str], expected: Sequence[str]) -> list[str]:
    """`files` with each one that is expected under its expected name, so that it can be looked up in judgements."""
    left = list(expected)
    named = []
    for file in files:
        match = next((name for name in left if same_file(name, file)), None)
        if match is not None:
            left.remove(match)
        named.append(match or file)
    return named


def score_fixture(query: FixtureQuery, files: Sequence[str], latency_ms: float) -> FixtureScore:
    """Score one ranking of files (URIs or paths, best first) against what a query expects."""
    ranks: dict[str, int] = {}
    for expected in query.expected_files:
        rank = next((n for n, name in enumerate(files, start=1) if same_file(expected, name)), None)
        if rank is not None:
            ranks[expected] = rank
    total = len(query.expected_files)
    k = query.expected_in_top_k
    in_top = sum(rank <= k for rank in ranks.values())
    precision = in_top / min(k, total) if total and k else 0.0
    recall = len(ranks) / total if total else 0.0
    return FixtureScore(
        precision_at_k=precision,
        recall=recall,
        recall_at_1=_share(ranks, total, 1),
        recall_at_3=_share(ranks, total, 3),
        recall_at_5=_share(ranks, total, 5),
        mrr=1.0 / min(ranks.values()) if ranks else 0.0,
        f1=2 * precision * recall / (precision + recall) if precision + recall else 0.0,
        hits_at_k=in_top,
        matched_files=tuple(ranks),
        unmatched_expected_files=tuple(name for name in query.expected_files if name not in ranks),
        total_expected=total,
        latency_ms=latency_ms,
        top_files=tuple(files[:MIN_DEPTH]),
    )


def summarise(scores: Sequence[FixtureScore]) -> dict[str, float]:
    """Means over the queries of a backend, under the original's names; what expects no file has only a latency."""
    latency_ms = average([score.latency_ms for score in scores])
    scores = [score for score in scores if score.total_expected]
    return {
        "avg_precision": average([score.precision_at_k for score in scores]),
        "avg_recall": average([score.recall for score in scores]),
        "avg_recall_at_1": average([score.recall_at_1 for score in scores]),
        "avg_recall_at_3": average([score.recall_at_3 for score in scores]),
        "avg_recall_at_5": average([score.recall_at_5 for score in scores]),
        "avg_mrr": average([score.mrr for score in scores]),
        "avg_f1": average([score.f1 for score in scores]),
        "avg_latency_ms": latency_ms,
    }


def same_file(expected: str, found: str) -> bool:
    """Whether both name one file: equal, or one the end of the other at a `/`; case and scheme do not matter."""
    left, right = _bare(expected), _bare(found)
    return bool(left and right) and (left == right or left.endswith("/" + right) or right.endswith("/" + left))


def _bare(name: str) -> str:
    text = name.casefold()
    if text.startswith("qmd://"):
        text = text.removeprefix("qmd://").partition("/")[2]
    return text.strip("/")


def _share(ranks: Mapping[str, int], total: int, k: int) -> float:
    return sum(rank <= k for rank in ranks.values()) / total if total else 0.0


def _query(number: int, row: object) -> FixtureQuery:
    if not isinstance(row, dict) or not row.get("query") or not isinstance(row.get("expected_files"), list):
        raise UsageError(f"Invalid fixture: query {number} needs 'query' and an 'expected_files' array")
    try:
        top_k = int(row.get("expected_in_top_k", MIN_DEPTH))
    except (TypeError, ValueError):
        raise UsageError(f"Invalid fixture: query {number} has a bad 'expected_in_top_k'") from None
    query = FixtureQuery(
        id=str(row.get("id", number)),
        query=str(row["query"]),
        type=str(row.get("type", "")),
        expected_files=tuple(str(name) for name in row["expected_files"]),
        expected_in_top_k=max(top_k, 1),
        expected_text=_expected_text(number, row.get("expected_text")),
    )
    if query.type == UNANSWERABLE and query.expected_files:
        raise UsageError(f"Invalid fixture: query {number} is '{UNANSWERABLE}' and has 'expected_files'")
    if query.expected_text and not query.expected_files:
        raise UsageError(f"Invalid fixture: query {number} has an 'expected_text' and no 'expected_files'")
    return query


def _expected_text(number: int, value: object) -> tuple[str, ...]:
    texts = [] if value is None else value if isinstance(value, list) else [value]
    if not all(isinstance(text, str) and text.strip() for text in texts):
        raise UsageError(f"Invalid fixture: query {number} has a bad 'expected_text', expected a string or strings")
    return tuple(map(str, texts))
