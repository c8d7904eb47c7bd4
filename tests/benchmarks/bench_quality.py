"""Retrieval quality of the built-in tier on BEIR-like folders, with the real store and the real models.

    python tests/benchmarks/bench_quality.py FOLDER… [--index-dir DIR] [--queries N] [--save DIR] [--compare DIR]
    python tests/benchmarks/bench_quality.py FOLDER --score RUN

Each folder has corpus.jsonl(.gz), queries.jsonl and qrels.tsv. Prints nDCG@10, recall@100 and MRR@10 for BM25,
vectors, reciprocal rank fusion with the inherited constants (k = 60, both lists x2, bonuses .05 and .02), hybrid and
full; with --compare their differences to stored runs with 95 % intervals (paired bootstrap). --score measures a TREC
run of any program.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from msgspec import Struct
from msgspec.structs import replace

from qmd.errors import QmdError
from qmd.inference.base import Engines
from qmd.inference.loader import load_engines
from qmd.inference.settings import EngineSettings
from qmd.plugins.bench.running import BACKENDS, require_models
from qmd.retrieval.pipeline import search
from qmd.retrieval.query import parse_query
from qmd.retrieval.request import SearchRequest
from qmd.store.base import IndexReader
from qmd.store.opening import open_reader
from tests.benchmarks.bootstrap import compare_runs
from tests.benchmarks.corpus_index import entry_id, index_corpus
from tests.benchmarks.judged import Qrels, Run, read_beir, read_run, run_name, write_run
from tests.benchmarks.metrics import average, mrr_at, ndcg_at, recall_at

INHERITED_K = 60
INHERITED_WEIGHT = 2.0
INHERITED_BONUS = (0.05, 0.02, 0.02)
"""Bonus added once by a document's best rank in any list."""

COLUMNS = ("bm25", "vector", "rrf", "hybrid", "full")
RECALL_DEPTH = 100


class Report(Struct, frozen=True):
    """Results of one setting: documents found, metric → query → value, wall times, and the number of refused
    queries."""

    backend: str
    run: Run
    metrics: Mapping[str, Mapping[str, float]]
    latencies_ms: Sequence[float] = ()
    n_failed: int = 0


def main(argv: Sequence[str] | None = None) -> int:
    """Index what is not indexed yet, run every setting, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--index-dir", type=Path, default=Path(".bench"), help="where indexes are kept between runs")
    parser.add_argument("--queries", type=int, default=0, help="at most this many queries per folder, evenly spread")
    parser.add_argument("--modes", default=",".join(COLUMNS))
    parser.add_argument("--save", type=Path, help="write one TREC run per folder and setting")
    parser.add_argument("--compare", type=Path, help="compare with runs saved there")
    parser.add_argument("--score", type=Path, metavar="RUN", help="measure this TREC run and search nothing")
    options = parser.parse_args(argv)
    if options.score:
        qrels = as_in_runs(read_beir(options.folders[0]).qrels)
        run = read_run(options.score)
        print_table(options.score.name, [Report("", run, measure_run(run, qrels))])
        return 0
    engines = load_engines(
        EngineSettings(models_dir=Path("no-full-tier"), embed="built-in", rerank="built-in"), ("embed", "rerank")
    )
    for folder in options.folders:
        path = build_index(folder, options.index_dir, engines)
        judged = read_beir(folder)
        names = list(judged.queries)
        step = max(1, -(-len(names) // options.queries)) if options.queries else 1
        queries = {name: judged.queries[name] for name in names[::step]}
        reader = open_reader(path)
        rows = run_all(reader, engines, queries, judged.qrels, options.modes.split(","))
        print_table(f"{folder.name} ({len(queries)} queries)", rows)
        keep_and_compare(folder.name, rows, judged.qrels, options.save, options.compare)
        reader.close()
    return 0


def build_index(folder: Path, index_dir: Path, engines: Engines) -> Path:
    """Index and embed a corpus unless that was done before; return the index file."""
    path = index_dir / f"{folder.name}.sqlite"
    started = time.perf_counter()
    index_corpus(folder, path, engines.embedder)
    print(f"{folder.name}: indexed in {time.perf_counter() - started:.1f} s", file=sys.stderr)
    return path


def run_all(
    reader: IndexReader, engines: Engines, queries: Mapping[str, str], qrels: Qrels, modes: Sequence[str]
) -> list[Report]:
    """Return reports in the order of `COLUMNS`."""
    reports = []
    for mode in sorted(modes, key=COLUMNS.index):
        if mode == "rrf":
            run = {name: inherited_fusion(reader, engines, text) for name, text in queries.items()}
            reports.append(Report(mode, run, measure_run(run, qrels)))
        else:
            reports.append(run_backend(mode, reader, engines, queries, qrels))
    return reports


def run_backend(mode: str, reader: IndexReader, engines: Engines, queries: Mapping[str, str], qrels: Qrels) -> Report:
    """Return the results of one of the program's own settings."""
    require_models(reader, engines, mode)
    options = replace(BACKENDS[mode], limit=RECALL_DEPTH, strict=True, folds_copies=False)
    run: dict[str, list[str]] = {}
    latencies = []
    for name, text in queries.items():
        started = time.perf_counter()
        try:
            hits = search(reader, engines, parse_query(text), options).hits
        except QmdError as exc:
            print(f"{mode} {name}: {exc.message}", file=sys.stderr)
            continue
        latencies.append((time.perf_counter() - started) * 1000)
        run[name] = [entry_id(hit.document) for hit in hits]
    return Report(mode, run, measure_run(run, qrels), sorted(latencies), len(queries) - len(run))


