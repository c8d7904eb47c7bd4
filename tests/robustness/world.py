"""A folder of notes, its index, and the `qmd` processes that work on both at the same time."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from qmd.config.paths import Locations, locate
from qmd.errors import EXIT_BUSY

_TROUBLE = ("Traceback", "unexpected ")
"""What a user must not read, whatever the status."""


@dataclass
class Child:
    """A running command and whether it was killed on purpose."""

    process: subprocess.Popen[str]
    words: Sequence[str]
    is_killed: bool = False
    served: int = 0
    """Requests that it answered, for the HTTP server."""


@dataclass
class Promise:
    """A collection that is in the configuration, and its note; None where a command that sets one did not end well."""

    folder: Path
    note: str | None = ""


@dataclass
class World:
    """The files, the commands that run on them, and what went wrong."""

    home: Path
    n_documents: int
    dice: random.Random
    ports: Sequence[int]
    """Where the HTTP servers listen."""

    environ: dict[str, str] = field(default_factory=dict)
    children: list[Child] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    stopping: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)
    servers: dict[int, Child] = field(default_factory=dict)
    """The HTTP servers that accept connections, by port."""
    is_warm: threading.Event = field(default_factory=threading.Event)
    """Set once the servers answer: what is killed before that has done nothing yet."""

    promised: dict[str, Promise] = field(default_factory=dict)
    """What commands said that they added: collection → its entry."""
    removed: set[str] = field(default_factory=set)
    """Collections that a command said it removed."""
    global_note: str | None = None
    """The note on everything, as it was set last."""

    @property
    def locations(self) -> Locations:
        """Where the index and its configuration lie."""
        return locate(None, self.home, self.environ)

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

    def finish(self, child: Child, allowed: Collection[int] = (0,)) -> str | None:
        """What the child wrote once it has ended well; None when it was killed or failed, or was told to come back."""
        try:
            stdout, stderr = child.process.communicate(timeout=150)
        except subprocess.TimeoutExpired:
            child.process.kill()
            stdout, stderr = child.process.communicate()
            stderr = f"no end after 150 s; {stderr}"
        with self.lock:
            self.children.remove(child)
        if child.is_killed:
            return None
        status = child.process.returncode
        if status not in allowed or any(word in stderr for word in _TROUBLE):
            self.fail(f"qmd {' '.join(child.words)}: status {status}: {stderr.strip()[-300:]}")
            return None
        if status == EXIT_BUSY:
            self.count("told to come back")
            return None
        return stdout

    def run(self, *words: str, **environ: str) -> str | None:
        """Run one command to its end; see `finish`."""
        return self.finish(self.start(*words, **environ))

    def write(self, *words: str, **environ: str) -> str | None:
        """Run one command that changes something; now and then with little patience, so that it may find no turn."""
        impatient = {"QMD_SQLITE_BUSY_TIMEOUT": "50"} if self.dice.random() < 0.2 else {}
        return self.finish(self.start(*words, **impatient, **environ), allowed=(0, EXIT_BUSY))


def word_of(number: int) -> str:
    """A word that only one lasting document holds."""
    return f"marker{number:04d}x"
