"""Order of concurrent requests, and background work that runs between them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from qmd.errors import QmdError

REST_S = 2.0
"""For so long after an answer the next question is expected."""


_POLL_S = 0.05


_LINE_POLL_S = 0.2


AT_ONCE = 2
"""Searches of one kind at a time. One computes while another reads: a model's operators and SQLite let the interpreter
go on, and more would only take turns at it."""


class FifoSemaphore:
    """Who comes first is served first, so many at a time."""

    def __init__(self, places: int) -> None:
        self._places = places
        self._present: list[object] = []
        self._changed = threading.Condition()

    @contextmanager
    def turn(self, check: Callable[[], None] = lambda: None) -> Iterator[None]:
        """A place for the block; until it is free `check` is asked now and then, and raises to end the waiting."""
        own = object()
        with self._changed:
            self._present.append(own)
        try:
            while not self._is_served(own):
                check()
            yield
        finally:
            with self._changed:
                self._present.remove(own)
                self._changed.notify_all()

    def _is_served(self, own: object) -> bool:
        """Whether its turn has come, or comes within a moment."""
        with self._changed:
            return self._changed.wait_for(lambda: own in self._present[: self._places], _LINE_POLL_S)


class StoppedError(QmdError):
    """What is under way has no time left: its process ends, or another one takes over."""


class IdleGate:
    """Lets work that nobody waits for go on only while no request is answered, or has just been."""

    def __init__(self) -> None:
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
                self._ended = time.monotonic()

    def wait(self, should_stop: Callable[[], bool]) -> None:
        """Return when nobody asks, or has just asked.

        Raises:
            StoppedError: `should_stop` says so first.
        """
        while not should_stop():
            if not self._requests and time.monotonic() - self._ended >= REST_S:
                return
            time.sleep(_POLL_S)
        raise StoppedError("the work was given up")
