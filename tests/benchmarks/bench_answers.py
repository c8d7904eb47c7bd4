"""Quality of the shown answers to the questions of a fixture.

    python -m tests.benchmarks.bench_answers INDEX QUESTIONS.json [--backends bm25,full] [--json]

QUESTIONS.json is a fixture of `qmd bench` whose queries may have an `expected_text` (the shown passage should have it,
or one of several); of type `unanswerable` are those that no file answers. Prints nDCG@10, recall@20, MRR@10, P@10,
latency, the share of time per stage, and by type of query the shares of files first, passages and verdicts that are
right. --json prints each answer, for `compare_answers.py`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.benchmarks.answers import print_reports, read_cases, run_backends


def main(argv: Sequence[str] | None = None) -> int:
    """Ask every question of every backend."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("index", type=Path)
    parser.add_argument("questions", type=Path)
    parser.add_argument("--backends", default="bm25,full")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(argv)
    cases = read_cases(options.questions)
    print_reports(*run_backends(options.index, lambda _: cases, options.backends.split(",")), as_json=options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
