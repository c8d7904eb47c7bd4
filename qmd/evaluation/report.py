"""Reports of backends as text tables and as JSON; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import asdict

from qmd.evaluation.compare import Comparison
from qmd.evaluation.fixture import FixtureScore, summarise
from qmd.evaluation.runs import BackendReport

METRICS = ("nDCG@10", "recall@20", "MRR@10", "P@10")

_FIXTURE_COLUMNS = ("query", "backend", "P@k", "R@1", "R@3", "R@5", "MRR", "F1", "ms")
_COMPARED = ("backend", "before", "now", "difference", "interval", "p", "better", "worse", "queries")


class FixtureResult(Struct, frozen=True):
    """One query of a fixture: its score under each backend, and why others gave none."""

    id: str
    query: str
    type: str
    scores: Mapping[str, FixtureScore]
    errors: Mapping[str, str]


def render_reports(reports: Sequence[BackendReport], comparisons: Mapping[str, Comparison]) -> str:
    """Tables of metrics and latency, of time per stage, of failures, and of differences to an earlier run."""
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
    if comparisons:
        parts.append("nDCG@10 against the stored run (paired bootstrap, 95 % interval):")
        parts.append(_table([_COMPARED, *(_compared(name, c) for name, c in comparisons.items())]))
    failed = [f"  {r.backend} {failure.query_id}: {failure.message}" for r in reports for failure in r.failures]
    if failed:
        parts.append("\n".join(["Failed, and left out of the means:", *failed]))
    return "\n\n".join(parts) + "\n"


def reports_json(reports: Sequence[BackendReport], comparisons: Mapping[str, Comparison]) -> dict[str, object]:
    """Backend → its metrics, latencies, stages, failures, and its comparison where there is one."""
    rows: dict[str, object] = {}
    for report in reports:
        row: dict[str, object] = {
            "queries": len(report.run),
            "metrics": {name: round(report.mean(name), 6) for name in METRICS},
            "latency_ms": {"p50": round(report.latency_ms(0.5), 2), "p95": round(report.latency_ms(0.95), 2)},
            "stage_share": {stage: round(share, 4) for stage, share in report.stage_share.items()},
            "failures": [asdict(failure) for failure in report.failures],
        }
        if report.backend in comparisons:
            row["comparison"] = asdict(comparisons[report.backend])
        rows[report.backend] = row
    return rows


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
    scored = {name: asdict(score) for name, score in result.scores.items()}
    return {**scored, **{name: {"error": message} for name, message in result.errors.items()}}


def _fixture_summary(results: Sequence[FixtureResult]) -> dict[str, dict[str, float]]:
    names = dict.fromkeys(name for result in results for name in result.scores)
    return {name: summarise([r.scores[name] for r in results if name in r.scores]) for name in names}


def _fixture_cells(score: FixtureScore) -> list[str]:
    shares = (score.precision_at_k, score.recall_at_1, score.recall_at_3, score.recall_at_5, score.mrr, score.f1)
    return [*(f"{share:.2f}" for share in shares), f"{score.latency_ms:.0f}"]


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
