"""Fit and check the calibration of relevance on judged collections, folders of notes, and nonsense queries.

    python tests/benchmarks/fit_relevance.py --collections FOLDER… [--notes INDEX[,FIXTURE…]]… [--index-dir DIR]
                                             [--queries N] [--check]

Indexes of the collections are those of bench_quality.py, which must have run on the folders; INDEX is any embedded
index of notes, FIXTURE holds questions about it (see `qmd bench`). Prints the constants of `qmd.retrieval.calibration`,
how each source fares when the constants are fitted without it, and what the shipped constants give: the share refused
and the 95th percentile of the first relevance where nothing answers, and the shares of answerable queries that keep a
relevance of 0.2 and of 0.5, by kind of query and size of the collection, over those with an answer in the first three.
"""

from __future__ import annotations

import argparse
import math
import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from qmd.inference.loader import load_engines
from qmd.inference.settings import EngineSettings
from qmd.retrieval import calibration
from qmd.retrieval.calibration import GOOD, WEAK, Evidence
from qmd.retrieval.query import Mode
from tests.benchmarks.relevance_evidence import MODES, Row, of_collection, of_notes

UNJUDGED_WEIGHT = 0.15
RIDGE = 1.0
NONSENSE = 0.17
"""Relevance that one nonsense query in twenty may reach: below `calibration.WEAK`, with room for other collections."""

SIGNS = (0, 1, 1, 1, 1, 1, -1, 0, 0, 1)
"""Of the weight of each of `calibration.features`; 0 for either."""

NEEDED = 3
"""A query whose answer is not among so many hits says nothing of calibration: another stage has lost it."""

Rows = Sequence[Row]
Judge = Callable[[Evidence], float]


def main(argv: Sequence[str] | None = None) -> int:
    """Gather evidence, fit with one source left out in turn, then on all, and check the shipped constants."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--collections", nargs="*", type=Path, default=[])
    parser.add_argument("--notes", nargs="*", default=[])
    parser.add_argument("--index-dir", type=Path, default=Path(".bench"))
    parser.add_argument("--queries", type=int, default=100, help="answerable queries of each kind")
    parser.add_argument("--nonsense", type=int, default=200, help="nonsense queries per source")
    parser.add_argument("--check", action="store_true", help="only check the shipped constants")
    options = parser.parse_args(argv)
    gathered = gather(options)
    for mode in MODES:
        rows = {name: found[mode] for name, found in gathered.items()}
        print(f"\n== {mode}: shipped constants")
        show(rows, calibration.relevance)
        if not options.check and mode != "dense":
            for left_out in rows:
                theta = fit({name: more for name, more in rows.items() if name != left_out}, mode)
                print(f"-- fitted without {left_out}")
                show({left_out: rows[left_out]}, judge_by(theta, mode))
            theta = fit(rows, mode)
            print("-- fitted on all: " + ", ".join(f"{value:.2f}" for value in theta))
            show(rows, judge_by(theta, mode))
    return 0


def gather(options: argparse.Namespace) -> dict[str, dict[Mode, list[Row]]]:
    """Evidence by source and mode, kept beside the indexes between runs."""
    engines = load_engines(EngineSettings(models_dir=Path("no-full-tier"), embed="built-in"), ["embed"])
    gathered: dict[str, dict[Mode, list[Row]]] = {}
    size = (options.queries, options.nonsense)
    for folder in options.collections:
        index = options.index_dir / f"{folder.name}.sqlite"
        make = partial(of_collection, engines, folder, index, *size)
        gathered[folder.name] = _kept(options.index_dir / f"{folder.name}.evidence", make)
    for entry in options.notes:
        index, *fixtures = map(Path, entry.split(","))
        make = partial(of_notes, engines, index, fixtures, *size)
        gathered[index.stem] = _kept(options.index_dir / f"{index.stem}.evidence", make)
    return gathered


def _kept(cache: Path, make: Callable[[], dict[Mode, list[Row]]]) -> dict[Mode, list[Row]]:
    if not cache.is_file():
        cache.write_bytes(pickle.dumps(make()))
    found: dict[Mode, list[Row]] = pickle.loads(cache.read_bytes())
    return found


# --- fitting --------------------------------------------------------------------------------------


def usable(row: Row, mode: Mode) -> bool:
    """Whether a row says something about a mode's constants: names need none, and those without a cosine are the
    lexical ones' business."""
    if row.rank == 0 or row.evidence.is_named:
        return False
    return mode == "lexical" or row.evidence.cosine is not None


