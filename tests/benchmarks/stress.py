"""Many readers beside writers that are killed at random: nobody else may fail, and no document may be lost.

    python tests/benchmarks/stress.py [--seconds 180] [--readers 20] [--documents 120] [--seed 1]

Readers take turns as commands, MCP sessions and HTTP requests. Meanwhile one `qmd update` and one `qmd embed` after the
other run, `qmd watch` and `qmd mcp --http` run on, files come, change and go, and every second or so one of all these
processes, or the warm worker, is killed with SIGKILL. The status is 1 when anything failed that was not killed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qmd.errors import EXIT_INTERRUPTED

ROOT = Path(__file__).resolve().parents[2]
# A background job of a shell passes on that it ignores them.
_HEARS_INTERRUPTS = signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "stress", "version": "1"}},
}
_WARM_UP_S = 60.0
_SERVED_ENOUGH = 10
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


@dataclass
class Child:
    """A running command and whether it was killed on purpose."""

    process: subprocess.Popen[str]
    words: Sequence[str]
    is_killed: bool = False
    served: int = 0
    """Requests that it answered, for the HTTP server."""


@dataclass
class World:
    """A folder of notes, its index, the commands that run on it, and what went wrong."""

    home: Path
    n_documents: int
    dice: random.Random
    port: int
    environ: dict[str, str] = field(default_factory=dict)
    children: list[Child] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    stopping: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)
    server: Child | None = None
    """The HTTP server, once it accepts connections."""
    is_warm: threading.Event = field(default_factory=threading.Event)
    """Set once the server answers: what is killed before that has done nothing yet."""

    @property
    def notes(self) -> Path:
        """The folder of the collection."""
        return self.home / "notes"

    def count(self, what: str) -> None:
        """One more of that kind."""
        with self.lock:
            self.counts[what] += 1

    def fail(self, what: str) -> None:
        """Something went wrong that nobody was killed for."""
        with self.lock:
            self.errors.append(what)

    def start(self, *words: str, **environ: str) -> Child:
        """Start `qmd WORDS`; the child may be killed from now on."""
        process = subprocess.Popen(
            [sys.executable, "-m", "qmd", *words],
            cwd=self.home,
            env=self.environ | environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        child = Child(process, words)
        with self.lock:
            self.children.append(child)
        return child

    def finish(self, child: Child, sent: str | None = None) -> str | None:
        """What the child wrote once it has ended well; None when it was killed or failed."""
        try:
            stdout, stderr = child.process.communicate(sent, timeout=150)
        except subprocess.TimeoutExpired:
            child.process.kill()
            stdout, stderr = child.process.communicate()
            stderr = f"no end after 150 s; {stderr}"
        with self.lock:
            self.children.remove(child)
        if child.is_killed:
            return None
        if child.process.returncode != 0 or "Traceback" in stderr:
            self.fail(f"qmd {' '.join(child.words)}: status {child.process.returncode}: {stderr.strip()[-300:]}")
            return None
        return stdout

    def run(self, *words: str, **environ: str) -> str | None:
        """Run one command to its end; see `finish`."""
        return self.finish(self.start(*words, **environ))


def word_of(number: int) -> str:
    """A word that only one lasting document holds."""
    return f"marker{number:04d}x"


def prepare(world: World) -> None:
    """Write the lasting documents and index them with their vectors."""
    (world.notes / "churn").mkdir(parents=True)
    for number in range(world.n_documents):
        text = f"# Note {number}\n\nThe {word_of(number)} keeper looks after the lighthouse number {number}.\n"
        (world.notes / f"lasting-{number}.md").write_text(text, encoding="utf-8")
    world.run("index", str(world.notes), QMD_DAEMON="off")


# --- readers --------------------------------------------------------------------------------------


def read_by_command(world: World, dice: random.Random) -> None:
    """One command, checked for the document it must find."""
    number = dice.randrange(world.n_documents)
    path = f"lasting-{number}.md"
    daemon = dice.choice(("auto", "", "off"))
    kind = dice.choice(("search", "query", "vsearch", "get", "multi-get", "status", "ls"))
    words = {
        "search": ("search", word_of(number), "--json"),
        "query": ("query", f"the {word_of(number)} keeper", "--json"),
        "vsearch": ("vsearch", f"lighthouse number {number}", "--json"),
        "get": ("get", f"qmd://notes/{path}"),
        "multi-get": ("multi-get", f"notes/{path}", "--json"),
        "status": ("status", "--json"),
        "ls": ("ls", "notes"),
    }[kind]
    output = world.run(*words, QMD_DAEMON=daemon)
    if output is None:
        return
    world.count(f"command {kind}")
    expected = {"get": word_of(number), "status": "notes", "vsearch": "qmd://notes/"}.get(kind, path)
    if expected not in output:
        world.fail(f"qmd {' '.join(words)} lacks '{expected}': {output[:200]}")


def read_by_mcp(world: World, dice: random.Random) -> None:
    """One MCP session of a few calls."""
    number = dice.randrange(world.n_documents)
    searches = [{"type": "lex", "query": word_of(number)}]
    calls: list[tuple[str, dict[str, Any]]] = [
        ("query", {"searches": searches, "rerank": dice.random() < 0.3}),
        ("get", {"file": f"notes/lasting-{number}.md"}),
        ("status", {}),
    ]
    messages: list[dict[str, Any]] = [INITIALIZE, INITIALIZED]
    for position, (tool, arguments) in enumerate(calls, start=1):
        params = {"name": tool, "arguments": arguments}
        messages.append({"jsonrpc": "2.0", "id": position, "method": "tools/call", "params": params})
    child = world.start("mcp")
    # Stdin stays open until the answers are there: a session that is closed waits for them five seconds only.
    answers: dict[int, dict[str, Any]] = {}
    try:
        assert child.process.stdin is not None and child.process.stdout is not None
        child.process.stdin.write("".join(json.dumps(message) + "\n" for message in messages))
        child.process.stdin.flush()
        while len(answers) <= len(calls) and (line := child.process.stdout.readline()):
            answer = json.loads(line)
            if "id" in answer:
                answers[answer["id"]] = answer
    except (OSError, ValueError) as error:
        if not child.is_killed:
            world.fail(f"qmd mcp: {error}")
    if world.finish(child) is None:
        return
    world.count("mcp session")
    for position, (tool, _) in enumerate(calls, start=1):
        result = answers.get(position, {}).get("result", {})
        text = json.dumps(result)
        if result.get("isError") or (tool != "status" and word_of(number) not in text and f"-{number}.md" not in text):
            world.fail(f"mcp {tool} for {word_of(number)}: {json.dumps(answers.get(position))[:300]}")


def read_by_http(world: World, dice: random.Random) -> None:
    """One HTTP search; a failure counts unless the server was killed meanwhile."""
    number = dice.randrange(world.n_documents)
    server = world.server
    if server is None:
        time.sleep(0.2)
        return
    body = {"searches": [{"type": dice.choice(("lex", "vec")), "query": word_of(number)}], "rerank": False}
    request = urllib.request.Request(f"http://127.0.0.1:{world.port}/query", json.dumps(body).encode())
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=120) as answer:
            results = json.load(answer)["results"]
    except (OSError, ValueError, urllib.error.URLError) as error:
        if not server.is_killed and not world.stopping.is_set():
            world.fail(f"http {body}: {error}")
        return
    server.served += 1
    world.count("http request")
    found = [row["file"] for row in results]
    if body["searches"][0]["type"] == "lex" and f"qmd://notes/lasting-{number}.md" not in found:  # type: ignore[index]
        world.fail(f"http {body} found {found[:3]}")


# --- writers --------------------------------------------------------------------------------------


def churn(world: World, dice: random.Random) -> None:
    """Create, change or delete one file beside the lasting ones."""
    path = world.notes / "churn" / f"{dice.randrange(40)}.md"
    if path.exists() and dice.random() < 0.4:
        path.unlink()
    else:
        path.write_text(f"# Passing\n\n{dice.random()} lighthouse {dice.random()}\n", encoding="utf-8")
    time.sleep(dice.uniform(0.05, 0.4))


def update(world: World, dice: random.Random) -> None:
    """One `qmd update`."""
    if world.run("update") is not None:
        world.count("update")
    time.sleep(dice.uniform(0.1, 1.0))


def embed(world: World, dice: random.Random) -> None:
    """One `qmd embed`, now and then of everything."""
    words = ("embed", "--force") if dice.random() < 0.1 else ("embed",)
    if world.run(*words, QMD_DAEMON=dice.choice(("auto", "", "off"))) is not None:
        world.count("embed")
    time.sleep(dice.uniform(0.1, 1.0))


def keep_running(world: World, *words: str) -> None:
    """Run a lasting command, and start it anew after it was killed."""
    while not world.stopping.is_set():
        child = world.start(*words)
        threading.Thread(target=_drain, args=(child.process.stderr,), daemon=True).start()
        is_server = words[0] == "mcp"
        while child.process.poll() is None and not world.stopping.is_set():
            if is_server and world.server is None and _accepts(world.port):
                world.server = child
            time.sleep(0.1)
        if is_server:
            world.server = None
        asked = 0
        if world.stopping.is_set() and child.process.poll() is None:
            asked = signal.SIGINT if words[0] == "watch" and _HEARS_INTERRUPTS else signal.SIGTERM
            child.process.send_signal(asked)
        status = child.process.wait(timeout=60)
        with world.lock:
            world.children.remove(child)
        # A process that is asked to end while it still starts dies of the signal.
        if not child.is_killed and status not in (0, -asked, EXIT_INTERRUPTED if asked else 0):
            world.fail(f"qmd {' '.join(words)} ended with status {status}")
        world.count(f"{words[0]} run")


def _drain(stream: Any) -> None:
    for _ in stream:
        pass


def _accepts(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


# --- killing, checking ----------------------------------------------------------------------------


def kill_one(world: World, dice: random.Random) -> None:
    """Kill a random child, or the warm worker."""
    time.sleep(dice.uniform(0.5, 3.5))
    if not world.is_warm.is_set():
        return
    records = list(world.home.rglob("worker-*.json"))
    if records and dice.random() < 0.2:
        with suppress(OSError, ValueError, KeyError):
            pid = int(json.loads(records[0].read_text(encoding="utf-8"))["pid"])
            # `qmd mcp --http` is a worker as well; it is killed below, where its readers learn of it.
            if all(child.process.pid != pid for child in world.children):
                os.kill(pid, signal.SIGKILL)
                world.count("killed worker")
        return
    with world.lock:
        # A server that is killed while it starts would never be read from.
        mortal = [child for child in world.children if "--http" not in child.words or child.served >= _SERVED_ENOUGH]
        writers = [child for child in mortal if child.words[0] in ("update", "embed", "watch")]
        among = writers if writers and dice.random() < 0.5 else mortal
        if not among:
            return
        chosen = dice.choice(among)
        if chosen.process.poll() is not None:
            return
        chosen.is_killed = True
        chosen.process.kill()
        world.counts[f"killed {chosen.words[0]}"] += 1


def check(world: World) -> None:
    """After everything has come to rest: the index is sound, holds every file and every vector."""
    for words in (("update",), ("embed",)):
        world.run(*words, QMD_DAEMON="off")
    doctor = world.run("doctor") or ""
    if "✓ index: sound" not in doctor:
        world.fail(f"the index is not sound: {doctor}")
    expected = len(list(world.notes.rglob("*.md")))
    if f"sound, {expected} documents" not in doctor:
        world.fail(f"{expected} files, but: {doctor}")
    found = world.run("multi-get", "notes/lasting-*.md", "--json", "-l", "5")
    texts = "" if found is None else found
    missing = [number for number in range(world.n_documents) if word_of(number) not in texts]
    if missing:
        world.fail(f"lost documents: {missing[:10]}")
    status = json.loads(world.run("status", "--json") or "{}")
    world.counts["documents at the end"] = expected
    if status.get("needsEmbedding") != 0:
        world.fail(f"documents without vectors: {status.get('needsEmbedding')}")


@contextmanager
def threads_of(world: World, works: Sequence[Callable[[World, random.Random], None]]) -> Iterator[None]:
    """Repeat each piece of work in a thread of its own while the block runs."""

    def repeat(work: Callable[[World, random.Random], None], dice: random.Random) -> None:
        while not world.stopping.is_set():
            work(world, dice)

    threads = [threading.Thread(target=repeat, args=(work, random.Random(world.dice.random()))) for work in works]
    threads += [
        threading.Thread(target=keep_running, args=(world, *words))
        for words in (("watch",), ("mcp", "--http", "--host", "127.0.0.1", "--port", str(world.port)))
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        world.stopping.set()
        for thread in threads:
            thread.join()


def stress(seconds: float, readers: int, documents: int, seed: int, home: Path) -> World:
    """Run it all below `home`; the result tells what was done and what failed."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    world = World(home, documents, random.Random(seed), port)
    own = {"HOME": str(home), "XDG_CACHE_HOME": str(home / "cache"), "XDG_CONFIG_HOME": str(home / "config")}
    world.environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "QMD_DAEMON_IDLE": "10", **own}
    prepare(world)
    kinds = (read_by_command, read_by_mcp, read_by_http)
    works = [kinds[number % len(kinds)] for number in range(readers)]
    with threads_of(world, [*works, churn, update, embed, kill_one]):
        deadline = time.monotonic() + _WARM_UP_S
        while world.server is None and time.monotonic() < deadline:
            time.sleep(0.1)
        world.is_warm.set()
        time.sleep(seconds)
    check(world)
    return world


def main() -> int:
    """Parse the command line, run, and print the counts."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=180)
    parser.add_argument("--readers", type=int, default=20)
    parser.add_argument("--documents", type=int, default=120)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        home = Path(folder).resolve()
        world = stress(options.seconds, options.readers, options.documents, options.seed, home)
    for what, count in sorted(world.counts.items()):
        print(f"{what:24} {count}")
    print(f"{'errors':24} {len(world.errors)}")
    for error in world.errors[:20]:
        print(f"  {error}")
    return 1 if world.errors else 0


if __name__ == "__main__":
    sys.exit(main())
