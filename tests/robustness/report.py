"""What a long run tells: one line per class of tries, and each failure with what reproduces it."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T")


@dataclass(slots=True)
class Row:
    """One class of tries."""

    name: str
    tries: int = 0
    failures: list[str] = field(default_factory=list)
    note: str = ""

    def fail(self, what: str) -> None:
        """One more failure, in one line."""
        self.failures.append(" ".join(what.split())[:400])


def print_table(rows: Iterable[Row], shown: int = 5) -> int:
    """Write the table, then the first failures of each class; the exit status."""
    rows = list(rows)
    width = max(len(row.name) for row in rows)
    print(f"{'class':{width}}  {'tries':>8}  {'failures':>8}  note")
    for row in rows:
        print(f"{row.name:{width}}  {row.tries:8,}  {len(row.failures):8,}  {row.note}")
    print(f"{'all':{width}}  {sum(row.tries for row in rows):8,}  {sum(len(row.failures) for row in rows):8,}")
    for row in rows:
        for failure in row.failures[:shown]:
            print(f"  {row.name}: {failure}")
    return int(any(row.failures for row in rows))


def with_progress(what: str, tries: Iterable[T]) -> Iterator[T]:
    """The same tries, with a line on stderr every few seconds."""
    begun = told = time.monotonic()
    for number, one in enumerate(tries):
        yield one
        now = time.monotonic()
        if now - told > 5:
            told = now
            rate = (number + 1) / (now - begun)
            print(f"{what}: {number + 1:,}, {rate:.0f}/s", file=sys.stderr, flush=True)
