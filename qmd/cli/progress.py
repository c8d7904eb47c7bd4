"""One line of progress on stderr, rewritten in place; nothing at all when stderr is no terminal."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from qmd.cli.output import flush_result, show_progress, stderr_is_terminal

_INTERVAL_S = 0.1


class ProgressLine:
    """Shows `label: done/total` while a block runs, and wipes it afterwards."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._is_shown = stderr_is_terminal()
        self._started = time.monotonic()
        self._last = 0.0

    def __enter__(self) -> Self:
        # What was said so far must be seen now, also through a pipe: the work that follows may take minutes.
        flush_result()
        self._write("…")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._is_shown:
            show_progress("")

    def update(self, done: int, total: int) -> None:
        """Show `done` of `total`, at most ten times a second."""
        now = time.monotonic()
        if now - self._last < _INTERVAL_S:
            return
        self._last = now
        elapsed = now - self._started
        left = elapsed / done * (total - done) if done else 0.0
        remaining = f", {left:.0f} s left" if done and elapsed > 1 else ""
        self._write(f": {done}/{total}{remaining}")

    def _write(self, text: str) -> None:
        if self._is_shown:
            show_progress(f"{self._label}{text}")