def measure_run(run: Run, qrels: Qrels) -> dict[str, dict[str, float]]:
    """Return metric → query → value, for each query of a run that has a judgement."""
    judged = {name: (ranking, qrels[name]) for name, ranking in run.items() if qrels.get(name)}
    return {
        "nDCG@10": {name: ndcg_at(ranking, grades, 10) for name, (ranking, grades) in judged.items()},
        "recall@100": {name: recall_at(ranking, grades, RECALL_DEPTH) for name, (ranking, grades) in judged.items()},
        "MRR@10": {name: mrr_at(ranking, grades, 10) for name, (ranking, grades) in judged.items()},
    }


def as_in_runs(qrels: Qrels) -> Qrels:
    """Return judgements under the names of a stored run."""
    return {run_name(q): {run_name(name): grade for name, grade in grades.items()} for q, grades in qrels.items()}


def inherited_fusion(reader: IndexReader, engines: Engines, text: str) -> list[str]:
    """Fuse by reciprocal rank with the original's constants, from the same two rankings cut at 100.

    Source: Cormack, Clarke, Büttcher, SIGIR 2009.
    """
    answer = search(
        reader,
        engines,
        parse_query(text),
        SearchRequest(rerank=False, expand=False, limit=200, candidate_limit=200, folds_copies=False, explain=True),
    )
    lists: dict[tuple[str, str], list[tuple[int, int]]] = {}
    names = {hit.document.id: entry_id(hit.document) for hit in answer.hits}
    for hit in answer.hits:
        for part in hit.explanation.contributions if hit.explanation else ():
            if part.rank is not None:
                lists.setdefault((part.source, part.kind), []).append((part.rank, hit.document.id))
    scores: dict[int, float] = {}
    best: dict[int, int] = {}
    for entries in lists.values():
        for place, (_, number) in enumerate(sorted(entries)[:100], start=1):
            scores[number] = scores.get(number, 0.0) + INHERITED_WEIGHT / (INHERITED_K + place)
            best[number] = min(best.get(number, place), place)
    for number, place in best.items():
        scores[number] += INHERITED_BONUS[place - 1] if place <= len(INHERITED_BONUS) else 0.0
    fused = sorted(scores, key=lambda number: (-scores[number], number))
    return [names[number] for number in fused[:RECALL_DEPTH]]


def print_table(title: str, reports: Sequence[Report]) -> None:
    """Print one line per setting."""
    print(f"\n{title}")
    for report in reports:
        cells = "  ".join(f"{name} {average(list(values.values())):.4f}" for name, values in report.metrics.items())
        n = len(report.latencies_ms)
        speed = [f"  p{share} {report.latencies_ms[n * share // 100]:.0f} ms" for share in (50, 95) if n]
        failed = f"  {report.n_failed} failed" if report.n_failed else ""
        print(f"  {report.backend:8}{cells}{''.join(speed)}{failed}")
    sys.stdout.flush()


def keep_and_compare(name: str, reports: Sequence[Report], qrels: Qrels, save: Path | None, old: Path | None) -> None:
    """Store runs, and compare with stored ones where they exist."""
    for report in reports:
        file = f"{name}.{report.backend}.run"
        if old is not None and (old / file).is_file():
            before = measure_run(read_run(old / file), as_in_runs(qrels))
            for metric, values in report.metrics.items():
                c = compare_runs(before[metric], {run_name(query): value for query, value in values.items()})
                interval = f"[{c.low:+.4f}, {c.high:+.4f}] p={c.p_value:.3f}"
                print(f"  {report.backend:8}{metric:12}{c.difference:+.4f} {interval}")
        if save is not None:
            save.mkdir(parents=True, exist_ok=True)
            write_run(save / file, report.run, report.backend)


if __name__ == "__main__":
    sys.exit(main())
