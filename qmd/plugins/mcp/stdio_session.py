"""SDK session over this process's stdin and stdout."""

from __future__ import annotations

import json
import sys
from types import TracebackType
from typing import Any, BinaryIO, Self

import anyio
import anyio.to_thread
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from mcp_types import (
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCRequest,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)

from qmd.app.index import Index
from qmd.plugins.mcp.mcp_server import build_server

MAX_LINE_BYTES = 1024 * 1024
"""Longest message, as over HTTP."""

DRAIN_TIMEOUT_S = 5.0
"""Time to write responses after the client closed stdin: `printf … | qmd mcp` expects them."""


def run_session(index: Index) -> None:
    """Serve until stdin ends."""
    anyio.run(_serve, build_server(index))


async def _serve(server: Server[Any]) -> None:
    lines = _LineReader()
    source: Any = lines
    async with stdio_server(stdin=source) as (read_stream, write_stream):
        lines.refuse_on(write_stream)
        pending = _Pending()
        await server.run(
            _DrainingReader(read_stream, pending),
            _CountingWriter(write_stream, pending),
            server.create_initialization_options(),
        )


def _read_line(stream: BinaryIO) -> bytes:
    """Read the next line; cut a line longer than `MAX_LINE_BYTES` after one more byte."""
    line = rest = stream.readline(MAX_LINE_BYTES + 1)
    while len(rest) > MAX_LINE_BYTES and not rest.endswith(b"\n"):
        rest = stream.readline(MAX_LINE_BYTES + 1)
    return line


class _LineReader:
    """Iterator of the messages on stdin, which answers invalid lines with an error.

    The SDK drops such lines silently, and their sender waits in vain.
    """

    def __init__(self) -> None:
        self._output: Any = None
        self._has_output = anyio.Event()

    def refuse_on(self, output: Any) -> None:
        """Send errors to this stream."""
        self._output = output
        self._has_output.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str:
        while True:
            line = await anyio.to_thread.run_sync(_read_line, sys.stdin.buffer)
            if not line:
                raise StopAsyncIteration
            text = line.decode("utf-8", "replace")
            refusal = _refusal(text, len(line)) if line.strip() else None
            if refusal is None:
                return text
            await self._has_output.wait()
            await self._output.send(SessionMessage(refusal))


def _refusal(line: str, size_bytes: int) -> JSONRPCError | None:
    """Return the error response to an invalid line; None for a valid message."""
    if size_bytes > MAX_LINE_BYTES:
        return _error(None, INVALID_REQUEST, f"message too long: at most {MAX_LINE_BYTES} bytes")
    try:
        jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError:
        pass
    else:
        return None
    # Python's own parser accepts some lines that the SDK refuses, and so may find the id of the request.
    try:
        request = json.loads(line)
    except (ValueError, RecursionError):
        return _error(None, PARSE_ERROR, "the message is not JSON, contains an endless number or nests too deep")
    number = request.get("id") if isinstance(request, dict) else None
    known = number if type(number) in (int, str) and str(number).isprintable() else None
    return _error(known, INVALID_REQUEST, "the message is not a JSON-RPC 2.0 request of valid Unicode")


def _error(number: int | str | None, code: int, message: str) -> JSONRPCError:
    return JSONRPCError(jsonrpc="2.0", id=number, error=ErrorData(code=code, message=message))


class _Pending:
    """Requests read but not yet answered."""

    def __init__(self) -> None:
        self._ids: set[int | str] = set()
        self._is_empty = anyio.Event()

    def track(self, message: object) -> None:
        if isinstance(message, JSONRPCRequest):
            self._ids.add(message.id)
        if isinstance(message, (JSONRPCResponse, JSONRPCError)) and message.id is not None:
            self._ids.discard(message.id)
            if not self._ids:
                self._is_empty.set()
                self._is_empty = anyio.Event()

    async def wait_until_empty(self) -> None:
        """Wait until every request is answered, for at most `DRAIN_TIMEOUT_S`."""
        with anyio.move_on_after(DRAIN_TIMEOUT_S):
            while self._ids:
                await self._is_empty.wait()


class _Stream:
    """One direction of the session; tracks messages in `pending`, and closes the inner stream."""

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
    """Incoming stream that delays its end until all requests are answered.

    The SDK cancels running handlers at the end of the stream.
    """

    async def receive(self) -> SessionMessage | Exception:
        try:
            item: SessionMessage | Exception = await self._inner.receive()
        except anyio.EndOfStream:
            await self._pending.wait_until_empty()
            raise
        if isinstance(item, SessionMessage):
            self._pending.track(item.message)
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
    """Outgoing stream that marks requests as answered."""

    async def send(self, item: SessionMessage, /) -> None:
        await self._inner.send(item)
        self._pending.track(item.message)
