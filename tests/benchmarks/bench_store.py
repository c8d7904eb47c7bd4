"""Index a folder without vectors and search it: milliseconds per file, size, memory, time of a second run, latency.

    python tests/benchmarks/bench_store.py FOLDER [--mask '**/*.md'] [--query WORDS]...

Every figure is of this machine and this run; compare only figures of one run. Each indexing run has its own process,
for its peak memory.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from qmd.analysis.query import analyze_query
from qmd.indexing.update import update_collection
from qmd.records import Collection, Scope
from qmd.store.base import IndexReader
from qmd.store.opening import open_reader, open_writer

DEFAULT_QUERIES = (
    "smart pointer",
    "how do I convert a string to an integer",
    "what is the difference between a class and a struct",
)
SEARCHES = 15


def index_once(index: Path, folder: Path, mask: str) -> None:
    """Index in this process and print one JSON line."""
    started = time.perf_counter()
    with open_writer(index) as writer:
        report = update_collection(writer, Collection("bench", folder, mask))
    elapsed_s = time.perf_counter() - started
    files = report.new + report.updated + report.unchanged
    print(json.dumps({"s": elapsed_s, "files": files, "read_bytes": report.n_bytes, "rss_mb": peak_memory_mb()}))


def peak_memory_mb() -> float | None:
    """Return the peak resident memory of this process; None where the system does not report it."""
    try:
        import resource
    except ImportError:
        return None
    # Kilobytes on Linux, bytes on macOS.
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def measured_run(index: Path, folder: Path, mask: str) -> dict[str, float]:
    """Index in a fresh process."""
    command = [sys.executable, __file__, str(folder), "--mask", mask, "--into", str(index)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    finished = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    answer: dict[str, float] = json.loads(finished.stdout)
    return answer


def median_ms(reader: IndexReader, query: str) -> tuple[float, int]:
    """Return the median latency of a search for ten documents, and the number found."""
    terms = analyze_query(query)
    times = []
    found = 0
    for _ in range(SEARCHES):
        started = time.perf_counter()
        found = len(reader.search_lexical(terms, 10, Scope()))
        times.append((time.perf_counter() - started) * 1000)
    return statistics.median(times), found


def main() -> None:
    """Run the benchmark and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--mask", default="**/*.md")
    parser.add_argument("--query", action="append")
    parser.add_argument("--into", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.into:
        index_once(arguments.into, arguments.folder, arguments.mask)
        return
    with tempfile.TemporaryDirectory() as folder:
        index = Path(folder) / "index.sqlite"
        first = measured_run(index, arguments.folder, arguments.mask)
        second = measured_run(index, arguments.folder, arguments.mask)
        size = index.stat().st_size
        print(f"first index    {first['s']:8.2f} s   {first['s'] * 1000 / max(1, first['files']):.2f} ms/file")
        print(f"second index   {second['s']:8.2f} s   {first['s'] / second['s']:.0f} times faster")
        print(f"files          {first['files']:8.0f}     {first['read_bytes'] / 1e6:.1f} MB of text")
        print(f"index size     {size / 1e6:8.1f} MB  {size / max(1, first['read_bytes']):.2f} of the text")
        if first["rss_mb"] is not None:
            print(f"peak memory    {first['rss_mb']:8.0f} MB")
        with open_reader(index) as reader:
            for query in arguments.query or DEFAULT_QUERIES:
                elapsed_ms, found = median_ms(reader, query)
                print(f"search         {elapsed_ms:8.2f} ms  {found} found: {query}")
            started = time.perf_counter()
            reader.similar_terms("confguration")
            print(f"suggestion     {(time.perf_counter() - started) * 1000:8.2f} ms")


if __name__ == "__main__":
    main()
