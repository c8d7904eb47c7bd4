"""States that a crash or a power loss may leave, opened by the real store and compared with an undisturbed run.

    python -m tests.robustness.crash_states [--states 20000] [--seed 1] [--repeat-every 10] [--only NAME]

Each scenario's command runs once with its disk operations recorded. Every state is the folder after some of them, with
unsynced writes lost or torn (`replay`). All states are opened and checked; in every tenth the command is given again
and must end as the undisturbed run did.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import apsw

from qmd.config.settings import load_config
from qmd.errors import QmdError
from qmd.store.opening import open_reader, open_writer
from tests.robustness.comparison import Tables, differing, tables
from tests.robustness.recording import Disk, Operation, recording
from tests.robustness.replay import Accident, Files, draw_accident, replay
from tests.robustness.report import Row, print_table, with_progress
from tests.robustness.scenarios import SCENARIOS, Scenario, World, fresh_world, migrations_of

_DRAWS = 10
"""Accidents per wanted state after which the scenario counts as exhausted."""

_OWN_FILES = ("index.sqlite", "index.sqlite-wal", "index.sqlite-journal", "index.yml")

Texts = dict[str, str]
"""Path → hash; the paths of all collections differ, so that a renamed one's stay comparable."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """A scenario's undisturbed run."""

    scenario: Scenario
    world: World
    before: Files
    log: Sequence[Operation]
    texts_before: Texts
    texts_after: Texts
    after: Tables
    """After the command."""
    settled: Tables
    """After the command and what settles it."""


def record(scenario: Scenario, home: Path) -> Recorded:
    """Run a scenario's command in `home` with its operations recorded."""
    world = fresh_world(home, scenario)
    before = world.files()
    texts_before = {} if scenario.is_first or scenario.is_outdated else _texts(world)
    with migrations_of(scenario):
        disk = Disk(world.folder)
        beside = _reader_of(world) if scenario.beside_reader else nullcontext()
        with beside, recording(disk, checkpoint_pages=scenario.checkpoint_pages):
            scenario.command(world)
        # Otherwise something got past the recording, and no state would be what an accident leaves.
        assert replay(before, disk.log, Accident("crash", len(disk.log), seed=0)) == world.files()
        after, texts_after = tables(world.locations.database), _texts(world)
        if scenario.is_outdated:
            texts_before = texts_after
        for step in scenario.settle:
            step(world)
        settled = tables(world.locations.database)
    return Recorded(scenario, world, before, disk.log, texts_before, texts_after, after, settled)


@contextmanager
def _reader_of(world: World) -> Iterator[None]:
    # Not through the recorded files: that this one may not lock for writing when it closes is an error there.
    with open_reader(world.locations.database) as reader:
        reader.count_documents()
        yield


def failures_of(recorded: Recorded, accident: Accident, files: Files, *, repeats: bool) -> list[str]:
    """What is wrong with the state that an accident left."""
    recorded.world.put(files)
    with migrations_of(recorded.scenario):
        try:
            found = list(wrong_with(recorded))
            if accident.cause == "crash" and not accident.torn and accident.cut == len(recorded.log):
                now = tables(recorded.world.locations.database)
                found += [f"finished, but other {name}" for name in differing(now, recorded.after)]
            if repeats and not found:
                found = list(wrong_after_repeating(recorded))
        except Exception as exc:
            found = [f"{type(exc).__name__}: {exc}"]
    return found


