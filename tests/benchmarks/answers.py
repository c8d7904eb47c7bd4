"""Cases of an index, and their figures: rank of the file, passage, verdict."""

from __future__ import annotations

import json
import math
import random
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from msgspec import Struct
from msgspec.structs import asdict, replace

from qmd.analysis.scripts import normalize
from qmd.errors import QmdError, UsageError
from qmd.file_names import file_name
from qmd.inference.base import Engines
from qmd.inference.loader import load_engines
from qmd.inference.settings import EngineSettings
from qmd.note_names import aliases_of
from qmd.plugins.bench.fixture import Case, read_fixture, same_file
from qmd.plugins.bench.running import BACKENDS, require_models
from qmd.records import SearchResponse, StoredDocument, Verdict
from qmd.retrieval.pipeline import search
from qmd.retrieval.query import parse_query
from qmd.store.base import IndexReader
from qmd.store.opening import open_reader
from tests.benchmarks.metrics import average

SHOWN = 10
"""Hits that are shown."""

DEPTH = 20
"""Hits of a search, for recall."""

METRICS = ("nDCG@10", "recall@20", "MRR@10", "P@10")
UNANSWERABLE = "unanswerable"
FIGURES = (*(f"success@{k}" for k in (1, 3, 10)), "passage_holds", "good", "weak", "none", "verdict_right")


class AnswerCase(Case, frozen=True):
    """A query with its files; the shown passage should contain one of `expected_text`."""

    expected_text: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """Row of the tables in which it counts."""
        return self.type or ("other" if self.expected_files else UNANSWERABLE)


class Answer(Struct, frozen=True):
    """Result of one search.

    Attributes:
        n_expected: Files expected; 0 if no file answers.
        ranks: Of the expected files among those found, ascending; each file found counts for one expected.
        passage_holds: Whether the first of them is among the first `SHOWN` and its passage has an expected text;
            None if no text is expected.
        files: Names of the hits, best first.
    """

    kind: str
    n_expected: int
    ranks: tuple[int, ...]
    passage_holds: bool | None
    verdict: Verdict
    files: tuple[str, ...]
    latency_ms: float

    @property
    def rank(self) -> int | None:
        """Return the rank of the first expected file."""
        return self.ranks[0] if self.ranks else None

    @property
    def is_kept(self) -> bool:
        """Return whether the list counts as an answer."""
        return self.verdict != "none"


class Report(Struct, frozen=True):
    """Answers and failures of one backend by case, and the share of each stage in the time, in [0, 1]."""

    backend: str
    answers: Mapping[str, Answer]
    failures: Mapping[str, str]
    stage_share: Mapping[str, float]


def read_cases(path: Path) -> dict[str, AnswerCase]:
    """Read a fixture of `qmd bench` with the `expected_text` (a string or several) of its queries.

    Raises:
        QmdError: It is no fixture, or a query contradicts itself.
    """
    rows = json.loads(path.read_text(encoding="utf-8"))["queries"] if path.is_file() else []
    cases = {}
    for row, (name, case) in zip(rows, read_fixture(path).cases.items(), strict=True):
        value = row.get("expected_text")
        texts = [] if value is None else value if isinstance(value, list) else [value]
        if not all(isinstance(text, str) and text.strip() for text in texts):
            raise UsageError(f"query '{name}' has a bad 'expected_text', expected a string or strings")
        if case.type == UNANSWERABLE and case.expected_files:
            raise UsageError(f"query '{name}' is '{UNANSWERABLE}' and has 'expected_files'")
        if texts and not case.expected_files:
            raise UsageError(f"query '{name}' has an 'expected_text' and no 'expected_files'")
        cases[name] = AnswerCase(**asdict(case), expected_text=tuple(texts))
    return cases


