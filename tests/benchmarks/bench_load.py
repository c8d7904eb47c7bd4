"""Answers a second of one server under load, and the waiting times of its clients.

    python tests/benchmarks/bench_load.py FOLDER [--clients 1,4,16] [--seconds 8]

FOLDER is indexed with vectors into a temporary place and served by `qmd mcp --http`; each client sends `POST /query`
one after the other, the questions in turn, on a connection of its own. The clients share the machine with the server.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.benchmarks.bench_serving import Place, processor_seconds, wait_until

QUESTIONS = (
    "how do I handle errors that cannot be recovered",
    "where are notes about the weekly plan",
    "compare folders and tags",
    "export to another format",
    "keyboard shortcuts for search",
    "what did we decide about backups",
    "links between notes",
)
KINDS: Mapping[str, Any] = {
    "words": lambda text: {"searches": [{"type": "lex", "query": text}], "rerank": False},
    "vectors": lambda text: {"searches": [{"type": "vec", "query": text}], "rerank": False},
    "hybrid": lambda text: {
        "searches": [{"type": "lex", "query": text}, {"type": "vec", "query": text}],
        "rerank": False,
    },
    "reranked": lambda text: {"searches": [{"type": "lex", "query": text}, {"type": "vec", "query": text}]},
}


def ask(connection: http.client.HTTPConnection, body: Mapping[str, Any]) -> float:
    """Return the seconds until the answer to one question."""
    started = time.perf_counter()
    connection.request("POST", "/query", json.dumps(body), {"content-type": "application/json"})
    answer = connection.getresponse()
    text = answer.read()
    assert answer.status == 200, text
    return time.perf_counter() - started


def load(port: int, kind: str, n_clients: int, seconds: float) -> list[float]:
    """Return the time of each question of `n_clients` that ask for a number of seconds."""
    waits: list[float] = []
    end = time.perf_counter() + seconds

    def client(number: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        for text in itertools.cycle(QUESTIONS[number % 7 :] + QUESTIONS[: number % 7]):
            if time.perf_counter() >= end:
                return
            waits.append(ask(connection, KINDS[kind](text)))

    threads = [threading.Thread(target=client, args=(number,)) for number in range(n_clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return waits


def main() -> int:
    """Parse the command line, run, and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--clients", default="1,4,16")
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--port", type=int, default=18765)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        home = Path(folder).resolve()
        own = {"HOME": str(home), "XDG_CACHE_HOME": str(home / "cache"), "XDG_CONFIG_HOME": str(home / "config")}
        root = str(Path(__file__).resolve().parents[2])
        place = Place(home, {"PATH": os.environ["PATH"], "PYTHONPATH": root, "QMD_DAEMON": "off", **own})
        shutil.copytree(options.folder, home / "notes")
        place.run("index", str(home / "notes"))
        server = subprocess.Popen(
            place.command("mcp", "--http", "--port", str(options.port)),
            cwd=home,
            env=place.environ,
            stderr=subprocess.DEVNULL,
        )
        try:
            wait_until(lambda: _answers(options.port))
            columns = ("kind", "clients", "answers a second", "p50 ms", "p95 ms", "p95 / p50", "CPU ms an answer")
            print("|", " | ".join(columns), "|\n" + len(columns) * "|---" + "|")
            for kind in KINDS:
                load(options.port, kind, 2, 1.0)
                for n_clients in map(int, options.clients.split(",")):
                    _show(server.pid, options.port, kind, n_clients, options.seconds)
        finally:
            server.terminate()
            server.wait()
    return 0


def _show(pid: int, port: int, kind: str, n_clients: int, seconds: float) -> None:
    before, started = processor_seconds(pid), time.perf_counter()
    waits = load(port, kind, n_clients, seconds)
    rate, cpu_ms = len(waits) / (time.perf_counter() - started), (processor_seconds(pid) - before) * 1000 / len(waits)
    p50, p95 = statistics.median(waits) * 1000, statistics.quantiles(waits, n=20)[-1] * 1000
    print(f"| {kind} | {n_clients} | {rate:.1f} | {p50:.0f} | {p95:.0f} | {p95 / p50:.1f} | {cpu_ms:.1f} |", flush=True)


def _answers(port: int) -> bool:
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except OSError:
        return False


if __name__ == "__main__":
    raise SystemExit(main())
