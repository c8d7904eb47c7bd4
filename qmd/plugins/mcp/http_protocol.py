"""The HTTP server's patience: with clients that send half a request, with their number, and with its own end.

uvicorn waits without an end for the rest of a request, and each such connection keeps a descriptor of the process.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from qmd.plugins.mcp.lifecycle import end_process
from qmd.plugins.mcp.owner import IS_OWNER, is_owner

SHUTDOWN_TIMEOUT_S = 3
"""How long requests may still be answered after a signal."""

_END_TIMEOUT_S = 6.0
"""From a signal to the end of the process, whatever still runs; `qmd mcp stop` waits for ten seconds."""

REQUEST_TIMEOUT_S = 10.0
"""Until a request has arrived whole, from its first byte or from the start of the connection."""

MAX_CONNECTIONS = 128
"""Half of what the strictest system gives a process by default."""


class PromptProtocol(H11Protocol):
    """HTTP/1.1 with a client that has to be quick; see the module."""

    def __init__(self, *arguments: Any, timeout_s: float, max_connections: int, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._timeout_s = timeout_s
        self._max_connections = max_connections
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See `asyncio.Protocol`."""
        super().connection_made(transport)
        # Now, since by the time of a request whoever made the connection may have left it.
        self.app_state = {**self.app_state, IS_OWNER: is_owner(self.client, self.server)}
        self._watch()
        if len(self.connections) > self._max_connections:
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._stop_watching()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """Called when an answer has been sent."""
        self._stop_watching()
        super().on_response_complete()
        self._watch()

    @property
    def waits_until(self) -> float | None:
        """When the wait for a request will be over; None while one is being answered or none has begun."""
        return self._timer.when() if self._timer is not None else None

    def _watch(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete and not self.cycle.more_body:
            self._stop_watching()
        elif self._timer is None and not self.transport.is_closing():
            # Not begun anew by every byte, or a byte now and then would be enough to stay.
            self._timer = self.loop.call_later(self._timeout_s, self.transport.abort)

    def _stop_watching(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _make_room(self) -> None:
        """Close the connection that has waited longest for its client, so that new ones are still served."""
        waiting = [one for one in self.connections if isinstance(one, PromptProtocol) and one.waits_until is not None]
        oldest = min(waiting, key=lambda one: one.waits_until or 0.0, default=self)
        # It leaves the set of connections only later, and must not be chosen again until then.
        oldest._stop_watching()
        oldest.transport.abort()


def prompt_protocol(timeout_s: float = REQUEST_TIMEOUT_S, max_connections: int = MAX_CONNECTIONS) -> Any:
    """What uvicorn takes as `http`."""
    return functools.partial(PromptProtocol, timeout_s=timeout_s, max_connections=max_connections)


class EndingServer(uvicorn.Server):
    """A server that ends soon after the first signal even if a thread is still at work."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Called by a signal."""
        timer = threading.Timer(_END_TIMEOUT_S, end_process)
        timer.daemon = True
        timer.start()
        super().handle_exit(sig, frame)
