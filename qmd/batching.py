"""Split sequences into batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    pass


T = TypeVar("T")


def batches(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """`items` in order, `size` (at least 1) at a time, the last part perhaps shorter; nothing for none."""
    for start in range(0, len(items), size):
        yield items[start : start + size]
