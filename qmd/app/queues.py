"""Order of concurrent requests, and background work that runs between them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from qmd.errors import QmdError

REST_S = 2.0
"""Seconds after an answer in which the next request is expected."""


_POLL_S = 0.05


_LINE_POLL_S = 0.2


AT_ONCE = 2
"""Concurrent searches of one kind. One computes while another reads: a model's operators and SQLite release the
interpreter, and more searches would only take turns."""


class FifoSemaphore:
    """FIFO semaphore: admits a number of requests at a time, in the order of their arrival."""

    def __init__(self, places: int) -> None:
        self._places = places
        self._present: list[object] = []
        self._changed = threading.Condition()

    @contextmanager
    def turn(self, check: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Hold a slot while the block runs; while waiting, `check` is called and may raise to end the wait."""
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
        """Return whether a request has a slot, after a short wait."""
        with self._changed:
            return self._changed.wait_for(lambda: own in self._present[: self._places], _LINE_POLL_S)


class StoppedError(QmdError):
    """The running work must stop: its process ends, or another one takes over."""


class IdleGate:
    """Gate that admits background work only while no request is active or recent."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests = 0
        self._ended = -REST_S

    @contextmanager
    def request(self) -> Iterator[None]:
        """Take priority over background work while the block runs."""
        with self._lock:
            self._requests += 1
        try:
            yield
        finally:
            with self._lock:
                self._requests -= 1
                self._ended = time.monotonic()

    def wait(self, should_stop: Callable[[], bool]) -> None:
        """Wait until no request is active or recent.

        Raises:
            StoppedError: `should_stop` returned True first.
        """
        while not should_stop():
            if not self._requests and time.monotonic() - self._ended >= REST_S:
                return
            time.sleep(_POLL_S)
        raise StoppedError("the work was given up")
