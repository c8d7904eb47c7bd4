"""A session of the SDK over this process's stdin and stdout, its first line read, perhaps answered, already."""

from __future__ import annotations

import functools
import io
import logging
import sys
from types import TracebackType
from typing import Any, Self

import anyio
from mcp.server import Server
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCRequest, JSONRPCResponse

from qmd.server.mcp_server import build_server
from qmd.server.service import SearchService

_logger = logging.getLogger("qmd.mcp")

DRAIN_TIMEOUT_S = 5.0
"""How long answers may still be written after the client closed stdin: `printf … | qmd mcp` wants them."""


def run_session(service: SearchService, told: str, first: bytes, answered: int | str | None) -> None:
    """Serve until stdin ends.

    Args:
        service: What answers.
        told: The instructions for the client.
        first: The session's first line.
        answered: Id of the request in it when that has been answered; the SDK's own answer is then kept back.
    """
    anyio.run(functools.partial(_serve, build_server(service, told), first, answered))


async def _serve(server: Server[Any], first: bytes, answered: int | str | None) -> None:
    lines: Any = _Lines(first)
    async with stdio_server(stdin=lines) as (read_stream, write_stream):
        pending = _Pending()
        await server.run(
            _DrainingReader(read_stream, pending),
            _CountingWriter(write_stream, pending, answered),
            server.create_initialization_options(),
        )


class _Lines:
    """The lines of stdin, beginning with one that was read before."""

    def __init__(self, first: bytes) -> None:
        self._first: str | None = first.decode("utf-8", "replace")
        self._rest = anyio.wrap_file(io.TextIOWrapper(sys.stdin.buffer, encoding="utf-8", errors="replace"))

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str:
        first, self._first = self._first, None
        line = first if first is not None else await self._rest.readline()
        if not line:
            raise StopAsyncIteration
        return line


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


class _Stream:
    """One direction of the session, which `pending` is told of; closed with the stream inside."""

    def __init__(self, inner: Any, pending: _Pending) -> None:
        self._inner = inner
        self._pending = pending

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class _DrainingReader(_Stream):
    """The incoming stream, whose end is held back until the requests before it are answered.

    The SDK cancels running handlers as soon as it sees the end.
    """

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

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None


class _CountingWriter(_Stream):
    """The outgoing stream, which notes what has been answered and keeps back what the client has got already."""

    def __init__(self, inner: Any, pending: _Pending, answered: int | str | None) -> None:
        super().__init__(inner, pending)
        self._answered = answered

    async def send(self, item: SessionMessage, /) -> None:
        message = item.message
        if (
            self._answered is not None
            and isinstance(message, (JSONRPCResponse, JSONRPCError))
            and message.id == self._answered
        ):
            self._answered = None
            if isinstance(message, JSONRPCError):
                _logger.error("the opening was answered but is refused: %s", message.error.message)
        else:
            await self._inner.send(item)
        self._pending.saw(message)
