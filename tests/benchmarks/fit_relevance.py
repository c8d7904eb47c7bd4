"""Fit and check the calibration of relevance on judged collections, folders of notes, and nonsense queries.

    python tests/benchmarks/fit_relevance.py --collections FOLDER… [--notes INDEX[,FIXTURE…]]… [--index-dir DIR]
                                             [--queries N] [--check]

Indexes of the collections are those of bench_quality.py, which must have run on the folders; INDEX is any embedded
index of notes, FIXTURE has questions about it (see `qmd bench`), which the other folders are asked as well. Prints
the constants of `qmd.retrieval.calibration`, the result of each source when the constants are fitted without it, and
that of the shipped constants: of right first hits the shares that keep a relevance of 0.2 and of 0.5, of wrong ones the
share with verdict `good`, of unanswerable queries the share refused and the 95th percentile, by kind of query and size
of the collection; and the probability that a right first hit ranks above a wrong one (AUC).
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
from qmd.retrieval.request import Mode
from tests.benchmarks.relevance_evidence import MODES, Row, of_collection, of_notes

RIDGE = 2.0
REFUSED = 0.972
"""Share of the nonsense queries of whole collections that stays below `calibration.WEAK`."""

SMALL = 0.2
"""Weight of queries of 1 to 30 notes: they show how relevance depends on the number of notes, and little else."""

SIGNS = (0, 1, 1, 1, 1, 0, -1, 1, 1, 1)
"""Signs of the weights of `calibration.features`; 0 for either."""

WEIGHTS = {
    "question": (1.0, 1.0),
    "unanswerable": (0.0, 1.0),
    "elsewhere": (0.0, 1.0),
    "nonsense": (0.0, 0.7),
    "judged": (0.5, 0.2),
    "heading": (0.3, 0.1),
    "topic": (0.3, 0.0),
}
"""Weights of right first hits and of others, by kind of query: for a topic, other notes may be answers without a
judgement."""

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
                theta = fit({name: one for name, one in rows.items() if name != left_out}, mode)
                print(f"-- fitted without {left_out}")
                show({left_out: rows[left_out]}, judge_by(theta, mode))
            theta = fit(rows, mode)
            print("-- fitted on all: " + ", ".join(f"{value:.2f}" for value in theta))
            show(rows, judge_by(theta, mode))
    return 0


def gather(options: argparse.Namespace) -> dict[str, dict[Mode, list[Row]]]:
    """Return evidence by source and mode, stored next to the indexes between runs."""
    settings = EngineSettings(models_dir=Path("no-full-tier"), embed="built-in", rerank="built-in")
    engines = load_engines(settings, ["embed", "rerank"])
    gathered: dict[str, dict[Mode, list[Row]]] = {}
    size = (options.queries, options.nonsense)
    for folder in options.collections:
        index = options.index_dir / f"{folder.name}.sqlite"
        make = partial(of_collection, engines, folder, index, *size)
        gathered[folder.name] = _kept(options.index_dir / f"{folder.name}.evidence", make)
    notes = [[Path(part) for part in entry.split(",")] for entry in options.notes]
    for index, *fixtures in notes:
        elsewhere = [other for _, *others in notes for other in others if other not in fixtures]
        make = partial(of_notes, engines, index, fixtures, elsewhere, *size)
        gathered[index.stem] = _kept(options.index_dir / f"{index.stem}.evidence", make)
    return gathered


def _kept(cache: Path, make: Callable[[], dict[Mode, list[Row]]]) -> dict[Mode, list[Row]]:
    if not cache.is_file():
        cache.write_bytes(pickle.dumps(make()))
    found: dict[Mode, list[Row]] = pickle.loads(cache.read_bytes())
    return found


def usable(row: Row, mode: Mode) -> bool:
    """Return whether a row fits a mode's constants: first hits do, but not names, and lexical ones only without a
    cosine."""
    if row.rank != 1 or row.evidence.is_named:
        return False
    return mode == "lexical" or row.evidence.cosine is not None


def fit(gathered: Mapping[str, Rows], mode: Mode) -> npt.NDArray[np.float64]:
    """Fit weighted ridge logistic regression by Newton's method, skip weights of the wrong sign, then anchor."""
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
    """Return features, labels and weights of first hits.

    A kind of query in a source counts with the root of its number, whole and small collections apart, and right ones
    together as much as all else.
    """
    groups: dict[tuple[str, str, bool], list[Row]] = {}
    for name, rows in gathered.items():
        for row in rows:
            if usable(row, mode):
                groups.setdefault((name, row.group, row.is_relevant), []).append(row)
    x, y, weight = [], [], []
    for (_, kind, is_relevant), group in groups.items():
        kind, is_small, _ = kind.partition(" of ")
        each = WEIGHTS.get(kind, (0.0, 0.0))[not is_relevant] * (SMALL if is_small else 1.0)
        for row in group:
            x.append(calibration.features(row.evidence))
            y.append(float(is_relevant))
            weight.append(each / math.sqrt(len(group)))
    labels, weights = np.array(y), np.array(weight)
    weights[labels > 0] *= weights[labels == 0].sum() / weights[labels > 0].sum()
    return np.array(x), labels, weights * len(weights) / weights.sum()


