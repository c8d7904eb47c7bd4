"""Record and messages of the warm process of an index.

The process listens on a Unix socket in the cache folder, or else on a loopback port. A record next to the socket
contains this address and a token. Only the owner can read the record, and so use the process.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct, json

import qmd
from qmd.config.paths import Locations
from qmd.files import is_recent, sha256, write_atomically
from qmd.records import SearchResponse

SEARCH_PATH = "/index/search"
"""Route for searches of commands."""

HEARTBEAT_S = 2.0
"""Interval of empty lines while a search runs."""

_MAX_SOCKET_PATH = 100
"""Bytes. `sun_path` has 104 on macOS and 108 on Linux, with the closing zero."""

_START_TIMEOUT_S = 10.0

_PROBE_TIMEOUT_S = 0.5


class WarmFiles(Struct, frozen=True):
    """Files of one index's warm process."""

    record: Path
    lock: Path
    """Locked during the start of the process."""
    socket: Path
    log: Path


class WarmRecord(Struct, frozen=True, forbid_unknown_fields=True):
    """Warm process. Commands of another version or environment do not use it."""

    pid: int
    version: str
    environment: str
    token: str
    address: str | int | None
    """Path of a Unix socket, or loopback port; None during the start of the process."""

    def answers(self, environ: Mapping[str, str]) -> bool:
        """Return whether a command of this version and environment may use it."""
        return (self.version, self.environment) == (qmd.__version__, environment_digest(environ))


class Stage(Struct, frozen=True, tag=True):
    """Stage that a search has reached."""

    name: str


class Answer(Struct, frozen=True, tag=True):
    """Response of a search."""

    response: SearchResponse


class Failure(Struct, frozen=True, tag=True):
    """`QmdError`: the name of its class in `qmd.errors`, message and hint."""

    kind: str
    message: str
    hint: str | None


Message = Stage | Answer | Failure
"""Line that the warm process sends during a search."""


def warm_files(locations: Locations) -> WarmFiles:
    """Return the files of the warm process for an index and its configuration."""
    key = sha256(os.fsencode(f"{locations.database}\0{locations.config_file}"))[:12]
    record, lock, sock, log = (locations.cache / f"warm-{key}.{end}" for end in ("json", "lock", "sock", "log"))
    return WarmFiles(record, lock, sock, log)


def make_record(environ: Mapping[str, str], address: str | int | None) -> WarmRecord:
    """Return the record of this process, or, without an address, of a process that is about to start."""
    pid, token = (0, "") if address is None else (os.getpid(), os.urandom(32).hex())
    return WarmRecord(pid, qmd.__version__, environment_digest(environ), token, address)


def write_record(files: WarmFiles, record: WarmRecord) -> None:
    """Publish a warm process, readable only by its owner; an earlier process then ends."""
    write_atomically(files.record, json.encode(record).decode())


def read_record(files: WarmFiles) -> WarmRecord | None:
    """Read the record of a warm process, which may be dead; None without a usable record."""
    try:
        return json.decode(files.record.read_bytes(), type=WarmRecord)
    except (OSError, ValueError):
        return None


def serving_process(locations: Locations, environ: Mapping[str, str]) -> int | None:
    """Return the id of the live process that serves an index under the settings of this one, or None."""
    record = read_record(warm_files(locations))
    if record is None or not record.answers(environ):
        return None
    try:
        connect(record.address or 0, _PROBE_TIMEOUT_S).close()
    except OSError:
        return None
    return record.pid


def is_starting(files: WarmFiles, record: WarmRecord | None) -> bool:
    """Return whether a process is starting and has not published its address yet."""
    return record is not None and record.address is None and is_recent(files.record, _START_TIMEOUT_S)


def listen(files: WarmFiles) -> tuple[socket.socket, str | int]:
    """Open a socket for commands; return it with its address.

    Raises:
        OSError: The socket cannot be made.
    """
    if sys.platform == "win32" or len(os.fsencode(files.socket)) > _MAX_SOCKET_PATH:
        tcp = socket.create_server(("127.0.0.1", 0))
        return tcp, int(tcp.getsockname()[1])
    files.socket.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(files.socket))
    files.socket.chmod(0o600)
    listener.listen(64)
    return listener, str(files.socket)


def connect(address: str | int, timeout_s: float) -> socket.socket:
    """Connect to a warm process.

    Raises:
        OSError: No process listens there.
    """
    if sys.platform == "win32" or isinstance(address, int):
        return socket.create_connection(("127.0.0.1", int(address)), timeout_s)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout_s)
        connection.connect(address)
    except OSError:
        connection.close()
        raise
    return connection


# These change the address of a server or the output, never the results.
_NEUTRAL = frozenset(
    {"QMD_DAEMON", "QMD_DAEMON_IDLE", "QMD_MODEL_TTL", "QMD_REQUEST_TIMEOUT", "QMD_HOST", "QMD_TOKEN", "QMD_DEBUG"}
    | {"QMD_ALLOWED_HOSTS", "QMD_ALLOWED_ORIGINS", "QMD_EDITOR_URI", "QMD_SKILLS_DIR", "QMD_SQLITE_BUSY_TIMEOUT"}
    | {"QMD_CONFIG_DIR", "QMD_PAGER"}
)
_ALSO_RELEVANT = ("CI", "CUDA_VISIBLE_DEVICES", "HF_ENDPOINT", "OMP_NUM_THREADS", "OPENAI_API_KEY")


def environment_digest(environ: Mapping[str, str]) -> str:
    """Return a digest of the variables that change results."""
    names = sorted(name for name in environ if name.startswith("QMD_") and name not in _NEUTRAL)
    relevant = [(name, environ[name]) for name in [*names, *_ALSO_RELEVANT] if name in environ]
    return sha256(os.fsencode(repr(relevant)))[:16]
