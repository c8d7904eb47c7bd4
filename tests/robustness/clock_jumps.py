"""A system clock that jumps by seconds, hours and years: no note is missed, nothing is refused or waits for years.

    python -m tests.robustness.clock_jumps [--tries 300] [--seed 1]

A try is half a dozen notes, their index, and some twenty steps in turn: the clock jumps, notes are written, put back,
swapped and removed, marks and records of killed runs lie around, and commands run in this process by the false clock.
What it writes has the times of that clock. The answers of searches are compared with the notes as they are.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from qmd import times
from qmd.app import freshness
from qmd.cli.app import main as run_command
from qmd.config.paths import locate
from qmd.plugins.warm.record import is_starting, make_record, read_record, warm_files, write_record
from qmd.store.runs import EmbeddingLock, lock_holder
from tests.robustness.crash_states import memory_folder
from tests.robustness.report import Row, print_table, with_progress

_SECOND_NS = 10**9
_JUMPS_S = (1, 60, 3_600, 86_400, 366 * 86_400, 40 * 366 * 86_400)
_BEGIN_NS = datetime(2031, 5, 17, 11, 30, tzinfo=UTC).timestamp() * _SECOND_NS
_STRANGE_NS = (
    0,
    -1,
    -_SECOND_NS,
    -(2**63),
    2**63 - 1,
    2**63,
    13_600_000_000 * _SECOND_NS,
    253_402_300_800 * _SECOND_NS,
)
"""Times of files that no clock shows: on the border of a calendar, or of an index's numbers."""


@dataclass
class Clock:
    """The time, which everything in this process sees while it is `worn`."""

    now_ns: int

    def tick(self, dice: random.Random) -> None:
        """Let a moment pass, often one within the tick of a file system."""
        self.now_ns += dice.choice((1_000, 4_000_000, 30_000_000, 300_000_000, 3 * _SECOND_NS))

    def jump(self, dice: random.Random) -> None:
        """Jump forth or back, not to the nanosecond of an earlier time."""
        self.now_ns += dice.choice((-1, 1)) * dice.choice(_JUMPS_S) * _SECOND_NS + dice.randrange(_SECOND_NS)
        self.now_ns = min(max(self.now_ns, _SECOND_NS), 2**62)

    @contextmanager
    def worn(self, folder: Path) -> Iterator[None]:
        """Show this time to the program while the block runs, and give it to what that writes below a folder."""
        began_ns = time.time_ns()
        before = {path: _stamp(path) for path in folder.rglob("*")}
        now, real_utime = datetime.fromtimestamp(self.now_ns / 1e9, UTC), os.utime
        real = {name: getattr(time, name) for name in ("time", "time_ns")}
        users = [one for name, one in list(sys.modules.items()) if name.startswith("qmd.") and hasattr(one, "utc_now")]
        real_now = times.utc_now
        try:
            time.time, time.time_ns = (lambda: self.now_ns / 1e9), (lambda: self.now_ns)
            for module in users:
                module.utc_now = lambda: now  # type: ignore[attr-defined]
            yield
        finally:
            time.time, time.time_ns = real["time"], real["time_ns"]
            for module in users:
                module.utc_now = real_now  # type: ignore[attr-defined]
            for path in folder.rglob("*"):
                if before.get(path) != _stamp(path) and path.stat().st_mtime_ns >= began_ns - _SECOND_NS:
                    real_utime(path, ns=(self.now_ns, self.now_ns))


def _stamp(path: Path) -> tuple[int, int]:
    status = path.lstat()
    return status.st_ino, status.st_mtime_ns


