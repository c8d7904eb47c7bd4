"""The program `qmd`, also as `python -m qmd`."""

from __future__ import annotations

import gc
import os
import sys

from qmd.cli.app import main

_OBJECTS_BETWEEN_COLLECTIONS = 50_000
"""Allocations that start a garbage collection. At the 700 of CPython a search spends a tenth of its time in 30 of them,
and has no cycles to find."""


def run() -> None:
    """Run the command line and leave the process.

    Without taking the interpreter apart, which took a sixth of a search: what must be closed or flushed has been by the
    time a command returns, and threads that still run are daemons.
    """
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS, *gc.get_threshold()[1:])
    status = main()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    run()
