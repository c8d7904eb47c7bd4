"""Independent runs on several threads: ONNX Runtime releases the interpreter while it computes."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Future

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_bounded(work: Callable[[Item], Result], items: Sequence[Item], threads: int) -> Generator[Result, None, None]:
    """Yield `work` of each item in the order given, few items ahead of the consumer; closing cancels the rest."""
    if len(items) == 1 or threads == 1:
        yield from map(work, items)
        return
    # 7 ms, which a search by vector alone saves.
    from concurrent.futures import ThreadPoolExecutor

    waiting: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        # One item ahead of the threads and no more: a deadline or Ctrl-C then waits only for items in progress.
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


def map_in_time(
    work: Callable[[Item], Result],
    items: Sequence[Item],
    sizes: Sequence[int],
    threads: int,
    *,
    deadline_s: float | None = None,
    is_cancelled: Callable[[], bool] | None = None,
    s_per_unit: float = 0.0,
) -> Iterator[Result]:
    """Yield `map_bounded` while there is time: an item that would outlast the deadline is not started.

    Args:
        sizes: Size of each item, above 0, in a unit that time grows with.
        deadline_s: A `time.monotonic` value.
        is_cancelled: Called before each item; once it returns True, no more follow.
        s_per_unit: Expected time of the first item; later ones are judged by the pace so far.
    """
    with contextlib.closing(map_bounded(work, items, threads)) as results:  # closing cancels what has not begun
        started, n_done = time.monotonic(), 0
        for size in sizes:
            if deadline_s is not None and time.monotonic() + s_per_unit * size >= deadline_s:
                return
            if is_cancelled is not None and is_cancelled():
                return
            yield next(results)
            n_done += size
            s_per_unit = (time.monotonic() - started) * threads / n_done
