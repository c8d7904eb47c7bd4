"""Time limits of requests, of loading models, and of idle models."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping

from qmd.errors import DeadlineError, UsageError
from qmd.retrieval.trace import Listener

_TIMEOUT = "QMD_REQUEST_TIMEOUT"


_DEFAULT_TIMEOUT_S = 120.0
"""Seconds for a search; the first one may have to load models from a slow disk."""


_MODEL_TTL = "QMD_MODEL_TTL"


_DEFAULT_MODEL_TTL_S = 300.0
"""Seconds: a pause in a conversation, not a lunch break."""


def parse_timeout(environ: Mapping[str, str]) -> float | None:
    """Return the seconds that a request may take (`QMD_REQUEST_TIMEOUT`), None for `off`.

    Raises:
        UsageError: The variable is not a duration.
    """
    return parse_duration(_TIMEOUT, environ.get(_TIMEOUT), _DEFAULT_TIMEOUT_S)


def parse_model_ttl(environ: Mapping[str, str]) -> float | None:
    """Return the seconds that idle models stay loaded (`QMD_MODEL_TTL`); None for `off`.

    Raises:
        UsageError: The variable is not a duration.
    """
    return parse_duration(_MODEL_TTL, environ.get(_MODEL_TTL), _DEFAULT_MODEL_TTL_S)


def parse_duration(variable: str, text: str | None, default_s: float) -> float | None:
    """Return the seconds of `90`, `90s`, `5m`, `2h`; None for `off`, the default for an empty text.

    Raises:
        UsageError: The text is none of these.
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
    """Return the error for a request that took too long."""
    return DeadlineError(f"the request took longer than {timeout_s:g} s", f"ask for less, or set {_TIMEOUT}=5m")


class Deadline(Listener):
    """Listener that is cancelled as well when the time of a request is over.

    The working thread checks it at every stage, between runs of a model, at every SQL statement and in every loop over
    documents. The waiting thread gives up a moment later, so the client gets an answer even if the working thread is
    inside a call that does not check.
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
        """Milliseconds since the request came."""
        return int((time.monotonic() - self._started) * 1000)

    def stage(self, name: str, /) -> None:
        self._listener.stage(name)

    def check(self) -> None:
        """Continue only while the client waits.

        Raises:
            DeadlineError: The time is over.
            CancelledSearch: The client has disconnected.
        """
        self._listener.check()
        if self._timeout_s is not None and self._is_over:
            raise overdue(self._timeout_s)

    @property
    def _is_over(self) -> bool:
        return self._timeout_s is not None and time.monotonic() - self._started >= self._timeout_s
