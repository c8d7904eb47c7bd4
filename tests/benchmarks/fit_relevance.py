"""Fit and check the calibration of relevance on vaults of notes, with one of them left out in turn.

    python tests/benchmarks/fit_relevance.py INDEXES QUESTIONS… [--evidence FOLDER] [--check]

INDEXES is a folder with the embedded index of each vault, `NAME.sqlite`, and QUESTIONS are fixtures of `qmd bench`
called `NAME.json` or files about several vaults. Searches run once; their evidence stays in a folder, and fits take
seconds. Prints for each mode, vault by vault, the figures of the shipped constants and of constants fitted on the other
vaults with the 95 % interval of their difference (paired bootstrap), and at the end the constants fitted on all.
`--check` only prints the figures of the shipped constants.
"""

from __future__ import annotations

import argparse
import json
import math
import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from qmd.inference.loader import load_engines
from qmd.inference.settings import EngineSettings
from qmd.retrieval import calibration
from qmd.retrieval.calibration import GOOD, WEAK, Evidence
from qmd.retrieval.request import Mode
from tests.benchmarks.bootstrap import compare_runs
from tests.benchmarks.metrics import average
from tests.benchmarks.relevance_evidence import Row, of_vault, read_questions

RIDGE = 2.0
REFUSED = 0.985
"""Share of the nonsense that stays below `calibration.WEAK`."""

HIDDEN_GOOD = 0.17
"""Share of the questions with hidden answers that reaches `calibration.GOOD`, mean over vaults."""

SMALL = 0.2
"""Weight of queries of 1 to 30 notes: they show how relevance depends on the number of notes, and little else."""

SIGNS = (0, 1, 1, 1, 0, 1, 1)
"""Signs of the weights of `calibration.features`; 0 for either."""

WEIGHTS = {
    "question": (1.0, 1.0),
    "hidden": (0.0, 1.0),
    "unanswerable": (0.0, 0.5),
    "elsewhere": (0.0, 0.5),
    "nonsense": (0.0, 0.7),
    "heading": (0.3, 0.1),
    "topic": (0.3, 0.0),
}
"""Weights of right first hits and of others, by kind of query: for a topic, other notes may be answers without a
judgement."""

Rows = Sequence[Row]
Judge = Callable[[Evidence], float]
Evidences = Mapping[str, Mapping[Mode, Rows]]
Weights = npt.NDArray[np.float64]
Figures = dict[str, dict[str, float]]


def main(argv: Sequence[str] | None = None) -> int:
    """Gather evidence, fit with one vault left out in turn, then on all, and compare with the shipped constants."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("indexes", type=Path)
    parser.add_argument("questions", nargs="+", type=Path)
    parser.add_argument("--evidence", type=Path, default=Path(".bench"), help="folder of stored evidence")
    parser.add_argument("--embed", default="built-in", help="model of the indexes")
    parser.add_argument("--check", action="store_true", help="only check the shipped constants")
    options = parser.parse_args(argv)
    gathered = gather(options)
    before = dict.fromkeys(gathered, calibration.relevance)
    folds: dict[str, Judge] = {}
    for name in {} if options.check else gathered:
        folds[name] = fit_both({other: rows for other, rows in gathered.items() if other != name})[0]
    for mode in next(iter(gathered.values())):
        print(f"\n== {mode}")
        show({name: rows[mode] for name, rows in gathered.items()}, before, folds or before)
    if not options.check:
        for constant, weights in zip(("BY_WORDS", "WITH_COSINE"), fit_both(gathered)[1], strict=True):
            print(f"{constant} = (" + ", ".join(f"{value:.2f}" for value in weights) + ")")
    return 0


def gather(options: argparse.Namespace) -> dict[str, dict[Mode, list[Row]]]:
    """Return evidence by vault and mode, stored between runs."""
    files = [name for one in options.questions for name in _vaults_of(one)]
    asked = {name: read_questions(file, name) for name, file in files}
    settings = EngineSettings(models_dir=Path("no-full-tier"), embed=options.embed, rerank="built-in")
    options.evidence.mkdir(parents=True, exist_ok=True)
    gathered = {}
    for name, questions in asked.items():
        stored = options.evidence / f"{name}.evidence"
        if not stored.is_file():
            engines = load_engines(settings, ["embed", "rerank"])
            elsewhere = [
                text for other in asked.items() if other[0] != name for text, files in other[1].items() if files
            ]
            rows = of_vault(engines, options.indexes / f"{name}.sqlite", questions, elsewhere)
            stored.write_bytes(pickle.dumps(rows))
        gathered[name] = pickle.loads(stored.read_bytes())
    return gathered


def _vaults_of(file: Path) -> list[tuple[str, Path]]:
    trees = json.loads(file.read_text(encoding="utf-8")).get("trees", {file.stem: {}})
    return [(name, file) for name in trees]


def fit_both(gathered: Evidences) -> tuple[Judge, tuple[Weights, Weights]]:
    """Return a relevance function with its constants, fitted on some vaults: without a cosine and with one."""
    by_words = fit({name: rows["lexical"] for name, rows in gathered.items()}, "lexical")
    with_cosine = fit({name: rows["hybrid"] for name, rows in gathered.items()}, "hybrid", by_words)
    return judge_by(by_words, with_cosine), (by_words, with_cosine)


def judge_by(by_words: Weights, with_cosine: Weights) -> Judge:
    """Return a relevance function with trial constants."""
    words, cosine = by_words.tolist(), with_cosine.tolist()
    return lambda evidence: calibration.relevance(evidence, words, cosine)


def usable(row: Row, mode: Mode) -> bool:
    """Return whether a row fits a mode's constants: first hits do, but not names, and lexical ones only without a
    cosine."""
    if row.rank != 1 or row.evidence.is_named:
        return False
    return mode == "lexical" or row.evidence.cosine is not None


def fit(vaults: Mapping[str, Rows], mode: Mode, by_words: Weights | None = None) -> Weights:
    """Fit weighted ridge logistic regression by Newton's method, skip weights of the wrong sign, then anchor."""
    x, y, weight = _samples(vaults, mode)
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
            return anchored(theta, vaults, by_words)
        free &= ~wrong


