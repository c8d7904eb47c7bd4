"""The program `qmd`, also as `python -m qmd`."""

from __future__ import annotations

import gc
import os
from contextlib import suppress

from qmd.cli.interrupts import interrupts_outlive_imports
from qmd.errors import EXIT_INTERRUPTED

_OBJECTS_BETWEEN_COLLECTIONS = 50_000
"""Allocations that start a garbage collection. At the 700 of CPython a search spends a tenth of its time in 30 of them,
and has no cycles to find."""


def run() -> None:
    """Run the command line and leave the process.

    Without taking the interpreter apart, which took a sixth of a search: what must be closed or flushed has been by the
    time a command returns, and threads that still run are daemons.
    """
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS, *gc.get_threshold()[1:])
    status = EXIT_INTERRUPTED
    # One that is raised before `main` can say so has interrupted nothing.
    with suppress(KeyboardInterrupt), interrupts_outlive_imports():
        from qmd.cli.app import main

        status = main()
    os._exit(status)


if __name__ == "__main__":
    run()
