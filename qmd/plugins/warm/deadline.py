"""Work of the index on behalf of a coroutine."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import anyio
import anyio.to_thread
from starlette.types import Receive

from qmd.app.deadlines import overdue
from qmd.retrieval.trace import CancelledSearch, Listener

T = TypeVar("T")

_GRACE_S = 2.0
"""Between the time at which the work should notice and the time at which the client gets an error without it."""


async def within(timeout_s: float | None, work: Callable[[], T]) -> T:
    """The result of `work`, run in a thread that is left behind when this is cancelled or takes too long.

    Raises:
        DeadlineError: It did not end in time.
    """
    try:
        with anyio.fail_after(None if timeout_s is None else timeout_s + _GRACE_S):
            return await anyio.to_thread.run_sync(work, abandon_on_cancel=True)
    except TimeoutError as error:
        assert timeout_s is not None
        raise overdue(timeout_s) from error


class AsyncListener(Listener):
    """A client that waits in a coroutine, and has gone when that is cancelled."""

    _has_gone = False

    @property
    def is_cancelled(self) -> bool:
        """See `Listener`."""
        return self._has_gone

    async def wait_for(self, timeout_s: float | None, work: Callable[[], T]) -> T:
        """The result of `work`, which this listener is handed to; see `within`."""
        try:
            return await within(timeout_s, work)
        except anyio.get_cancelled_exc_class():
            self._has_gone = True
            raise

    async def wait_while_connected(self, receive: Receive, timeout_s: float | None, work: Callable[[], T]) -> T:
        """The same for an HTTP request, which has been read: it is given up when its client closes the connection.

        Raises:
            CancelledSearch: The client has gone.
        """
        failure: Exception = CancelledSearch()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_cancel_when_gone, receive, tasks.cancel_scope)
            # Out of a task group an exception would come as one of several.
            try:
                return await self.wait_for(timeout_s, work)
            except Exception as error:
                failure = error
            finally:
                tasks.cancel_scope.cancel()
        raise failure


async def _cancel_when_gone(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()
