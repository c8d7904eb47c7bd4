"""Reports of backends as text tables and as JSON; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import asdict

from qmd.plugins.bench.answers import (
    METRICS,
    SHOWN,
    Answer,
    FixtureScore,
    mean_metrics,
    mean_scores,
    summarise_answers,
)
from qmd.plugins.bench.fixture import Case
from qmd.plugins.bench.running import Report

_ANSWER_FIGURES = (*(f"success@{k}" for k in (1, 3, 10)), "passage_holds", "good", "weak", "none", "verdict_right")
_FIXTURE_COLUMNS = ("query", "backend", "P@k", "R@1", "R@3", "R@5", "MRR", "F1", "ms")

# --- text -----------------------------------------------------------------------------------------


def render_reports(reports: Sequence[Report]) -> str:
    """Tables of metrics, latency, time per stage, answers by kind, and failures."""
    rows: list[Sequence[str]] = [("backend", *METRICS, "p50 ms", "p95 ms", "failed")]
    for report in reports:
        means = [f"{mean:.4f}" for mean in mean_metrics(report.answers.values()).values()]
        speed = [f"{report.latency_ms(q):.0f}" if report.answers else "-" for q in (0.5, 0.95)]
        rows.append((report.backend, *means, *speed, str(len(report.failures))))
    parts = [_table(rows)]
    if any(report.stage_share for report in reports):
        parts += ["Share of time per stage:", _table(_stage_rows(reports))]
    if any(report.answers for report in reports):
        parts.append("Answers by kind (verdict_right: an answerable query kept, an unanswerable one refused as none):")
        parts += [_table(_answer_rows(report)) for report in reports if report.answers]
    failed = [f"  {r.backend} {name}: {message}" for r in reports for name, message in r.failures.items()]
    if failed:
        parts.append("\n".join(["Failed, and left out of the means:", *failed]))
    return "\n\n".join(parts) + "\n"


def render_fixture(cases: Mapping[str, Case], reports: Sequence[Report]) -> str:
    """The original's nine columns, a line for each query and backend, and a summary of each backend."""
    rows: list[Sequence[str]] = [_FIXTURE_COLUMNS]
    for name, case in cases.items():
        rows += [(case.id, r.backend, *_score_cells(r.answers[name].score)) for r in reports if name in r.answers]
        rows += [(case.id, r.backend, "failed", *[""] * 6) for r in reports if name in r.failures]
    summary = [
        f"  {name}: P@k {row['avg_precision']:.3f}  recall {row['avg_recall']:.3f}  MRR {row['avg_mrr']:.3f}"
        f"  F1 {row['avg_f1']:.3f}  {row['avg_latency_ms']:.0f} ms"
        for name, row in _score_summaries(reports).items()
    ]
    return "\n".join([_table(rows), "", "Summary:", *summary, ""])


def _score_cells(score: FixtureScore) -> list[str]:
    if not score.total_expected:
        return [*("-" * 6), f"{score.latency_ms:.0f}"]
    shares = (score.precision_at_k, score.recall_at_1, score.recall_at_3, score.recall_at_5, score.mrr, score.f1)
    return [*(f"{share:.2f}" for share in shares), f"{score.latency_ms:.0f}"]


def _stage_rows(reports: Sequence[Report]) -> list[Sequence[str]]:
    stages = list(dict.fromkeys(stage for report in reports for stage in report.stage_share))
    shares = [(r.backend, *(f"{r.stage_share.get(stage, 0.0):.0%}" for stage in stages)) for r in reports]
    return [("backend", *stages), *shares]


def _answer_rows(report: Report) -> list[Sequence[str]]:
    """A line for each kind and one for all, under the backend's name."""
    rows: list[Sequence[str]] = [(report.backend, "cases", *_ANSWER_FIGURES)]
    for kind, answers in [*_by_kind(report).items(), ("all", list(report.answers.values()))]:
        summary = summarise_answers(answers)
        cells = ["-" if (share := summary[name]) is None else f"{share:.3f}" for name in _ANSWER_FIGURES]
        rows.append((kind, str(len(answers)), *cells))
    return rows


def _table(rows: Sequence[Sequence[str]]) -> str:
    """Columns in line: the first to the left, the others to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


# --- JSON -----------------------------------------------------------------------------------------


def reports_json(reports: Sequence[Report]) -> dict[str, object]:
    """Backend → its metrics, latencies, stages, failures, and answers by kind."""
    rows: dict[str, object] = {}
    for report in reports:
        row: dict[str, object] = {
            "queries": len(report.answers),
            "metrics": _rounded(mean_metrics(report.answers.values())),
            "latency_ms": {"p50": round(report.latency_ms(0.5), 2), "p95": round(report.latency_ms(0.95), 2)},
            "stage_share": {stage: round(share, 4) for stage, share in report.stage_share.items()},
            "failures": [{"query_id": name, "message": message} for name, message in report.failures.items()],
        }
        if report.answers:
            row["answers"] = _rounded(summarise_answers(list(report.answers.values())))
            row["kinds"] = {kind: _rounded(summarise_answers(some)) for kind, some in _by_kind(report).items()}
        rows[report.backend] = row
    return rows


def names_json(cases: Mapping[str, Case], reports: Sequence[Report]) -> list[dict[str, object]]:
    """Each query with what every backend showed of it."""
    return [
        {
            "id": name,
            "query": case.query,
            "type": case.kind,
            "expected_files": case.expected_files,
            "backends": {
                r.backend: _answer_json(r.answers[name]) | {"top_files": r.answers[name].files[:SHOWN]}
                for r in reports
                if name in r.answers
            },
        }
        for name, case in cases.items()
    ]


def fixture_json(cases: Mapping[str, Case], reports: Sequence[Report]) -> dict[str, object]:
    """The original's `results` and `summary`; a backend that failed on a query has an `error` in place of numbers."""
    results = []
    for name, case in cases.items():
        answers = {report.backend: report.answers[name] for report in reports if name in report.answers}
        scores = {backend: asdict(answer.score) | _answer_json(answer) for backend, answer in answers.items()}
        errors = {report.backend: {"error": report.failures[name]} for report in reports if name in report.failures}
        results.append({"id": case.id, "query": case.query, "type": case.type, "backends": {**scores, **errors}})
    return {"results": results, "summary": _score_summaries(reports)}


def _answer_json(answer: Answer) -> dict[str, object]:
    return {"rank": answer.rank, "passage_holds": answer.passage_holds, "verdict": answer.verdict}


def _rounded(figures: Mapping[str, float | None]) -> dict[str, float | None]:
    return {name: None if value is None else round(value, 6) for name, value in figures.items()}


# --- both -----------------------------------------------------------------------------------------


def _by_kind(report: Report) -> dict[str, list[Answer]]:
    """Answers by the kind of their query, in order of first appearance."""
    kinds: dict[str, list[Answer]] = {}
    for answer in report.answers.values():
        kinds.setdefault(answer.kind, []).append(answer)
    return kinds


def _score_summaries(reports: Sequence[Report]) -> dict[str, dict[str, float]]:
    return {r.backend: mean_scores([answer.score for answer in r.answers.values()]) for r in reports if r.answers}
