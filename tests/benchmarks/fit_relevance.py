"""Fit and check the calibration of relevance on judged collections and nonsense queries.

    python tests/benchmarks/fit_relevance.py FOLDER… [--index-dir DIR] [--queries N] [--check]

Indexes are those of bench_quality.py, which must have run on the folders. Prints the constants of
`qmd.retrieval.calibration`, each collection fitted without itself, and what the shipped constants give.
Positives are relevant documents among the first ten of an answerable query; negatives are the first three of a nonsense
query (random words of this and other collections, keyboard noise, text in other languages), and with a small weight the
unjudged documents among the first ten of an answerable one.
"""

from __future__ import annotations

import argparse
import math
import pickle
import random
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from qmd.evaluation.collections import read_beir, read_corpus
from qmd.evaluation.corpus_index import entry_id
from qmd.inference.base import Engines
from qmd.inference.loader import load_engines
from qmd.inference.settings import EngineSettings
from qmd.retrieval import calibration, pipeline
from qmd.retrieval.calibration import Evidence
from qmd.retrieval.options import SearchOptions
from qmd.retrieval.query_parser import parse_query
from qmd.store import IndexReader, open_reader

UNJUDGED_WEIGHT = 0.1
RIDGE = 1e-3

FOREIGN = (
    "où acheter du pain frais près de la gare demain matin",
    "recette facile de gâteau au chocolat pour les enfants",
    "wie lange muss ich die kartoffeln im ofen backen",
    "der zug nach münchen hat heute leider verspätung",
    "cuánto cuesta un billete de autobús para la playa",
    "mi abuela cocina la mejor sopa de pescado",
    "dove posso trovare una farmacia aperta di notte",
    "quanto custa alugar um apartamento em lisboa no verão",
    "как приготовить борщ на большую семью",
    "завтра мы поедем на дачу собирать яблоки",
    "jak upiec sernik bez spodu na święta",
    "hoe laat vertrekt de laatste trein naar utrecht",
    "var kan jag köpa färska blommor till bröllopet",
    "明日の天気はどうですか傘が必要ですか",
    "周末去哪里吃火锅比较便宜",
    "오늘 저녁에 뭐 먹을까 김치찌개 어때",
    "ما هو أفضل مطعم في المدينة القديمة",
    "आज शाम को बाजार से सब्जी लाना है",
    "πού μπορώ να αγοράσω φρέσκα ψάρια",
    "bugün hava çok güzel denize gidelim mi",
)
"""Everyday sentences that no test collection answers."""


@dataclass(frozen=True)
class Row:
    """One judged hit: its query, place, evidence in both settings, label."""

    query: str
    answerable: bool
    rank: int
    evidence: Evidence
    relevant: bool


