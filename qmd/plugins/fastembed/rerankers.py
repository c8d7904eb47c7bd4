"""fastembed's cross-encoders and late-interaction models behind the `Reranker` protocol."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from qmd.errors import ModelError
from qmd.inference.base import EngineDescription
from qmd.inference.engines.maxsim import INTENT_WEIGHT, max_similarity
from qmd.inference.records import ModelRecord
from qmd.inference.runtime.parallel import map_in_time
from qmd.inference.settings import EngineSettings
from qmd.plugins.fastembed.models import OpenModel, mapped_errors, open_fastembed

ScoreRun = Callable[[list[str]], list[float]]
"""Passages of one run → a score of each."""


class FastembedReranker:
    """A `Reranker` over a model of fastembed's.

    Args:
        open_query: Query and intent → function that scores the passages of a run.
    """

    def __init__(self, model: OpenModel, open_query: Callable[[OpenModel, str, str], ScoreRun]) -> None:
        self._model = model
        self._open_query = open_query
        self.session = model.session
        self.description = EngineDescription("rerank", model.record.name, model.format, "full", model.provider)

    def score(
        self,
        query: str,
        passages: Sequence[str],
        *,
        intent: str | None = None,
        deadline_s: float | None = None,
        is_cancelled: Callable[[], bool] | None = None,
    ) -> list[float | None]:
        """Return one score per passage, in [0, 1] from a cross-encoder, in [-1, 1] from a late-interaction model.

        Identical passages are scored once. A run that would outlast the deadline, judged by the pace so far, is not
        started.

        Raises:
            ModelError: If the runtime fails, or the model returns values that are not numbers.
        """
        distinct = list(dict.fromkeys(passages))
        scores: dict[str, float] = {}
        if not distinct or (deadline_s is not None and time.monotonic() >= deadline_s):
            return [None] * len(passages)
        runs = [[distinct[index] for index in run] for run in self._model.runs(distinct)]
        with mapped_errors(self._model.record.name):
            score_run = self._open_query(self._model, query, (intent or "").strip())
            sizes = [max(1, sum(map(len, run))) for run in runs]
            threads = self._model.threads
            results = map_in_time(score_run, runs, sizes, threads, deadline_s=deadline_s, is_cancelled=is_cancelled)
            for run, found in zip(runs, results, strict=False):
                scores.update(zip(run, found, strict=True))
        if any(map(math.isnan, scores.values())):
            name = self.description.model
            raise ModelError(
                f"model '{name}' returns values that are not numbers", f"check it: qmd models verify {name}"
            )
        return [scores.get(passage) for passage in passages]


def load_fastembed_reranker(folder: Path, record: ModelRecord, settings: EngineSettings) -> FastembedReranker:
    """Open a reranking model of fastembed's from its folder.

    Raises:
        ModelError: fastembed is missing, or a file is absent or damaged.
    """
    model = open_fastembed(folder, record, settings)
    return FastembedReranker(model, pair_scorer if model.kind == "cross-encoder" else late_scorer)


def pair_scorer(model: OpenModel, query: str, intent: str) -> ScoreRun:
    """Return P(relevant) of query and passage read together: the sigmoid of the model's single output."""
    wanted = f"{query}\n{intent}" if intent else query

    def score_run(passages: list[str]) -> list[float]:
        values = np.array(list(model.own.rerank(wanted, passages, batch_size=len(passages))), dtype=np.float32)
        # The two halves of tanh never overflow, as exp would for values beyond 700.
        return [float(value) for value in 0.5 + 0.5 * np.tanh(0.5 * values.astype(np.float64))]

    return score_run


def late_scorer(model: OpenModel, query: str, intent: str) -> ScoreRun:
    """Return the mean over the query's tokens, the model's added ones included, of the best cosine in the passage."""
    texts = [query, intent] if intent else [query]
    vectors = [np.asarray(one, dtype=np.float32) for one in model.own.query_embed(texts)]
    shares = [1.0, INTENT_WEIGHT][: len(texts)]
    parts = (np.full(len(one), share / len(one), np.float32) for one, share in zip(vectors, shares, strict=True))
    tokens, weights = np.concatenate(vectors), np.concatenate(list(parts))

    def score_run(passages: list[str]) -> list[float]:
        embedded = model.own.embed(passages, batch_size=len(passages))
        return [max_similarity(tokens, weights, np.asarray(one, dtype=np.float32)) for one in embedded]

    return score_run
