"""Who writes while others read: commands on the index, on the configuration, an editor, a watcher, and the files."""

from __future__ import annotations

import random
import signal
import socket
import threading
import time
from collections import deque
from contextlib import suppress

from qmd.config import edits
from qmd.errors import EXIT_INTERRUPTED
from tests.robustness.world import Promise, World

# A background job of a shell passes on that it ignores them.
_HEARS_INTERRUPTS = signal.getsignal(signal.SIGINT) is not signal.SIG_IGN


def churn(world: World, dice: random.Random) -> None:
    """Create, change or delete one file beside the lasting ones."""
    path = world.notes / "churn" / f"{dice.randrange(40)}.md"
    if path.exists() and dice.random() < 0.4:
        path.unlink()
    else:
        path.write_text(f"# Passing\n\n{dice.random()} lighthouse {dice.random()}\n", encoding="utf-8")
    time.sleep(dice.uniform(0.05, 0.4))


def refresh(world: World, dice: random.Random) -> None:
    """One `qmd update`, `qmd index` or `qmd cleanup`."""
    word = dice.choice(("update", "update", "index", "cleanup"))
    if world.write(word, QMD_DAEMON="off") is not None:
        world.count(word)
    time.sleep(dice.uniform(0.1, 1.0))


def embed(world: World, dice: random.Random) -> None:
    """One `qmd embed`, now and then of everything."""
    words = ("embed", "--force") if dice.random() < 0.3 else ("embed",)
    if world.write(*words, QMD_DAEMON=dice.choice(("auto", "", "off"))) is not None:
        world.count(" ".join(words))
    time.sleep(dice.uniform(0.1, 1.0))


def collect(world: World, dice: random.Random) -> None:
    """Add a collection of its own, note things on it, perhaps rename or remove it; keep what it was promised."""
    name = f"own{dice.randrange(10**9)}"
    folder = world.home / "more" / name
    folder.mkdir(parents=True)
    (folder / "one.md").write_text(f"# One of {name}\n\nkettle {dice.random()}\n", encoding="utf-8")
    if world.write("collection", "add", str(folder), "--name", name) is None:
        return
    world.promised[name] = Promise(folder)
    world.count("collection add")
    promise = world.promised[name]
    # From here on the note may be there or not, should a command be killed or told to come back.
    promise.note = None
    if world.write("context", "add", f"qmd://{name}/", f"about {name}") is not None:
        promise.note = f"about {name}"
        world.count("context add")
        if dice.random() < 0.3:
            promise.note = None
            if world.write("context", "rm", f"qmd://{name}/") is not None:
                promise.note = ""
                world.count("context rm")
    if dice.random() < 0.4 and name in world.promised:
        before = world.promised.pop(name)
        if world.write("collection", "rename", name, f"{name}-renamed") is not None:
            world.promised[name := f"{name}-renamed"] = before
            world.count("collection rename")
    if dice.random() < 0.3 and name in world.promised:
        del world.promised[name]
        if world.write("collection", "remove", name) is not None:
            world.removed.add(name)
            world.count("collection remove")


def edit(world: World, dice: random.Random) -> None:
    """What an application does through the library, or a person with an editor that appends a line."""
    if dice.random() < 0.5:
        note = f"note {dice.random()}"
        edits.set_global_context(world.locations, note)
        world.global_note = note
    elif world.locations.config_file.exists():
        with world.locations.config_file.open("a", encoding="utf-8") as file:
            file.write("# a remark\n")
    world.count("configuration edit")
    time.sleep(dice.uniform(0.05, 0.5))


def keep_running(world: World, *words: str) -> None:
    """Run a lasting command, and start it anew after it was killed."""
    while not world.stopping.is_set():
        child = world.start(*words)
        said: deque[str] = deque(maxlen=20)
        listener = threading.Thread(target=said.extend, args=(child.process.stderr,), daemon=True)
        listener.start()
        port = int(words[-1]) if words[0] == "mcp" else None
        while child.process.poll() is None and not world.stopping.is_set():
            if port is not None and port not in world.servers and _accepts(port):
                world.servers[port] = child
            time.sleep(0.1)
        if port is not None:
            world.servers.pop(port, None)
        asked = 0
        if world.stopping.is_set() and child.process.poll() is None:
            asked = signal.SIGINT if words[0] == "watch" and _HEARS_INTERRUPTS else signal.SIGTERM
            child.process.send_signal(asked)
        status = child.process.wait(timeout=60)
        with world.lock:
            world.children.remove(child)
        listener.join(timeout=5)
        # A process that is asked to end while it still starts dies of the signal, or Python tells of it in its own way.
        expected = (0, -asked, EXIT_INTERRUPTED) if asked else (0,)
        is_early = bool(asked) and any("init_import_site" in line for line in said)
        if not child.is_killed and not is_early and status not in expected:
            world.fail(f"qmd {' '.join(words)} ended with status {status}: {''.join(said)}")
        world.count(f"{words[0]} run")


def _accepts(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False
