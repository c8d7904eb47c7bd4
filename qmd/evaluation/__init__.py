"""Judged queries and a way to search come in; metrics, timings and comparisons of runs go out.

Reads BEIR folders, TREC files and the original's fixtures, and makes known-item queries from an index.
It must not know how retrieval works, only that it answers.
"""

from qmd.evaluation.collections import (
    JudgedQueries,
    has_corpus,
    read_beir,
    read_qrels,
    read_queries,
    read_run,
    write_run,
)
from qmd.evaluation.compare import Comparison, compare_runs
from qmd.evaluation.corpus_index import entry_id, index_corpus
from qmd.evaluation.fixture import Fixture, FixtureQuery, judge_fixture, read_fixture, score_fixture
from qmd.evaluation.known_item import known_item_queries
from qmd.evaluation.metrics import average, mrr_at, ndcg_at, precision_at, recall_at
from qmd.evaluation.runs import BACKENDS, BackendReport, Failure, evaluate, measure_run, require_models

__all__ = [
    "BACKENDS",
    "BackendReport",
    "Comparison",
    "Failure",
    "Fixture",
    "FixtureQuery",
    "JudgedQueries",
    "average",
    "compare_runs",
    "entry_id",
    "evaluate",
    "has_corpus",
    "index_corpus",
    "judge_fixture",
    "known_item_queries",
    "measure_run",
    "mrr_at",
    "ndcg_at",
    "precision_at",
    "read_beir",
    "read_fixture",
    "read_qrels",
    "read_queries",
    "read_run",
    "recall_at",
    "require_models",
    "score_fixture",
    "write_run",
]
