"""Where the warm process of an index is reached, for whom it answers, and what it says.

The process listens on a Unix socket in the cache folder, or on a loopback port where there are none. A record beside it
holds that address and a token: whoever can read the record, which is its owner, may ask.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct, json

import qmd
from qmd.config.paths import Locations
from qmd.files import sha256, write_atomically
from qmd.records import SearchResponse

SEARCH_PATH = "/index/search"
"""What a command posts its search to."""

HEARTBEAT_S = 2.0
"""Between two signs of life while a search runs."""

_MAX_SOCKET_PATH = 100
"""Bytes. `sun_path` holds 104 on macOS and 108 on Linux, with the closing zero."""

_START_TIMEOUT_S = 10.0

_PROBE_TIMEOUT_S = 0.5


class WarmFiles(Struct, frozen=True):
    """The files of one index's warm process."""

    record: Path
    lock: Path
    """Held by whoever starts it."""
    socket: Path
    log: Path


class WarmRecord(Struct, frozen=True, forbid_unknown_fields=True):
    """A warm process. Commands of another version or environment do not ask it."""

    pid: int
    version: str
    environment: str
    token: str
    address: str | int | None
    """Path of a Unix socket, or loopback port; None while the process is being started."""

    def answers(self, environ: Mapping[str, str]) -> bool:
        """Whether a command of this version and environment may ask it."""
        return (self.version, self.environment) == (qmd.__version__, environment_digest(environ))


class Stage(Struct, frozen=True, tag=True):
    """A search has come so far."""

    name: str


class Answer(Struct, frozen=True, tag=True):
    """What a search found."""

    response: SearchResponse


class Failure(Struct, frozen=True, tag=True):
    """A `QmdError`: the name of its class in `qmd.errors`, and its two lines."""

    kind: str
    message: str
    hint: str | None


Message = Stage | Answer | Failure
"""A line of the answer to a search."""


def warm_files(locations: Locations) -> WarmFiles:
    """The files of the warm process for an index and its configuration."""
    key = sha256(os.fsencode(f"{locations.database}\0{locations.config_file}"))[:12]
    record, lock, sock, log = (locations.cache / f"warm-{key}.{end}" for end in ("json", "lock", "sock", "log"))
    return WarmFiles(record, lock, sock, log)


def make_record(environ: Mapping[str, str], address: str | int | None) -> WarmRecord:
    """The record of this process; without an address, that of one that is about to be started."""
    pid, token = (0, "") if address is None else (os.getpid(), os.urandom(32).hex())
    return WarmRecord(pid, qmd.__version__, environment_digest(environ), token, address)


def write_record(files: WarmFiles, record: WarmRecord) -> None:
    """Publish a warm process, for its owner alone; the one before it then finds that it was replaced, and ends."""
    write_atomically(files.record, json.encode(record).decode())


def read_record(files: WarmFiles) -> WarmRecord | None:
    """The warm process as published, dead or alive; None without a usable record."""
    try:
        return json.decode(files.record.read_bytes(), type=WarmRecord)
    except (OSError, ValueError):
        return None


def serving_process(locations: Locations, environ: Mapping[str, str]) -> int | None:
    """The process that serves an index under the same settings as this one's, if there is one that answers."""
    record = read_record(warm_files(locations))
    if record is None or not record.answers(environ):
        return None
    try:
        connect(record.address or 0, _PROBE_TIMEOUT_S).close()
    except OSError:
        return None
    return record.pid


def is_starting(files: WarmFiles, record: WarmRecord | None) -> bool:
    """Whether a process is on its way that has not said yet where it is reached."""
    try:
        age_s = time.time() - files.record.stat().st_mtime
    except OSError:
        return False
    return record is not None and record.address is None and age_s < _START_TIMEOUT_S


def listen(files: WarmFiles) -> tuple[socket.socket, str | int]:
    """A socket for commands, and its address.

    Raises:
        OSError: There can be none.
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
    """A connection to a warm process.

    Raises:
        OSError: Nothing listens there any more.
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


# These change how a server is reached or an answer shown, never what is found.
_NEUTRAL = frozenset(
    {"QMD_DAEMON", "QMD_DAEMON_IDLE", "QMD_MODEL_TTL", "QMD_REQUEST_TIMEOUT", "QMD_HOST", "QMD_TOKEN", "QMD_DEBUG"}
    | {"QMD_ALLOWED_HOSTS", "QMD_ALLOWED_ORIGINS", "QMD_EDITOR_URI", "QMD_SKILLS_DIR", "QMD_SQLITE_BUSY_TIMEOUT"}
    | {"QMD_CONFIG_DIR", "QMD_PAGER"}
)
_ALSO_RELEVANT = ("CI", "CUDA_VISIBLE_DEVICES", "HF_ENDPOINT", "OMP_NUM_THREADS", "OPENAI_API_KEY")


def environment_digest(environ: Mapping[str, str]) -> str:
    """Digest of the variables that change results."""
    names = sorted(name for name in environ if name.startswith("QMD_") and name not in _NEUTRAL)
    relevant = [(name, environ[name]) for name in [*names, *_ALSO_RELEVANT] if name in environ]
    return sha256(os.fsencode(repr(relevant)))[:16]
