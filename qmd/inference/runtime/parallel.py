"""Independent runs on several threads: ONNX Runtime lets the others work while it computes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Future

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_ahead(work: Callable[[Item], Result], items: Sequence[Item], threads: int) -> Generator[Result, None, None]:
    """`work` of each item in the order given, a few items ahead of the consumer at most; closing cancels the rest."""
    if len(items) == 1 or threads == 1:
        yield from map(work, items)
        return
    # 7 ms, which a search by vector alone is spared.
    from concurrent.futures import ThreadPoolExecutor

    waiting: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        # One item ahead of the threads and no more: a deadline or Ctrl-C then waits for items begun alone.
        try:
            for item in items:
                waiting.append(pool.submit(work, item))
                if len(waiting) > threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
