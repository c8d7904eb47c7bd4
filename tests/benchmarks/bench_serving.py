"""Cost of serving: time to the first answer of `qmd mcp`, a warm query against a cold one, memory of the server.

    python tests/benchmarks/bench_serving.py FOLDER [--rounds 7] [--query WORDS]

FOLDER is indexed with vectors into a temporary place. Figures are medians of this machine and this run, next to each
other in turns, so that other load affects all alike; processor seconds (user and system, of the command alone) are
shown next to wall time because they depend less on it. Memory is the proportional set size of the warm process, where
the system reports it: shared pages count by share.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DEFAULT_QUERY = "how do I handle errors that cannot be recovered"
OPENING = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}},
}
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}
LISTING = {"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}}


@dataclass(frozen=True)
class Cost:
    """Seconds of one run: wall and processor time."""

    wall_s: float
    cpu_s: float


@dataclass(frozen=True)
class Place:
    """Home with an index."""

    home: Path
    environ: dict[str, str]

    def command(self, *words: str) -> list[str]:
        """Return the command line of `qmd WORDS`."""
        return [sys.executable, "-m", "qmd", *words]

    def run(self, *words: str, **environ: str) -> str:
        """Run `qmd WORDS` to its end; return its output."""
        done = subprocess.run(
            self.command(*words), cwd=self.home, env=self.environ | environ, capture_output=True, text=True, check=True
        )
        return done.stdout

    def cost(self, *words: str, **environ: str) -> Cost:
        """Return the cost of `qmd WORDS`."""
        before, started = os.times(), time.perf_counter()
        self.run(*words, **environ)
        wall_s, after = time.perf_counter() - started, os.times()
        user_s = after.children_user - before.children_user
        return Cost(wall_s, user_s + after.children_system - before.children_system)

    def warm_pid(self) -> int | None:
        """Return the process id of the warm process, once it has published its address."""
        for record in self.home.rglob("warm-*.json"):
            return int(json.loads(record.read_text(encoding="utf-8"))["pid"]) or None
        return None


def opening_costs(place: Place) -> tuple[Cost, Cost]:
    """Measure from the start of `qmd mcp` to the answer to `initialize`, and from there to the list of tools."""
    started = time.perf_counter()
    process = subprocess.Popen(
        place.command("mcp"),
        cwd=place.home,
        env=place.environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdin is not None and process.stdout is not None
    costs = []
    cpu_before = 0.0
    for messages in ([OPENING], [INITIALIZED, LISTING]):
        process.stdin.write(b"".join(json.dumps(message).encode() + b"\n" for message in messages))
        process.stdin.flush()
        process.stdout.readline()
        cpu_s = processor_seconds(process.pid)
        costs.append(Cost(time.perf_counter() - started, cpu_s - cpu_before))
        started, cpu_before = time.perf_counter(), cpu_s
    process.kill()
    process.communicate()
    return costs[0], costs[1]


def processor_seconds(pid: int) -> float:
    """Return user and system time of a running process; 0 where the system does not report it."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mb(pid: int) -> float:
    """Return the proportional set size of a process in megabytes; 0 where the system does not report it."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def warm_memory(place: Place, query: str) -> dict[str, float]:
    """Return the megabytes of a warm process before its models are loaded, with them, and after it released them."""
    environ = {"QMD_DAEMON": "auto", "QMD_MODEL_TTL": "3s"}
    place.run("vsearch", query, **environ)
    wait_until(lambda: place.warm_pid() is not None)
    pid = place.warm_pid()
    assert pid is not None, "no warm process came up"
    time.sleep(1)
    found = {"idle": memory_mb(pid)}
    for _ in range(3):
        place.run("query", query, **environ)
    found["loaded"] = memory_mb(pid)
    time.sleep(8)
    found["after unloading"] = memory_mb(pid)
    place.run("query", query, **environ)
    found["loaded again"] = memory_mb(pid)
    os.kill(pid, 15)
    return found


def warm_start(place: Place) -> Cost:
    """Measure from the start of a warm process until commands can find it."""
    started = time.perf_counter()
    process = subprocess.Popen(
        place.command("mcp", "--http", "--socket-only"), cwd=place.home, env=place.environ, stderr=subprocess.DEVNULL
    )
    wait_until(lambda: place.warm_pid() is not None)
    cost = Cost(time.perf_counter() - started, processor_seconds(process.pid))
    process.terminate()
    process.wait()
    return cost


def wait_until(is_so: Callable[[], bool], timeout_s: float = 30.0) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + timeout_s
    while not is_so() and time.monotonic() < deadline:
        time.sleep(0.01)


def show(label: str, costs: Sequence[Cost]) -> Cost:
    """Print the median of several runs, and return it."""
    wall_s = statistics.median(cost.wall_s for cost in costs)
    cpu_s = statistics.median(cost.cpu_s for cost in costs)
    print(f"{label:44} {wall_s * 1000:8.0f} ms   {cpu_s * 1000:8.0f} ms of processor")
    return Cost(wall_s, cpu_s)


def main() -> int:
    """Parse the command line, run, and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--query", default=DEFAULT_QUERY)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        home = Path(folder).resolve()
        own = {"HOME": str(home), "XDG_CACHE_HOME": str(home / "cache"), "XDG_CONFIG_HOME": str(home / "config")}
        place = Place(home, {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **own})
        shutil.copytree(options.folder, home / "notes")
        place.run("index", str(home / "notes"), QMD_DAEMON="off")
        openings = [opening_costs(place) for _ in range(options.rounds)]
        show("qmd mcp: start to the answer to initialize", [first for first, _ in openings])
        show("from there to the list of tools", [second for _, second in openings])
        show("start of the warm process", [warm_start(place) for _ in range(options.rounds)])
        place.run("query", options.query, QMD_DAEMON="auto")
        wait_until(lambda: place.warm_pid() is not None)
        place.run("query", options.query)
        cold, warm = [], []
        for _ in range(options.rounds):
            cold.append(place.cost("query", options.query, QMD_DAEMON="off"))
            warm.append(place.cost("query", options.query))
        a, b = show("qmd query, cold", cold), show("qmd query, by the warm process", warm)
        print(f"{'warm / cold':44} {b.wall_s / a.wall_s:8.2f}      {b.cpu_s / a.cpu_s:8.2f}")
        pid = place.warm_pid()
        if pid is not None:
            os.kill(pid, 15)
            wait_until(lambda: place.warm_pid() is None)
        for state, megabytes in warm_memory(place, options.query).items():
            print(f"{'warm process, ' + state:44} {megabytes:8.0f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
