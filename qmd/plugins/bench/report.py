"""Reports of backends as text tables and as JSON; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import asdict

from qmd.plugins.bench.answers import SHOWN, Answer, AnswerComparison, by_kind, summarise_answers
from qmd.plugins.bench.collections import JudgedQueries
from qmd.plugins.bench.compare import Comparison
from qmd.plugins.bench.fixture import FixtureScore, summarise
from qmd.plugins.bench.runs import BackendReport

METRICS = ("nDCG@10", "recall@20", "MRR@10", "P@10")

_ANSWER_METRICS = (
    *(f"success@{k}" for k in (1, 3, 10)),
    "passage_holds",
    "good",
    "weak",
    "none",
    "verdict_right",
)
_FIXTURE_COLUMNS = ("query", "backend", "P@k", "R@1", "R@3", "R@5", "MRR", "F1", "ms")
_COMPARED = ("backend", "before", "now", "difference", "interval", "p", "better", "worse", "queries")


class FixtureResult(Struct, frozen=True):
    """One query of a fixture: its score and answer under each backend, and why others gave none."""

    id: str
    query: str
    type: str
    scores: Mapping[str, FixtureScore]
    answers: Mapping[str, Answer]
    errors: Mapping[str, str]


def render_reports(
    reports: Sequence[BackendReport],
    comparisons: Mapping[str, Comparison],
    answer_comparisons: Mapping[str, AnswerComparison],
) -> str:
    """Tables of metrics, latency, time per stage, answers by kind, differences to an earlier run, and failures."""
    rows: list[Sequence[str]] = [("backend", *METRICS, "p50 ms", "p95 ms", "failed")]
    for report in reports:
        speed = [f"{report.latency_ms(q):.0f}" if report.latencies_ms else "-" for q in (0.5, 0.95)]
        metrics = [f"{report.mean(name):.4f}" for name in METRICS]
        rows.append((report.backend, *metrics, *speed, str(len(report.failures))))
    parts = [_table(rows)]
    stages = list(dict.fromkeys(stage for report in reports for stage in report.stage_share))
    if stages:
        parts.append("Share of time per stage:")
        shares = [[f"{report.stage_share.get(stage, 0.0):.0%}" for stage in stages] for report in reports]
        parts.append(_table([("backend", *stages), *((r.backend, *s) for r, s in zip(reports, shares, strict=True))]))
    if any(report.answers for report in reports):
        parts.append("Answers by kind (verdict_right: an answerable query kept, an unanswerable one refused as none):")
        parts += [_table(_answer_rows(report)) for report in reports if report.answers]
    if comparisons:
        parts.append("nDCG@10 against the stored run (paired bootstrap, 95 % interval):")
        parts.append(_table([_COMPARED, *(_compared(name, c) for name, c in comparisons.items())]))
    if answer_comparisons:
        parts.append("Answers against the stored run, of kinds those that differ (paired bootstrap, 95 % interval):")
        rows = [row for name, c in answer_comparisons.items() for row in _compared_answers(name, c)]
        parts.append(_table([_COMPARED, *rows]))
    failed = [f"  {r.backend} {failure.query_id}: {failure.message}" for r in reports for failure in r.failures]
    if failed:
        parts.append("\n".join(["Failed, and left out of the means:", *failed]))
    return "\n\n".join(parts) + "\n"


def reports_json(
    reports: Sequence[BackendReport],
    comparisons: Mapping[str, Comparison],
    answer_comparisons: Mapping[str, AnswerComparison],
) -> dict[str, object]:
    """Backend → its metrics, latencies, stages, failures, answers by kind, and its comparison where there is one."""
    rows: dict[str, object] = {}
    for report in reports:
        row: dict[str, object] = {
            "queries": len(report.run),
            "metrics": {name: round(report.mean(name), 6) for name in METRICS},
            "latency_ms": {"p50": round(report.latency_ms(0.5), 2), "p95": round(report.latency_ms(0.95), 2)},
            "stage_share": {stage: round(share, 4) for stage, share in report.stage_share.items()},
            "failures": [asdict(failure) for failure in report.failures],
        }
        if report.answers:
            row["answers"] = _rounded(summarise_answers(report.answers))
            kinds = by_kind(report.answers)
            row["kinds"] = {kind: _rounded(summarise_answers(answers)) for kind, answers in kinds.items()}
        if report.backend in comparisons:
            row["comparison"] = asdict(comparisons[report.backend])
        if report.backend in answer_comparisons:
            compared = answer_comparisons[report.backend]
            row["answer_comparison"] = {name: asdict(c) for name, c in compared.overall.items()}
            row["kind_comparisons"] = {
                kind: {name: asdict(c) for name, c in metrics.items()} for kind, metrics in compared.kinds.items()
            }
        rows[report.backend] = row
    return rows


def answers_json(judged: JudgedQueries, reports: Sequence[BackendReport]) -> list[dict[str, object]]:
    """Each query with what every backend showed of it; nothing where queries have no kinds."""
    return [
        {
            "id": name,
            "query": text,
            "type": judged.kinds[name],
            "expected_files": list(judged.qrels[name]),
            "backends": {
                report.backend: answer_json(report.answers[name]) | {"top_files": list(report.run[name][:SHOWN])}
                for report in reports
                if name in report.answers
            },
        }
        for name, text in judged.queries.items()
        if name in judged.kinds
    ]


def answer_json(answer: Answer) -> dict[str, object]:
    """What one search showed of what was expected."""
    return {"rank": answer.rank, "passage_holds": answer.passage_holds, "verdict": answer.verdict}


def render_fixture(results: Sequence[FixtureResult]) -> str:
    """The original's nine columns, a line for each query and backend, and a summary of each backend."""
    rows: list[Sequence[str]] = [_FIXTURE_COLUMNS]
    for result in results:
        rows.extend((result.id, name, *_fixture_cells(score)) for name, score in result.scores.items())
        rows.extend((result.id, name, "failed", "", "", "", "", "", "") for name in result.errors)
    summary = [
        f"  {name}: P@k {row['avg_precision']:.3f}  recall {row['avg_recall']:.3f}  MRR {row['avg_mrr']:.3f}"
        f"  F1 {row['avg_f1']:.3f}  {row['avg_latency_ms']:.0f} ms"
        for name, row in _fixture_summary(results).items()
    ]
    return "\n".join([_table(rows), "", "Summary:", *summary, ""])


