"""What `bench` does with a task: every query through every backend, and the result in tables or as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from qmd.cli.invocation import Invocation
from qmd.cli.output import out, say, warn
from qmd.clock import time_text, utc_now
from qmd.errors import EXIT_FAILURE, EXIT_OK, ModelError, UsageError
from qmd.plugins.bench.answers import (
    Answer,
    AnswerComparison,
    answers_path,
    compare_answers,
    judge_answer,
    read_answers,
    write_answers,
)
from qmd.plugins.bench.collections import JudgedQueries, read_qrels, read_run, write_run
from qmd.plugins.bench.compare import Comparison, compare_runs
from qmd.plugins.bench.fixture import Fixture, expected_names, query_names, score_fixture
from qmd.plugins.bench.report import (
    FixtureResult,
    answers_json,
    fixture_json,
    render_fixture,
    render_reports,
    reports_json,
)
from qmd.plugins.bench.runs import BackendReport, evaluate, measure_run, measure_stored, require_models
from qmd.plugins.bench.tasks import Request, Task
from qmd.records import SearchResponse


class _Outcome(Struct):
    """Everything a run produced."""

    reports: list[BackendReport] = field(default_factory=list)
    comparisons: dict[str, Comparison] = field(default_factory=dict)
    answer_comparisons: dict[str, AnswerComparison] = field(default_factory=dict)
    unavailable: dict[str, str] = field(default_factory=dict)


def measure(invocation: Invocation, task: Task, request: Request) -> int:
    """Search for everything that a task asks, and say how well and how fast that went; the exit status."""
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
    with invocation.progress("Searching") as line:
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
            answer_of=_answers_of(task) if task.judged.kinds else None,
        )
    if task.fixture is not None:
        return _finish_fixture(task, task.fixture, outcome, request)
    return _finish(task.name, task.judged, outcome, request)


def _answers_of(task: Task) -> Callable[[str, SearchResponse], Answer]:
    def answer_of(query_id: str, response: SearchResponse) -> Answer:
        names = [task.name_of(hit.document) for hit in response.hits]
        if task.fixture is not None:
            names = expected_names(names, list(task.judged.qrels[query_id]))
        return judge_answer(task.judged, query_id, names, response)

    return answer_of


def _thinned(judged: JudgedQueries, most: int | None) -> JudgedQueries:
    names = list(judged.queries)
    if most is None or most >= len(names):
        return judged
    kept = {names[number * len(names) // most] for number in range(most)}
    return replace(judged, queries={name: text for name, text in judged.queries.items() if name in kept})


def score_run(path: Path, request: Request) -> int:
    """Score a run that some program left behind; nothing is searched."""
    if request.qrels is None:
        raise UsageError(f"the run '{path}' needs judgements", f"qmd bench {path} --qrels FILE")
    judged = JudgedQueries({}, read_qrels(request.qrels))
    run = read_run(path)
    report = BackendReport(path.stem, measure_stored(run, judged.qrels), run, {}, {}, ())
    return _finish(path.name, judged, _Outcome([report]), request)


# --- results --------------------------------------------------------------------------------------


def _finish(name: str, judged: JudgedQueries, outcome: _Outcome, request: Request) -> int:
    _keep(outcome, request)
    _compare(outcome, judged.qrels, request)
    n_queries = max((len(report.run) + len(report.failures) for report in outcome.reports), default=0)
    if request.json:
        rows = reports_json(outcome.reports, outcome.comparisons, outcome.answer_comparisons)
        shown = {"timestamp": time_text(utc_now(), "seconds"), "name": name, "queries": n_queries, "backends": rows}
        if judged.kinds:
            shown["results"] = answers_json(judged, outcome.reports)
        out(_json({**shown, "unavailable": outcome.unavailable}))
    else:
        tables = render_reports(outcome.reports, outcome.comparisons, outcome.answer_comparisons)
        out(f"{name}: {n_queries} queries\n\n{tables}")
    return _status(outcome)


def _finish_fixture(task: Task, fixture: Fixture, outcome: _Outcome, request: Request) -> int:
    """The original's scores, and beside them the metrics of every other benchmark."""
    judged = task.judged
    results = []
    for name, query in zip(query_names(fixture), fixture.queries, strict=True):
        if name not in judged.queries:
            continue
        scores, errors, answers = {}, {}, {}
        for report in outcome.reports:
            if name in report.run:
                answers[report.backend] = report.answers[name]
                files = report.run[name][: query.depth]
                scores[report.backend] = score_fixture(query, files, round(report.latencies_ms[name], 1))
            failure = next((f for f in report.failures if f.query_id == name), None)
            if failure is not None:
                errors[report.backend] = failure.message
        results.append(FixtureResult(query.id, query.query, query.type, scores, answers, errors))
    outcome.reports = [_renamed(report, judged) for report in outcome.reports]
    _keep(outcome, request)
    _compare(outcome, judged.qrels, request)
    scored = [score for result in results for score in result.scores.values() if score.total_expected]
    if scored and not any(score.hits_at_k for score in scored):
        warn("no expected file was found by any backend: are its names those of 'qmd ls'?")
    if request.json:
        shown = fixture_json(task.name, time_text(utc_now(), "seconds"), results)
        shown["backends"] = reports_json(outcome.reports, outcome.comparisons, outcome.answer_comparisons)
        out(_json({**shown, "unavailable": outcome.unavailable}))
    else:
        tables = render_reports(outcome.reports, outcome.comparisons, outcome.answer_comparisons)
        out(render_fixture(results) + "\n" + tables)
    return _status(outcome)


