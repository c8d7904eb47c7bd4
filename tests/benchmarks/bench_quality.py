"""Retrieval quality of the built-in tier on BEIR-like folders, with the real store and the real models.

    python tests/benchmarks/bench_quality.py FOLDER… [--index-dir DIR] [--queries N] [--save DIR] [--compare DIR]

Each folder holds corpus.jsonl(.gz), queries.jsonl and qrels.tsv. Prints nDCG@10 and recall@20 for BM25, vectors,
reciprocal rank fusion with the inherited constants (k = 60, both lists x2, bonuses .05 and .02), hybrid and full.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from qmd.inference.base import Engines
from qmd.inference.loader import load_engines
from qmd.inference.settings import EngineSettings
from qmd.plugins.bench.collections import read_beir, read_run, write_run
from qmd.plugins.bench.compare import compare_runs
from qmd.plugins.bench.corpus_index import entry_id, index_corpus
from qmd.plugins.bench.runs import RECALL_DEPTH, BackendReport, evaluate, measure_run, measure_stored
from qmd.retrieval.pipeline import search
from qmd.retrieval.query import SearchOptions, parse_query
from qmd.store.base import IndexReader
from qmd.store.opening import open_reader

INHERITED_K = 60
INHERITED_WEIGHT = 2.0
INHERITED_BONUS = (0.05, 0.02, 0.02)
"""Added once by a document's best rank in any list."""

COLUMNS = ("bm25", "vector", "rrf", "hybrid", "full")
SHOWN = ("nDCG@10", "recall@20")


def main(argv: Sequence[str] | None = None) -> int:
    """Index what is not indexed yet, run every setting, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--index-dir", type=Path, default=Path(".bench"), help="where indexes are kept between runs")
    parser.add_argument("--queries", type=int, default=0, help="at most this many queries per folder, evenly spread")
    parser.add_argument("--modes", default=",".join(COLUMNS))
    parser.add_argument("--save", type=Path, help="write one TREC run per folder and setting")
    parser.add_argument("--compare", type=Path, help="compare nDCG@10 with runs saved there")
    options = parser.parse_args(argv)
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
        print_table(folder.name, len(queries), rows)
        keep_and_compare(folder.name, rows, judged.qrels, options.save, options.compare)
        reader.close()
    return 0


def build_index(folder: Path, index_dir: Path, engines: Engines) -> Path:
    """Index and embed a corpus unless that was done before; returns the index file."""
    path = index_dir / f"{folder.name}.sqlite"
    started = time.perf_counter()
    index_corpus(folder, path, engines.embedder)
    print(f"{folder.name}: indexed in {time.perf_counter() - started:.1f} s", file=sys.stderr)
    return path


def run_all(
    reader: IndexReader,
    engines: Engines,
    queries: Mapping[str, str],
    qrels: Mapping[str, Mapping[str, float]],
    modes: Sequence[str],
) -> list[BackendReport]:
    """Reports in the order of `COLUMNS`."""
    reports = evaluate(reader, engines, queries, qrels, [mode for mode in modes if mode != "rrf"], name_of=entry_id)
    if "rrf" in modes:
        run = {name: inherited_fusion(reader, engines, text) for name, text in queries.items()}
        reports.append(BackendReport("rrf", measure_run(run, qrels), run, {}, {}, ()))
    return sorted(reports, key=lambda report: COLUMNS.index(report.backend))


def inherited_fusion(reader: IndexReader, engines: Engines, text: str) -> list[str]:
    """Names by reciprocal rank fusion with the original's constants, from the same two rankings cut at 100.

    Source: Cormack, Clarke, Büttcher, SIGIR 2009.
    """
    answer = search(
        reader,
        engines,
        parse_query(text),
        SearchOptions(rerank=False, expand=False, limit=200, candidate_limit=200, folds_copies=False, explain=True),
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


def print_table(name: str, n_queries: int, reports: Sequence[BackendReport]) -> None:
    """One line per setting."""
    print(f"\n{name} ({n_queries} queries)")
    for report in reports:
        cells = "  ".join(f"{metric} {report.mean(metric):.4f}" for metric in SHOWN)
        speed = (
            f"  p50 {report.latency_ms(0.5):.0f} ms  p95 {report.latency_ms(0.95):.0f} ms"
            if report.latencies_ms
            else ""
        )
        print(f"  {report.backend:8}{cells}{speed}" + (f"  {len(report.failures)} failed" if report.failures else ""))
    sys.stdout.flush()


def keep_and_compare(
    name: str,
    reports: Sequence[BackendReport],
    qrels: Mapping[str, Mapping[str, float]],
    save: Path | None,
    old: Path | None,
) -> None:
    """Store runs, and compare with stored ones where they exist."""
    for report in reports:
        file = f"{name}.{report.backend}.run"
        if old is not None and (old / file).is_file():
            before = measure_stored(read_run(old / file), qrels)["nDCG@10"]
            c = compare_runs(before, report.metrics["nDCG@10"])
            print(f"  {report.backend:8}{c.difference:+.4f} [{c.low:+.4f}, {c.high:+.4f}] p={c.p_value:.3f}")
        if save is not None:
            save.mkdir(parents=True, exist_ok=True)
            write_run(save / file, report.run, report.backend)


if __name__ == "__main__":
    sys.exit(main())
