"""Calls of the index from coroutines, with timeout and cancellation."""

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
"""Time that the work has to notice its timeout, before the client gets an error without it."""


async def run_with_timeout(timeout_s: float | None, work: Callable[[], T]) -> T:
    """Run `work` in a thread, and abandon the thread on cancellation or timeout.

    Raises:
        DeadlineError: The work did not end in time.
    """
    try:
        with anyio.fail_after(None if timeout_s is None else timeout_s + _GRACE_S):
            return await anyio.to_thread.run_sync(work, abandon_on_cancel=True)
    except TimeoutError as error:
        assert timeout_s is not None
        raise overdue(timeout_s) from error


class AsyncListener(Listener):
    """Client that waits in a coroutine, and is disconnected when that is cancelled."""

    _is_disconnected = False

    @property
    def is_cancelled(self) -> bool:
        return self._is_disconnected

    async def wait_for(self, timeout_s: float | None, work: Callable[[], T]) -> T:
        """Run `work`, which uses this listener; see `run_with_timeout`."""
        try:
            return await run_with_timeout(timeout_s, work)
        except anyio.get_cancelled_exc_class():
            self._is_disconnected = True
            raise

    async def wait_while_connected(self, receive: Receive, timeout_s: float | None, work: Callable[[], T]) -> T:
        """Run `work` for an HTTP request whose body is read, until the client closes the connection.

        Raises:
            CancelledSearch: The client has disconnected.
        """
        failure: Exception = CancelledSearch()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_cancel_on_disconnect, receive, tasks.cancel_scope)
            # A task group would wrap an exception in a group.
            try:
                return await self.wait_for(timeout_s, work)
            except Exception as error:
                failure = error
            finally:
                tasks.cancel_scope.cancel()
        raise failure


async def _cancel_on_disconnect(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()
