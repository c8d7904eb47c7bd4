"""Known-item quality of file names and aliases.

    python -m tests.benchmarks.bench_names INDEX [N] [--backends bm25,hybrid] [--json]

Every name is a query that should find its note; N draws that number. Prints what `bench_answers.py` prints.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.benchmarks.answers import cases_of_names, print_reports, run_backends


def main(argv: Sequence[str] | None = None) -> int:
    """Ask every backend for every name."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("index", type=Path)
    parser.add_argument("n", type=int, nargs="?", default=sys.maxsize)
    parser.add_argument("--backends", default="bm25,hybrid")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(argv)
    names = options.backends.split(",")
    reports = run_backends(options.index, lambda reader: cases_of_names(reader, options.n), names)
    print_reports(*reports, as_json=options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
