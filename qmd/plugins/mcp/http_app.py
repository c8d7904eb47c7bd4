"""HTTP application: the page, `POST /mcp`, `POST /query` and `/search`, `GET /health`, all behind the guard."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

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
from qmd.escapes import error_line
from qmd.plugins import hooks
from qmd.plugins.mcp import presentation
from qmd.plugins.mcp.arguments import check_arguments
from qmd.plugins.mcp.events import JsonFallback
from qmd.plugins.mcp.guard import MAX_BODY_BYTES, AccessPolicy, guard_app
from qmd.plugins.mcp.rows import answer_object
from qmd.plugins.mcp.tools import QUERY_ARGUMENTS, fit, search_request
from qmd.plugins.warm.deadline import AsyncListener, run_with_timeout
from qmd.plugins.warm.process import SearchRoute
from qmd.plugins.warm.record import SEARCH_PATH
from qmd.records import SearchResponse
from qmd.retrieval.trace import Listener

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

T = TypeVar("T")

_logger = logging.getLogger("qmd.http")

_STATUSES = ((UsageError, 400), (NotFoundError, 404), (BusyError, 503), (DeadlineError, 504))
"""HTTP status by error class; 500 for all other errors."""

_RELEASE_POLL_S = 1.0


class _Endpoints(Struct, frozen=True):
    """The plain routes."""

    index: Index
    started: float

    async def health(self, request: Request) -> Response:
        """Report that the server runs; `pid` identifies it to the process that started it."""
        uptime_s = int(time.monotonic() - self.started)
        return JSONResponse({"status": "ok", "uptime": uptime_s, "pid": os.getpid()})

    async def query(self, request: Request) -> Response:
        """Search by typed sub-queries, or by plain text as `query`."""
        try:
            given = _json_object(await request.body())
            ignored: list[str] = []
            asked = check_arguments(QUERY_ARGUMENTS, given, ignored)
            if all(asked[name] is None for name in ("searches", "query", "filter")):
                return _failure(400, "Missing required field: searches (array)")
            wanted = search_request(asked)

            def show(found: SearchResponse) -> tuple[dict[str, Any]]:
                warnings = (*found.warnings, *ignored)
                return (answer_object(replace(found, warnings=warnings), presentation.document_uri, asked["detail"]),)

            found = await run_with_timeout(
                self.index.timeout_s, lambda: fit(self.index.search(wanted), asked["maxTokens"], show)
            )
        except QmdError as error:
            status = next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)
            return _failure(status, error.message, error.hint)
        return JSONResponse(show(found)[0])


def _failure(status: int, message: str, hint: str | None = None) -> Response:
    return JSONResponse({"error": message} | ({"hint": hint} if hint else {}), status_code=status)


def _json_object(body: bytes) -> Mapping[str, object]:
    """Parse a request body as a JSON object.

    Raises:
        UsageError: If the body is not JSON, or not an object.
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
    on_idle: Callable[[float], None] = lambda idle_s: None,
    *,
    has_page: bool = True,
) -> ASGIApp:
    """Build the guarded application. Its lifespan must run, as in every ASGI server.

    Args:
        index: The index to serve.
        policy: Access to all routes but that of commands.
        token: Token of commands, instead of the policy's; None serves no commands.
        on_idle: Called every second with the seconds since the last request.
        has_page: Whether to serve the search page.
    """
    mcp = _McpEndpoint(index)
    endpoints = _Endpoints(index, time.monotonic())

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with anyio.create_task_group() as tasks:
            mcp.tasks = tasks
            tasks.start_soon(_release_regularly, index, lambda: on_idle(requests.idle_s))
            yield
            tasks.cancel_scope.cancel()

    app: ASGIApp = Starlette(
        lifespan=lifespan,
        routes=[
            Route("/mcp", JsonFallback(mcp)),
            Route("/query", endpoints.query, methods=["POST"]),
            Route("/search", endpoints.query, methods=["POST"]),
            Route("/health", endpoints.health, methods=["GET"]),
            # The process that serves only commands does not import the markdown renderer.
            *(hooks.page_routes(index, partial(_run, index)) if has_page else []),
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

    requests = _RequestLog(guard)
    return requests


async def _run(index: Index, receive: Receive, work: Callable[[Listener], T]) -> T:
    """Run `work` for the client of a request; see `AsyncListener.wait_while_connected`."""
    listener = AsyncListener()
    return await listener.wait_while_connected(receive, index.timeout_s, lambda: work(listener))


class _McpEndpoint:
    """Endpoint of `POST /mcp`; without sessions, GET and DELETE have nothing to do.

    The first message imports the SDK: it takes a second and most of the memory, and many servers only search.
    """

    tasks: TaskGroup
    """Task group of the application, which runs the session manager."""

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
            # The guard has already checked Host and Origin.
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
    return _failure(500, f"{type(exc).__name__}: {error_line(exc)}")


async def _release_regularly(index: Index, on_idle: Callable[[], None]) -> None:
    while True:
        await anyio.sleep(_RELEASE_POLL_S)
        await anyio.to_thread.run_sync(index.release_idle)
        on_idle()


class _RequestLog:
    """Log of the requests to `app`, one line each on stderr: time, method, path, status, duration."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._active = 0
        self._ended = time.monotonic()

    @property
    def idle_s(self) -> float:
        """Seconds since the last request; 0 during a request."""
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
