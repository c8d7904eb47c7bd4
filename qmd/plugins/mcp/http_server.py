"""The HTTP server: its sockets, its signals, and what runs beside it."""

from __future__ import annotations

import contextlib
import logging
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from starlette.types import ASGIApp

from qmd.app.index import Index
from qmd.errors import UsageError
from qmd.plugins.mcp.behind import VectorWorker
from qmd.plugins.mcp.guard import AccessPolicy
from qmd.plugins.mcp.http_app import build_app
from qmd.plugins.mcp.lifecycle import reachable_host, server_url
from qmd.plugins.mcp.owner import names_owners
from qmd.plugins.mcp.warm_process import WarmProcess

if TYPE_CHECKING:
    import uvicorn

    from qmd.config.paths import Locations

_logger = logging.getLogger("qmd.http")


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
    with _ended_by_signals(server, is_told=announce is None), contextlib.closing(index):
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
    import uvicorn

    from qmd.plugins.mcp.http_protocol import SHUTDOWN_TIMEOUT_S, EndingServer, prompt_protocol

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
def _ended_by_signals(server: uvicorn.Server, *, is_told: bool) -> Iterator[None]:
    """Let SIGTERM and SIGINT end the server in order, also before uvicorn has begun to listen to them.

    uvicorn shuts down on the first one and then raises it again for these handlers: without them the process would die
    of it before its pid file is gone.
    """

    def end(number: int, frame: object) -> None:
        if is_told:
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
