"""The program `qmd`, also as `python -m qmd`."""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from qmd.errors import EXIT_INTERRUPTED

_OBJECTS_BETWEEN_COLLECTIONS = 50_000
"""Allocations that start a garbage collection. At the 700 of CPython a search spends a tenth of its time in 30 of them,
and has no cycles to find."""

_POLL_S = 0.02
_BLAS_THREADS = "OPENBLAS_NUM_THREADS"


def run() -> None:
    """Run the command line and leave the process.

    Without taking the interpreter apart, which took a sixth of a search: what must be closed or flushed has been by the
    time a command returns, and threads that still run are daemons.
    """
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS, *gc.get_threshold()[1:])
    keep_numpy_to_one_thread()
    status = EXIT_INTERRUPTED
    # One that is raised before `main` can say so has interrupted nothing.
    with suppress(KeyboardInterrupt), interrupts_outlive_imports():
        from qmd.cli.app import main

        status = main()
    os._exit(status)


def keep_numpy_to_one_thread() -> None:
    """Start none of the threads of NumPy's linear algebra, one for each processor, unless the user says how many.

    Each spins for 40 ms when it has started, and the products here are small: two threads took three times as long for
    4,096 vectors of 384 numbers. The variable is not put into `os.environ`, under which other programs are started.
    """
    if _BLAS_THREADS not in os.environ:
        os.putenv(_BLAS_THREADS, "1")


@contextmanager
def interrupts_outlive_imports() -> Iterator[None]:
    """While the block runs, an interrupt that comes in the middle of an import is raised after it.

    numpy turns one that comes while it is imported into an `ImportError`: the search would go on without its models
    and say that they are broken. Nothing changes where interrupts are ignored or handled otherwise.
    """
    is_ours = os.name == "posix" and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    try:
        if is_ours:
            signal.signal(signal.SIGINT, _interrupt)
    except ValueError:
        # Only the main thread may, and only there are interrupts raised.
        is_ours = False
    try:
        yield
    finally:
        if is_ours and signal.getsignal(signal.SIGINT) is _interrupt:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _interrupt(number: int, frame: FrameType | None) -> None:
    if not _is_importing(frame):
        signal.default_int_handler(number, frame)
    # To the process, not to this thread: that also ends a wait in which the program may be by then.
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