@dataclass
class World:
    """The notes, what they contain, and the commands that run on them."""

    home: Path
    dice: random.Random
    clock: Clock
    words: dict[str, str] = field(default_factory=dict)
    """File name → the word that no other note has had; of one length, so that sizes are equal."""
    kept: dict[str, tuple[str, int]] = field(default_factory=dict)
    """File name → an earlier word and its time, as a backup has them."""
    used: dict[tuple[str, int], str] = field(default_factory=dict)
    """(file name, time) → the word that it had. Another text with equal size and time is found by `--verify` alone."""
    n_words: int = 0
    failures: list[str] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)

    @property
    def notes(self) -> Path:
        """The folder of the collection."""
        return self.home / "notes"

    def write(self, name: str, word: str | None = None, time_ns: int | None = None) -> None:
        """Write a note whose length never changes, at this time or as of another."""
        if word is None:
            self.n_words += 1
            # Far from every other, as a search for an absent word finds its neighbours.
            word = "".join(random.Random(self.n_words).choices("bcdfghjklmnpqrstvwxz", k=12))
        time_ns = self.clock.now_ns if time_ns is None else time_ns
        if self.used.setdefault((name, time_ns), word) != word:
            return
        if name in self.words:
            self.kept[name] = self.words[name], (self.notes / name).stat().st_mtime_ns
        self.words[name] = word
        (self.notes / name).write_text(f"# A note\n\n{word} lighthouse\n", encoding="utf-8")
        os.utime(self.notes / name, ns=(time_ns, time_ns))
        self.used[name, (self.notes / name).stat().st_mtime_ns] = word
        self.touch_folder()

    def touch_folder(self) -> None:
        """Give the folder the time of a change in it."""
        os.utime(self.notes, ns=(self.clock.now_ns, self.clock.now_ns))

    def run(self, *words: str, allowed: Sequence[int] = (0,)) -> str:
        """Run a command by the false clock; its standard output."""
        out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", "replace", write_through=True) for _ in range(2))
        with self.clock.worn(self.home), redirect_stdout(out), redirect_stderr(err):
            status = run_command(words)
        said = [stream.buffer.getvalue().decode() for stream in (out, err) if isinstance(stream.buffer, io.BytesIO)]
        self.steps.append(f"{' '.join(words)} at {self.clock.now_ns}")
        if status not in allowed or "unexpected" in said[1] or "Traceback" in said[1]:
            self.failures.append(f"{' '.join(words)}: status {status}: {said[1][-200:]}")
        self.clock.tick(self.dice)
        return said[0]

    def look(self, word: str) -> list[str]:
        """Return the names of the notes that a search for a word finds."""
        answer = self.run("search", word, "--json")
        return sorted(hit["file"].rpartition("/")[2] for hit in json.loads(answer or "[]"))

    def check(self) -> None:
        """Compare what is found with the notes, and with what they contained before."""
        for name, word in self.words.items():
            if (found := self.look(word)) != [name]:
                self.failures.append(f"'{word}' of '{name}' is found in {found}; {self.steps[-12:]}")
                return
        name = self.dice.choice(sorted(self.kept) or [""])
        old = self.kept.get(name, ("", 0))[0]
        if old and old not in self.words.values() and (found := self.look(old)):
            self.failures.append(f"'{old}', which no note contains any more, is found in {found}; {self.steps[-12:]}")


# --- steps ----------------------------------------------------------------------------------------


def _jump(world: World) -> None:
    world.clock.jump(world.dice)


def _write(world: World) -> None:
    world.write(world.dice.choice(sorted(world.words)))


def _add(world: World) -> None:
    world.write(f"new-{world.n_words}.md")


def _write_into_the_past(world: World) -> None:
    name = world.dice.choice(sorted(world.words))
    before_ns = (world.notes / name).stat().st_mtime_ns
    world.write(name, time_ns=before_ns - world.dice.choice((1, 1_000, _SECOND_NS, 3_600 * _SECOND_NS)))


def _put_back(world: World) -> None:
    """Restore a note from a backup that keeps times."""
    if world.kept:
        name, (word, time_ns) = world.dice.choice(sorted(world.kept.items()))
        if word not in world.words.values() and name in world.words:
            world.write(name, word, time_ns)


def _swap(world: World) -> None:
    """Exchange two notes, which keep their times."""
    one, other = world.dice.sample(sorted(world.words), 2)
    for name, from_name in ((one, other), (other, one)):
        time_ns, word = (world.notes / from_name).stat().st_mtime_ns, world.words[from_name]
        if world.used.setdefault((name, time_ns), word) != word:
            return
    (world.notes / one).rename(world.notes / "aside")
    (world.notes / other).rename(world.notes / one)
    (world.notes / "aside").rename(world.notes / other)
    world.words[one], world.words[other] = world.words[other], world.words[one]
    world.kept = {name: kept for name, kept in world.kept.items() if name not in (one, other)}
    world.touch_folder()


def _remove(world: World) -> None:
    if len(world.words) > 4:
        name = world.dice.choice(sorted(world.words))
        (world.notes / name).unlink()
        del world.words[name]
        world.touch_folder()


def _strange_time(world: World) -> None:
    """Write a note with a time that no clock shows, if the file system keeps it."""
    name = world.dice.choice(sorted(world.words))
    world.write(name, time_ns=world.dice.choice(_STRANGE_NS))