def _samples(vaults: Mapping[str, Rows], mode: Mode) -> tuple[Weights, Weights, Weights]:
    """Return features, labels and weights of first hits.

    A kind of query in a vault counts with the root of its number, whole and small collections apart, and right ones
    together as much as all else.
    """
    groups: dict[tuple[str, str, bool], list[Row]] = {}
    for name, rows in vaults.items():
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


def anchored(theta: Weights, vaults: Mapping[str, Rows], by_words: Weights | None) -> Weights:
    """Return the weights, scaled and moved so that `REFUSED` of the nonsense is below `calibration.WEAK` and
    `HIDDEN_GOOD` of the questions with hidden answers above `calibration.GOOD`."""
    judge = judge_by(theta if by_words is None else by_words, theta)
    firsts = {name: first_values(rows, judge) for name, rows in vaults.items()}
    nonsense = [value for found in firsts.values() for value in found["nonsense"].values()]
    hidden = [np.quantile(list(found["hidden"].values()), 1 - HIDDEN_GOOD) for found in firsts.values()]
    weak, good = _logit(float(np.quantile(nonsense, REFUSED))), _logit(float(np.mean(hidden)))
    scale = (_logit(GOOD) - _logit(WEAK)) / (good - weak) if good > weak + 0.3 else 1.0
    moved = theta * scale
    moved[0] += _logit(WEAK) - weak * scale
    return moved


def _logit(share: float) -> float:
    share = min(max(share, 1e-6), 1 - 1e-6)
    return math.log(share / (1 - share))


def first_values(rows: Rows, judge: Judge) -> Figures:
    """Return the relevance of the first hit of each query, by kind (see `_kind`)."""
    queries: list[list[Row]] = []
    for row in rows:
        if row.rank == 0:
            queries.append([])
        queries[-1].append(row)
    found: Figures = {}
    for head, *hits in queries:
        values = calibration.non_increasing([judge(row.evidence) for row in hits])
        is_right = bool(hits) and hits[0].is_relevant
        found.setdefault(_kind(head, is_right=is_right), {})[head.query] = values[0] if values else 0.0
    return found


def _kind(head: Row, *, is_right: bool) -> str:
    """Return the kind of query, of questions `right` or `wrong` by their first hit."""
    kind, is_small, _ = head.group.partition(" of ")
    if is_small:
        return "small right" if is_right else "small wrong" if head.is_answerable else "small others"
    if kind in ("heading", "topic"):
        return "own" if is_right else "own wrong"
    return kind if kind != "question" else "right" if is_right else "wrong"


MEASURES: Mapping[str, tuple[str, Callable[[float], bool]]] = {
    "wrong good": ("wrong", lambda value: value >= GOOD),
    "hidden good": ("hidden", lambda value: value >= GOOD),
    "kept": ("right", lambda value: value >= WEAK),
    "nonsense refused": ("nonsense", lambda value: value < WEAK),
    "right good": ("right", lambda value: value >= GOOD),
    "elsewhere good": ("elsewhere", lambda value: value >= GOOD),
    "headings, topics kept": ("own", lambda value: value >= WEAK),
    "1 to 30 notes: right good": ("small right", lambda value: value >= GOOD),
    "1 to 30 notes: others good": ("small others", lambda value: value >= GOOD),
}
"""Measure → kind of query, and the relevance that counts. `AUC` is the probability that a right first hit ranks above
another."""


def show(vaults: Mapping[str, Rows], before: Mapping[str, Judge], after: Mapping[str, Judge]) -> None:
    """Print for each measure a line per vault and their mean: before → after, and the interval of the difference."""
    firsts = {
        name: (first_values(rows, before[name]), first_values(rows, after[name])) for name, rows in vaults.items()
    }
    for measure in (*MEASURES, "AUC: right against wrong", "AUC: right against hidden"):
        runs = {name: (_measure(old, measure), _measure(new, measure)) for name, (old, new) in firsts.items()}
        pairs = {name: pair for name, pair in runs.items() if pair[0]}
        print(measure)
        for name, (old, new) in pairs.items():
            found = compare_runs(old, new)
            interval = f"{found.difference:+.3f} [{found.low:+.3f}, {found.high:+.3f}]"
            print(f"  {name:14} {found.old:.3f} -> {found.new:.3f}  {interval} of {found.queries}")
        means = [average([average(list(pair[side].values())) for pair in pairs.values()]) for side in (0, 1)]
        print(f"  {'mean':14} {means[0]:.3f} -> {means[1]:.3f}")


def _measure(found: Figures, measure: str) -> dict[str, float]:
    """Return a measure for each query that it counts."""
    if measure.startswith("AUC"):
        others = np.array(list(found.get(measure.rpartition(" ")[2], {}).values()))
        return {
            query: float(((value > others) + (value == others) / 2).mean())
            for query, value in found.get("right", {}).items()
            if others.size
        }
    kind, counts = MEASURES[measure]
    return {query: float(counts(value)) for query, value in found.get(kind, {}).items()}


if __name__ == "__main__":
    sys.exit(main())
