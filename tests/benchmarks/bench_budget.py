"""Share of answers within a time budget, and their loss of quality.

    python tests/benchmarks/bench_budget.py FOLDER… [--index-dir DIR] [--budget MS] [--queries N] [--free K] [--first N]

Indexes are those of bench_quality.py, which must have run on the folders. Each query is asked with a budget and
every Kth without one, by engines that are loaded; first queries after loading are measured by loading `--first` times.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from qmd.inference.base import Engines
from qmd.inference.loader import load_engines
from qmd.inference.settings import EngineSettings
from qmd.retrieval.pipeline import search
from qmd.retrieval.query import parse_query
from qmd.retrieval.request import SearchRequest
from qmd.store.base import IndexReader
from qmd.store.opening import open_reader
from tests.benchmarks.corpus_index import entry_id
from tests.benchmarks.judged import read_beir
from tests.benchmarks.metrics import average, ndcg_at

FREE = SearchRequest(limit=10)


def main(argv: Sequence[str] | None = None) -> int:
    """Ask every query twice and print one line for each folder, then one for first queries."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--index-dir", type=Path, default=Path(".bench"))
    parser.add_argument("--budget", type=int, default=300)
    parser.add_argument("--queries", type=int, default=1000, help="at most this many per folder")
    parser.add_argument("--free", type=int, default=1, help="every so many queries are asked without a budget, too")
    parser.add_argument("--first", type=int, default=5)
    options = parser.parse_args(argv)
    tight = replace(FREE, budget_ms=options.budget)
    print(f"budget {options.budget} ms, load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    engines = load()
    asked = on_time = 0
    for folder in options.folders:
        judged = read_beir(folder)
        reader = open_reader(options.index_dir / f"{folder.name}.sqlite")
        names = list(judged.queries)
        names = names[:: -(-len(names) // options.queries)]
        times: list[float] = []
        scores: list[tuple[float, float]] = []
        n_cut = 0
        for number, name in enumerate(names):
            grades = judged.qrels[name]
            ranking, elapsed_ms, was_cut = ask(reader, engines, judged.queries[name], tight)
            times.append(elapsed_ms)
            n_cut += was_cut
            if number % options.free == 0:
                with_all = ask(reader, engines, judged.queries[name], FREE)[0]
                scores.append((ndcg_at(with_all, grades, 10), ndcg_at(ranking, grades, 10)))
        in_time = sum(elapsed <= options.budget for elapsed in times)
        asked, on_time = asked + len(times), on_time + in_time
        times.sort()
        p50, p95 = (times[int(len(times) * share)] for share in (0.5, 0.95))
        free, cut = (average([pair[side] for pair in scores]) for side in (0, 1))
        print(
            f"  {folder.name:10} {len(times)} queries  in time {in_time / len(times):.3f}  p50 {p50:.0f} ms"
            f"  p95 {p95:.0f} ms  most {times[-1]:.0f} ms  cut {n_cut / len(times):.3f}"
            f"  nDCG@10 of {len(scores)}: {free:.4f} free, {cut:.4f} in the budget",
            flush=True,
        )
        reader.close()
    print(f"  all: {on_time} of {asked} in time ({on_time / asked:.3f})")
    folder = options.folders[0]
    text = next(iter(read_beir(folder).queries.values()))
    firsts = []
    for _ in range(options.first):
        reader = open_reader(options.index_dir / f"{folder.name}.sqlite")
        firsts.append(ask(reader, load(), text, tight)[1])
        reader.close()
    print("  first query after loading: " + ", ".join(f"{elapsed:.0f} ms" for elapsed in firsts))
    return 0


def load() -> Engines:
    """Load the built-in tier."""
    settings = EngineSettings(models_dir=Path("no-full-tier"), embed="built-in", rerank="built-in")
    return load_engines(settings, ("embed", "rerank"))


def ask(reader: IndexReader, engines: Engines, text: str, options: SearchRequest) -> tuple[list[str], float, bool]:
    """Return the ranking, its wall time in milliseconds, and whether a stage was skipped for time."""
    started = time.perf_counter()
    answer = search(reader, engines, parse_query(text), options)
    elapsed_ms = (time.perf_counter() - started) * 1000
    return [entry_id(hit.document) for hit in answer.hits], elapsed_ms, any("budget" in w for w in answer.warnings)


if __name__ == "__main__":
    sys.exit(main())
