"""`bench`: how well, and how fast, this index or a test collection is searched."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from qmd.cli.bench_tasks import Request, Task, open_task
from qmd.cli.options import Collections, Index, Json, NoGpu, positive_number
from qmd.cli.output import out, say, warn
from qmd.cli.session import Session
from qmd.clock import time_text, utc_now
from qmd.errors import EXIT_FAILURE, EXIT_OK, ModelError, UsageError
from qmd.quick_dataclasses import dataclass, field, replace

if TYPE_CHECKING:
    from qmd.evaluation.collections import JudgedQueries
    from qmd.evaluation.compare import Comparison
    from qmd.evaluation.fixture import Fixture
    from qmd.evaluation.runs import BackendReport

_AUTO_QUERIES = 200

Target = Annotated[list[str] | None, Argument(help="A fixture, a BEIR folder, or a TREC run.")]
Auto = Annotated[bool, Option("--auto", help="Ask the index its own headings and links; a number says how many [200].")]
Backends = Annotated[
    str | None, Option("--backends", metavar="LIST", help="Of bm25, vector, hybrid, full; with commas between.")
]
Qrels = Annotated[Path | None, Option("--qrels", metavar="FILE", help="Judgements, in TREC's columns.")]
Queries = Annotated[
    Path | None, Option("--queries", metavar="FILE", help="Queries for --qrels: JSON lines, or id and text.")
]
Most = Annotated[str | None, Option("-n", "--n", metavar="N", help="At most so many queries, evenly spread.")]
SaveRun = Annotated[Path | None, Option("--save-run", metavar="DIR", help="Write a TREC run there for each backend.")]
Compare = Annotated[
    Path | None, Option("--compare", metavar="RUN", help="Compare with a run, or a folder from --save-run.")
]


@dataclass(slots=True)
class _Outcome:
    """Everything a run produced."""

    reports: list[BackendReport] = field(default_factory=list)
    comparisons: dict[str, Comparison] = field(default_factory=dict)
    unavailable: dict[str, str] = field(default_factory=dict)


def bench(
    session: Session,
    target: Target = None,
    auto: Auto = False,
    collection: Collections = None,
    backends: Backends = None,
    qrels: Qrels = None,
    queries: Queries = None,
    n: Most = None,
    save_run: SaveRun = None,
    compare: Compare = None,
    json: Json = False,
    no_gpu: NoGpu = False,
    index: Index = None,
) -> int:
    """Measure the quality and speed of searching."""
    words = list(target or ())
    asked = words.pop(0) if auto and words and words[0].isdecimal() else None
    if len(words) > 1 or bool(words) + auto + bool(queries) != 1 or (queries and not qrels):
        raise session.missing_argument()
    request = Request(
        target=Path(words[0]) if words else None,
        auto=positive_number(asked, "--auto", _AUTO_QUERIES) if auto else None,
        collections=tuple(collection or ()),
        backends=_chosen_backends(backends),
        is_chosen=backends is not None,
        qrels=qrels,
        queries=queries,
        most=positive_number(n, "-n", 1_000_000) if n is not None else None,
        save=save_run,
        compare=compare,
        json=json,
        allow_gpu=not no_gpu,
    )
    if request.target is not None and request.target.is_file() and request.target.suffix != ".json":
        return _score_run(request.target, request)
    with open_task(session, session.locate(index), request) as task:
        return _measure(task, request)


def _chosen_backends(text: str | None) -> tuple[str, ...]:
    from qmd.evaluation.runs import BACKENDS

    names = tuple(name.strip() for name in (text or ",".join(BACKENDS)).split(",") if name.strip())
    for name in names:
        if name not in BACKENDS:
            raise UsageError(f"unknown backend '{name}'", f"known: {', '.join(BACKENDS)}")
    return names or tuple(BACKENDS)


# --- measuring ------------------------------------------------------------------------------------


def _measure(task: Task, request: Request) -> int:
    from qmd.cli.progress import ProgressLine
    from qmd.evaluation.runs import evaluate, require_models

    outcome = _Outcome()
    usable = []
    for name in request.backends:
        try:
            require_models(task.reader, task.engines, [name])
        except ModelError as exc:
            if request.is_chosen:
                raise
            outcome.unavailable[name] = exc.message
            warn(f"{exc.message}: it is left out; {exc.hint}")
        else:
            usable.append(name)
    task = replace(task, judged=_thinned(task.judged, request.most))
    total = len(task.judged.queries) * len(usable)
    with ProgressLine("Searching") as line:
        outcome.reports = evaluate(
            task.reader,
            task.engines,
            task.judged.queries,
            {} if task.fixture is not None else task.judged.qrels,
            usable,
            scope=task.scope,
            name_of=task.name_of,
            depth=max((query.depth for query in task.fixture.queries), default=0) if task.fixture is not None else 0,
            on_progress=lambda done: line.update(done, total),
        )
    if task.fixture is not None:
        return _finish_fixture(task, task.fixture, outcome, request)
    return _finish(task.name, task.judged, outcome, request)


def _thinned(judged: JudgedQueries, most: int | None) -> JudgedQueries:
    names = list(judged.queries)
    if most is None or most >= len(names):
        return judged
    kept = {names[number * len(names) // most] for number in range(most)}
    return replace(judged, queries={name: text for name, text in judged.queries.items() if name in kept})


def _score_run(path: Path, request: Request) -> int:
    """Score a run that some program left behind; nothing is searched."""
    from qmd.evaluation.collections import JudgedQueries, read_qrels, read_run
    from qmd.evaluation.runs import BackendReport, measure_run

    if request.qrels is None:
        raise UsageError(f"the run '{path}' needs judgements", f"qmd bench {path} --qrels FILE")
    judged = JudgedQueries({}, read_qrels(request.qrels))
    run = read_run(path)
    report = BackendReport(path.stem, measure_run(run, judged.qrels), run, {}, {}, ())
    return _finish(path.name, judged, _Outcome([report]), request)


# --- results --------------------------------------------------------------------------------------


def _finish(name: str, judged: JudgedQueries, outcome: _Outcome, request: Request) -> int:
    from qmd.evaluation.report import render_reports, reports_json

    _keep(outcome, request)
    _compare(outcome, judged.qrels, request)
    n_queries = max((len(report.run) + len(report.failures) for report in outcome.reports), default=0)
    if request.json:
        rows = reports_json(outcome.reports, outcome.comparisons)
        shown = {"timestamp": time_text(utc_now(), "seconds"), "name": name, "queries": n_queries, "backends": rows}
        out(_json({**shown, "unavailable": outcome.unavailable}))
    else:
        out(f"{name}: {n_queries} queries\n\n{render_reports(outcome.reports, outcome.comparisons)}")
    return _status(outcome)


def _finish_fixture(task: Task, fixture: Fixture, outcome: _Outcome, request: Request) -> int:
    """The original's scores, and beside them the metrics of every other benchmark."""
    from qmd.evaluation.fixture import query_names, score_fixture
    from qmd.evaluation.report import FixtureResult, fixture_json, render_fixture, render_reports, reports_json

    judged = task.judged
    results = []
    for name, query in zip(query_names(fixture), fixture.queries, strict=True):
        if name not in judged.queries:
            continue
        scores, errors = {}, {}
        for report in outcome.reports:
            if name in report.run:
                files = report.run[name][: query.depth]
                scores[report.backend] = score_fixture(query, files, round(report.latencies_ms[name], 1))
            failure = next((f for f in report.failures if f.query_id == name), None)
            if failure is not None:
                errors[report.backend] = failure.message
        results.append(FixtureResult(query.id, query.query, query.type, scores, errors))
    outcome.reports = [_renamed(report, judged) for report in outcome.reports]
    _keep(outcome, request)
    _compare(outcome, judged.qrels, request)
    if results and not any(score.hits_at_k for result in results for score in result.scores.values()):
        warn("no expected file was found by any backend: are its names those of 'qmd ls'?")
    if request.json:
        shown = fixture_json(task.name, time_text(utc_now(), "seconds"), results)
        shown["backends"] = reports_json(outcome.reports, outcome.comparisons)
        out(_json({**shown, "unavailable": outcome.unavailable}))
    else:
        out(render_fixture(results) + "\n" + render_reports(outcome.reports, outcome.comparisons))
    return _status(outcome)


