"""Time of a search while its server computes missing vectors.

    python -m tests.benchmarks.bench_behind INDEX.sqlite [--asks 30]

The server gets a copy of the index without vectors. Each question is asked while it computes, and once more a moment
later, while it pauses for the first; so both go to the same process with the same models and vectors.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from qmd.app.queues import REST_S
from qmd.plugins.warm.background import START_S
from qmd.store.opening import open_reader, open_writer

QUESTIONS = (
    {"searches": [{"type": "lex", "query": "daily note template"}], "rerank": False},
    {"query": "how do I link a note to a heading", "rerank": False},
    {"query": "plugin that shows a calendar"},
)


@contextmanager
def _server(index: Path) -> Iterator[tuple[int, int]]:
    """Yield the process and the port of a server of an index, with its configuration next to it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    # Looking for changed files every three seconds would count against the first of two questions.
    environ = {"PATH": os.environ["PATH"], "HOME": str(index.parent), "INDEX_PATH": str(index), "QMD_AUTO_UPDATE": "0"}
    command = [sys.executable, "-m", "qmd", "mcp", "--http", "--port", str(port)]
    with subprocess.Popen(command, env=environ, stderr=subprocess.DEVNULL) as process:
        try:
            yield process.pid, port
        finally:
            process.terminate()


def _ask(port: int, question: Mapping[str, object]) -> float:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/query", json.dumps(question).encode())
    begun = time.perf_counter()
    with urllib.request.urlopen(request, timeout=60) as answer:
        answer.read()
    return 1000 * (time.perf_counter() - begun)


def _memory_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


def _processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _vectors(index: Path) -> int:
    with open_reader(index) as reader:
        return reader.status(None).vectors


def _without_vectors(source: Path, folder: Path) -> Path:
    folder.mkdir()
    index = folder / "index.sqlite"
    shutil.copy(source, index)
    (folder / ".config" / "qmd").mkdir(parents=True)
    with open_writer(index) as writer:
        writer.keep_models({})
        writer.cleanup()
        lines = [f"  {one.name}:\n    path: {one.path}\n    pattern: '{one.pattern}'" for one in writer.collections()]
    (folder / ".config" / "qmd" / "index.yml").write_text("\n".join(["collections:", *lines, ""]))
    return index


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("index", type=Path)
    parser.add_argument("--asks", type=int, default=30)
    arguments = parser.parse_args()
    taken: dict[tuple[int, str], list[float]] = {}
    with tempfile.TemporaryDirectory() as base:
        index = _without_vectors(arguments.index, Path(base) / "copy")
        with _server(index) as (pid, port):
            time.sleep(START_S - 4)
            before_mb = _memory_mb(pid)
            time.sleep(24)
            print(f"memory: {before_mb:.0f} MB before it begins, {_memory_mb(pid):.0f} MB while it computes")
            print(
                f"processor: {_processor_s(pid):.1f} s for {_vectors(index)} vectors in the first 20 s, models included"
            )
            for number in range(arguments.asks):
                kind = number % len(QUESTIONS)
                time.sleep(REST_S + 1.3)
                for state in ("computing", "resting"):
                    taken.setdefault((kind, state), []).append(_ask(port, QUESTIONS[kind]))
                    time.sleep(0.3)
            print(f"memory: {_memory_mb(pid):.0f} MB after all questions, {_vectors(index)} vectors")
    for (kind, state), times in sorted(taken.items()):
        # The first question loads the models.
        rest = sorted(times[1:])
        print(
            f"{json.dumps(QUESTIONS[kind])[:58]:60}{state:11}median {statistics.median(rest):6.1f} ms"
            f"  worst {rest[-1]:6.1f} ms  ({len(rest)} asked)"
        )


if __name__ == "__main__":
    main()
