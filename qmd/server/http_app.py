"""HTTP: `POST /mcp`, `POST /query` and `/search`, `GET /health`, all behind the guard."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import anyio
import anyio.to_thread
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from qmd.app.index import Index
from qmd.errors import BusyError, DeadlineError, NotFoundError, QmdError, UsageError
from qmd.server import presentation
from qmd.server.deadline import within
from qmd.server.guard import AccessPolicy, AsgiApp, Message, Receive, Scope, Send, guard_app
from qmd.server.mcp_server import build_server
from qmd.server.requests import parse_query

_logger = logging.getLogger("qmd.http")

_IDLE_POLL_S = 5.0


@dataclass(frozen=True, slots=True)
class _Endpoints:
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
        except UsageError as error:
            return _failure(400, error.message, error.hint)
        except NotFoundError as error:
            return _failure(404, error.message, error.hint)
        except BusyError as error:
            return _failure(503, error.message, error.hint)
        except DeadlineError as error:
            return _failure(504, error.message, error.hint)
        except QmdError as error:
            return _failure(500, error.message, error.hint)
        content: dict[str, Any] = {"results": presentation.http_rows(response), "verdict": response.verdict}
        if response.warnings:
            content["warnings"] = list(response.warnings)
        return JSONResponse(content)


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


def build_app(index: Index, policy: AccessPolicy) -> AsgiApp:
    """The guarded application. Its lifespan must run, as every ASGI server does."""
    sessions = StreamableHTTPSessionManager(
        build_server(index),
        stateless=True,
        # The guard has checked Host and Origin already, for every route and with one set of rules.
        security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        max_request_body_size=policy.max_body_bytes,
    )
    endpoints = _Endpoints(index, time.monotonic())

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with sessions.run(), anyio.create_task_group() as tasks:
            tasks.start_soon(_release_while_idle, index)
            yield
            tasks.cancel_scope.cancel()

    app = Starlette(
        lifespan=lifespan,
        routes=[
            Route("/mcp", _McpEndpoint(sessions)),
            Route("/query", endpoints.query, methods=["POST"]),
            Route("/search", endpoints.query, methods=["POST"]),
            Route("/health", endpoints.health, methods=["GET"]),
        ],
        exception_handlers={404: _not_found, 500: _failed},
    )
    return _logged(guard_app(app, policy))


class _McpEndpoint:
    """`POST /mcp`; there are no sessions, so there is nothing to stream by GET or to DELETE."""

    def __init__(self, sessions: StreamableHTTPSessionManager) -> None:
        self._sessions = sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "POST":
            await self._sessions.handle_request(scope, receive, send)
            return
        error = {"jsonrpc": "2.0", "error": {"code": -32000, "message": "Method not allowed."}, "id": None}
        await JSONResponse(error, status_code=405, headers={"allow": "POST"})(scope, receive, send)


async def _not_found(request: Request, exc: Exception) -> Response:
    return PlainTextResponse("Not Found", status_code=404)


async def _failed(request: Request, exc: Exception) -> Response:
    return _failure(500, f"{type(exc).__name__}: {exc}")


async def _release_while_idle(index: Index) -> None:
    while True:
        await anyio.sleep(_IDLE_POLL_S)
        await anyio.to_thread.run_sync(index.release_idle)


def _logged(app: AsgiApp) -> AsgiApp:
    """`app` with one line on stderr for every request: time, method, path, status, duration."""

    async def logged(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        status = 0
        started = time.monotonic()

        async def watch(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await app(scope, receive, watch)
        finally:
            elapsed_ms = (time.monotonic() - started) * 1000
            _logger.info(
                "%s %s %d (%.0fms)",
                scope["method"],
                scope["path"].encode("unicode_escape").decode(),
                status,
                elapsed_ms,
            )

    return logged


def serve(index: Index, policy: AccessPolicy, port: int) -> None:
    """Listen and serve until SIGTERM or SIGINT.

    Raises:
        UsageError: If the address cannot be bound.
    """
    import uvicorn

    from qmd.server.http_protocol import SHUTDOWN_TIMEOUT_S, EndingServer, prompt_protocol

    logging.basicConfig(level=logging.INFO, format="%(asctime)s.%(msecs)03d %(message)s", datefmt="%H:%M:%S")
    for chatty in ("mcp", "watchfiles"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    listener = _bind(policy.bind_host, port)
    # A port of 0 asks the system for a free one.
    bound_port = listener.getsockname()[1]
    host = f"[{policy.bind_host}]" if ":" in policy.bind_host else policy.bind_host
    config = uvicorn.Config(
        build_app(index, policy),
        http=prompt_protocol(),
        log_config=None,
        access_log=False,
        log_level="warning",
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=SHUTDOWN_TIMEOUT_S,
        lifespan="on",
    )
    sys.stderr.write(f"QMD MCP server listening on http://{host}:{bound_port}/mcp\n")
    sys.stderr.flush()
    # uvicorn shuts down on the first signal and then raises it again for these handlers: without them the process
    # would die of it before its pid file is gone.
    signals = [signal.signal(number, _announce_end) for number in (signal.SIGTERM, signal.SIGINT)]
    try:
        EndingServer(config).run(sockets=[listener])
    finally:
        index.close()
        for number, handler in zip((signal.SIGTERM, signal.SIGINT), signals, strict=True):
            signal.signal(number, handler)


def _announce_end(number: int, frame: object) -> None:
    sys.stderr.write(f"Shutting down ({signal.Signals(number).name})...\n")


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
