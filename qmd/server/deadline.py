"""How long a request may take, and how its work ends when that is over.

The thread that works asks at every stage, between runs of a model, at every SQL statement and in every loop over
documents, and then raises `DeadlineError`. A front end that waits for such a thread gives up a moment later, so that
the client hears of it even if the thread is inside something that does not ask.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from qmd.errors import DeadlineError
from qmd.retrieval.listening import Listener
from qmd.server.pools import parse_duration

T = TypeVar("T")

VARIABLE = "QMD_REQUEST_TIMEOUT"
DEFAULT_TIMEOUT_S = 120.0
"""A search takes seconds; the first one may have to load models from a slow disk."""

_GRACE_S = 2.0
"""Between the time at which the work should notice and the time at which the client is told without it."""


def parse_timeout(environ: Mapping[str, str]) -> float | None:
    """Seconds that a request may take (`QMD_REQUEST_TIMEOUT`), None for `off`.

    Raises:
        UsageError: If the variable holds no duration.
    """
    return parse_duration(VARIABLE, environ.get(VARIABLE), DEFAULT_TIMEOUT_S)


def overdue(timeout_s: float) -> DeadlineError:
    """What the client is told."""
    return DeadlineError(f"the request took longer than {timeout_s:g} s", f"ask for less, or set {VARIABLE}=5m")


@dataclass(frozen=True, slots=True)
class Patience(Listener):
    """A `Listener` that is gone as well when the time is over."""

    listener: Listener
    timeout_s: float | None
    _started: float = field(default_factory=time.monotonic)

    @property
    def is_over(self) -> bool:
        """Whether the time is over."""
        return self.timeout_s is not None and time.monotonic() - self._started >= self.timeout_s

    @property
    def is_gone(self) -> bool:
        """See `Listener`."""
        return self.listener.is_gone or self.is_over

    def stage(self, name: str, /) -> None:
        """See `Listener`."""
        self.listener.stage(name)

    def check(self) -> None:
        """Go on only while somebody waits.

        Raises:
            DeadlineError: The time is over.
            CancelledSearch: The client has gone.
        """
        self.listener.check()
        if self.timeout_s is not None and self.is_over:
            raise overdue(self.timeout_s)


async def within(timeout_s: float | None, work: Callable[[], T]) -> T:
    """The result of `work`, run in a thread that is left behind when this is cancelled or takes too long.

    Raises:
        DeadlineError: It did not end in time.
    """
    import anyio
    import anyio.to_thread

    try:
        with anyio.fail_after(None if timeout_s is None else timeout_s + _GRACE_S):
            return await anyio.to_thread.run_sync(work, abandon_on_cancel=True)
    except TimeoutError as error:
        assert timeout_s is not None
        raise overdue(timeout_s) from error
