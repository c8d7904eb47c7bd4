"""An index whose model searches the warm process answers, on behalf of a command.

Every way in which that process can be missing, dead, hung or another than was meant ends with the command searching by
itself, and none makes it wait.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Unpack

from msgspec import json

import qmd
from qmd import errors
from qmd.app.index import Index
from qmd.app.searching import SearchRequest, as_request
from qmd.files import exclusive_lock
from qmd.plugins.warm.record import (
    HEARTBEAT_S,
    SEARCH_PATH,
    Answer,
    Message,
    Stage,
    WarmRecord,
    connect,
    environment_digest,
    is_starting,
    make_record,
    read_record,
    warm_files,
    write_record,
)
from qmd.records import SearchResponse
from qmd.retrieval.trace import Listener
from qmd.switches import is_off

if TYPE_CHECKING:
    from qmd.app.configuration import Configuration
    from qmd.app.notices import Notices
    from qmd.app.searching import SearchWishes
    from qmd.config.paths import Locations
    from qmd.records import SubQuery

_SWITCH = "QMD_DAEMON"

_CONNECT_TIMEOUT_S = 2.0
"""Until the warm process begins its answer. It does so before any work, so a longer wait means that it hangs."""

_SILENCE_S = 5 * HEARTBEAT_S
"""Without a sign of life for so long it hangs."""


def may_ask(locations: Locations, environ: Mapping[str, str]) -> bool:
    """Whether there seems to be a warm process, or one may be started; `QMD_DAEMON` decides."""
    if is_off(environ.get(_SWITCH)):
        return False
    return _may_start(environ) or warm_files(locations).record.exists()


def warm_index(
    locations: Locations, configuration: Configuration, environ: Mapping[str, str], *, notices: Notices
) -> Index | None:
    """An index that asks the warm process, where `may_ask` allows it."""
    if may_ask(locations, environ):
        return RemoteIndex(locations, configuration, environ, notices=notices)
    return None


def _may_start(environ: Mapping[str, str]) -> bool:
    return environ.get(_SWITCH, "").strip().lower() == "auto"


class RemoteIndex(Index):
    """An index that asks the warm process for what needs models, and does the rest itself.

    With `QMD_DAEMON=auto` it starts the process where there is none. The search that finds it missing does not wait for
    it, and starts it when it has its own answer: by then a process that has yet to load its models could not have been
    sooner, and would have taken the processor from the search.
    """

    def __init__(
        self, locations: Locations, configuration: Configuration, environ: Mapping[str, str], *, notices: Notices
    ) -> None:
        super().__init__(locations, configuration, environ, notices=notices)
        self._files = warm_files(locations)
        self._whole_environ = environ

    def search(
        self,
        query: str | Sequence[SubQuery] | SearchRequest,
        listener: Listener = Listener(),
        *,
        collections: str | Sequence[str] | None = None,
        **wishes: Unpack[SearchWishes],
    ) -> SearchResponse:
        """See `Index.search`."""
        request = as_request(query, collections, wishes)
        if request.mode == "lexical":
            return super().search(request, listener)
        # The warm process decides the same, but cannot ask this user for trust, or say what is ignored without it.
        self._configuration.settings()
        record = read_record(self._files)
        response = None
        if record is not None and record.answers(self._whole_environ):
            response = _ask(record, request, listener)
        if response is not None:
            return response
        response = super().search(request, listener)
        if _may_start(self._whole_environ):
            self._start(record)
        return response

    def _start(self, found: WarmRecord | None) -> None:
        """Start a warm process in the place of `found`, unless that serves others or somebody else has done so."""
        is_of_others = (
            found is not None
            and found.version == qmd.__version__
            and found.environment != environment_digest(self._whole_environ)
        )
        if is_of_others or is_starting(self._files, found):
            return
        from qmd.plugins.warm.lifecycle import command_on, start_process

        # A cache that cannot be written only means that the next search is as slow as this one.
        try:
            with exclusive_lock(self._files.lock) as is_ours:
                if is_ours and read_record(self._files) == found:
                    write_record(self._files, make_record(self._whole_environ, None))
                    words = ("mcp", "--http", "--socket-only")
                    arguments, environ = command_on(self._locations, self._whole_environ, words)
                    start_process(arguments, self._files.log, environ)
        except OSError as exc:
            self._notices.warn(f"the warm process was not started: {exc.strerror}")


def _ask(record: WarmRecord, request: SearchRequest, listener: Listener) -> SearchResponse | None:
    """The warm process's answer; None when it gives none.

    Raises:
        QmdError: What the search failed with, as it would have failed here.
    """
    if record.address is None:
        return None
    try:
        body = json.encode(request)
    except UnicodeEncodeError:
        # Half a surrogate pair, which JSON cannot say.
        return None
    # An answer to HTTP/1.0 comes without chunks, and ends with its connection.
    head = f"POST {SEARCH_PATH} HTTP/1.0\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
    head += f"Authorization: Bearer {record.token}\r\n\r\n"
    try:
        with connect(record.address, _CONNECT_TIMEOUT_S) as connection, connection.makefile("rb") as stream:
            connection.sendall(head.encode() + body)
            if stream.readline().split(b" ")[1:2] != [b"200"]:
                return None
            connection.settimeout(_SILENCE_S)
            while stream.readline().strip():
                pass
            for line in stream:
                listener.check()
                if not line.strip():
                    continue
                said: Message = json.decode(line, type=Message)
                if isinstance(said, Answer):
                    return said.response
                if not isinstance(said, Stage):
                    raise getattr(errors, said.kind)(said.message, said.hint)
                listener.stage(said.name)
    except (OSError, ValueError):
        pass
    return None
