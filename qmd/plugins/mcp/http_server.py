"""HTTP server: sockets, signals, timeouts of clients and of the shutdown, and background work."""

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
from qmd.plugins.mcp.page_key import IS_OWNER, is_owner, lists_owners
from qmd.plugins.warm.background import VectorWorker
from qmd.plugins.warm.lifecycle import end_process, reachable_host, server_url
from qmd.plugins.warm.process import WarmProcess

if TYPE_CHECKING:
    from qmd.config.paths import Locations

_logger = logging.getLogger("qmd.http")

SHUTDOWN_TIMEOUT_S = 3
"""Time for running requests after a signal."""

_END_TIMEOUT_S = 6.0
"""Time from a signal to the end of the process, whatever still runs; `qmd mcp stop` waits for ten seconds."""

REQUEST_TIMEOUT_S = 10.0
"""Time for a whole request to arrive, from its first byte or from the start of the connection."""

MAX_CONNECTIONS = 128
"""Half of the file descriptors that the strictest system allows a process by default."""


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
        index: The index to serve.
        locations: Its paths, by which commands find this process.
        environ: Environment that commands must share.
        policy: Access over TCP; None serves only commands, as long as they need it.
        port: The TCP port; 0 asks the system for a free one.
        announce: Shows the address to the user once the server listens; requests are then not logged on stderr.

    Raises:
        UsageError: The address cannot be bound.
        OSError: The socket for commands cannot be made, and there is no TCP port.
    """
    level = logging.INFO if announce is None else logging.WARNING
    logging.basicConfig(level=level, format="%(asctime)s.%(msecs)03d %(message)s", datefmt="%H:%M:%S")
    for chatty in ("mcp", "watchfiles"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    listeners = [] if policy is None else [_bind(policy.bind_host, port)]
    warm = _listen_to_commands(locations, environ, is_needed=policy is None)
    worker = VectorWorker(index)

    def end_when_idle(idle_s: float) -> None:
        # A process that has begun to compute vectors completes them.
        if policy is None and warm is not None and warm.may_end(0.0 if worker.is_busy else idle_s):
            server.should_exit = True

    token = warm.token if warm else None
    access = policy or AccessPolicy("localhost", token=token)
    server = _make_server(build_app(index, access, token, end_when_idle, has_page=policy is not None))
    with _handle_signals(server, reports_end=announce is None), contextlib.closing(index):
        if policy is not None:
            # The system has now chosen a number for port 0.
            _announce(policy, listeners[0].getsockname()[1], announce)
        with warm.published() if warm else contextlib.nullcontext(), worker.running():
            server.run(sockets=[*listeners, *([warm.socket] if warm else [])])


def _announce(policy: AccessPolicy, port: int, announce: Callable[[str], None] | None) -> None:
    if announce is not None:
        page = "/" if policy.token or lists_owners() else policy.key.address
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
    return TimedServer(config)


@contextlib.contextmanager
def _handle_signals(server: uvicorn.Server, *, reports_end: bool) -> Iterator[None]:
    """Let SIGTERM and SIGINT end the server in order, also before uvicorn handles them.

    uvicorn shuts down on the first signal and then raises it again: without these handlers the process would die before
    it removes its pid file.
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
        _logger.warning("commands cannot use this server: %s", error)
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
    """HTTP/1.1 with a timeout for requests.

    uvicorn waits for the rest of a request without limit, and each such connection occupies a file descriptor.
    """

    def __init__(self, *arguments: Any, timeout_s: float, max_connections: int, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._timeout_s = timeout_s
        self._max_connections = max_connections
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # Now, because the client may have disconnected by the time of a request.
        self.app_state = {**self.app_state, IS_OWNER: is_owner(self.client, self.server)}
        self._watch()
        if len(self.connections) > self._max_connections:
            self._close_oldest_wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_watching()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        self._stop_watching()
        super().on_response_complete()
        self._watch()

    @property
    def deadline(self) -> float | None:
        """Deadline of the request that is awaited; None during a response."""
        return self._timer.when() if self._timer is not None else None

    def _watch(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete and not self.cycle.more_body:
            self._stop_watching()
        elif self._timer is None and not self.transport.is_closing():
            # Bytes do not restart the timer, or a slow client could stay connected.
            self._timer = self.loop.call_later(self._timeout_s, self.transport.abort)

    def _stop_watching(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _close_oldest_wait(self) -> None:
        """Close the connection that has waited longest for its client, to make place for new ones."""
        waiting = [one for one in self.connections if isinstance(one, PromptProtocol) and one.deadline is not None]
        oldest = min(waiting, key=lambda one: one.deadline or 0.0, default=self)
        # It stays in the set of connections for a while, and must not be chosen again.
        oldest._stop_watching()
        oldest.transport.abort()


def prompt_protocol(timeout_s: float = REQUEST_TIMEOUT_S, max_connections: int = MAX_CONNECTIONS) -> Any:
    """Return the protocol factory for uvicorn's `http`."""
    return functools.partial(PromptProtocol, timeout_s=timeout_s, max_connections=max_connections)


class TimedServer(uvicorn.Server):
    """Server that ends soon after the first signal even if a thread still works."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        timer = threading.Timer(_END_TIMEOUT_S, end_process)
        timer.daemon = True
        timer.start()
        super().handle_exit(sig, frame)