def _leave_marks(world: World) -> None:
    """Leave what killed runs leave, as of the time of now: which the next jump makes that of a future."""
    places = locate(None, world.home, os.environ)
    with world.clock.worn(world.home):
        write_record(warm_files(places), make_record(os.environ, None))
        with EmbeddingLock(places.database, by="watch") as lock:
            lock.pause()
        for name in (f".{places.database.name}.large", f".{places.database.name}.abcd1234"):
            places.database.with_name(name).touch()
        if places.config_file.exists():
            places.config_file.with_name(f".{places.config_file.name}.abcd1234").touch()
    world.clock.jump(world.dice)
    moment_ns = warm_files(places).record.stat().st_mtime_ns
    with world.clock.worn(world.home):
        if abs(world.clock.now_ns - moment_ns) > 60 * _SECOND_NS:
            if is_starting(warm_files(places), read_record(warm_files(places))):
                world.failures.append("a process that never started is waited for until the clock has caught up")
            if lock_holder(places.database) is not None:
                world.failures.append("a killed run counts as paused until the clock has caught up")


def _list_by_date(world: World) -> None:
    for words in (("after:yesterday",), ("before:2100",), ("after:1971", "lighthouse")):
        world.run("query", *words, "--json", "-n", "3", "--no-rerank")
    world.run("query", "today", "lighthouse", "--json", "--no-rerank")


def _command(*words: str, allowed: Sequence[int] = (0,)) -> Callable[[World], None]:
    def run(world: World) -> None:
        world.run(*words, allowed=allowed)

    return run


def _update(world: World) -> None:
    world.run(world.dice.choice(("update", "index")), *(["--verify"] if world.dice.random() < 0.1 else []))
    world.check()


def _search(world: World) -> None:
    """Search, which must see every change by itself."""
    world.check()


_STEPS: Sequence[tuple[int, Callable[[World], None]]] = (
    (6, _jump), (4, _write), (2, _write_into_the_past), (2, _put_back), (2, _swap), (1, _add), (1, _remove),
    (1, _strange_time), (1, _leave_marks), (5, _update), (4, _search), (1, _command("status")),
    (1, _command("ls", "notes")), (1, _command("collection", "show", "notes")), (1, _command("cleanup")),
    (1, _command("context", "add", "/", "a note")),
)  # fmt: skip


def failures_of(home: Path, dice: random.Random, *, n_steps: int, with_dates: bool) -> list[str]:
    """Return what is wrong in one try."""
    begin_ns = int(_BEGIN_NS) + dice.randrange(_SECOND_NS)
    world = World(home, dice, Clock(begin_ns))
    world.notes.mkdir(parents=True)
    for number in range(6):
        world.write(f"note-{number}.md", time_ns=world.clock.now_ns - dice.choice((0, 10**6, 10**12)))
    world.run("index", str(world.notes), "--no-embed")
    weights, steps = zip(*_STEPS, strict=True)
    for step in dice.choices(steps, weights, k=n_steps):
        world.steps.append(step.__name__.lstrip("_"))
        step(world)
        world.clock.tick(dice)
        if world.failures:
            break
    if with_dates:
        _list_by_date(world)
    if not world.failures:
        _update(world)
    return world.failures


@contextmanager
def _environment(home: Path) -> Iterator[None]:
    """The environment of a home without models or a warm process, and a look at files however busy the machine is."""
    before, look_s = dict(os.environ), freshness._LOOK_S
    for name in [name for name in os.environ if name.startswith(("QMD_", "XDG_")) or name == "INDEX_PATH"]:
        del os.environ[name]
    os.environ |= {"HOME": str(home), "QMD_DAEMON": "0", "QMD_AUTO_EMBED": "0", "QMD_OFFLINE": "1", "PWD": str(home)}
    here = Path.cwd()
    os.chdir(home)
    freshness._LOOK_S = 60.0
    try:
        yield
    finally:
        os.chdir(here)
        freshness._LOOK_S = look_s
        os.environ.clear()
        os.environ |= before


def run(n_tries: int, seed: int, home: Path, n_steps: int = 20) -> Row:
    """So many tries; one row."""
    row = Row("clock jumps")
    for number in with_progress("clock jumps", range(n_tries)):
        folder = home / f"try-{number}"
        folder.mkdir(parents=True)
        with _environment(folder):
            # Queries by date import the models' libraries, which takes a second.
            found = failures_of(folder, random.Random(f"{seed}/{number}"), n_steps=n_steps, with_dates=number % 20 == 0)
        row.tries += 1
        if found:
            row.fail(f"try {number}: {'; '.join(found)}")
        shutil.rmtree(folder)
    return row


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the command line, run, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tries", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(dir=memory_folder()) as folder:
        return print_table([run(options.tries, options.seed, Path(folder).resolve())], shown=20)


if __name__ == "__main__":
    sys.exit(main())
