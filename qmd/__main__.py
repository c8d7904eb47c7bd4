"""Entry point of `qmd` and `python -m qmd`."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from qmd.errors import EXIT_INTERRUPTED

_OBJECTS_BETWEEN_COLLECTIONS = 50_000
"""Allocations between garbage collections. With the 700 of CPython a search runs 30 of them, which take a tenth of its
time and find no cycles."""

_POLL_S = 0.02
_BLAS_THREADS = "OPENBLAS_NUM_THREADS"


def run() -> None:
    """Run the command line and end the process.

    Skips the shutdown of the interpreter, which takes a sixth of the time of a search: commands close and flush
    everything before they return, and threads that still run are daemons.
    """
    if (sys.argv[3:] if sys.argv[1:2] == ["--index"] else sys.argv[1:])[:1] == ["hook"]:
        from qmd.process import PROMPT_S, exit_at_age

        # On a busy machine the imports alone take longer than the client may wait.
        exit_at_age(PROMPT_S)
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS, *gc.get_threshold()[1:])
    limit_numpy_threads()
    status = EXIT_INTERRUPTED
    # An interrupt before `main` runs has no work to report.
    with suppress(KeyboardInterrupt), delay_interrupts_in_imports():
        from qmd.cli.app import main

        status = main()
    os._exit(status)


def limit_numpy_threads() -> None:
    """Limit NumPy's linear algebra to one thread, unless the user sets a number.

    Each thread spins for 40 ms after its start, and the products here are small: two threads took three times as long
    for 4,096 vectors of 384 numbers. The variable stays out of `os.environ`, which child processes inherit.
    """
    if _BLAS_THREADS not in os.environ:
        os.putenv(_BLAS_THREADS, "1")


@contextmanager
def delay_interrupts_in_imports() -> Iterator[None]:
    """Delay interrupts that arrive during an import until the import ends.

    numpy turns an interrupt during its import into an `ImportError`, so the search would continue without its models
    and report them as broken. Other handlers of interrupts stay in place.
    """
    handles_interrupts = os.name == "posix" and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    try:
        if handles_interrupts:
            signal.signal(signal.SIGINT, _interrupt)
    except ValueError:
        # Only the main thread may set handlers, and only it receives interrupts.
        handles_interrupts = False
    try:
        yield
    finally:
        if handles_interrupts and signal.getsignal(signal.SIGINT) is _interrupt:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _interrupt(number: int, frame: FrameType | None) -> None:
    if not _is_importing(frame):
        signal.default_int_handler(number, frame)
    # Signal the process, not this thread: that also ends a wait that the program may have started.
    timer = threading.Timer(_POLL_S, os.kill, (os.getpid(), number))
    timer.daemon = True
    timer.start()


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


if __name__ == "__main__":
    run()