def main(argv: Sequence[str] | None = None) -> int:
    """Gather evidence, fit with one collection left out in turn, then on all, and check the shipped constants."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--index-dir", type=Path, default=Path(".bench"))
    parser.add_argument("--queries", type=int, default=100, help="answerable queries per folder")
    parser.add_argument("--nonsense", type=int, default=200, help="nonsense queries per folder")
    parser.add_argument("--check", action="store_true", help="only check the shipped constants")
    options = parser.parse_args(argv)
    engines = load_engines(EngineSettings(models_dir=Path("no-full-tier"), embed="built-in"), ["embed"])
    for mode in ("lexical", "hybrid"):
        gathered = {}
        for folder in options.folders:
            cache = options.index_dir / f"{folder.name}.{mode}.evidence"
            if cache.is_file():
                gathered[folder.name] = pickle.loads(cache.read_bytes())
                continue
            reader = open_reader(options.index_dir / f"{folder.name}.sqlite")
            gathered[folder.name] = gather(reader, engines, folder, mode, options.queries, options.nonsense)
            cache.write_bytes(pickle.dumps(gathered[folder.name]))
            reader.close()
        print(f"\n{mode}: shipped constants")
        for name, rows in gathered.items():
            print(f"  {name:10} {check(rows, calibration.relevance)}")
        if not options.check:
            refit(gathered, mode)
    return 0


def refit(gathered: Mapping[str, Sequence[Row]], mode: str) -> None:
    """Print the constants fitted without each collection in turn and how it then fares, and those fitted on all."""
    for left_out, rows in gathered.items():
        others = {name: more for name, more in gathered.items() if name != left_out}
        print(f"  without {left_out:10} {check(rows, judge_by(fit(others, mode), mode))}")
    theta = fit(gathered, mode)
    names = ("intercept", "coverage", "window", "found", "near", "cosine", "background")
    print("  all: " + ", ".join(f"{name}={value:.2f}" for name, value in zip(names, theta, strict=False)))
    for name, rows in gathered.items():
        print(f"  {name:10} {check(rows, judge_by(theta, mode))}")


def gather(
    reader: IndexReader, engines: Engines, folder: Path, mode: str, n_queries: int, n_nonsense: int
) -> list[Row]:
    """Evidence for the hits of answerable and nonsense queries, as the pipeline measures it."""
    judged = read_beir(folder)
    names = list(judged.queries)
    step = max(1, len(names) // n_queries)
    rows = []
    for name in names[::step][:n_queries]:
        for rank, (path, evidence) in enumerate(observe(reader, engines, judged.queries[name], mode), start=1):
            rows.append(Row(name, True, rank, evidence, judged.qrels[name].get(path, 0) > 0))
    own = " ".join(f"{row.title} {row.text}" for row in read_corpus(folder))
    for number, text in enumerate(nonsense_queries(own, n_nonsense)):
        rows.append(Row(f"nonsense-{number}", False, 0, Evidence(0.0, 0.0, 0.0), False))
        for rank, (_, evidence) in enumerate(observe(reader, engines, text, mode), start=1):
            rows.append(Row(f"nonsense-{number}", False, rank, evidence, False))
    return rows


def observe(reader: IndexReader, engines: Engines, text: str, mode: str) -> list[tuple[str, Evidence]]:
    """(path, evidence) of the first ten hits of the real pipeline, caught where it judges them."""
    seen: list[Evidence] = []
    options = SearchOptions(
        mode="lexical" if mode == "lexical" else "hybrid", rerank=False, expand=False, limit=10, folds_copies=False
    )

    def listen(evidence: Evidence) -> float:
        seen.append(evidence)
        return 1.0 - len(seen) * 1e-3

    answer = pipeline.search(reader, engines, parse_query(text), options, judge=listen)
    return [(entry_id(hit.document), evidence) for hit, evidence in zip(answer.hits, seen, strict=False)]


def nonsense_queries(own: str, count: int, seed: int = 7) -> list[str]:
    """Random words, keyboard noise, and other languages, a third each; Chinese is no noise for a Chinese collection.

    Half of the random words come from the collection itself, whose text is `own`; three at least, since of two one may
    well be meant.
    """
    generator = random.Random(seed)
    is_chinese = len(re.findall(r"[\u4e00-\u9fff]", own[:5000])) > 500
    words = sorted(set(re.findall(r"[a-z]{4,}", own.lower())) | set(COMMON))
    foreign = [text for text in FOREIGN if not (is_chinese and re.search(r"[\u4e00-\u9fff]", text))]
    queries = []
    for number in range(count):
        if number % 3 == 0:
            pool = COMMON if number % 2 or is_chinese else words
            queries.append(" ".join(generator.sample(list(pool), generator.randint(3, 5))))
        elif number % 3 == 1:
            queries.append(" ".join(_noise(generator) for _ in range(generator.randint(1, 4))))
        else:
            text = generator.choice(foreign).split()
            kept = max(2, generator.randint(len(text) // 2, len(text)))
            queries.append(" ".join(text[:kept]))
    return queries


_COMMON_WORDS = (
    "apple river candle window purple tango elephant marble whisper thunder basket velvet pepper saddle lantern "
    "orchard pillow harvest mustard blanket spider copper violin garden feather biscuit umbrella carpet anchor "
    "pigeon helmet butter castle dolphin emperor fountain glacier hammock island jacket kettle lemon meadow "
    "necklace onion parade quarrel ribbon shadow trumpet uncle vinegar walnut yellow zebra wedding poetry "
    "dentist football ballet monkey cousin sausage holiday perfume tailor pirate squirrel tulip cathedral bakery "
    "honey grandmother"
)
COMMON = tuple(_COMMON_WORDS.split(" "))
"""Everyday words, drawn at random."""


def _noise(generator: random.Random) -> str:
    row = generator.choice(("qwertyuiop", "asdfghjkl", "zxcvbnm", "abcdefghijklmnopqrstuvwxyz"))
    return "".join(generator.choice(row) for _ in range(generator.randint(3, 9)))


# --- fitting --------------------------------------------------------------------------------------


def features(evidence: Evidence, mode: str) -> list[float]:
    """What the logistic regression sees."""
    found, near = evidence.coverage * evidence.mass, evidence.window * evidence.mass
    values = [1.0, evidence.coverage, evidence.window, math.log1p(found), math.log1p(near)]
    if mode == "hybrid":
        values += [evidence.cosine or 0.0, -(evidence.background or 0.0)]
    return values


def usable(row: Row, mode: str) -> bool:
    """Whether a row says something about a mode's constants: those without a cosine are the lexical ones' business."""
    return row.rank > 0 and (mode == "lexical" or row.evidence.cosine is not None)


def fit(gathered: Mapping[str, Sequence[Row]], mode: str) -> npt.NDArray[np.float64]:
    """Weighted ridge logistic regression by Newton's method, every weight but the intercept >= 0, then anchored."""
    rows = [row for more in gathered.values() for row in more]
    used = [row for row in rows if usable(row, mode) and (row.answerable or row.rank <= 3)]
    x = np.array([features(row.evidence, mode) for row in used])
    y = np.array([float(row.relevant) for row in used])
    w = np.array([1.0 if row.relevant or not row.answerable else UNJUDGED_WEIGHT for row in used])
    w[y > 0] *= w[y == 0].sum() / max(w[y > 0].sum(), 1e-9)
    free = np.ones(x.shape[1], bool)
    while True:
        theta = np.zeros(x.shape[1])
        for _ in range(60):
            p = 1 / (1 + np.exp(-np.clip(x[:, free] @ theta[free], -30, 30)))
            gradient = x[:, free].T @ (w * (y - p)) - RIDGE * theta[free]
            hessian = (x[:, free] * (w * p * (1 - p))[:, None]).T @ x[:, free] + RIDGE * np.eye(free.sum())
            theta[free] += np.linalg.solve(hessian, gradient)
        negative = free & (theta < 0) & (np.arange(len(theta)) > 0)
        if not negative.any():
            return anchored(theta, gathered, mode)
        free &= ~negative


