"""`bench`: measure quality and speed of this index with the queries of a fixture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from qmd.cli.invocation import Invocation
from qmd.cli.options import Collections, Index, Json, NoGpu
from qmd.cli.output import out, warn
from qmd.errors import EXIT_FAILURE, EXIT_OK, ModelError, NotFoundError, UsageError, refuse_unknown
from qmd.records import Scope

if TYPE_CHECKING:
    from qmd.inference.base import Engines
    from qmd.inference.records import Role
    from qmd.plugins.bench.fixture import Case
    from qmd.plugins.bench.running import FixtureScore, Report
    from qmd.store.base import IndexReader

_COLUMNS = ("query", "backend", "P@k", "R@1", "R@3", "R@5", "MRR", "F1", "ms")


def bench(
    invocation: Invocation,
    fixture: Annotated[str, Argument(help="JSON file of queries and the files they should find.")],
    collection: Collections = None,
    backends: Annotated[
        str | None, Option("--backends", metavar="LIST", help="Any of bm25, vector, hybrid, full, separated by commas.")
    ] = None,
    json: Json = False,
    no_gpu: NoGpu = False,
    index: Index = None,
) -> int:
    """Measure the quality and speed of searching."""
    from qmd.plugins.bench.fixture import read_fixture
    from qmd.plugins.bench.running import run_backend

    chosen = _read_backends(backends)
    path = Path(fixture)
    asked = read_fixture(path)
    opened = invocation.open(invocation.locate(index), allow_gpu=not no_gpu)
    roles: Sequence[Role] = ("embed",) if "vector" in chosen else ()
    roles = ("embed", "rerank", "expand") if {"full", "hybrid"} & set(chosen) else roles
    with opened, opened.engines(frozenset(roles)) as engines, opened.reader() as reader:
        for note in engines.notes:
            warn(note)
        scope = _scope(reader, collection or ([asked.collection] if asked.collection else []))
        usable, unavailable = _usable(reader, engines, chosen, is_required=backends is not None)
        with invocation.progress("Searching") as progress:
            number, total = count(1), len(asked.cases) * len(usable)
            reports = [
                run_backend(one, reader, engines, asked.cases, scope, lambda: progress.update(next(number), total))
                for one in usable
            ]
    out(_as_json(path.name, asked.cases, reports, unavailable) if json else _as_text(asked.cases, reports))
    return _status(reports)


def _status(reports: Sequence[Report]) -> int:
    """Return the exit status; warn of failed searches and of a fixture that finds nothing."""
    scores = [score for report in reports for score in report.scores.values() if score.total_expected]
    if scores and not any(score.hits_at_k for score in scores):
        warn("no expected file was found by any backend: are its names those of 'qmd ls'?")
    failures = sum(len(report.failures) for report in reports)
    if failures:
        warn(f"{failures} searches failed and do not count in the means")
    return EXIT_FAILURE if failures or not reports else EXIT_OK


def _read_backends(text: str | None) -> tuple[str, ...]:
    from qmd.plugins.bench.running import BACKENDS

    names = tuple(name.strip() for name in (text or "").split(",") if name.strip())
    for name in names:
        if name not in BACKENDS:
            raise UsageError(f"unknown backend '{name}'", f"known: {', '.join(BACKENDS)}")
    return names or tuple(BACKENDS)


def _usable(
    reader: IndexReader, engines: Engines, backends: Sequence[str], *, is_required: bool
) -> tuple[list[str], dict[str, str]]:
    """Return the backends that can run, and the reason for each other one.

    Raises:
        ModelError: One cannot, and it is required.
    """
    from qmd.plugins.bench.running import require_models

    usable: list[str] = []
    unavailable: dict[str, str] = {}
    for backend in backends:
        try:
            require_models(reader, engines, backend)
        except ModelError as exc:
            if is_required:
                raise
            unavailable[backend] = exc.message
            warn(f"{exc.message}: it is skipped; {exc.hint}")
        else:
            usable.append(backend)
    return usable, unavailable


def _scope(reader: IndexReader, collections: Sequence[str]) -> Scope:
    """Return the scope of all queries, including collections that a search skips by default.

    Raises:
        NotFoundError: There is no such collection, or no document in it.
    """
    if not reader.count_documents():
        raise NotFoundError("nothing is indexed", "run: qmd index ~/notes")
    refuse_unknown(collections, (one.name for one in reader.collections()))
    scope = Scope(collections=tuple(collections)) if collections else Scope()
    if not reader.count_documents(scope):
        raise NotFoundError(f"collection '{collections[0]}' contains no document", "qmd update")
    return scope


def _as_text(cases: Mapping[str, Case], reports: Sequence[Report]) -> str:
    """Return tobi/qmd's nine columns, a line for each query and backend, and a summary of each backend."""
    rows: list[Sequence[str]] = [_COLUMNS]
    for name, case in cases.items():
        rows += [(case.id, r.backend, *_cells(r.scores[name])) for r in reports if name in r.scores]
        rows += [(case.id, r.backend, "failed", *[""] * 6) for r in reports if name in r.failures]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    padded = [[row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])] for row in rows]
    summary = [
        f"  {report.backend}: P@k {row['avg_precision']:.3f}  recall {row['avg_recall']:.3f}  MRR {row['avg_mrr']:.3f}"
        f"  F1 {row['avg_f1']:.3f}  {row['avg_latency_ms']:.0f} ms"
        for report in reports
        if (row := report.means()) and report.scores
    ]
    failed = [f"  {r.backend} {name}: {message}" for r in reports for name, message in r.failures.items()]
    if failed:
        summary += ["", "Failed, without effect on the means:", *failed]
    return "\n".join([*("  ".join(cells).rstrip() for cells in padded), "", "Summary:", *summary, ""])


def _cells(score: FixtureScore) -> list[str]:
    shares = (score.precision_at_k, score.recall_at_1, score.recall_at_3, score.recall_at_5, score.mrr, score.f1)
    figures = [f"{share:.2f}" for share in shares] if score.total_expected else ["-"] * len(shares)
    return [*figures, f"{score.latency_ms:.0f}"]


def _as_json(
    fixture_name: str, cases: Mapping[str, Case], reports: Sequence[Report], unavailable: Mapping[str, str]
) -> str:
    """Return tobi/qmd's `results` and `summary`; a backend that failed on a query has an `error` for numbers."""
    from msgspec.structs import asdict

    from qmd.render.text import json_text
    from qmd.times import time_text, utc_now

    results = []
    for name, case in cases.items():
        scores = {report.backend: asdict(report.scores[name]) for report in reports if name in report.scores}
        errors = {report.backend: {"error": report.failures[name]} for report in reports if name in report.failures}
        results.append({"id": case.id, "query": case.query, "type": case.type, "backends": {**scores, **errors}})
    return json_text(
        {
            "timestamp": time_text(utc_now(), "seconds"),
            "fixture": fixture_name,
            "results": results,
            "summary": {report.backend: report.means() for report in reports if report.scores},
            "unavailable": unavailable,
        }
    )
