"""Running judged queries through the pipeline's four settings."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from qmd.errors import ModelError, QmdError
from qmd.inference.base import Engines
from qmd.plugins.bench.answers import Answer
from qmd.plugins.bench.collections import Qrels, run_name
from qmd.plugins.bench.metrics import average, mrr_at, ndcg_at, precision_at, recall_at
from qmd.records import Scope, SearchResponse, StoredDocument
from qmd.retrieval.pipeline import search
from qmd.retrieval.query import SearchOptions, build_scope, parse_query
from qmd.store.base import IndexReader

BACKENDS: Mapping[str, SearchOptions] = {
    "bm25": SearchOptions(mode="lexical", rerank=False, expand=False),
    "vector": SearchOptions(mode="dense", rerank=False, expand=False),
    "hybrid": SearchOptions(mode="hybrid", rerank=False),
    "full": SearchOptions(mode="hybrid", rerank=True),
}
"""Name of a backend, as in the original's fixtures, and what it means here."""

METRIC_DEPTH = 10
RECALL_DEPTH = 20


class Failure(Struct, frozen=True):
    """A query that a backend could not answer; it is left out of the means and reported."""

    query_id: str
    message: str


class BackendReport(Struct, frozen=True):
    """What one backend did with every query.

    Attributes:
        backend: Its name.
        metrics: Metric → query id → value, for answered queries.
        run: Query id → document names, best first.
        latencies_ms: Query id → wall time.
        stage_share: Stage → its share of the time spent in all stages, in [0, 1].
        failures: Queries without an answer.
        answers: Query id → what a person sees of the answer, where that was judged.
    """

    backend: str
    metrics: Mapping[str, Mapping[str, float]]
    run: Mapping[str, Sequence[str]]
    latencies_ms: Mapping[str, float]
    stage_share: Mapping[str, float]
    failures: tuple[Failure, ...]
    answers: Mapping[str, Answer] = {}

    def mean(self, metric: str) -> float:
        """Mean of a metric over the answered queries."""
        return average(list(self.metrics[metric].values()))

    def latency_ms(self, quantile: float) -> float:
        """Latency below which that share of the queries was answered; 0 without any."""
        ordered = sorted(self.latencies_ms.values())
        return ordered[min(int(quantile * len(ordered)), len(ordered) - 1)] if ordered else 0.0


def evaluate(
    reader: IndexReader,
    engines: Engines,
    queries: Mapping[str, str],
    qrels: Qrels,
    modes: Sequence[str] = tuple(BACKENDS),
    *,
    scope: Scope = Scope(),
    name_of: Callable[[StoredDocument], str] = lambda document: document.path,
    depth: int = RECALL_DEPTH,
    on_progress: Callable[[int], None] | None = None,
    answer_of: Callable[[str, SearchResponse], Answer] | None = None,
) -> list[BackendReport]:
    """Run every query through every backend.

    Args:
        reader: The index.
        engines: What answers.
        queries: Id → text, plain or a query document.
        qrels: Judgements under the names that `name_of` gives documents.
        modes: Keys of `BACKENDS`.
        scope: Applied to every query.
        name_of: Document → name in `qrels`; the path inside its collection by default.
        depth: Hits asked for, at least `RECALL_DEPTH`.
        on_progress: Gets the number of searches done so far.
        answer_of: Query id, what was found → what a person sees of it.

    Raises:
        ModelError: A backend needs a model or vectors that are not there: its numbers would be those of another one.
    """
    require_models(reader, engines, modes)
    done = 0
    reports = []
    for mode in modes:
        options = replace(BACKENDS[mode], limit=max(depth, RECALL_DEPTH), strict=True, folds_copies=False)
        rows: dict[str, SearchResponse] = {}
        latencies: dict[str, float] = {}
        failures: list[Failure] = []
        for query_id, text in queries.items():
            started = time.perf_counter()
            try:
                query = parse_query(text)
                query = replace(query, scope=build_scope(query.scope, scope))
                rows[query_id] = search(reader, engines, query, options)
            except QmdError as exc:
                failures.append(Failure(query_id, exc.message))
            else:
                latencies[query_id] = (time.perf_counter() - started) * 1000
            done += 1
            if on_progress is not None:
                on_progress(done)
        run = {query_id: [name_of(hit.document) for hit in answer.hits] for query_id, answer in rows.items()}
        answers = {query_id: answer_of(query_id, row) for query_id, row in rows.items()} if answer_of else {}
        shares = _shares(rows.values())
        reports.append(BackendReport(mode, measure_run(run, qrels), run, latencies, shares, tuple(failures), answers))
    return reports


def measure_run(run: Mapping[str, Sequence[str]], qrels: Qrels) -> dict[str, dict[str, float]]:
    """nDCG@10, recall@20, MRR@10 and P@10 of every query of a run that has a judgement."""
    judged = {query_id: (names, qrels[query_id]) for query_id, names in run.items() if qrels.get(query_id)}
    return {
        "nDCG@10": {q: ndcg_at(names, grades, METRIC_DEPTH) for q, (names, grades) in judged.items()},
        "recall@20": {q: recall_at(names, grades, RECALL_DEPTH) for q, (names, grades) in judged.items()},
        "MRR@10": {q: mrr_at(names, grades, METRIC_DEPTH) for q, (names, grades) in judged.items()},
        "P@10": {q: precision_at(names, grades, METRIC_DEPTH) for q, (names, grades) in judged.items()},
    }


def measure_stored(run: Mapping[str, Sequence[str]], qrels: Qrels) -> dict[str, dict[str, float]]:
    """`measure_run` of a run that was read from a file, under the names of the judgements."""
    found = {query_id: run[run_name(query_id)] for query_id in qrels if run_name(query_id) in run}
    return measure_run(found, {q: {run_name(name): grade for name, grade in qrels[q].items()} for q in found})


def require_models(reader: IndexReader, engines: Engines, modes: Sequence[str]) -> None:
    """Check that every backend of `modes` would really run.

    Raises:
        ModelError: A model is missing, or the index has no vector of it.
    """
    for mode in modes:
        options = BACKENDS[mode]
        if options.mode == "lexical":
            continue
        if engines.embedder is None:
            raise ModelError(f"backend '{mode}' needs an embedding model", hint="qmd doctor")
        if not reader.status(engines.embedder.fingerprint).vectors:
            raise ModelError(f"backend '{mode}' needs vectors, and the index has none", hint="qmd embed")
        if options.rerank and engines.reranker is None:
            raise ModelError(f"backend '{mode}' needs a reranking model", hint="qmd doctor")


def _shares(answers: Iterable[SearchResponse]) -> dict[str, float]:
    totals: dict[str, float] = {}
    for answer in answers:
        for timing in answer.timings:
            totals[timing.stage] = totals.get(timing.stage, 0.0) + timing.elapsed_ms
    whole = sum(totals.values())
    return {stage: spent / whole for stage, spent in totals.items()} if whole else {}
