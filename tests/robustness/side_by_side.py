"""Readers beside writers, some of them killed: nobody else may fail, and nothing that was promised may be lost.

    python -m tests.robustness.side_by_side [--minutes 5] [--readers 3] [--documents 60] [--seed 1] [--no-kills]
        [--store sqlite|lance]

Readers take turns as commands, MCP sessions and HTTP requests. Meanwhile `update`, `index`, `cleanup`, `embed`,
`embed --force`, `collection` and `context` commands run, the configuration is edited, `qmd watch` and two servers
(`qmd mcp --http`) run on, files come, change and go, and every second or so one of all these processes, or the warm
process, is killed with SIGKILL. In the end the index must equal one made afresh from the same files. The status is 1
when anything failed that was not killed. `--store lance` has the index in LanceDB tables.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from qmd.config.paths import locate
from qmd.config.settings import load_config
from tests.processes import environment
from tests.robustness.comparison import differing, tables_of
from tests.robustness.readers import read_by_command, read_by_http, read_by_mcp
from tests.robustness.report import Row, print_table
from tests.robustness.world import World, word_of
from tests.robustness.writers import churn, collect, edit, embed, keep_running, refresh

_WARM_UP_S = 60.0
_SERVED_ENOUGH = 10
_SERVERS = 2

Work = Callable[[World, random.Random], None]


def prepare(world: World) -> None:
    """Write the lasting documents and index them with their vectors."""
    (world.notes / "churn").mkdir(parents=True)
    for number in range(world.n_documents):
        text = f"# Note {number}\n\nThe {word_of(number)} keeper looks after the lighthouse number {number}.\n"
        (world.notes / f"lasting-{number}.md").write_text(text, encoding="utf-8")
    world.run("index", str(world.notes), QMD_DAEMON="off")


def kill_one(world: World, dice: random.Random) -> None:
    """Kill a random child, or the warm process."""
    time.sleep(dice.uniform(0.5, 3.5))
    if not world.is_warm.is_set():
        return
    records = list(world.home.rglob("warm-*.json"))
    if records and dice.random() < 0.2:
        with suppress(OSError, ValueError, KeyError):
            pid = int(json.loads(records[0].read_text(encoding="utf-8"))["pid"])
            # `qmd mcp --http` is the warm process as well; it is killed below, where its readers learn of it.
            if all(child.process.pid != pid for child in world.children):
                os.kill(pid, signal.SIGKILL)
                world.count("killed warm process")
        return
    with world.lock:
        # A server that is killed while it starts would never be read from.
        mortal = [child for child in world.children if "--http" not in child.words or child.served >= _SERVED_ENOUGH]
        writers = [child for child in mortal if child.words[0] not in ("search", "query", "vsearch", "get", "mcp")]
        among = writers if writers and dice.random() < 0.5 else mortal
        if not among:
            return
        chosen = dice.choice(among)
        if chosen.process.poll() is not None:
            return
        chosen.is_killed = True
        chosen.process.kill()
        world.counts[f"killed {chosen.words[0]}"] += 1


# --- checking -------------------------------------------------------------------------------------


def check(world: World) -> None:
    """After everything has come to rest: every promise is kept, and the index is as if made afresh."""
    _check_configuration(world)
    # Files that changed while they were read are read again by the second.
    for words in (("index",), ("index",), ("cleanup",)):
        world.run(*words, QMD_DAEMON="off")
    doctor = world.run("doctor") or ""
    expected = sum(len(list(collection.path.rglob("*.md"))) for collection in load_config(world.locations).collections)
    # A shared index keeps collections that are gone from this machine's configuration before it was told to drop them.
    n_documents = f"sound, {expected} documents" if world.locations.address is None else "sound, "
    if "✓ index: sound" not in doctor or n_documents not in doctor:
        world.fail(f"{expected} files, but: {doctor}")
    found = world.run("multi-get", "notes/lasting-*.md", "--json", "-l", "5") or ""
    missing = [number for number in range(world.n_documents) if word_of(number) not in found]
    if missing:
        world.fail(f"lost documents: {missing[:10]}")
    world.counts["documents at the end"] = expected
    if json.loads(world.run("status", "--json") or "{}").get("needsEmbedding") != 0:
        world.fail("documents without vectors")
    _compare_with_a_fresh_one(world)


def _check_configuration(world: World) -> None:
    config = load_config(world.locations)
    for name, promise in world.promised.items():
        collection = config.collection(name)
        if collection is None:
            world.fail(f"collection '{name}' was added and is not in the configuration")
        elif promise.note is not None and "".join(collection.context.values()) != promise.note:
            world.fail(f"collection '{name}' has the notes {collection.context}, not '{promise.note}'")
    for name in world.removed:
        if config.collection(name) is not None:
            world.fail(f"collection '{name}' was removed and is in the configuration")
    if world.global_note is not None and config.global_context != world.global_note:
        world.fail(f"the note on everything is '{config.global_context}', not '{world.global_note}'")


def _compare_with_a_fresh_one(world: World) -> None:
    """Documents, terms and chunks; the bytes of a vector depend on the texts that were computed beside it."""
    fresh = {"INDEX_PATH": index_path(world.home, "fresh", is_lance=world.locations.address is not None)}
    for words in (("index",), ("cleanup",)):
        world.run(*words, QMD_DAEMON="off", **fresh)
    made_afresh = locate(None, world.home, world.environ | fresh)
    names = [collection.name for collection in load_config(world.locations).collections]
    ours, expected = (tables_of(one, names) for one in (world.locations, made_afresh))
    for name in differing(ours, expected, leaving_out=("vectors",)):
        world.fail(f"the index has other {name} than a fresh one")


def index_path(home: Path, name: str, *, is_lance: bool) -> str:
    """A value of `INDEX_PATH`."""
    return f"lance:{home / name}" if is_lance else str(home / f"{name}.sqlite")


# --- running --------------------------------------------------------------------------------------


@contextmanager
def threads_of(world: World, works: Sequence[Work]) -> Iterator[None]:
    """Repeat each piece of work in a thread of its own while the block runs."""

    def repeat(work: Work, dice: random.Random) -> None:
        while not world.stopping.is_set():
            try:
                work(world, dice)
            except Exception as exc:
                world.fail(f"{work.__name__}: {type(exc).__name__}: {exc}")

    threads = [threading.Thread(target=repeat, args=(work, random.Random(world.dice.random()))) for work in works]
    threads += [
        threading.Thread(target=keep_running, args=(world, *words))
        for words in (
            ("watch",),
            *(("mcp", "--http", "--host", "127.0.0.1", "--port", str(port)) for port in world.ports),
        )
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        world.stopping.set()
        for thread in threads:
            thread.join()


def free_ports(n_ports: int) -> list[int]:
    """Ports of this machine that nobody listens at, each another."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(n_ports)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def run(
    seconds: float,
    readers: int,
    documents: int,
    seed: int,
    home: Path,
    *,
    kills: bool = True,
    store: str = "sqlite",
) -> World:
    """Run it all below `home`; the result tells what was done and what failed."""
    world = World(home, documents, random.Random(seed), free_ports(_SERVERS))
    own = {"XDG_CACHE_HOME": str(home / "cache"), "XDG_CONFIG_HOME": str(home / "config")}
    own |= {"INDEX_PATH": index_path(home, "index", is_lance=True)} if store == "lance" else {}
    world.environ = environment(home, QMD_DAEMON_IDLE="10", **own)
    prepare(world)
    kinds: tuple[Work, ...] = (read_by_command, read_by_mcp, read_by_http)
    works: list[Work] = [kinds[number % len(kinds)] for number in range(readers)]
    works += [churn, refresh, embed, collect, collect, edit]
    works += [kill_one] if kills else []
    with threads_of(world, works):
        deadline = time.monotonic() + _WARM_UP_S
        while len(world.servers) < _SERVERS and time.monotonic() < deadline:
            time.sleep(0.1)
        world.is_warm.set()
        time.sleep(seconds)
    check(world)
    return world


def rows_of(world: World) -> list[Row]:
    """The table of a run."""
    name = "side by side" if world.locations.address is None else "side by side, lance"
    rows = [Row(f"{name}: {what}", count) for what, count in sorted(world.counts.items())]
    rows.append(Row(name, 0, [" ".join(error.split())[:400] for error in world.errors]))
    return rows


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the command line, run, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--readers", type=int, default=3)
    parser.add_argument("--documents", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-kills", action="store_true")
    parser.add_argument("--store", choices=("sqlite", "lance"), default="sqlite")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        home = Path(folder).resolve()
        kills, seconds = not options.no_kills, options.minutes * 60
        world = run(seconds, options.readers, options.documents, options.seed, home, kills=kills, store=options.store)
        return print_table(rows_of(world), shown=20)


if __name__ == "__main__":
    sys.exit(main())
