"""The server's side of the warm process: its publication, the route that commands ask, and when it has served."""

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
from qmd.app.searching import SearchRequest, read_request
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
from qmd.retrieval.trace import CancelledSearch

_logger = logging.getLogger("qmd.warm")

_IDLE = "QMD_DAEMON_IDLE"
_DEFAULT_IDLE_S = 900.0


class WarmProcess:
    """This server as the warm process of an index: its socket for commands, which they find once it is published.

    Raises:
        OSError: The socket cannot be made.
        UsageError: `QMD_DAEMON_IDLE` holds no duration.
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
            # No command shall knock in vain.
            if self._is_published:
                self._files.record.unlink(missing_ok=True)
                self._files.socket.unlink(missing_ok=True)

    def has_served(self, idle_s: float) -> bool:
        """Whether nobody will miss it: asked too long ago, without an index, or replaced by another one."""
        is_forgotten = self._idle_exit_s is not None and idle_s >= self._idle_exit_s
        # Whether there is an index at an address is not asked time and again.
        has_no_index = self._locations.address is None and not self._locations.database.exists()
        return is_forgotten or has_no_index or not self._is_published

    @property
    def _is_published(self) -> bool:
        return read_record(self._files) == self._record


class SearchRoute:
    """Answers the search of a command, line by line: its stages, and the response or what it failed with.

    Empty lines in between say that it is still at work: loading models from a slow disk takes a while.
    """

    def __init__(self, index: Index) -> None:
        self._index = index

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
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
            tasks.start_soon(client.reassure)
            try:
                answer = await client.wait_while_connected(
                    receive, self._index.timeout_s, lambda: self._index.search(wanted, client)
                )
                await client.say(Answer(answer))
            except QmdError as error:
                # The command knows the classes of `qmd.errors`, and not those that are derived from them elsewhere.
                kind = next(kind for kind in type(error).__mro__ if kind.__module__ == QmdError.__module__)
                await client.say(Failure(kind.__name__, error.message, error.hint))
            except CancelledSearch:
                pass
            except Exception:
                # Without an answer the command searches by itself, where the failure shows.
                _logger.exception("search failed")
            tasks.cancel_scope.cancel()
        await send({"type": "http.response.body", "body": b""})
        if wanted.budget_ms is not None:
            # It may have been answered without models because there was no time to load them.
            await anyio.to_thread.run_sync(_load_models, self._index, wanted)


def _load_models(index: Index, wanted: SearchRequest) -> None:
    """Have the models of a search ready for the next one."""
    # What is wrong with them or with the query has been answered.
    with suppress(QmdError), index.engines(read_request(wanted).roles):
        pass


class _CommandListener(AsyncListener):
    """Whoever waits at the other end."""

    def __init__(self, send: Send) -> None:
        self._send = send

    async def say(self, said: Message | None) -> None:
        line = json.encode(said) if said is not None else b""
        await self._send({"type": "http.response.body", "body": line + b"\n", "more_body": True})

    async def reassure(self) -> None:
        while True:
            await self.say(None)
            await anyio.sleep(HEARTBEAT_S)

    def stage(self, name: str, /) -> None:
        """See `Listener`."""
        anyio.from_thread.run(self.say, Stage(name))
