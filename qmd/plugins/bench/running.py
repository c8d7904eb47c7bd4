"""Run a fixture on the pipeline in its four settings, and score each ranking."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from qmd.errors import ModelError, QmdError
from qmd.inference.base import Engines
from qmd.plugins.bench.fixture import MIN_DEPTH, Case, same_file
from qmd.records import Scope
from qmd.retrieval.pipeline import search
from qmd.retrieval.query import intersect_scopes, parse_query
from qmd.retrieval.request import SearchRequest
from qmd.store.base import IndexReader

BACKENDS: Mapping[str, SearchRequest] = {
    "bm25": SearchRequest(mode="lexical", rerank=False, expand=False),
    "vector": SearchRequest(mode="dense", rerank=False, expand=False),
    "hybrid": SearchRequest(mode="hybrid", rerank=False),
    "full": SearchRequest(mode="hybrid"),
}
"""Backend of tobi/qmd's fixtures → search options."""


class FixtureScore(Struct, frozen=True):
    """Figures of one query under tobi/qmd's names; every share is in [0, 1]."""

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


class Report(Struct, frozen=True):
    """Results of one backend.

    Attributes:
        scores: By name of the case.
        failures: Name of the case → message.
    """

    backend: str
    scores: Mapping[str, FixtureScore]
    failures: Mapping[str, str]

    def means(self) -> dict[str, float]:
        """Means over the answered queries; a query that expects no file counts for the latency only."""
        answerable = [score for score in self.scores.values() if score.total_expected]
        names = ("recall", "recall_at_1", "recall_at_3", "recall_at_5", "mrr", "f1")
        return {
            "avg_precision": _mean([score.precision_at_k for score in answerable]),
            **{f"avg_{name}": _mean([getattr(score, name) for score in answerable]) for name in names},
            "avg_latency_ms": _mean([score.latency_ms for score in self.scores.values()]),
        }


def require_models(reader: IndexReader, engines: Engines, backend: str) -> None:
    """Check that a backend can run; without its model it would measure another backend.

    Raises:
        ModelError: A model is missing, or the index has no vector of it.
    """
    options = BACKENDS[backend]
    if options.mode == "lexical":
        return
    if engines.embedder is None:
        raise ModelError(f"backend '{backend}' needs an embedding model", hint="qmd doctor")
    if not reader.status(engines.embedder.fingerprint).vectors:
        raise ModelError(f"backend '{backend}' needs vectors, and the index has none", hint="qmd embed")
    if options.rerank is not False and engines.reranker is None:
        raise ModelError(f"backend '{backend}' needs a reranking model", hint="qmd doctor")


def run_backend(
    backend: str,
    reader: IndexReader,
    engines: Engines,
    cases: Mapping[str, Case],
    scope: Scope = Scope(),
    on_search: Callable[[], None] = lambda: None,
) -> Report:
    """Search for every case with one of `BACKENDS`; `scope` applies to every query."""
    options = replace(BACKENDS[backend], strict=True, folds_copies=False)
    scores: dict[str, FixtureScore] = {}
    failures: dict[str, str] = {}
    for name, case in cases.items():
        started = time.perf_counter()
        try:
            query = parse_query(case.query)
            query = replace(query, scope=intersect_scopes(query.scope, scope))
            hits = search(reader, engines, query, replace(options, limit=case.depth)).hits
        except QmdError as exc:
            failures[name] = exc.message
        else:
            elapsed_ms = round((time.perf_counter() - started) * 1000, 1)
            scores[name] = score_case(case, [hit.document.uri for hit in hits], elapsed_ms)
        on_search()
    return Report(backend, scores, failures)


def score_case(case: Case, files: Sequence[str], latency_ms: float) -> FixtureScore:
    """Score one ranking of files (addresses or paths, best first) against the files that a query expects."""
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


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
