"""Connections that send nothing, or half a request, and more connections than file descriptors."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from qmd.plugins.mcp.guard import AccessPolicy, guard_app
from qmd.plugins.mcp.http_server import TimedServer, prompt_protocol

WHOLE = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def answer(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@contextmanager
def serving(timeout_s: float, max_connections: int) -> Iterator[Callable[[], socket.socket]]:
    """Factory of connections to a server with this timeout."""
    listener = socket.create_server(("127.0.0.1", 0))
    app = guard_app(answer, AccessPolicy("127.0.0.1"))
    protocol = prompt_protocol(timeout_s, max_connections)
    server = TimedServer(uvicorn.Config(app, http=protocol, lifespan="off", log_config=None))
    thread = threading.Thread(target=lambda: server.run(sockets=[listener]), daemon=True)
    thread.start()
    try:
        yield lambda: socket.create_connection(listener.getsockname()[:2], timeout=60)
    finally:
        server.should_exit = True
        thread.join(60)


def read_answer(connection: socket.socket) -> bool:
    """Return whether a whole response arrives."""
    found = b""
    while not found.endswith(b"ok"):
        part = connection.recv(1000)
        if not part:
            return False
        found += part
    return found.startswith(b"HTTP/1.1 200 OK")


def is_closed(connection: socket.socket) -> bool:
    """Return whether the connection closes; an open connection runs into the timeout."""
    try:
        return connection.recv(1000) == b""
    except ConnectionResetError:
        return True


HALF = b"POST /query HTTP/1.1\r\nHost: local"


@pytest.mark.parametrize("half", [b"", HALF, HALF + b"host\r\nContent-Length: 100\r\n\r\n{", WHOLE + b"GET / HTT"])
def test_half_a_request_is_not_waited_for(half: bytes) -> None:
    with serving(0.3, 16) as connect, connect() as connection:
        connection.sendall(half)
        if half.startswith(WHOLE):
            assert read_answer(connection)
        assert is_closed(connection)


def test_a_request_that_comes_byte_by_byte_is_not_waited_for() -> None:
    with serving(0.3, 16) as connect, connect() as connection:
        connection.settimeout(0.05)
        for _ in range(1000):
            try:
                connection.sendall(b"x")
                if connection.recv(1000) == b"":
                    return
            except TimeoutError:
                continue
            except OSError:
                return
    pytest.fail("the connection stayed open")


def test_silent_connections_make_room_for_new_ones() -> None:
    with serving(60, 4) as connect, ExitStack() as stack:
        silent = [stack.enter_context(connect()) for _ in range(12)]
        with connect() as connection:
            connection.sendall(WHOLE)
            assert read_answer(connection)
        assert all(is_closed(one) for one in silent[:8])


def test_a_connection_that_asks_in_time_stays() -> None:
    with serving(60, 16) as connect, connect() as connection:
        for _ in range(3):
            connection.sendall(WHOLE)
            assert read_answer(connection)


SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n"
CHUNKED = b"Transfer-Encoding: chunked"


@pytest.mark.parametrize(
    "lengths",
    [
        b"Content-Length: 48\r\n" + CHUNKED,
        CHUNKED + b"\r\nContent-Length: 48",
        b"content-length: 0\r\nTRANSFER-ENCODING:   Chunked  ",
        b"X: y\r\n " + CHUNKED + b"\r\nContent-Length: 5\r\n" + CHUNKED,
        b"Content-Length: 5\r\nContent-Length: 60",
        b"Content-Length: 5, 60",
        b"Content-Length: +5",
        CHUNKED + b"\r\nTransfer-Encoding: identity",
        b"Content-Length: 5\r\nTransfer-Encoding : chunked",
        b"Content-Length: 5\r\nTransfer-Encoding:\x0bchunked",
    ],
)
def test_a_body_of_two_lengths_is_refused_and_nothing_after_it_is_read(lengths: bytes) -> None:
    with serving(60, 16) as connect:
        for route in (b"GET /health", b"POST /mcp", b"POST /query", b"GET /", b"DELETE /page/x", b"HEAD *"):
            with connect() as connection:
                head = route + b" HTTP/1.1\r\nHost: localhost\r\n" + lengths
                connection.sendall(head + b"\r\n\r\n0\r\n\r\n" + SMUGGLED)
                found = b"".join(iter(lambda: connection.recv(1000), b""))
            assert found.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 501 "))
            assert found.count(b"HTTP/1.1") == 1
