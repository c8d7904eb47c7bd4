"""HTTP: the page, `POST /mcp`, `POST /query` and `/search`, `GET /health`, all behind the guard."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup, TaskStatus
from msgspec import Struct
from msgspec.structs import replace
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from qmd.app.index import Index
from qmd.errors import BusyError, DeadlineError, NotFoundError, QmdError, UsageError
from qmd.plugins.mcp import presentation
from qmd.plugins.mcp.behind import VectorWorker
from qmd.plugins.mcp.deadline import within
from qmd.plugins.mcp.guard import MAX_BODY_BYTES, AccessPolicy, guard_app
from qmd.plugins.mcp.lifecycle import reachable_host, server_url
from qmd.plugins.mcp.owner import names_owners
from qmd.plugins.mcp.requests import parse_query
from qmd.plugins.mcp.warm_process import SearchRoute, WarmProcess
from qmd.plugins.mcp.warm_record import SEARCH_PATH

if TYPE_CHECKING:
    import uvicorn
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    from qmd.config.paths import Locations

_logger = logging.getLogger("qmd.http")

_STATUSES = ((UsageError, 400), (NotFoundError, 404), (BusyError, 503), (DeadlineError, 504))
"""Of failures; of all others 500."""

_TEND_S = 1.0


class _Endpoints(Struct, frozen=True):
    """The plain routes."""

    index: Index
    started: float

    async def health(self, request: Request) -> Response:
        """Alive; `pid` lets whoever started the server know that it is this one that answers."""
        uptime_s = int(time.monotonic() - self.started)
        return JSONResponse({"status": "ok", "uptime": uptime_s, "pid": os.getpid()})

    async def query(self, request: Request) -> Response:
        """Search with typed sub-queries, or with plain text as `query`."""
        try:
            given = _json_object(await request.body())
            if "searches" not in given and "query" not in given:
                return _failure(400, "Missing required field: searches (array)")
            wanted = parse_query(given)
            response = await within(self.index.timeout_s, lambda: self.index.search(wanted))
        except QmdError as error:
            status = next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)
            return _failure(status, error.message, error.hint)
        return JSONResponse(presentation.answer_object(response, presentation.http_rows(response)))


def _failure(status: int, message: str, hint: str | None = None) -> Response:
    return JSONResponse({"error": message} | ({"hint": hint} if hint else {}), status_code=status)


def _json_object(body: bytes) -> Mapping[str, object]:
    """The object that a request body holds.

    Raises:
        UsageError: If it is not JSON, or not an object.
    """
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the request body is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise UsageError("the request body must be a JSON object")
    return value


def build_app(
    index: Index,
    policy: AccessPolicy,
    token: str | None = None,
    on_rest: Callable[[float], None] = lambda idle_s: None,
    *,
    has_page: bool = True,
) -> ASGIApp:
    """The guarded application. Its lifespan must run, as every ASGI server does.

    Args:
        index: What is served.
        policy: Who may talk to it.
        token: What commands show instead of the policy's token; None answers no commands.
        on_rest: Told every second for how many there has been no request.
        has_page: Whether people may search on its page.
    """
    mcp = _McpEndpoint(index)
    endpoints = _Endpoints(index, time.monotonic())

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with anyio.create_task_group() as tasks:
            mcp.tasks = tasks
            tasks.start_soon(_tend, index, lambda: on_rest(requests.idle_s))
            yield
            tasks.cancel_scope.cancel()

    app: ASGIApp = Starlette(
        lifespan=lifespan,
        routes=[
            Route("/mcp", mcp),
            Route("/query", endpoints.query, methods=["POST"]),
            Route("/search", endpoints.query, methods=["POST"]),
            Route("/health", endpoints.health, methods=["GET"]),
            *(_page_routes(index) if has_page else []),
            *([Route(SEARCH_PATH, SearchRoute(index))] if token else []),
        ],
        exception_handlers={404: _not_found, 500: _failed},
    )
    guarded, for_commands = guard_app(app, policy), guard_app(app, replace(policy, token=token))
    page = partial(policy.key.guard, app) if policy.token is None else app
    for_people = guard_app(page, replace(policy, asks_person=True))

    async def guard(scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        is_command = token is not None and path == SEARCH_PATH
        is_page = has_page and (path == "/" or path.startswith("/page/"))
        await (for_commands if is_command else for_people if is_page else guarded)(scope, receive, send)

    requests = _Requests(guard)
    return requests


def _page_routes(index: Index) -> Sequence[Route]:
    # What makes HTML of markdown is of no use to the process that only answers commands.
    from qmd.plugins.page.page import page_routes

    return page_routes(index)


class _McpEndpoint:
    """`POST /mcp`; there are no sessions, so there is nothing to stream by GET or to DELETE.

    The SDK is imported by the first message: it takes a second and most of the memory, and many servers only search.
    """

    tasks: TaskGroup
    """Where the sessions live: that of the application."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._sessions: StreamableHTTPSessionManager | None = None
        self._opening = anyio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST":
            error = {"jsonrpc": "2.0", "error": {"code": -32000, "message": "Method not allowed."}, "id": None}
            await JSONResponse(error, status_code=405, headers={"allow": "POST"})(scope, receive, send)
            return
        async with self._opening:
            if self._sessions is None:
                sessions = await anyio.to_thread.run_sync(self._make_sessions)
                await self.tasks.start(_keep_open, sessions)
                self._sessions = sessions
        await self._sessions.handle_request(scope, receive, send)

    def _make_sessions(self) -> StreamableHTTPSessionManager:
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
        from mcp.server.transport_security import TransportSecuritySettings

        from qmd.plugins.mcp.mcp_server import build_server

        return StreamableHTTPSessionManager(
            build_server(self._index),
            stateless=True,
            # The guard has checked Host and Origin already, for every route and with one set of rules.
            security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
            max_request_body_size=MAX_BODY_BYTES,
        )


