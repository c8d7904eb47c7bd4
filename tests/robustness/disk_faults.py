"""A disk that is full or broken from some operation on: one line of error, nothing lost, and the next run goes on.

python -m tests.robustness.disk_faults [--tries 2000] [--seed 1]
"""

from __future__ import annotations

import argparse
import errno
import random
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from qmd.errors import QmdError
from tests.robustness.crash_states import Recorded, memory_folder, record, wrong_after_repeating, wrong_with
from tests.robustness.recording import Disk, Fault, recording
from tests.robustness.report import Row, print_table, with_progress
from tests.robustness.scenarios import SCENARIOS, Scenario, migrations_of


def failures_of(recorded: Recorded, fault: Fault) -> list[str]:
    """What goes wrong when the command meets a fault, and after that."""
    scenario, world = recorded.scenario, recorded.world
    world.put(recorded.before)
    found: list[str] = []
    with migrations_of(scenario):
        try:
            with recording(Disk(world.folder, fault), checkpoint_pages=scenario.checkpoint_pages):
                scenario.command(world)
        except QmdError as exc:
            if len(exc.message.splitlines()) != 1:
                found.append(f"not one line: {exc.message}")
        except Exception as exc:
            found.append(f"unexpected {type(exc).__name__}: {exc}")
        try:
            found += wrong_with(recorded)
            found += wrong_after_repeating(recorded)
        except Exception as exc:
            found.append(f"afterwards {type(exc).__name__}: {exc}")
    return found


def run(n_tries: int, seed: int, home: Path, scenarios: Sequence[Scenario] = SCENARIOS) -> list[Row]:
    """So many faults, at random operations of random scenarios; one row per kind of fault."""
    dice = random.Random(seed)
    recorded = [record(scenario, home / f"world-{number}") for number, scenario in enumerate(scenarios)]
    rows = {
        (code, lasting): Row(f"disk: {words}{', from then on' if lasting else ', once'}")
        for code, words in ((errno.ENOSPC, "no space left"), (errno.EIO, "input/output error"))
        for lasting in (False, True)
    }
    struck = dict.fromkeys(rows, 0)
    for _ in with_progress("disk faults", range(n_tries)):
        one = dice.choice(recorded)
        code, lasting = dice.choice(list(rows))
        fault = Fault(dice.randrange(len(one.log)), code, lasting)
        found = failures_of(one, fault)
        row = rows[code, lasting]
        row.tries += 1
        struck[code, lasting] += fault.n_failed > 0
        if found:
            row.fail(f"{one.scenario.name}, operation {fault.at}: {'; '.join(found)}")
    for kind, row in rows.items():
        row.note = f"{struck[kind]:,} struck"
    return list(rows.values())


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the command line, run, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tries", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(dir=memory_folder()) as folder:
        return print_table(run(options.tries, options.seed, Path(folder)))


if __name__ == "__main__":
    sys.exit(main())
