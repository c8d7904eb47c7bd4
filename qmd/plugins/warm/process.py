"""Server side of the warm process: publication, route for commands, and end."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

import anyio
import anyio.from_thread
import anyio.to_thread
from msgspec import json
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from qmd.app.deadlines import parse_duration
from qmd.app.index import Index
from qmd.config.paths import Locations
from qmd.errors import QmdError
from qmd.files import make_private_folder
from qmd.plugins.warm.deadline import AsyncListener
from qmd.plugins.warm.record import (
    HEARTBEAT_S,
    Answer,
    Failure,
    Message,
    Stage,
    listen,
    make_record,
    read_record,
    warm_files,
    write_record,
)
from qmd.retrieval.query import read_query, roles_of
from qmd.retrieval.request import SearchRequest
from qmd.retrieval.trace import CancelledSearch

_logger = logging.getLogger("qmd.warm")

_IDLE = "QMD_DAEMON_IDLE"
_DEFAULT_IDLE_S = 900.0


class WarmProcess:
    """Warm process of an index: a socket for commands, and its publication.

    Raises:
        OSError: The socket cannot be made.
        UsageError: `QMD_DAEMON_IDLE` is no duration.
    """

    def __init__(self, locations: Locations, environ: Mapping[str, str]) -> None:
        self._locations = locations
        self._files = warm_files(locations)
        self._idle_exit_s = parse_duration(_IDLE, environ.get(_IDLE), _DEFAULT_IDLE_S)
        make_private_folder(locations.cache)
        self.socket, address = listen(self._files)
        self._record = make_record(environ, address)
        self.token = self._record.token

    @contextmanager
    def published(self) -> Iterator[None]:
        """Let commands find this process, and no other, while the block runs."""
        try:
            write_record(self._files, self._record)
        except OSError as error:
            _logger.warning("commands cannot find this process: %s", error)
        try:
            yield
        finally:
            # Later commands must not wait for this process.
            if self._is_published:
                self._files.record.unlink(missing_ok=True)
                self._files.socket.unlink(missing_ok=True)

    def may_end(self, idle_s: float) -> bool:
        """Return whether the process may end: idle for too long, without an index, or replaced by another one."""
        is_idle = self._idle_exit_s is not None and idle_s >= self._idle_exit_s
        # An index at an address is not checked, because each check would be a request.
        has_no_index = self._locations.address is None and not self._locations.database.exists()
        return is_idle or has_no_index or not self._is_published

    @property
    def _is_published(self) -> bool:
        return read_record(self._files) == self._record


class SearchRoute:
    """Route for searches of commands. It sends lines: the stages, then the response or the error.

    Empty lines in between show that the process still works: loading models from a slow disk takes a while.
    """

    def __init__(self, index: Index) -> None:
        self._index = index

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            wanted = json.decode(await Request(scope, receive).body(), type=SearchRequest)
        except ValueError:
            wanted = None
        if scope["method"] != "POST" or wanted is None:
            await PlainTextResponse("Bad Request", status_code=400)(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
        client = _CommandListener(send)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.send_heartbeats)
            try:
                answer = await client.wait_while_connected(
                    receive, self._index.timeout_s, lambda: self._index.search(wanted, client)
                )
                await client.send_line(Answer(answer))
            except QmdError as error:
                # The command knows only the classes of `qmd.errors`, not those derived from them.
                kind = next(kind for kind in type(error).__mro__ if kind.__module__ == QmdError.__module__)
                await client.send_line(Failure(kind.__name__, error.message, error.hint))
            except CancelledSearch:
                pass
            except Exception:
                # Without a response the command searches by itself and shows the failure.
                _logger.exception("search failed")
            tasks.cancel_scope.cancel()
        await send({"type": "http.response.body", "body": b""})
        if wanted.budget_ms is not None:
            # The budget may have left no time to load the models.
            await anyio.to_thread.run_sync(_load_models, self._index, wanted)


def _load_models(index: Index, wanted: SearchRequest) -> None:
    """Load the models of a search for the next one; the response has already reported errors."""
    with suppress(QmdError), index.engines(roles_of(wanted, read_query(wanted))):
        pass


class _CommandListener(AsyncListener):
    """Command that waits at the other end of the connection."""

    def __init__(self, send: Send) -> None:
        self._send = send

    async def send_line(self, message: Message | None) -> None:
        line = json.encode(message) if message is not None else b""
        await self._send({"type": "http.response.body", "body": line + b"\n", "more_body": True})

    async def send_heartbeats(self) -> None:
        while True:
            await self.send_line(None)
            await anyio.sleep(HEARTBEAT_S)

    def stage(self, name: str, /) -> None:
        anyio.from_thread.run(self.send_line, Stage(name))
