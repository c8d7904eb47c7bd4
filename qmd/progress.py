"""Progress of long jobs."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    pass


_STEPS = 2_000
"""Measured points of a job: enough for any bar, and bounded however long the job takes."""


class Progress(Struct, frozen=True):
    """Completed and total amount of a job, and its current rate."""

    done: int
    total: int
    """In the unit of the job: characters, files, bytes."""
    elapsed_s: float = 0.0
    rate: float | None = None
    """Recent units per second; None before any measurement."""
    left_s: float | None = None

    @property
    def percent(self) -> int:
        """Whole percent done, 100 only at the end."""
        return 100 * self.done // self.total if self.total else 100


def duration_text(seconds: float) -> str:
    """Format a remaining time, as exactly as it is known: `45 s`, `1 min 15 s`, `12 min`, `1 h 05 min`."""
    if seconds < 60:
        return f"{max(1, round(seconds))} s"
    if seconds < 600:
        fives = 5 * round(seconds / 5)
        return f"{fives // 60} min {fives % 60:02} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60:02} min" if minutes < 600 else f"{round(minutes / 60)} h"


class Pace:
    """Rate of a running job, measured from the first state on: earlier work was preparation or another run's.

    The remaining time uses the rate of the later half of the finished work: this ignores an untypical start (a model
    that warmed up, vectors that were there already), and half a job is long enough not to be misled by a few odd files.
    `tests/benchmarks/bench_progress.py` compares it with the overall rate.

    Args:
        total: Size of the job.
        clock: Monotonic seconds.
    """

    def __init__(self, total: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._total = total
        self._clock = clock
        self._done: list[int] = []
        self._at_s: list[float] = []

    def at(self, done: int) -> Progress:
        """Return the state once `done` is done; it never falls."""
        now = self._clock()
        done = min(max(done, self._done[-1] if self._done else 0), self._total)
        if not self._done or done - self._done[-1] > self._total / _STEPS:
            self._done.append(done)
            self._at_s.append(now)
        since = bisect_right(self._done, (self._done[0] + done) / 2) - 1
        gained, spent_s = done - self._done[since], now - self._at_s[since]
        elapsed_s = now - self._at_s[0]
        if gained <= 0 or spent_s <= 0:
            return Progress(done, self._total, elapsed_s)
        rate = gained / spent_s
        return Progress(done, self._total, elapsed_s, rate, (self._total - done) / rate)
