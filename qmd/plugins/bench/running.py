"""Asking queries of the pipeline in its four settings."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from qmd.errors import ModelError, QmdError
from qmd.inference.base import Engines
from qmd.plugins.bench.answers import Answer, judge_answer
from qmd.plugins.bench.fixture import Case
from qmd.records import Scope, StoredDocument
from qmd.retrieval.pipeline import search
from qmd.retrieval.query import build_scope, parse_query
from qmd.retrieval.request import SearchRequest
from qmd.store.base import IndexReader

BACKENDS: Mapping[str, SearchRequest] = {
    "bm25": SearchRequest(mode="lexical", rerank=False, expand=False),
    "vector": SearchRequest(mode="dense", rerank=False, expand=False),
    "hybrid": SearchRequest(mode="hybrid", rerank=False),
    "full": SearchRequest(mode="hybrid"),
}
"""Name of a backend, as in the original's fixtures, and what it means here."""

_DEPTH = 20
"""Hits asked for at least: recall is measured there."""


class Report(Struct, frozen=True):
    """How one backend did.

    Attributes:
        answers: Query → what it showed.
        failures: Query → why it has no answer.
        stage_share: Stage → its share of the time spent in all stages, in [0, 1].
    """

    backend: str
    answers: Mapping[str, Answer]
    failures: Mapping[str, str]
    stage_share: Mapping[str, float]

    def latency_ms(self, quantile: float) -> float:
        """Latency below which that share of the queries was answered; 0 without any."""
        ordered = sorted(answer.latency_ms for answer in self.answers.values())
        return ordered[min(int(quantile * len(ordered)), len(ordered) - 1)] if ordered else 0.0


def require_models(reader: IndexReader, engines: Engines, backend: str) -> None:
    """Check that a backend would really run: without a model its numbers would be those of another one.

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
    name_of: Callable[[StoredDocument], str] = lambda document: document.uri,
    on_search: Callable[[], None] = lambda: None,
) -> Report:
    """Search for every case with one backend.

    Args:
        backend: One of `BACKENDS`.
        cases: By name.
        scope: Applied to every query.
        name_of: What is shown of a document; an expected file is it, or its end at a `/`.
    """
    depth = max([_DEPTH, *(case.depth for case in cases.values())])
    options = replace(BACKENDS[backend], limit=depth, strict=True, folds_copies=False)
    answers: dict[str, Answer] = {}
    failures: dict[str, str] = {}
    stages: dict[str, float] = {}
    for name, case in cases.items():
        started = time.perf_counter()
        try:
            query = parse_query(case.query)
            response = search(reader, engines, replace(query, scope=build_scope(query.scope, scope)), options)
        except QmdError as exc:
            failures[name] = exc.message
        else:
            elapsed_ms = (time.perf_counter() - started) * 1000
            answers[name] = judge_answer(case, [name_of(hit.document) for hit in response.hits], response, elapsed_ms)
            for timing in response.timings:
                stages[timing.stage] = stages.get(timing.stage, 0.0) + timing.elapsed_ms
        on_search()
    whole = sum(stages.values())
    return Report(
        backend, answers, failures, {stage: spent / whole for stage, spent in stages.items()} if whole else {}
    )