def anchored(theta: npt.NDArray[np.float64], gathered: Mapping[str, Rows], mode: Mode) -> npt.NDArray[np.float64]:
    """Return the same weights with `REFUSED` of the nonsense below `calibration.WEAK`."""
    judge = judge_by(theta, mode)
    asked = [row for rows in gathered.values() for row in rows if row.group == "nonsense"]
    highest = float(np.quantile(first_values(asked, judge)["none"], REFUSED))
    moved = theta.copy()
    moved[0] += math.log(WEAK / (1 - WEAK)) - math.log(highest / (1 - highest))
    return moved


def judge_by(theta: npt.NDArray[np.float64], mode: Mode) -> Judge:
    """Return a relevance function with trial constants."""
    if mode == "lexical":
        return lambda evidence: calibration.relevance(evidence, by_words=theta.tolist())
    return lambda evidence: calibration.relevance(evidence, with_cosine=theta.tolist())


def first_values(rows: Rows, judge: Judge) -> dict[str, list[float]]:
    """Return the relevance of the first hit of each query, by its kind: right, wrong, or unanswerable."""
    queries: list[list[Row]] = []
    for row in rows:
        if row.rank == 0:
            queries.append([])
        queries[-1].append(row)
    found: dict[str, list[float]] = {"right": [], "wrong": [], "none": []}
    for hits in queries:
        values = calibration.non_increasing([judge(row.evidence) for row in hits if row.rank > 0])
        is_right = any(row.is_relevant for row in hits if row.rank == 1)
        outcome = "right" if is_right else "wrong" if hits[0].is_answerable else "none"
        found[outcome].append(values[0] if values else 0.0)
    return found


def show(gathered: Mapping[str, Rows], judge: Judge) -> None:
    """Print a line per source and group, and one for all questions."""
    for name, rows in gathered.items():
        for group in dict.fromkeys(row.group for row in rows):
            print(
                f"  {name:14} {group:16} " + describe(first_values([row for row in rows if row.group == group], judge))
            )
    asked = [row for rows in gathered.values() for row in rows if row.group == "question"]
    found = first_values(asked, judge)
    right, wrong = np.array(found["right"]), np.array(found["wrong"])
    above = (right[:, None] > wrong).mean() + (right[:, None] == wrong).mean() / 2 if right.size and wrong.size else 0.0
    print(f"  all questions: AUC {above:.3f}; " + describe(found))


def describe(found: Mapping[str, Sequence[float]]) -> str:
    """Return the shares of a group of queries."""
    right, wrong, none = (np.array(found[outcome]) for outcome in ("right", "wrong", "none"))
    parts = []
    if right.size:
        parts.append(f"right: kept {np.mean(right >= WEAK):.3f}, good {np.mean(right >= GOOD):.3f} of {right.size}")
    if wrong.size:
        parts.append(f"wrong: good {np.mean(wrong >= GOOD):.3f} of {wrong.size}")
    if none.size:
        refused = np.mean(none < WEAK)
        parts.append(f"refused {refused:.3f}, p95 {np.percentile(none, 95):.3f} of {none.size}")
    return "; ".join(parts)


if __name__ == "__main__":
    sys.exit(main())
