"""Search trace: the caller's listener, time per stage, remaining budget, warnings and models."""

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
"""Reserve of a budget for calibration and passages; 10 to 30 ms for ten documents of 20 kB."""


class CancelledSearch(Exception):
    """End of a search whose caller no longer waits."""


class Listener:
    """Caller of a search. This base class ignores stages and never cancels; subclasses override that."""

    @property
    def is_cancelled(self) -> bool:
        """Whether the caller has cancelled; engines ask between two runs of a model."""
        return False

    @property
    def spent_ms(self) -> int:
        """Milliseconds since the request came."""
        return 0

    def stage(self, name: str, /) -> None:
        """Receive the name of each stage as it begins; may raise to end the work."""

    def check(self) -> None:
        """Raise if the caller has cancelled.

        Raises:
            CancelledSearch: The caller no longer waits.
        """
        if self.is_cancelled:
            raise CancelledSearch

    def begin(self, name: str) -> None:
        """Report a stage. Raises what `check` raises."""
        self.check()
        self.stage(name)


class Trace:
    """Timings, warnings and model names of the stages of a search.

    Args:
        request: The search, with its time budget; None for no limit.
        listener: Receives the stages in which a model works, and knows the time spent before.
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
        """Add a warning for the user, once."""
        if message not in self.warnings:
            self.warnings.append(message)

    def remaining_ms(self) -> float | None:
        """Return the milliseconds left for the next stage; None without a budget."""
        if self._budget_ms is None:
            return None
        return self._budget_ms - self._spent_ms - FINISH_MS - (time.monotonic() - self._started) * 1000

    def has_time(self, estimate_ms: float, stage: str) -> bool:
        """Return whether a stage of that length fits the budget; warn if not."""
        remaining = self.remaining_ms()
        if remaining is None or remaining >= estimate_ms:
            return True
        self.warn(f"budget of {self._budget_ms} ms: {stage} skipped")
        return False

    def deadline_s(self) -> float | None:
        """Return the `time.monotonic` value by which stages must be done; None without a budget."""
        remaining = self.remaining_ms()
        return None if remaining is None else time.monotonic() + remaining / 1000

    def record_model(self, description: EngineDescription) -> None:
        """Record a model that answered, and warn with its note."""
        if description.note is not None:
            self.warn(description.note)
        name = f"{description.model} {description.format} ({description.tier})"
        if name not in self.models:
            self.models.append(name)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Measure the time of a stage, without the stages inside it.

        A model that fails in it becomes a warning, or ends a strict search.
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
    """Arguments of every stage of one search: index, models, query, request and trace."""

    reader: IndexReader
    engines: Engines
    query: Query
    request: SearchRequest
    trace: Trace
