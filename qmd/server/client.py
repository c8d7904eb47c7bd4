"""Asks the warm worker of an index, on behalf of a command. Standard library only, so asking costs nothing.

Every way in which a worker can be missing, dead, hung or of another version ends in None, and the command then does the
work itself.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import qmd
from qmd import errors
from qmd.environment import is_off
from qmd.files import exclusive_lock, make_private_folder, open_private
from qmd.quick_dataclasses import replace
from qmd.server.endpoint import (
    Endpoint,
    WorkerFiles,
    connect,
    read_endpoint,
    receive_message,
    send_message,
    worker_files,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from qmd.config import Locations
    from qmd.indexing import EmbedReport
    from qmd.inference import EngineSettings
    from qmd.records import Query, SearchResponse
    from qmd.retrieval import SearchOptions
    from qmd.server.service import EmbedderFacts

T = TypeVar("T")
MessageSink = Callable[[Mapping[str, Any]], object]
"""Gets what a worker says before it answers: stages, progress."""


_CONNECT_TIMEOUT_S = 2.0
"""Until the worker acknowledges the call. It does so before any work, so a longer wait means that it hangs."""

_ANSWER_TIMEOUT_S = 10.0
"""A working worker sends a sign of life every `HEARTBEAT_S`; silence for this long means that it hangs."""

HEARTBEAT_S = 2.0
_START_TIMEOUT_S = 8.0
_RIVAL_TIMEOUT_S = 2.0
_START_POLL_S = 0.02
DEFAULT_IDLE_EXIT_S = 900.0
"""Seconds after which a worker that was started automatically exits, when nothing asks it any more."""


def ask_daemon(
    locations: Locations,
    query: Query,
    options: SearchOptions,
    settings: EngineSettings,
    roles: Collection[str],
    environ: Mapping[str, str],
    on_stage: Callable[[str], None] | None = None,
) -> SearchResponse | None:
    """What `qmd.retrieval.search` would answer with the engines of `settings` and `roles`, from the warm worker.

    None means that there is no worker to be had (see `ask_worker`); the caller then searches by itself.

    Args:
        locations: The index.
        query: As parsed, with its final scope.
        options: As for `search`.
        settings: Models as decided by this command, its trust in the configuration included.
        roles: `embed`, `rerank`, `expand`: those that the command would load.
        environ: `QMD_DAEMON` and the variables that change results.
        on_stage: Told of each stage as it begins.

    Raises:
        QmdError: What the search failed with.
    """
    if not has_daemon(locations, environ):
        return None
    from qmd.records import SearchResponse
    from qmd.server.wire import to_wire

    params = {"query": to_wire(query), "options": to_wire(options), "roles": sorted(roles)}
    on_message = None if on_stage is None else lambda message: "stage" in message and on_stage(str(message["stage"]))
    return _ask_for(SearchResponse, locations, "search", params, settings, environ, on_message)


def describe_with_daemon(
    locations: Locations, settings: EngineSettings, environ: Mapping[str, str]
) -> EmbedderFacts | None:
    """The embedding model that the warm worker has loaded for `settings`; None when there is no worker to be had."""
    if not has_daemon(locations, environ):
        return None
    from qmd.server.service import EmbedderFacts

    return _ask_for(EmbedderFacts, locations, "describe", {}, settings, environ)


def embed_with_daemon(
    locations: Locations,
    settings: EngineSettings,
    collections: Sequence[str] | None,
    timeout_s: float | None,
    environ: Mapping[str, str],
    on_progress: Callable[[int, int], None],
) -> EmbedReport | None:
    """What `qmd.indexing.embed_pending` would report, from the warm worker.

    None means that there is none to be had, or that it went away; what it computed until then is kept.

    Raises:
        QmdError: What the work failed with.
    """
    if not has_daemon(locations, environ):
        return None
    from qmd.indexing import EmbedReport

    def on_message(message: Mapping[str, Any]) -> None:
        if "progress" in message:
            on_progress(*message["progress"])

    params = {"collections": None if collections is None else list(collections), "timeout_s": timeout_s}
    return _ask_for(EmbedReport, locations, "embed", params, settings, environ, on_message)


def has_daemon(locations: Locations, environ: Mapping[str, str]) -> bool:
    """Whether a worker may be asked: there seems to be one, or one may be started."""
    if is_off(environ.get("QMD_DAEMON")):
        return False
    return _starts_workers(environ) or worker_files(locations.cache, locations.database).record.exists()


def _ask_for(
    kind: type[T],
    locations: Locations,
    call: str,
    params: Mapping[str, object],
    settings: EngineSettings,
    environ: Mapping[str, str],
    on_message: MessageSink | None = None,
) -> T | None:
    """The answer of a call as a record; None when there is none or it makes no sense."""
    from qmd.server.wire import WireError, from_wire, to_wire

    overrides = {name: value for name, value in settings.env.items() if name.startswith("QMD_")}
    settings_ = to_wire(replace(settings, env=overrides))
    answer = ask_worker(locations, call, {**params, "settings": settings_}, environ, on_message)
    try:
        return None if answer is None else from_wire(kind, answer)
    except WireError:
        return None


def _starts_workers(environ: Mapping[str, str]) -> bool:
    return environ.get("QMD_DAEMON", "").strip().lower() == "auto"


def ask_worker(
    locations: Locations,
    call: str,
    params: Mapping[str, object],
    environ: Mapping[str, str],
    on_message: MessageSink | None = None,
) -> dict[str, Any] | None:
    """The worker's answer, or None when the command has to do the work itself.

    `QMD_DAEMON` decides: `off` never asks, `auto` starts a worker when there is none, anything else uses a running one.

    Raises:
        QmdError: What the work itself failed with, as it would have failed here.
    """
    may_start = _starts_workers(environ)
    if is_off(environ.get("QMD_DAEMON")):
        return None
    files = worker_files(locations.cache, locations.database)
    endpoint = read_endpoint(files.record)
    if endpoint is not None:
        answer = _ask(endpoint, call, params, environ, on_message)
        if answer is not None or not may_start or _is_held(files):
            return answer
    if not may_start or not locations.database.exists():
        return None
    started = start_worker(locations, environ)
    return _ask(started, call, params, environ, on_message) if started else None


def start_worker(locations: Locations, environ: Mapping[str, str]) -> Endpoint | None:
    """Start a worker in the background and wait until it listens; None if it does not come up.

    Of several started at once one wins the lock and serves all; the others exit.
    """
    import subprocess

    files = worker_files(locations.cache, locations.database)
    make_private_folder(locations.cache)
    stale = read_endpoint(files.record)
    command = [sys.executable, "-m", "qmd.server.worker", "--database", str(locations.database)]
    command += ["--cache", str(locations.cache), "--idle-exit-s", environ.get("QMD_DAEMON_IDLE", "")]
    try:
        with os.fdopen(open_private(files.log, os.O_WRONLY | os.O_APPEND), "ab") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=dict(environ),
                close_fds=True,
                **_detached(),
            )
    except OSError:
        return None
    deadline = time.monotonic() + _START_TIMEOUT_S
    lost = False
    while time.monotonic() < deadline:
        endpoint = read_endpoint(files.record)
        if endpoint is not None and endpoint != stale:
            return endpoint
        if process.poll() is not None:
            if process.returncode != 0:
                return None
            # Another one holds the lock and is about to listen; unless it hangs, that takes a moment.
            deadline = min(deadline, time.monotonic() + _RIVAL_TIMEOUT_S) if not lost else deadline
            lost = True
        time.sleep(_START_POLL_S)
    return None


def _detached() -> dict[str, Any]:
    """Arguments that keep the worker alive when the terminal closes or its foreground job is interrupted."""
    if sys.platform == "win32":
        import subprocess

        return {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.DETACHED_PROCESS}
    return {"start_new_session": True}


def _is_held(files: WorkerFiles) -> bool:
    """Whether a worker process is alive (it holds the lock), however it behaves."""
    try:
        with exclusive_lock(files.lock) as free:
            return not free
    except OSError:
        return True


def _ask(
    endpoint: Endpoint,
    call: str,
    params: Mapping[str, object],
    environ: Mapping[str, str],
    on_message: MessageSink | None,
) -> dict[str, Any] | None:
    request = {
        "token": endpoint.token,
        "version": qmd.__version__,
        "environment": environment_digest(environ),
        "call": call,
        "params": dict(params),
    }
    try:
        with connect(endpoint, _CONNECT_TIMEOUT_S) as connection, connection.makefile("rwb") as stream:
            send_message(stream, request)
            while (message := receive_message(stream)) is not None:
                connection.settimeout(_ANSWER_TIMEOUT_S)
                if on_message is not None:
                    on_message(message)
                if "error" in message:
                    raise _rebuild_error(message["error"])
                if "result" in message:
                    return dict(message["result"])
                if "refused" in message:
                    return None
    except (OSError, ValueError):
        return None
    return None


def _rebuild_error(fields: Mapping[str, Any]) -> errors.QmdError:
    """The error that the worker met; a subclass unknown to this process becomes its nearest known ancestor."""
    for name in fields.get("classes", ()):
        kind = getattr(errors, str(name), None)
        if isinstance(kind, type) and issubclass(kind, errors.QmdError):
            return kind(str(fields.get("message", "")), fields.get("hint"))
    return errors.QmdError(str(fields.get("message", "")), fields.get("hint"))


# These change how a server is reached or an answer shown, never what is found.
_NEUTRAL = frozenset(
    {
        "QMD_DAEMON",
        "QMD_DAEMON_IDLE",
        "QMD_MODEL_TTL",
        "QMD_REQUEST_TIMEOUT",
        "QMD_HOST",
        "QMD_TOKEN",
        "QMD_ALLOWED_HOSTS",
    }
    | {"QMD_ALLOWED_ORIGINS", "QMD_EDITOR_URI", "QMD_SKILLS_DIR", "QMD_SQLITE_BUSY_TIMEOUT", "QMD_CONFIG_DIR"}
    | {"QMD_TRUST_LOCAL_CONFIG", "QMD_TRUST_UPDATE_HOOKS"}
)
_ALSO_RELEVANT = ("CI", "CUDA_VISIBLE_DEVICES", "HF_ENDPOINT", "OMP_NUM_THREADS", "OPENAI_API_KEY")


def environment_digest(environ: Mapping[str, str]) -> str:
    """Digest of the variables that change results; a worker started under others is not asked."""
    import hashlib

    names = sorted(name for name in environ if name.startswith("QMD_") and name not in _NEUTRAL)
    relevant = [(name, environ[name]) for name in [*names, *_ALSO_RELEVANT] if name in environ]
    return hashlib.sha256(os.fsencode(repr(relevant))).hexdigest()[:16]