def _renamed(report: BackendReport, judged: JudgedQueries) -> BackendReport:
    """The report with expected files under the names that the fixture gives them, and measured by these."""
    from qmd.evaluation.fixture import expected_names
    from qmd.evaluation.runs import measure_run

    run = {name: expected_names(files, list(judged.qrels[name])) for name, files in report.run.items()}
    return replace(report, run=run, metrics=measure_run(run, judged.qrels))


def _keep(outcome: _Outcome, request: Request) -> None:
    from qmd.evaluation.collections import write_run

    if request.save is None:
        return
    request.save.mkdir(parents=True, exist_ok=True)
    for report in outcome.reports:
        write_run(request.save / f"{report.backend}.run", report.run, report.backend)
    say(f"runs saved in '{request.save}'")


def _compare(outcome: _Outcome, qrels: Mapping[str, Mapping[str, float]], request: Request) -> None:
    """Paired comparison of each backend with its namesake in a folder, or of all with one run."""
    from qmd.evaluation.collections import read_run
    from qmd.evaluation.compare import compare_runs
    from qmd.evaluation.runs import measure_run

    if request.compare is None:
        return
    for report in outcome.reports:
        path = request.compare / f"{report.backend}.run" if request.compare.is_dir() else request.compare
        if request.compare.is_dir() and not path.is_file():
            warn(f"'{request.compare}' holds no run of {report.backend}")
            continue
        before = measure_run(read_run(path), qrels)["nDCG@10"]
        try:
            outcome.comparisons[report.backend] = compare_runs(before, report.metrics["nDCG@10"])
        except ValueError as exc:
            raise UsageError(f"'{path}' cannot be compared: {exc}", "it must answer the same queries") from exc


def _status(outcome: _Outcome) -> int:
    failures = sum(len(report.failures) for report in outcome.reports)
    if failures:
        warn(f"{failures} searches failed and are left out of the means")
    return EXIT_FAILURE if failures or not outcome.reports else EXIT_OK


def _json(value: object) -> str:
    import json

    return json.dumps(value, ensure_ascii=False, indent=2) + "\n"
