"""What is left of a search's budget of time once its models are loaded."""

from __future__ import annotations

import time

_LOADING_MS = 700
"""Budget from which the built-in models can be loaded and still be used (about 0.5 s with imports)."""


class LoadingBudget:
    """Runs from the moment it is made.

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