def anchored(
    theta: npt.NDArray[np.float64], gathered: Mapping[str, Sequence[Row]], mode: str
) -> npt.NDArray[np.float64]:
    """The same weights with relevance 0.2 halfway between nonsense and answers.

    Halfway between the largest 95th percentile of nonsense and the smallest 10th percentile of answerable queries.
    """
    high, low = [], []
    for rows in gathered.values():
        tops: dict[bool, dict[str, float]] = {True: {}, False: {}}
        for row in rows:
            value = float(np.dot(theta, features(row.evidence, mode))) if usable(row, mode) else -99.0
            if row.rank == 0 or usable(row, mode):
                tops[row.answerable][row.query] = max(value, tops[row.answerable].get(row.query, -99.0))
        if tops[False]:
            high.append(np.percentile(list(tops[False].values()), 95))
        if tops[True]:
            low.append(np.percentile(list(tops[True].values()), 10))
    moved = theta.copy()
    moved[0] += math.log(0.2 / 0.8) - (max(high) + min(low)) / 2
    return moved


def judge_by(theta: npt.NDArray[np.float64], mode: str) -> Callable[[Evidence], float]:
    """Relevance with trial constants; where a cosine is missing, with the shipped lexical ones."""

    def judge(evidence: Evidence) -> float:
        if mode == "hybrid" and evidence.cosine is None:
            return calibration.relevance(evidence)
        value = float(1 / (1 + np.exp(-np.dot(theta, features(evidence, mode)))))
        return value if mode == "lexical" else max(value, calibration.relevance(replace(evidence, cosine=None)))

    return judge


def check(rows: Sequence[Row], judge: Callable[[Evidence], float]) -> str:
    """The 95th percentile of the first relevance of nonsense, and the share of answerable queries at 0.2 or above."""
    by_query: dict[str, list[Row]] = {}
    for row in rows:
        by_query.setdefault(row.query, []).append(row)
    nonsense: list[float] = []
    answerable: list[float] = []
    for hits in by_query.values():
        relevances = calibration.non_increasing([judge(row.evidence) for row in hits if row.rank > 0])
        (answerable if hits[0].answerable else nonsense).append(relevances[0] if relevances else 0.0)
    p95 = float(np.percentile(nonsense, 95)) if nonsense else 0.0
    kept = float(np.mean([value >= 0.2 for value in answerable])) if answerable else 0.0
    return f"nonsense p95 {p95:.3f} of {len(nonsense)}  answerable kept {kept:.3f} of {len(answerable)}"


if __name__ == "__main__":
    sys.exit(main())
