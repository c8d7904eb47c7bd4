"""Compare two runs of `bench_answers.py --json` (or `bench_names.py`); paired bootstrap.

    python tests/benchmarks/compare_answers.py BEFORE.json AFTER.json

Compares the answers query by query (an expected file first, or among three; a passage with the expected text; a right
verdict), over all queries and by kind, with 95 % intervals.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.benchmarks.bootstrap import compare_runs


def main(argv: Sequence[str]) -> int:
    """Print a line for each backend, kind and figure that both runs have."""
    before, now = (figures_by_query(json.loads(Path(name).read_text(encoding="utf-8"))) for name in argv)
    for key in (key for key in before if key in now):
        if before[key].keys() & now[key].keys():
            c = compare_runs(before[key], now[key])
            shown = f"{c.old:.4f} -> {c.new:.4f}  {c.difference:+.4f} [{c.low:+.4f}, {c.high:+.4f}] p={c.p_value:.3f}"
            print(f"{' '.join(key):44}{shown}  better {c.better} worse {c.worse} of {c.queries}")
    return 0


def figures_by_query(report: Mapping[str, Any]) -> dict[tuple[str, str, str], dict[str, float]]:
    """Return (backend, kind or `all`, figure) → query → 0 or 1, for the queries with that figure."""
    figures: dict[tuple[str, str, str], dict[str, float]] = {}
    for number, row in enumerate(report["results"]):
        for backend, answer in row["backends"].items():
            if "error" in answer:
                continue
            for figure, value in figures_of(answer, is_answerable=bool(row["expected_files"])).items():
                for kind in ("all", row["type"] or "other"):
                    figures.setdefault((backend, kind, figure), {})[f"{row['id']}#{number}"] = value
    return dict(sorted(figures.items()))


def figures_of(answer: Mapping[str, Any], *, is_answerable: bool) -> dict[str, float]:
    """Return figure → 0 or 1, for the figures of a query."""
    rank = answer["rank"] or sys.maxsize
    figures = {"verdict_right": float((answer["verdict"] != "none") == is_answerable)}
    if is_answerable:
        figures |= {f"success@{k}": float(rank <= k) for k in (1, 3)}
    if answer["passage_holds"] is not None:
        figures["passage_holds"] = float(answer["passage_holds"])
    return figures


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