def cases_of_names(reader: IndexReader, limit: int, seed: int = 0) -> dict[str, AnswerCase]:
    """Return every name of a note as a query that should find it; documents are called `collection/path`.

    Names are that of the file without its ending and the aliases of its front matter; kinds are `name` and `alias`. A
    name that several notes carry, in whatever case, is one query that any of them answers. Ids are made of the names,
    so that two states of a collection can be compared. At most `limit`, drawn at random and the same for the same seed.
    """
    documents = list(reader.iter_documents())
    carried = [(file_name(one.path), "name", one) for one in documents]
    carried += [(alias, "alias", one) for one in documents for alias in aliases_of(one.metadata)]
    first: dict[str, tuple[str, str]] = {}
    files: dict[str, dict[str, None]] = {}
    for name, kind, document in carried:
        query = " ".join(name.split())
        if key := quote(_folded(query), safe=""):
            first.setdefault(key, (query, kind))
            files.setdefault(key, {})[path_in_collection(document)] = None
    chosen = random.Random(seed).sample(sorted(first), min(limit, len(first)))
    return {key: AnswerCase(key, *first[key], tuple(files[key])) for key in chosen}


def path_in_collection(document: StoredDocument) -> str:
    """Return the name of a document in `cases_of_names`."""
    return f"{document.collection}/{document.path}"


def impossible_cases(reader: IndexReader, cases: Mapping[str, AnswerCase]) -> list[str]:
    """Return a line for each kind of cases that no search can meet: a file, or a text in it, is missing."""
    by_file: dict[str, list[StoredDocument]] = {}
    for document in reader.iter_documents():
        by_file.setdefault(_last_part(document.path), []).append(document)
    missing: dict[str, list[str]] = {}
    for name, case in cases.items():
        found = [
            [document for document in by_file.get(_last_part(expected), ()) if same_file(expected, document.uri)]
            for expected in case.expected_files
        ]
        texts = reader.texts([document.hash for documents in found for document in documents]).values()
        if not all(found):
            missing.setdefault("the index lacks files that queries expect", []).append(name)
        elif case.expected_text and not any(holds_any(text, case.expected_text) for text in texts):
            missing.setdefault("no expected file has the expected text of queries", []).append(name)
    return [f"{reason}: {', '.join(map(repr, names))}" for reason, names in missing.items()]


def holds_any(passage: str, texts: Sequence[str]) -> bool:
    """Return whether a passage contains one of some texts; case, line breaks and the form of characters do not
    matter."""
    inside = _folded(passage)
    return any(_folded(text) in inside for text in texts)


def _folded(text: str) -> str:
    return " ".join(normalize(text).casefold().split())


def _last_part(path: str) -> str:
    return path.casefold().strip("/").rpartition("/")[2]


def run_backends(
    database: Path, cases_of: Callable[[IndexReader], Mapping[str, AnswerCase]], backends: Sequence[str]
) -> tuple[Mapping[str, AnswerCase], list[Report]]:
    """Search an index for its cases with each of `BACKENDS` named, on the built-in models."""
    settings = EngineSettings(models_dir=Path("no-full-tier"), embed="built-in", rerank="built-in")
    needs_models = any(BACKENDS[backend].mode != "lexical" for backend in backends)
    engines = load_engines(settings, ("embed", "rerank")) if needs_models else Engines()
    with open_reader(database) as reader:
        cases = cases_of(reader)
        for line in impossible_cases(reader, cases):
            print(line, file=sys.stderr)
        return cases, [run_backend(backend, reader, engines, cases) for backend in backends]


def run_backend(backend: str, reader: IndexReader, engines: Engines, cases: Mapping[str, AnswerCase]) -> Report:
    """Search for every case with one backend.

    Raises:
        ModelError: The backend has no model, or the index no vector of it.
    """
    require_models(reader, engines, backend)
    depth = max([DEPTH, *(case.depth for case in cases.values())])
    options = replace(BACKENDS[backend], limit=depth, strict=True, folds_copies=False)
    answers: dict[str, Answer] = {}
    failures: dict[str, str] = {}
    stages: dict[str, float] = {}
    for name, case in cases.items():
        started = time.perf_counter()
        try:
            response = search(reader, engines, parse_query(case.query), options)
        except QmdError as exc:
            failures[name] = exc.message
            continue
        elapsed_ms = (time.perf_counter() - started) * 1000
        files = [path_in_collection(hit.document) for hit in response.hits]
        answers[name] = judge_answer(case, files, response, elapsed_ms)
        for timing in response.timings:
            stages[timing.stage] = stages.get(timing.stage, 0.0) + timing.elapsed_ms
    whole = sum(stages.values())
    return Report(backend, answers, failures, {stage: spent / whole for stage, spent in stages.items() if whole})


