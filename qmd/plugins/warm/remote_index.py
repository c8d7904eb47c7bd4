"""Index for commands that sends searches with models to the warm process.

If that process is missing, dead, hung or another one, the command searches by itself and does not wait.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Unpack

from msgspec import json
from msgspec.structs import replace

import qmd
from qmd import errors
from qmd.app.index import Index
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
from qmd.retrieval.request import SearchRequest, as_request
from qmd.retrieval.trace import Listener
from qmd.switches import is_off

if TYPE_CHECKING:
    from qmd.app.configuration import Configuration
    from qmd.app.notices import Notices
    from qmd.config.paths import Locations
    from qmd.records import SubQuery
    from qmd.retrieval.request import SearchKeywords

_SWITCH = "QMD_DAEMON"

_CONNECT_TIMEOUT_S = 2.0
"""Time until the warm process begins its response. It does so before any work, so a longer wait means that it hangs."""

_SILENCE_S = 5 * HEARTBEAT_S
"""Time without a line after which the process counts as hung."""


def may_use_warm_process(locations: Locations, environ: Mapping[str, str]) -> bool:
    """Return whether a warm process seems to exist or may be started; `QMD_DAEMON` decides."""
    if is_off(environ.get(_SWITCH)):
        return False
    return _may_start(environ) or warm_files(locations).record.exists()


def warm_index(
    locations: Locations, configuration: Configuration, environ: Mapping[str, str], *, notices: Notices
) -> Index | None:
    """Return an index that uses the warm process, if `may_use_warm_process` allows it."""
    if may_use_warm_process(locations, environ):
        return RemoteIndex(locations, configuration, environ, notices=notices)
    return None


def _may_start(environ: Mapping[str, str]) -> bool:
    return environ.get(_SWITCH, "").strip().lower() == "auto"


class RemoteIndex(Index):
    """Index that sends searches with models to the warm process, and does the rest itself.

    With `QMD_DAEMON=auto` it starts a missing process, after its own search: a process that must first load its models
    would not be faster, and would compete with the search for the processor.
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
        **keywords: Unpack[SearchKeywords],
    ) -> SearchResponse:
        request = as_request(query, collections, keywords)
        if request.mode == "lexical":
            return super().search(request, listener)
        # The warm process applies the same settings, but cannot ask for trust or warn about ignored settings.
        self._configuration.settings()
        record = read_record(self._files)
        response = None
        if record is not None and record.answers(self._whole_environ):
            response = _ask(record, replace(request, folder=request.folder or str(self._locations.cwd)), listener)
        if response is not None:
            return response
        response = super().search(request, listener)
        if _may_start(self._whole_environ):
            self._start(record)
        return response

    def _start(self, found: WarmRecord | None) -> None:
        """Start a warm process to replace `found`, unless that serves other settings or another command did so."""
        serves_others = (
            found is not None
            and found.version == qmd.__version__
            and found.environment != environment_digest(self._whole_environ)
        )
        if serves_others or is_starting(self._files, found):
            return
        from qmd.plugins.warm.lifecycle import command_on, start_process

        # If the cache is read-only, the next search is merely as slow as this one.
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
    """Return the warm process's response; None if there is none.

    Raises:
        QmdError: The search failed, as it would have failed here.
    """
    if record.address is None:
        return None
    try:
        body = json.encode(request)
    except UnicodeEncodeError:
        # JSON cannot express half a surrogate pair.
        return None
    # A response to HTTP/1.0 has no chunks, and ends with its connection.
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
                message: Message = json.decode(line, type=Message)
                if isinstance(message, Answer):
                    return message.response
                if not isinstance(message, Stage):
                    raise getattr(errors, message.kind)(message.message, message.hint)
                listener.stage(message.name)
    except (OSError, ValueError):
        pass
    return None
