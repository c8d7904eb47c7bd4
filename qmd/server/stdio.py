"""MCP over stdin and stdout: ends when the client closes stdin, or dies without doing so."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import anyio
from mcp.server import Server
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCRequest, JSONRPCResponse

from qmd.server.mcp_server import build_server, log_to_stderr
from qmd.server.service import SearchService

DRAIN_TIMEOUT_S = 5.0
"""How long answers may still be written after the client closed stdin: `printf … | qmd mcp` wants them."""

_PARENT_POLL_S = 1.0
_IDLE_POLL_S = 5.0


def run_stdio(service: SearchService) -> None:
    """Serve one client on this process's stdin and stdout, then end the process with status 0."""
    log_to_stderr()
    # The reader thread blocks in read(2), where an interrupt handler of Python's never gets to run.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    _watch_parent(lambda: _end("the parent process is gone"))
    _release_while_idle(service)
    anyio.run(_serve, build_server(service))
    _end("stdin closed")


def _end(reason: str) -> None:
    """Leave at once: models and readers hold nothing that must be written, and a running search cannot be joined."""
    try:
        sys.stderr.write(f"Shutting down ({reason})...\n")
        sys.stderr.flush()
        sys.stdout.flush()
    except OSError:
        # The client took the pipes with it.
        pass
    os._exit(0)


def _watch_parent(on_death: Callable[[], None]) -> None:
    """Call back when the process that started this one has died; a wrapper may keep our stdin open for ever."""
    parent = os.getppid()
    if parent <= 1 or sys.platform == "win32":
        return

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_PARENT_POLL_S)
        on_death()

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def _release_while_idle(service: SearchService) -> None:
    def release() -> None:
        while True:
            time.sleep(_IDLE_POLL_S)
            service.release_idle()

    threading.Thread(target=release, name="idle-release", daemon=True).start()


async def _serve(server: Server[Any]) -> None:
    async with stdio_server() as (read_stream, write_stream):
        pending = _Pending()
        await server.run(
            _DrainingReader(read_stream, pending),
            _CountingWriter(write_stream, pending),
            server.create_initialization_options(),
        )


class _Pending:
    """Requests read but not yet answered."""

    def __init__(self) -> None:
        self._ids: set[int | str] = set()
        self._is_empty = anyio.Event()

    def saw(self, message: object) -> None:
        if isinstance(message, JSONRPCRequest):
            self._ids.add(message.id)
        if isinstance(message, (JSONRPCResponse, JSONRPCError)) and message.id is not None:
            self._ids.discard(message.id)
            if not self._ids:
                self._is_empty.set()
                self._is_empty = anyio.Event()

    async def drained(self) -> None:
        """Return once everything is answered, or the time for it is over."""
        with anyio.move_on_after(DRAIN_TIMEOUT_S):
            while self._ids:
                await self._is_empty.wait()


class _DrainingReader:
    """The incoming stream, whose end is held back until the requests before it are answered.

    The SDK cancels running handlers as soon as it sees the end.
    """

    def __init__(self, inner: Any, pending: _Pending) -> None:
        self._inner = inner
        self._pending = pending

    async def receive(self) -> SessionMessage | Exception:
        try:
            item: SessionMessage | Exception = await self._inner.receive()
        except anyio.EndOfStream:
            await self._pending.drained()
            raise
        if isinstance(item, SessionMessage):
            self._pending.saw(item.message)
        return item

    @property
    def last_context(self) -> Any:
        return getattr(self._inner, "last_context", None)

    async def aclose(self) -> None:
        await self._inner.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class _CountingWriter:
    """The outgoing stream, which notes what has been answered."""

    def __init__(self, inner: Any, pending: _Pending) -> None:
        self._inner = inner
        self._pending = pending

    async def send(self, item: SessionMessage, /) -> None:
        await self._inner.send(item)
        self._pending.saw(item.message)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
