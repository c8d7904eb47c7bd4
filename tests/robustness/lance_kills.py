"""A command on LanceDB tables, killed at a random moment: what is left opens, loses nothing, and can be completed.

    python -m tests.robustness.lance_kills [--tries 200] [--seed 1] [--only NAME]

The Rust library writes the files, so that their operations cannot be recorded as SQLite's are. In every third try files
that the killed command wrote are cut besides, as a power loss may leave them: the library waits for no disk. That may
be damage, which `qmd index --verify` mends.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

from qmd.errors import StoreError
from qmd.store.opening import open_reader
from tests.robustness.comparison import Tables, differing
from tests.robustness.crash_states import Texts, memory_folder
from tests.robustness.lance_world import LanceWorld, child, copy_of, tables_in, texts_of
from tests.robustness.report import Row, print_table, with_progress
from tests.robustness.scenarios import SCENARIOS, Scenario

_NAMES = ("first index", "index", "update", "embed", "embed --force", "embed by another model", "cleanup")
"""What one machine alone undoes; an index at an address keeps the collections that a configuration does not name."""

_SILENT_S = 0.2

_TOO_LONG_S = 60.0


@dataclass(frozen=True)
class Prepared:
    """A scenario's state before its command, and what an undisturbed run makes of it."""

    scenario: Scenario
    before: LanceWorld
    texts_before: Texts
    texts_after: Texts
    after: Tables
    settled: Tables
    """After another index and a cleanup."""
    took_s: float


def prepare(scenario: Scenario, home: Path) -> Prepared:
    """Make the state before a command, and run it once undisturbed, in a process like those that are killed."""
    before = LanceWorld(home)
    scenario.prepare(before)
    after = copy_of(before, "after")
    process, begun = start(scenario, after), time.monotonic()
    process.join(_TOO_LONG_S)
    took_s = time.monotonic() - begun
    assert process.exitcode == 0, scenario.name
    texts_before = {} if scenario.is_first else texts_of(before)
    texts_after, tables_after = texts_of(after), tables_in(after)
    _settle(after)
    return Prepared(scenario, before, texts_before, texts_after, tables_after, tables_in(after), took_s)


def scenario_called(name: str) -> Scenario:
    """One of `SCENARIOS`."""
    return next(one for one in SCENARIOS if one.name == name)


def start(scenario: Scenario, world: LanceWorld) -> BaseProcess:
    """A process in which the command has just begun."""
    process, told = child(_run, scenario.name, world)
    with told:
        told.recv()
    return process


def _run(tell: Connection, name: str, world: LanceWorld) -> None:
    tell.send(None)
    scenario_called(name).command(world)


def failures_of(prepared: Prepared, world: LanceWorld, dice: random.Random, *, cuts: bool) -> tuple[list[str], bool]:
    """What is wrong after one kill, and whether it met the command before its end."""
    process = start(prepared.scenario, world)
    time.sleep(dice.uniform(0, prepared.took_s))
    is_struck = process.is_alive()
    process.kill()
    process.join()
    try:
        if cuts:
            cut_new_files(prepared.before.tables, world.tables, dice)
            return list(wrong_after_mending(prepared, world)), is_struck
        found = list(wrong_with(prepared, world))
        return found or list(wrong_after_repeating(prepared, world)), is_struck
    except Exception as exc:
        return [f"{type(exc).__name__}: {exc}"], is_struck


def cut_new_files(before: Path, after: Path, dice: random.Random) -> None:
    """Cut one or two of the files that only the second folder has."""
    known = {path.relative_to(before) for path in before.rglob("*")}
    new = sorted(path for path in after.rglob("*") if path.is_file() and path.relative_to(after) not in known)
    for path in dice.sample(new, min(len(new), dice.randrange(1, 3))):
        with path.open("r+b") as file:
            file.truncate(dice.choice((0, dice.randrange(path.stat().st_size + 1))))


