"""Whose turn it is on an index: that of requests, or of work that nobody waits for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from qmd.errors import QmdError

REST_S = 2.0
"""For so long after an answer the next question is expected."""

_POLL_S = 0.05


class StoppedError(QmdError):
    """What is under way has no time left: its process ends, or another one takes over."""


class Turns:
    """Whose turn it is: that of requests, and after some rest that of work which nobody waits for.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._requests = 0
        self._ended = -REST_S

    @contextmanager
    def request(self) -> Iterator[None]:
        """Go before everything else while the block runs."""
        with self._lock:
            self._requests += 1
        try:
            yield
        finally:
            with self._lock:
                self._requests -= 1
                self._ended = self._clock()

    @property
    def is_quiet(self) -> bool:
        """Whether nobody asks, or has just asked."""
        return not self._requests and self._clock() - self._ended >= REST_S

    def wait(self, should_stop: Callable[[], bool]) -> None:
        """Return when it is quiet.

        Raises:
            StoppedError: `should_stop` says so first.
        """
        while not should_stop():
            if self.is_quiet:
                return
            time.sleep(_POLL_S)
        raise StoppedError("the work was given up")
