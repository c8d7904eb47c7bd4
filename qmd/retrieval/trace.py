"""Who waits for a search, and its notebook: time per stage, what remains of the budget, what the user must know."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from msgspec import Struct

from qmd.errors import ModelError
from qmd.records import StageTiming

if TYPE_CHECKING:
    from qmd.inference.base import EngineDescription, Engines
    from qmd.records import Query
    from qmd.retrieval.request import SearchRequest
    from qmd.store.base import IndexReader

FINISH_MS = 40.0
"""Kept back from a budget for calibration and passages; 10 to 30 ms for ten documents of 20 kB."""


class CancelledSearch(Exception):
    """Nobody waits for the answer any more."""


class Listener:
    """Hears of no stage and waits to the end; those that do otherwise are derived from it."""

    @property
    def is_cancelled(self) -> bool:
        """Whether nobody waits any more; engines ask between two runs of a model."""
        return False

    @property
    def spent_ms(self) -> int:
        """Milliseconds since the request came."""
        return 0

    def stage(self, name: str, /) -> None:
        """Receive the name of each stage as it begins; may raise to end the work."""

    def check(self) -> None:
        """Go on only while somebody waits.

        Raises:
            CancelledSearch: If nobody does.
        """
        if self.is_cancelled:
            raise CancelledSearch

    def begin(self, name: str) -> None:
        """Tell of a stage, unless nobody is there to be told; raises what `check` raises."""
        self.check()
        self.stage(name)


class Trace:
    """Timings, warnings and model names of the stages of a search.

    Args:
        request: The search, with its budget of time; None has no limit.
        listener: Receives the stages in which a model works, and knows the time that was spent before.
    """

    def __init__(self, request: SearchRequest | None = None, listener: Listener = Listener()) -> None:
        self._started = time.monotonic()
        self._budget_ms = request.budget_ms if request else None
        self._spent_ms = listener.spent_ms + (request.overhead_ms if request else 0)
        self._strict = request is not None and request.strict
        self.listener = listener
        self.warnings: list[str] = []
        self.timings: list[StageTiming] = []
        self.models: list[str] = []

    def warn(self, message: str) -> None:
        """Keep a line for the user, once."""
        if message not in self.warnings:
            self.warnings.append(message)

    def remaining_ms(self) -> float | None:
        """Milliseconds left for the next stage; None without a budget."""
        if self._budget_ms is None:
            return None
        return self._budget_ms - self._spent_ms - FINISH_MS - (time.monotonic() - self._started) * 1000

    def has_time(self, estimate_ms: float, stage: str) -> bool:
        """Whether a stage of that length fits; says so in a warning when it does not."""
        remaining = self.remaining_ms()
        if remaining is None or remaining >= estimate_ms:
            return True
        self.warn(f"budget of {self._budget_ms} ms: {stage} skipped")
        return False

    def deadline_s(self) -> float | None:
        """`time.monotonic` value by which stages must be done; None without a budget."""
        remaining = self.remaining_ms()
        return None if remaining is None else time.monotonic() + remaining / 1000

    def record_model(self, description: EngineDescription) -> None:
        """Note a model that answered, and warn of what became of it meanwhile."""
        if description.note is not None:
            self.warn(description.note)
        name = f"{description.model} {description.format} ({description.tier})"
        if name not in self.models:
            self.models.append(name)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a stage, without those inside of it.

        A model that fails in it is a warning, not the end of the search, unless that is strict.
        """
        started, n_before = time.monotonic(), len(self.timings)
        try:
            yield
        except ModelError as exc:
            if self._strict:
                raise
            hint = f"; {exc.hint}" if exc.hint else ""
            self.warn(f"{name} skipped: {exc.message}{hint}")
        finally:
            inside_ms = sum(timing.elapsed_ms for timing in self.timings[n_before:])
            self.timings.append(StageTiming(name, (time.monotonic() - started) * 1000 - inside_ms))


class Run(Struct, frozen=True):
    """A search under way: what is asked, of which index and models, and its notebook. Every stage is handed it."""

    reader: IndexReader
    engines: Engines
    query: Query
    request: SearchRequest
    trace: Trace