def wrong_with(prepared: Prepared, world: LanceWorld) -> Iterator[str]:
    """What keeps the index from being sound and holding every document as it was or as the command makes it."""
    scenario = prepared.scenario
    # LanceDB makes a table's folder before its first version, and without one there is no index yet.
    if scenario.is_first and not any(world.tables.glob("state.lance/_versions/*")):
        return
    with open_reader(world.locations.database, world.locations.address) as reader:
        yield from reader.check()
        pending = reader.status(None).pending_documents
    if scenario.keeps_vectors and pending:
        yield f"{pending} documents have lost their vectors"
    found = texts_of(world)
    for path in prepared.texts_before.keys() & prepared.texts_after.keys() - found.keys():
        yield f"'{path}' is lost"
    for path, content_hash in found.items():
        if content_hash not in (prepared.texts_before.get(path), prepared.texts_after.get(path)):
            yield f"'{path}' holds what nobody wrote"


def wrong_after_repeating(prepared: Prepared, world: LanceWorld) -> Iterator[str]:
    """Where giving the command again leads to something else than an undisturbed run."""
    prepared.scenario.command(world)
    with open_reader(world.locations.database, world.locations.address) as reader:
        yield from reader.check()
    for name in differing(tables_in(world), prepared.after):
        yield f"repeated, but other {name}"


def wrong_after_mending(prepared: Prepared, world: LanceWorld) -> Iterator[str]:
    """What is wrong once damage was met in one line, and mended as that line says."""
    from qmd.app.mirroring import mend

    try:
        if not list(wrong_with(prepared, world)):
            yield from wrong_after_repeating(prepared, world)
            return
    except StoreError as error:
        if len(error.message.splitlines()) != 1 or "qmd index --verify" not in (error.hint or ""):
            yield f"not one line that helps: {error.message} ({error.hint})"
    mend(world.locations, lambda _: None, always=True)
    # What was damaged comes from the files, its vectors with the next embedding.
    scenario_called("index").command(world)
    prepared.scenario.command(world)
    _settle(world)
    for name in differing(tables_in(world), prepared.settled):
        yield f"mended, but other {name}"


def _settle(world: LanceWorld) -> None:
    for name in ("index", "cleanup"):
        scenario_called(name).command(world)


@contextmanager
def _impatience() -> Iterator[None]:
    """Wait no fifteen seconds for signs of life of a writer that is known to be dead."""
    from qmd.plugins.lance import claim

    real, claim.SILENT_S = claim.SILENT_S, _SILENT_S
    try:
        yield
    finally:
        claim.SILENT_S = real


def run(n_tries: int, seed: int, home: Path, names: Sequence[str] = _NAMES) -> list[Row]:
    """So many kills, the commands in turn; one row for each."""
    prepared = [prepare(scenario_called(name), home / f"world-{n}") for n, name in enumerate(names)]
    rows = [Row(f"lance, killed: {name}") for name in names]
    struck = [0] * len(names)
    for number in with_progress("kills", range(n_tries)):
        which, dice = number % len(names), random.Random(f"{seed}/{number}")
        world = copy_of(prepared[which].before, f"try-{number}")
        with _impatience():
            found, is_struck = failures_of(prepared[which], world, dice, cuts=number // len(names) % 3 == 2)
        rows[which].tries += 1
        struck[which] += is_struck
        if found:
            rows[which].fail(f"try {number}: {'; '.join(found)}")
        shutil.rmtree(world.folder)
    for row, n_struck, one in zip(rows, struck, prepared, strict=True):
        row.note = f"{n_struck} before its end, after {one.took_s:.1f} s"
    return rows


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the command line, run, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tries", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help="part of a command's name")
    options = parser.parse_args(argv)
    names = [name for name in _NAMES if options.only is None or options.only in name]
    with tempfile.TemporaryDirectory(dir=memory_folder()) as folder:
        return print_table(run(options.tries, options.seed, Path(folder).resolve(), names))


if __name__ == "__main__":
    sys.exit(main())