def fixture_json(fixture_name: str, timestamp: str, results: Sequence[FixtureResult]) -> dict[str, object]:
    """The original's object; a backend that failed on a query has an `error` in place of numbers."""
    return {
        "timestamp": timestamp,
        "fixture": fixture_name,
        "results": [
            {"id": result.id, "query": result.query, "type": result.type, "backends": _fixture_backends(result)}
            for result in results
        ],
        "summary": _fixture_summary(results),
    }


def _fixture_backends(result: FixtureResult) -> dict[str, object]:
    scored = {name: asdict(score) | answer_json(result.answers[name]) for name, score in result.scores.items()}
    return {**scored, **{name: {"error": message} for name, message in result.errors.items()}}


def _fixture_summary(results: Sequence[FixtureResult]) -> dict[str, dict[str, float]]:
    names = dict.fromkeys(name for result in results for name in result.scores)
    return {name: summarise([r.scores[name] for r in results if name in r.scores]) for name in names}


def _fixture_cells(score: FixtureScore) -> list[str]:
    if not score.total_expected:
        return [*("-" * 6), f"{score.latency_ms:.0f}"]
    shares = (score.precision_at_k, score.recall_at_1, score.recall_at_3, score.recall_at_5, score.mrr, score.f1)
    return [*(f"{share:.2f}" for share in shares), f"{score.latency_ms:.0f}"]


def _answer_rows(report: BackendReport) -> list[Sequence[str]]:
    """A line for each kind and one for all, under the backend's name."""
    groups = [*by_kind(report.answers).items(), ("all", report.answers)]
    rows: list[Sequence[str]] = [(report.backend, "cases", *_ANSWER_METRICS)]
    for kind, answers in groups:
        summary = summarise_answers(answers)
        cells = ["-" if (mean := summary[name]) is None else f"{mean:.3f}" for name in _ANSWER_METRICS]
        rows.append((kind, str(len(answers)), *cells))
    return rows


def _compared_answers(backend: str, comparison: AnswerComparison) -> list[tuple[str, ...]]:
    rows = [_compared(f"{backend} {name}", c) for name, c in comparison.overall.items()]
    for kind, metrics in comparison.kinds.items():
        rows += [_compared(f"{backend} {kind} {name}", c) for name, c in metrics.items() if c.better or c.worse]
    return rows


def _rounded(summary: Mapping[str, float | None]) -> dict[str, float | None]:
    return {name: None if value is None else round(value, 6) for name, value in summary.items()}


def _compared(name: str, c: Comparison) -> tuple[str, ...]:
    interval = f"[{c.low:+.4f}, {c.high:+.4f}]"
    figures = (f"{c.old:.4f}", f"{c.new:.4f}", f"{c.difference:+.4f}", interval, f"{c.p_value:.3f}")
    return (name, *figures, str(c.better), str(c.worse), str(c.queries))


def _table(rows: Sequence[Sequence[str]]) -> str:
    """Columns in line: the first to the left, the others to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
