"""Split sequences into batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


def batches(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yield `items` in order, `size` (>= 1) at a time; the last batch may be shorter."""
    for start in range(0, len(items), size):
        yield items[start : start + size]
