"""Progress line on stderr, only on a terminal."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from msgspec.structs import replace

from qmd.cli.output import flush_result, say, show_progress
from qmd.progress import Pace, Progress

if TYPE_CHECKING:
    from qmd.render.drawing import Screen
    from qmd.render.progress import Unit

_INTERVAL_S = 0.1
_LINE_INTERVAL_S = 10.0
"""Interval on terminals that cannot rewrite a line."""

_QUIET_S = 0.2
"""Shorter jobs need no bar, nor the import that draws it."""


class ProgressLine:
    """Progress of a block, erased at its end.

    Args:
        label: Name of the job, in one or two words.
        screen: Terminal of stderr; None if a program reads it.
        unit: Unit of the amounts.
        can_rewrite: Whether the terminal can return to the start of a line.
    """

    def __init__(self, label: str, screen: Screen | None, unit: Unit = "items", *, can_rewrite: bool = True) -> None:
        self._label = label
        self._screen = screen
        self._unit: Unit = unit
        self._can_rewrite = can_rewrite
        self._pace: Pace | None = None
        self._next = time.monotonic() + (_QUIET_S if can_rewrite else _LINE_INTERVAL_S)

    def __enter__(self) -> Self:
        # Show earlier output now, also in a pipe: the job may take minutes.
        flush_result()
        if self._screen is not None and self._can_rewrite:
            show_progress(f"{self._label} …")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.clear()

    def update(self, done: int, total: int) -> None:
        """Show `done` of `total`."""
        if self._pace is None:
            self._pace = Pace(total)
        self.show(self._pace.at(done))

    def begin(self, label: str) -> None:
        """Start another job with another total."""
        self._label, self._pace = label, None

    def show(self, progress: Progress) -> None:
        """Show a state, at most ten times a second."""
        now = time.monotonic()
        if self._screen is None or now < self._next:
            return
        from qmd.render.progress import progress_line

        self._next = now + (_INTERVAL_S if self._can_rewrite else _LINE_INTERVAL_S)
        screen = replace(self._screen, width=_terminal_width(self._screen.width))
        line = progress_line(self._label, progress, self._unit, screen)
        if self._can_rewrite:
            show_progress(line)
        else:
            say(line)

    def say(self, *texts: str, to_programs: bool = False) -> None:
        """Print messages above the line; `to_programs` also without a terminal."""
        if self._screen is not None or to_programs:
            self.clear()
            say(*texts)

    def clear(self) -> None:
        """Erase the line before other output; the next state shows it again."""
        if self._screen is not None and self._can_rewrite:
            show_progress("")


def progress_callback(line: ProgressLine) -> Callable[[str, int, int | None], None]:
    """Return a callback that shows downloads and steps one after another; files without a known size are skipped."""
    current = ""

    def show(file: str, done: int, total: int | None) -> None:
        nonlocal current
        if total is None:
            return
        if file != current:
            current = file
            line.begin(Path(file).name)
        line.update(done, total)

    return show


def _terminal_width(known: int) -> int:
    """Return the current width of the terminal at stderr."""
    try:
        return os.get_terminal_size(2).columns or known
    except OSError:
        return known
