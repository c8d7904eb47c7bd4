"""The HTTP server: its sockets and signals, its patience with clients and with its own end, and what runs beside it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import TYPE_CHECKING, Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from qmd.app.index import Index
from qmd.errors import UsageError
from qmd.plugins.mcp.guard import AccessPolicy
from qmd.plugins.mcp.http_app import build_app
from qmd.plugins.mcp.page_key import IS_OWNER, is_owner, names_owners
from qmd.plugins.warm.background import VectorWorker
from qmd.plugins.warm.lifecycle import end_process, reachable_host, server_url
from qmd.plugins.warm.process import WarmProcess

if TYPE_CHECKING:
    from qmd.config.paths import Locations

_logger = logging.getLogger("qmd.http")

SHUTDOWN_TIMEOUT_S = 3
"""How long requests may still be answered after a signal."""

_END_TIMEOUT_S = 6.0
"""From a signal to the end of the process, whatever still runs; `qmd mcp stop` waits for ten seconds."""

REQUEST_TIMEOUT_S = 10.0
"""Until a request has arrived whole, from its first byte or from the start of the connection."""

MAX_CONNECTIONS = 128
"""Half of what the strictest system gives a process by default."""


def run_server(
    index: Index,
    locations: Locations,
    environ: Mapping[str, str],
    policy: AccessPolicy | None = None,
    port: int = 0,
    announce: Callable[[str], None] | None = None,
) -> None:
    """Listen and serve until SIGTERM or SIGINT.

    Args:
        index: What is served.
        locations: Its places, by which commands find this process.
        environ: Under which it answers them.
        policy: Who may talk to it over TCP; None serves commands alone, as long as they need it.
        port: The TCP port; 0 asks the system for a free one.
        announce: Shows a person the address, once it answers; then stderr is theirs, and gets no line for each request.

    Raises:
        UsageError: The address cannot be bound.
        OSError: Commands cannot be served, and nobody else is.
    """
    level = logging.INFO if announce is None else logging.WARNING
    logging.basicConfig(level=level, format="%(asctime)s.%(msecs)03d %(message)s", datefmt="%H:%M:%S")
    for chatty in ("mcp", "watchfiles"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    listeners = [] if policy is None else [_bind(policy.bind_host, port)]
    warm = _listen_to_commands(locations, environ, is_needed=policy is None)
    worker = VectorWorker(index)

    def end_when_served(idle_s: float) -> None:
        # A process that has begun with the vectors completes them.
        if policy is None and warm is not None and warm.has_served(0.0 if worker.is_busy else idle_s):
            server.should_exit = True

    token = warm.token if warm else None
    access = policy or AccessPolicy("localhost", token=token)
    server = _make_server(build_app(index, access, token, end_when_served, has_page=policy is not None))
    with _ended_by_signals(server, reports_end=announce is None), contextlib.closing(index):
        if policy is not None:
            # A port of 0 has become a number only now.
            _announce(policy, listeners[0].getsockname()[1], announce)
        with warm.published() if warm else contextlib.nullcontext(), worker.running():
            server.run(sockets=[*listeners, *([warm.socket] if warm else [])])


def _announce(policy: AccessPolicy, port: int, announce: Callable[[str], None] | None) -> None:
    if announce is not None:
        page = "/" if policy.token or names_owners() else policy.key.address
        announce(f"{server_url(reachable_host(policy.bind_host), port)}{page}")
        return
    sys.stderr.write(f"QMD MCP server listening on {server_url(policy.bind_host, port)}/mcp\n")
    sys.stderr.flush()


def _make_server(app: ASGIApp) -> uvicorn.Server:
    config = uvicorn.Config(
        app,
        http=prompt_protocol(),
        log_config=None,
        access_log=False,
        log_level="warning",
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=SHUTDOWN_TIMEOUT_S,
        lifespan="on",
    )
    return EndingServer(config)


@contextlib.contextmanager
def _ended_by_signals(server: uvicorn.Server, *, reports_end: bool) -> Iterator[None]:
    """Let SIGTERM and SIGINT end the server in order, also before uvicorn has begun to listen to them.

    uvicorn shuts down on the first one and then raises it again for these handlers: without them the process would die
    of it before its pid file is gone.
    """

    def end(number: int, frame: object) -> None:
        if reports_end:
            sys.stderr.write(f"Shutting down ({signal.Signals(number).name})...\n")
        server.should_exit = True

    handlers = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _listen_to_commands(locations: Locations, environ: Mapping[str, str], *, is_needed: bool) -> WarmProcess | None:
    try:
        return WarmProcess(locations, environ)
    except OSError as error:
        if is_needed:
            raise
        _logger.warning("commands of this index search by themselves: %s", error)
        return None


def _bind(host: str, port: int) -> Any:
    import socket

    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        # `localhost` may mean ::1 first, but most clients are configured with 127.0.0.1.
        found.sort(key=lambda entry: entry[0] != socket.AF_INET)
        family, kind, proto, _, address = found[0]
        listener = socket.socket(family, kind, proto)
        if sys.platform != "win32":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except socket.gaierror as error:
        raise UsageError(f"cannot listen on '{host}': {error.strerror}") from error
    except (OSError, OverflowError) as error:
        import errno

        if getattr(error, "errno", None) == errno.EADDRINUSE:
            raise UsageError(f"Port {port} already in use. Try a different port with --port.") from error
        raise UsageError(f"cannot listen on '{host}' port {port}: {error}") from error
    listener.listen(128)
    listener.setblocking(False)
    return listener


class PromptProtocol(H11Protocol):
    """HTTP/1.1 with a client that has to be quick.

    uvicorn waits without an end for the rest of a request, and each such connection keeps a descriptor of the process.
    """

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
            self._close_longest_waiting()

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

    def _close_longest_waiting(self) -> None:
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
