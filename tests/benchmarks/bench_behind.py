"""How long a search takes that comes while a server computes missing vectors.

Two servers on copies of one index without vectors, one with `QMD_AUTO_EMBED=0`, are asked in turn; each stands still
while the other is asked. Between two questions the server that computes has time to begin again.

    python -m tests.benchmarks.bench_behind INDEX.sqlite [--asks 30]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from qmd.app.turns import REST_S
from qmd.server.behind import START_S
from qmd.store.opening import open_reader, open_writer

QUESTIONS = (
    {"searches": [{"type": "lex", "query": "daily note template"}], "rerank": False},
    {"query": "how do I link a note to a heading", "rerank": False},
    {"query": "plugin that shows a calendar"},
)


@contextmanager
def _server(index: Path, folder: Path, auto_embed: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder), "INDEX_PATH": str(index), "QMD_AUTO_EMBED": auto_embed}
    command = [sys.executable, "-m", "qmd", "mcp", "--http", "--port", str(port)]
    with subprocess.Popen(command, env=environ, stderr=subprocess.DEVNULL) as process:
        try:
            yield process, port
        finally:
            process.send_signal(signal.SIGCONT)
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


def _vectors(index: Path) -> int:
    with open_reader(index) as reader:
        return reader.status(None).vectors


def _without_vectors(source: Path, folder: Path) -> Path:
    folder.mkdir()
    index = folder / "index.sqlite"
    shutil.copy(source, index)
    (folder / ".config" / "qmd").mkdir(parents=True)
    with open_writer(index) as writer:
        writer.clear_vectors()
        writer.cleanup()
        lines = [f"  {one.name}:\n    path: {one.path}\n    pattern: '{one.pattern}'" for one in writer.collections()]
    (folder / ".config" / "qmd" / "index.yml").write_text("\n".join(["collections:", *lines, ""]))
    return index


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("index", type=Path)
    parser.add_argument("--asks", type=int, default=30)
    arguments = parser.parse_args()
    with ExitStack() as open_files:
        base = Path(open_files.enter_context(tempfile.TemporaryDirectory()))
        indexes = {name: _without_vectors(arguments.index, base / name) for name in ("on", "off")}
        servers = {
            name: open_files.enter_context(_server(index, base / name, "1" if name == "on" else "0"))
            for name, index in indexes.items()
        }
        time.sleep(START_S + 5)
        taken: dict[tuple[str, int], list[float]] = {}
        for number in range(arguments.asks):
            for name in ("off", "on"):
                process, port = servers[name]
                process.send_signal(signal.SIGCONT)
                # A second and a bit into what it does behind.
                time.sleep(REST_S + 1.3 if name == "on" else 0.3)
                kind = number % len(QUESTIONS)
                taken.setdefault((name, kind), []).append(_ask(port, QUESTIONS[kind]))
                if name == "off":
                    process.send_signal(signal.SIGSTOP)
                else:
                    time.sleep(0.2)
                    process.send_signal(signal.SIGSTOP)
        for kind, question in enumerate(QUESTIONS):
            for name in ("off", "on"):
                # The first one of each loads models.
                times = sorted(taken[name, kind][1:])
                print(
                    f"{json.dumps(question)[:60]:62} {name:4} median {statistics.median(times):6.1f} ms"
                    f"  worst {times[-1]:6.1f} ms  ({len(times)} asked)"
                )
        for name, index in indexes.items():
            print(f"{name:4} {_memory_mb(servers[name][0].pid):.0f} MB resident, {_vectors(index)} vectors")


if __name__ == "__main__":
    main()
