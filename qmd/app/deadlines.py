"""Time limits of requests, of loading models, and of idle models."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping

from qmd.errors import DeadlineError, UsageError
from qmd.retrieval.trace import Listener

_TIMEOUT = "QMD_REQUEST_TIMEOUT"


_DEFAULT_TIMEOUT_S = 120.0
"""A search takes seconds; the first one may have to load models from a slow disk."""


_MODEL_TTL = "QMD_MODEL_TTL"


_DEFAULT_MODEL_TTL_S = 300.0
"""A conversation's pause, not a lunch break."""


_LOADING_MS = 700
"""Budget from which the built-in models can be loaded and still be used (about 0.5 s with imports)."""


def parse_timeout(environ: Mapping[str, str]) -> float | None:
    """Seconds that a request may take (`QMD_REQUEST_TIMEOUT`), None for `off`.

    Raises:
        UsageError: If the variable holds no duration.
    """
    return parse_duration(_TIMEOUT, environ.get(_TIMEOUT), _DEFAULT_TIMEOUT_S)


def parse_model_ttl(environ: Mapping[str, str]) -> float | None:
    """Seconds that idle models stay loaded (`QMD_MODEL_TTL`); None for `off`.

    Raises:
        UsageError: If the variable holds no duration.
    """
    return parse_duration(_MODEL_TTL, environ.get(_MODEL_TTL), _DEFAULT_MODEL_TTL_S)


def parse_duration(variable: str, text: str | None, default_s: float) -> float | None:
    """Seconds of `90`, `90s`, `5m`, `2h`; None for `off`, the default for nothing.

    Raises:
        UsageError: If the text is none of these.
    """
    cleaned = (text or "").strip().lower()
    if not cleaned:
        return default_s
    if cleaned in ("off", "never", "none", "-1"):
        return None
    match = re.fullmatch(r"(\d{1,9}(?:\.\d+)?)\s*([smh]?)", cleaned)
    if match is None:
        raise UsageError(f"{variable} '{text}' is not a duration", "write seconds, or 5m, 2h, off")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]


def overdue(timeout_s: float) -> DeadlineError:
    """What is said of a request that took too long."""
    return DeadlineError(f"the request took longer than {timeout_s:g} s", f"ask for less, or set {_TIMEOUT}=5m")


class Deadline(Listener):
    """A listener that is gone as well when the time of a request is over.

    The thread that works asks it at every stage, between runs of a model, at every SQL statement and in every loop over
    documents. Whoever waits for such a thread gives up a moment later, so that the client hears of it even if the
    thread is inside something that does not ask.
    """

    def __init__(self, listener: Listener, timeout_s: float | None) -> None:
        self._listener = listener
        self._timeout_s = timeout_s
        self._started = time.monotonic()

    @property
    def is_cancelled(self) -> bool:
        return self._listener.is_cancelled or self._is_over

    @property
    def spent_ms(self) -> int:
        """Since the request came."""
        return int((time.monotonic() - self._started) * 1000)

    def stage(self, name: str, /) -> None:
        self._listener.stage(name)

    def check(self) -> None:
        """Go on only while somebody waits.

        Raises:
            DeadlineError: The time is over.
            CancelledSearch: The client has gone.
        """
        self._listener.check()
        if self._timeout_s is not None and self._is_over:
            raise overdue(self._timeout_s)

    @property
    def _is_over(self) -> bool:
        return self._timeout_s is not None and time.monotonic() - self._started >= self._timeout_s


class LoadingBudget:
    """What is left of a search's budget of time once its models are loaded; runs from the moment it is made.

    Args:
        budget_ms: Of the whole search; None = no limit.
        overhead_ms: What is spent of it already.
        is_loaded: Whether the models are in memory already.
    """

    def __init__(self, budget_ms: int | None, overhead_ms: int, *, is_loaded: bool) -> None:
        self._budget_ms = budget_ms
        self._overhead_ms = overhead_ms
        self._is_loaded = is_loaded
        self._started = time.monotonic()

    @property
    def refusal(self) -> str | None:
        """Why the models are not to be loaded; None when they are."""
        if self._budget_ms is None or self._is_loaded or self._budget_ms >= _LOADING_MS:
            return None
        return (
            f"budget of {self._budget_ms} ms: loading models would take longer, searched by words only; "
            "a warm process has them ready"
        )

    def left_ms(self) -> int | None:
        """What the search may still take, at least 1."""
        if self._budget_ms is None:
            return None
        spent_ms = self._overhead_ms + (time.monotonic() - self._started) * 1000
        return max(int(self._budget_ms - spent_ms), 1)