def wrong_with(recorded: Recorded) -> Iterator[str]:
    """What keeps the store from being sound and holding every document as it was or as the command makes it."""
    world = recorded.world
    configured = {collection.name for collection in load_config(world.locations).collections}
    if not configured and not recorded.scenario.is_first:
        yield "index.yml lists no collection"
    database = world.locations.database
    try:
        found = _texts(world)
    except QmdError as exc:
        # No reader can finish what a run began on a new file or a new format; the next writer can.
        scenario = recorded.scenario
        if not (scenario.is_first or scenario.is_outdated or scenario.added_migrations):
            raise
        if len(exc.message.splitlines()) != 1:
            yield f"not one line: {exc.message}"
        open_writer(database).close()
        found = _texts(world)
    with open_reader(database) as reader:
        yield from reader.check()
        if recorded.scenario.keeps_vectors and reader.status(None).pending_documents:
            yield f"{reader.status(None).pending_documents} documents have lost their vectors"
    connection = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READONLY)
    with closing(connection):
        verdict = connection.execute("PRAGMA integrity_check").fetchall()
    if verdict != [("ok",)]:
        yield f"integrity_check: {verdict[:3]}"
    for path, content_hash in recorded.texts_before.items():
        expected = {content_hash, recorded.texts_after.get(path)}
        if found.get(path) not in expected and path in recorded.texts_after:
            yield f"'{path}' is lost"
    for path, content_hash in found.items():
        if content_hash not in (recorded.texts_before.get(path), recorded.texts_after.get(path)):
            yield f"'{path}' holds what nobody wrote"


def wrong_after_repeating(recorded: Recorded) -> Iterator[str]:
    """Where giving the command again leads to something else than an undisturbed run."""
    recorded.scenario.command(recorded.world)
    for step in recorded.scenario.settle:
        step(recorded.world)
    for name in differing(tables(recorded.world.locations.database), recorded.settled):
        yield f"repeated, but other {name}"
    for name in recorded.world.files():
        if name not in _OWN_FILES:
            yield f"'{name}' is left over"


def _texts(world: World) -> Texts:
    """The hash of every document whose text can be read back."""
    with open_reader(world.locations.database) as reader:
        documents = list(reader.iter_documents())
        texts = reader.texts([document.hash for document in documents])
    for document in documents:
        if len(texts[document.hash]) != document.size:
            raise ValueError(f"the text of '{document.path}' has another length")
    return {document.path: document.hash for document in documents}


def states_of(recorded: Recorded, seed: int, most: int) -> Iterator[tuple[Accident, Files]]:
    """Up to so many different states; fewer where a scenario does not lead to more."""
    seen: set[bytes] = set()
    for number in range(_DRAWS * most):
        accident = draw_accident(seed * 1_000_003 + number, len(recorded.log))
        files = replay(recorded.before, recorded.log, accident)
        digest = blake2b(repr(sorted(files.items())).encode(), digest_size=8).digest()
        if digest not in seen:
            seen.add(digest)
            yield accident, files
            if len(seen) == most:
                return


def run(
    n_states: int, seed: int, repeat_every: int, home: Path, scenarios: Sequence[Scenario] = SCENARIOS
) -> list[Row]:
    """Try so many different states, spread over the scenarios by the length of their logs."""
    recorded = [record(scenario, home / f"world-{number}") for number, scenario in enumerate(scenarios)]
    # What a short log cannot give is left to the longer ones.
    recorded.sort(key=lambda one: len(one.log))
    rows = []
    remaining, n_operations = n_states, sum(len(one.log) for one in recorded)
    for one in recorded:
        row = Row(f"crash: {one.scenario.name}")
        share = max(1, round(remaining * len(one.log) / n_operations))
        for accident, files in with_progress(row.name, states_of(one, seed, share)):
            found = failures_of(one, accident, files, repeats=row.tries % repeat_every == 0)
            row.tries += 1
            if found:
                row.fail(f"{accident}: {'; '.join(found)}")
        row.note = f"{len(one.log)} operations, {-(-row.tries // repeat_every):,} repeated"
        rows.append(row)
        remaining, n_operations = remaining - row.tries, n_operations - len(one.log)
    return rows


def memory_folder() -> str | None:
    """Where files are in memory, for speed; None where there is no such place."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the command line, run, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--states", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--repeat-every", type=int, default=10)
    parser.add_argument("--only", help="part of a scenario's name")
    options = parser.parse_args(argv)
    chosen = [scenario for scenario in SCENARIOS if options.only is None or options.only in scenario.name]
    with tempfile.TemporaryDirectory(dir=memory_folder()) as folder:
        return print_table(run(options.states, options.seed, options.repeat_every, Path(folder), chosen))


if __name__ == "__main__":
    sys.exit(main())