def _renamed(report: BackendReport, judged: JudgedQueries) -> BackendReport:
    """The report with expected files under the names that the fixture gives them, and measured by these."""
    run = {name: expected_names(files, list(judged.qrels[name])) for name, files in report.run.items()}
    return replace(report, run=run, metrics=measure_run(run, judged.qrels))


def _keep(outcome: _Outcome, request: Request) -> None:
    if request.save is None:
        return
    request.save.mkdir(parents=True, exist_ok=True)
    for report in outcome.reports:
        path = request.save / f"{report.backend}.run"
        write_run(path, report.run, report.backend)
        if report.answers:
            write_answers(answers_path(path), report.answers)
    say(f"runs saved in '{request.save}'")


def _compare(outcome: _Outcome, qrels: Mapping[str, Mapping[str, float]], request: Request) -> None:
    """Paired comparison of each backend with its namesake in a folder, or of all with one run."""
    if request.compare is None:
        return
    for report in outcome.reports:
        path = request.compare / f"{report.backend}.run" if request.compare.is_dir() else request.compare
        if request.compare.is_dir() and not path.is_file():
            warn(f"'{request.compare}' holds no run of {report.backend}")
            continue
        try:
            _compare_answers(outcome, report, answers_path(path))
            if report.metrics["nDCG@10"]:
                before = measure_stored(read_run(path), qrels)["nDCG@10"]
                outcome.comparisons[report.backend] = compare_runs(before, report.metrics["nDCG@10"])
        except ValueError as exc:
            raise UsageError(f"'{path}' cannot be compared: {exc}", "it must answer the same queries") from exc


def _compare_answers(outcome: _Outcome, report: BackendReport, path: Path) -> None:
    if not report.answers:
        return
    if not path.is_file():
        warn(f"no answers are stored in '{path}': only the rankings are compared")
        return
    outcome.answer_comparisons[report.backend] = compare_answers(read_answers(path), report.answers)


def _status(outcome: _Outcome) -> int:
    failures = sum(len(report.failures) for report in outcome.reports)
    if failures:
        warn(f"{failures} searches failed and are left out of the means")
    return EXIT_FAILURE if failures or not outcome.reports else EXIT_OK


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2) + "\n"