def judge_answer(case: AnswerCase, files: Sequence[str], response: SearchResponse, latency_ms: float) -> Answer:
    """Compare a response with what a case expects; `files` are the names of its hits."""
    missing = list(dict.fromkeys(case.expected_files))
    ranks = []
    for rank, file in enumerate(files, start=1):
        match = next((name for name in missing if same_file(name, file)), None)
        if match is not None:
            missing.remove(match)
            ranks.append(rank)
    passage = response.hits[ranks[0] - 1].passage.text if ranks and ranks[0] <= SHOWN else ""
    return Answer(
        kind=case.kind,
        n_expected=len(set(case.expected_files)),
        ranks=tuple(ranks),
        passage_holds=holds_any(passage, case.expected_text) if case.expected_text else None,
        verdict=response.verdict,
        files=tuple(files),
        latency_ms=latency_ms,
    )


def mean_metrics(answers: Iterable[Answer]) -> dict[str, float]:
    """Return the mean of each of `METRICS`, as trec_eval computes them, over the queries that expect a file."""
    rows = [_metrics(answer) for answer in answers if answer.n_expected]
    return {name: average([row[column] for row in rows]) for column, name in enumerate(METRICS)}


def _metrics(answer: Answer) -> tuple[float, float, float, float]:
    """`METRICS` of one query. Source of the first: Järvelin, Kekäläinen, ACM TOIS 20(4), 2002."""
    first = [rank for rank in answer.ranks if rank <= 10]
    gained = math.fsum(1 / math.log2(rank + 1) for rank in first)
    ideal = math.fsum(1 / math.log2(rank + 1) for rank in range(1, min(answer.n_expected, 10) + 1))
    recall = sum(rank <= 20 for rank in answer.ranks) / answer.n_expected
    return gained / ideal, recall, 1 / first[0] if first else 0.0, len(first) / 10


def summarise_answers(answers: Sequence[Answer]) -> dict[str, float | None]:
    """Return the number of cases and the share for which each statement is true; None if it applies to no query.

    Success is that an expected file is among the first k. A verdict is right if an answerable query is kept (called
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


def _share(statements: Iterable[bool]) -> float | None:
    values = [float(statement) for statement in statements]
    return average(values) if values else None


def print_reports(cases: Mapping[str, AnswerCase], reports: Sequence[Report], *, as_json: bool) -> None:
    """Print tables of metrics, latency, stages and answers by kind; or the answers, for `compare_answers.py`."""
    if as_json:
        print(json.dumps(answers_json(cases, reports), ensure_ascii=False, indent=2))
        return
    for report in reports:
        answers = list(report.answers.values())
        means = "  ".join(f"{name} {mean:.4f}" for name, mean in mean_metrics(answers).items())
        latencies = sorted(answer.latency_ms for answer in answers)
        speed = [f"p{share} {latencies[len(latencies) * share // 100]:.0f} ms" for share in (50, 95) if latencies]
        print("  ".join([f"{report.backend:8}{means}", *speed]))
        print("        ", "  ".join(f"{stage} {share:.0%}" for stage, share in report.stage_share.items()))
        print(f"  {'':12}{'cases':>6}", "".join(f"{name:>15}" for name in FIGURES), sep="")
        for kind in [*dict.fromkeys(answer.kind for answer in answers), "all"]:
            some = [answer for answer in answers if kind in (answer.kind, "all")]
            figures = [summarise_answers(some)[name] for name in FIGURES]
            cells = "".join(f"{'-' if value is None else f'{value:.3f}':>15}" for value in figures)
            print(f"  {kind:12}{len(some):6}{cells}")
        for name, message in report.failures.items():
            print(f"  failed: {name}: {message}")


def answers_json(cases: Mapping[str, AnswerCase], reports: Sequence[Report]) -> dict[str, object]:
    """Return each query with the answers of every backend."""
    results = []
    for name, case in cases.items():
        backends: dict[str, object] = {
            report.backend: {
                "rank": answer.rank,
                "passage_holds": answer.passage_holds,
                "verdict": answer.verdict,
                "top_files": answer.files[:SHOWN],
            }
            for report in reports
            if (answer := report.answers.get(name)) is not None
        }
        backends |= {one.backend: {"error": one.failures[name]} for one in reports if name in one.failures}
        row = {"id": name, "query": case.query, "type": case.kind, "expected_files": case.expected_files}
        results.append({**row, "backends": backends})
    return {"results": results}
