"""All long runs one after the other, and one table of what they tried and what failed.

    python -m tests.robustness [--states 20000] [--faults 2000] [--cases 100000] [--minutes 5] [--lance 200]
        [--notes 100000] [--tries 300] [--seed 1] [--keep DIR]

`--cases` is the number of files and configurations together; queries, globs, messages and answers get a tenth each.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.robustness import (
    clock_jumps,
    crash_states,
    disk_faults,
    edits,
    fuzz,
    lance_damage,
    lance_kills,
    many_notes,
    plain_programs,
    read_only,
    side_by_side,
)
from tests.robustness.report import Row, print_table
from tests.robustness.targets import TARGETS

_SHARES = {"files": 0.6, "configurations": 0.4, "queries": 0.1, "globs": 0.1, "messages": 0.1, "answers": 0.1}


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the command line, run everything, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--states", type=int, default=20_000, help="crash and power-loss states")
    parser.add_argument("--repeat-every", type=int, default=10, help="in every how many the command is repeated")
    parser.add_argument("--faults", type=int, default=2_000, help="injected disk faults")
    parser.add_argument("--cases", type=int, default=100_000, help="files and configurations")
    parser.add_argument("--minutes", type=float, default=5, help="of readers beside writers")
    parser.add_argument("--lance", type=int, default=200, help="kills, and damages, of LanceDB tables; 0 for none")
    parser.add_argument("--notes", type=int, default=100_000, help="in a collection; 0 for none")
    parser.add_argument("--tries", type=int, default=300, help="clocks, read-only folders, other programs, edits")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="folder for the inputs that fail")
    parser.add_argument("--corpus", type=Path, help="folder of real files to mutate, instead of qmd's own")
    options = parser.parse_args(argv)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(dir=crash_states.memory_folder()) as folder:
        home = Path(folder).resolve()
        rows += crash_states.run(options.states, options.seed, options.repeat_every, home / "states")
        rows += disk_faults.run(options.faults, options.seed, home / "faults")
        rows += plain_programs.run(options.tries, options.seed, home / "plain")
        rows += edits.run(options.tries, options.tries, options.seed, home / "edits")
        if options.lance:
            rows += lance_kills.run(options.lance, options.seed, home / "kills")
            rows += lance_damage.run(options.lance, options.seed, home / "damage")
        rows.append(clock_jumps.run(options.tries, options.seed, home / "clocks"))
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder).resolve()
        if options.notes:
            rows.append(many_notes.run([options.notes // 10, options.notes], options.seed, home / "notes"))
        if read_only.is_possible():
            rows += read_only.run(options.tries, options.seed, home)
    for name, share in _SHARES.items():
        job = fuzz.Job(TARGETS[name], options.seed, options.corpus)
        rows.append(fuzz.run(job, round(options.cases * share), options.keep))
    for store in ("sqlite", "lance") if options.lance else ("sqlite",):
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            home = Path(folder).resolve()
            world = side_by_side.run(options.minutes * 60, 3, 60, options.seed, home, store=store)
            rows += side_by_side.rows_of(world)
    return print_table(rows, shown=20)


if __name__ == "__main__":
    sys.exit(main())
