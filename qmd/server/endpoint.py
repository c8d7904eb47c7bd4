"""Where the warm worker of an index is found, and how its messages are framed. Standard library only.

The worker listens on a Unix socket in the cache folder, or on a loopback port where there are none. A record file
beside it names the address and a secret; whoever can read that file (its owner) may talk to the worker.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from qmd.files import write_atomically
from qmd.quick_dataclasses import dataclass

MAX_MESSAGE_BYTES = 256 * 1024 * 1024
"""Longest line of the protocol: a response may hold whole documents (`--full --all`)."""

_MAX_SOCKET_PATH = 100
"""Bytes. `sun_path` holds 104 on macOS and 108 on Linux, with the closing zero."""


class ByteStream(Protocol):
    """What messages are written to and read from."""

    def write(self, data: bytes, /) -> int: ...
    def flush(self) -> None: ...
    def readline(self, size: int = -1, /) -> bytes: ...


@dataclass(frozen=True, slots=True)
class WorkerFiles:
    """The files of one index's worker."""

    record: Path
    lock: Path
    socket: Path
    log: Path


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A listening worker. Exactly one of `socket` and `port` is set."""

    pid: int
    token: str
    version: str
    socket: str | None = None
    port: int | None = None


def worker_files(cache_dir: Path, database: Path) -> WorkerFiles:
    """The worker files of an index, named by the index so that several can be warm at once."""
    key = hashlib.sha256(os.fsencode(database.absolute())).hexdigest()[:12]
    return WorkerFiles(
        record=cache_dir / f"worker-{key}.json",
        lock=cache_dir / f"worker-{key}.lock",
        socket=cache_dir / f"worker-{key}.sock",
        log=cache_dir / f"worker-{key}.log",
    )


def supports_unix_sockets(path: Path) -> bool:
    """Whether a Unix socket can be made at `path`."""
    return hasattr(socket, "AF_UNIX") and len(os.fsencode(path)) <= _MAX_SOCKET_PATH


def write_endpoint(record: Path, endpoint: Endpoint) -> None:
    """Publish a listening worker, readable by the owner alone; the file appears complete or not at all."""
    from dataclasses import asdict

    write_atomically(record, json.dumps(asdict(endpoint)))


def read_endpoint(record: Path) -> Endpoint | None:
    """The worker that the record file names, or None when there is no usable record. It may be dead."""
    try:
        fields = json.loads(record.read_text(encoding="utf-8"))
        return Endpoint(**fields)
    except (OSError, ValueError, TypeError):
        return None


def connect(endpoint: Endpoint, timeout_s: float) -> socket.socket:
    """A connection to the worker.

    Raises:
        OSError: If nothing listens there any more.
    """
    if endpoint.socket is not None and sys.platform != "win32":
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(timeout_s)
        try:
            connection.connect(endpoint.socket)
        except OSError:
            connection.close()
            raise
        return connection
    if endpoint.port is None:
        raise ConnectionRefusedError("worker record names no address")
    return socket.create_connection(("127.0.0.1", endpoint.port), timeout=timeout_s)


def send_message(stream: ByteStream, message: Mapping[str, object]) -> None:
    """Write one message: a JSON object on a line of its own.

    Raises:
        OSError: If the other end has gone.
    """
    stream.write(json.dumps(message, ensure_ascii=True, separators=(",", ":")).encode("ascii") + b"\n")
    stream.flush()


def receive_message(stream: ByteStream, limit: int = MAX_MESSAGE_BYTES) -> dict[str, Any] | None:
    """Read one message; None at the end of the stream.

    Raises:
        ValueError: If it is cut off, too long, nested too deep or not a JSON object.
        OSError: If the connection breaks.
    """
    line = stream.readline(limit + 1)
    if not line:
        return None
    if not line.endswith(b"\n"):
        raise ValueError("message is cut off or too long")
    try:
        message = json.loads(line)
    except RecursionError as exc:
        raise ValueError("message is nested too deep") from exc
    if not isinstance(message, dict):
        raise ValueError("message is not an object")
    return message
