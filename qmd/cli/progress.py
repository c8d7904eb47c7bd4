"""One line of progress on stderr, rewritten in place; nothing at all when stderr is no terminal."""

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
"""Where a line cannot be rewritten, each state is a line of its own."""

_QUIET_S = 0.2
"""What is done sooner needs no bar, nor the import that draws one."""


class ProgressLine:
    """Shows how far a block is while it runs, and wipes it afterwards.

    Args:
        label: What is done, in a word or two.
        screen: What a person sees stderr on; None where a program reads it.
        unit: What is counted.
        can_rewrite: Whether the terminal can go back to the start of a line.
    """

    def __init__(self, label: str, screen: Screen | None, unit: Unit = "items", *, can_rewrite: bool = True) -> None:
        self._label = label
        self._screen = screen
        self._unit: Unit = unit
        self._can_rewrite = can_rewrite
        self._pace: Pace | None = None
        self._next = time.monotonic() + (_QUIET_S if can_rewrite else _LINE_INTERVAL_S)

    def __enter__(self) -> Self:
        # What was said so far must be seen now, also through a pipe: the work that follows may take minutes.
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
        """Go on with another job, of another total."""
        self._label, self._pace = label, None

    def show(self, progress: Progress) -> None:
        """Show the state of a job that measures itself; at most ten times a second."""
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

    def say(self, text: str, *, to_programs: bool = False) -> None:
        """Tell the person who watches the line something that stays above it, or whoever reads the messages."""
        if self._screen is not None or to_programs:
            self.clear()
            say(text)

    def clear(self) -> None:
        """Wipe the line, for something else that is written; the next state brings it back."""
        if self._screen is not None and self._can_rewrite:
            show_progress("")


def shown_on(line: ProgressLine) -> Callable[[str, int, int | None], None]:
    """Shows one job after another, a download or a step; a file whose size the hub does not tell is small."""
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
    """Columns of the terminal at stderr, whose window may have another size by now."""
    try:
        return os.get_terminal_size(2).columns or known
    except OSError:
        return known