async def _keep_open(sessions: StreamableHTTPSessionManager, task_status: TaskStatus[None]) -> None:
    async with sessions.run():
        task_status.started()
        await anyio.sleep_forever()


async def _not_found(request: Request, exc: Exception) -> Response:
    return PlainTextResponse("Not Found", status_code=404)


async def _failed(request: Request, exc: Exception) -> Response:
    return _failure(500, f"{type(exc).__name__}: {exc}")


async def _tend(index: Index, on_rest: Callable[[], None]) -> None:
    while True:
        await anyio.sleep(_TEND_S)
        await anyio.to_thread.run_sync(index.release_idle)
        on_rest()


class _Requests:
    """The requests to `app`: one line on stderr for each (time, method, path, status, duration), and the time since."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._active = 0
        self._ended = time.monotonic()

    @property
    def idle_s(self) -> float:
        """Seconds since the last one; 0 while one is being answered."""
        return 0.0 if self._active else time.monotonic() - self._ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 0
        started = time.monotonic()

        async def watch(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        self._active += 1
        try:
            await self._app(scope, receive, watch)
        finally:
            self._active -= 1
            self._ended = time.monotonic()
            path = scope["path"].encode("unicode_escape").decode()
            _logger.info("%s %s %d (%.0fms)", scope["method"], path, status, (self._ended - started) * 1000)


def serve(
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
    listeners += [warm.socket] if warm else []
    token = warm.token if warm else None

    worker = VectorWorker(index)

    def end_when_served(idle_s: float) -> None:
        # A process that has begun with the vectors completes them.
        if policy is None and warm is not None and warm.has_served(0.0 if worker.is_busy else idle_s):
            server.should_exit = True

    access = policy or AccessPolicy("localhost", token=token)
    app = build_app(index, access, token, end_when_served, has_page=policy is not None)
    server = _make_server(app)
    with _ended_by_signals(server, is_told=announce is None):
        if policy is not None:
            # A port of 0 has become a number only now.
            page = "/" if policy.token or names_owners() else policy.key.address
            _announce(policy.bind_host, listeners[0].getsockname()[1], page, announce)
        try:
            if warm is not None:
                warm.publish()
            with worker.running():
                server.run(sockets=listeners)
        finally:
            if warm is not None:
                warm.withdraw()
            index.close()


def _announce(host: str, port: int, page: str, announce: Callable[[str], None] | None) -> None:
    if announce is not None:
        announce(f"{server_url(reachable_host(host), port)}{page}")
        return
    sys.stderr.write(f"QMD MCP server listening on {server_url(host, port)}/mcp\n")
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
        # `localhost` may mean ::1 first, but most clients are told 127.0.0.1.
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