def fit(gathered: Mapping[str, Rows], mode: Mode) -> npt.NDArray[np.float64]:
    """Weighted ridge logistic regression by Newton's method, weights of the wrong sign left out, then anchored."""
    x, y, weight = _samples(gathered, mode)
    signs = np.array(SIGNS[: x.shape[1]])
    ridge = np.full(x.shape[1], RIDGE)
    ridge[0] = 1e-6
    free = np.ones(x.shape[1], bool)
    while True:
        theta = np.zeros(x.shape[1])
        for _ in range(100):
            p = 1 / (1 + np.exp(-np.clip(x[:, free] @ theta[free], -30, 30)))
            gradient = x[:, free].T @ (weight * (y - p)) - ridge[free] * theta[free]
            hessian = (x[:, free] * (weight * p * (1 - p))[:, None]).T @ x[:, free] + np.diag(ridge[free])
            theta[free] += np.linalg.solve(hessian, gradient)
        wrong = free & (theta * signs < 0)
        if not wrong.any():
            return anchored(theta, gathered, mode)
        free &= ~wrong


def _samples(
    gathered: Mapping[str, Rows], mode: Mode
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Features, labels and weights of the first three hits: every kind of query in every source counts alike, whole and
    small collections apart, and answers together as much as all else."""
    groups: dict[tuple[str, str, bool, bool], list[Row]] = {}
    for name, rows in gathered.items():
        for row in rows:
            if usable(row, mode) and row.rank <= NEEDED:
                kind, _, is_small = row.group.partition(" of ")
                groups.setdefault((name, kind, bool(is_small), row.is_relevant), []).append(row)
    x, y, weight = [], [], []
    for group in groups.values():
        for row in group:
            x.append(calibration.features(row.evidence, has_cosine=mode != "lexical"))
            y.append(float(row.is_relevant))
            weight.append((UNJUDGED_WEIGHT if row.is_answerable and not row.is_relevant else 1.0) / len(group))
    labels, weights = np.array(y), np.array(weight)
    weights[labels > 0] *= weights[labels == 0].sum() / weights[labels > 0].sum()
    return np.array(x), labels, weights * len(weights) / weights.sum()


def anchored(theta: npt.NDArray[np.float64], gathered: Mapping[str, Rows], mode: Mode) -> npt.NDArray[np.float64]:
    """The same weights with the 95th percentile of nonsense at `NONSENSE` where it is highest."""
    judge = judge_by(theta, mode)
    highest = 1e-9
    for rows in gathered.values():
        for is_small in (False, True):
            mine = [row for row in rows if (" of " in row.group) == is_small]
            values = first_values(mine, lambda row: judge(row.evidence))[False].values()
            highest = max(highest, float(np.percentile(list(values), 95)) if values else 0.0)
    moved = theta.copy()
    moved[0] += math.log(NONSENSE / (1 - NONSENSE)) - math.log(highest / (1 - highest))
    return moved


def judge_by(theta: npt.NDArray[np.float64], mode: Mode) -> Judge:
    """Relevance with trial constants."""
    if mode == "lexical":
        return lambda evidence: calibration.relevance(evidence, by_words=theta.tolist())
    return lambda evidence: calibration.relevance(evidence, with_cosine=theta.tolist())


# --- checking -------------------------------------------------------------------------------------


def first_values(rows: Rows, judge: Callable[[Row], float]) -> dict[bool, dict[str, float]]:
    """Value of the first hit by query, answerable ones under True; those that lost their answer are left out."""
    by_query: dict[str, list[Row]] = {}
    for row in rows:
        by_query.setdefault(row.query, []).append(row)
    tops: dict[bool, dict[str, float]] = {True: {}, False: {}}
    for query, hits in by_query.items():
        if hits[0].is_answerable and not any(row.is_relevant and row.rank <= NEEDED for row in hits):
            continue
        values = calibration.non_increasing([judge(row) for row in hits if row.rank > 0])
        tops[hits[0].is_answerable][query] = values[0] if values else -9.0
    return tops


def show(gathered: Mapping[str, Rows], judge: Judge) -> None:
    """A line per source and group."""
    for name, rows in gathered.items():
        for group in dict.fromkeys(row.group for row in rows):
            tops = first_values([row for row in rows if row.group == group], lambda row: judge(row.evidence))
            parts = []
            if tops[True]:
                values = np.array(list(tops[True].values()))
                parts.append(f"kept {np.mean(values >= WEAK):.3f}, good {np.mean(values >= GOOD):.3f} of {len(values)}")
            if tops[False]:
                values = np.array(list(tops[False].values()))
                refused = float(np.mean(values < WEAK))
                parts.append(f"refused {refused:.3f}, p95 {max(np.percentile(values, 95), 0):.3f} of {len(values)}")
            print(f"  {name:14} {group:16} " + "; ".join(parts))


if __name__ == "__main__":
    sys.exit(main())
