"""Answers the request that opens a session, before the SDK is imported: that import costs most of a start.

Only openings whose answer is beyond doubt are answered here; the SDK gets to see every message, this one included, and
a test holds the two answers equal.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

import qmd
from qmd.errors import NotFoundError, QmdError
from qmd.server.presentation import instructions
from qmd.server.service import SearchService

SERVER_NAME = "qmd"
SERVER_TITLE = "QMD"
LIST_TTL_MS = 60_000
"""How long clients may reuse the lists: they change only with the program."""

HANDSHAKE_VERSIONS = frozenset({"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"})
STATELESS_VERSION = "2026-07-28"

_CAPABILITIES = {"resources": {"listChanged": False, "subscribe": False}, "tools": {"listChanged": False}}
_SERVER_INFO = {"name": SERVER_NAME, "title": SERVER_TITLE, "version": qmd.__version__}
_META_PREFIX = "io.modelcontextprotocol/"


MAX_LINE_BYTES = 1024 * 1024
"""Longest message, as over HTTP."""


def read_line(stream: BinaryIO) -> bytes:
    """The next line of a client; of one longer than `MAX_LINE_BYTES` the beginning, which is longer than that."""
    line = rest = stream.readline(MAX_LINE_BYTES + 1)
    while len(rest) > MAX_LINE_BYTES and not rest.endswith(b"\n"):
        rest = stream.readline(MAX_LINE_BYTES + 1)
    return line


def instructions_for(service: SearchService) -> str:
    """What a client is told at the start of a session; a damaged index must not keep the session from opening."""
    try:
        return instructions(service.overview())
    except NotFoundError:
        return instructions(None)
    except QmdError as error:
        # The tools then say what is wrong.
        return f"{instructions(None)}\n\nThe index cannot be read: {error.message}"


def answer_opening(line: bytes, told: Callable[[], str]) -> tuple[int | str, bytes] | None:
    """The id and the answer of an opening request, or None when the SDK has to judge it.

    Args:
        line: The first line of the session.
        told: Gives the instructions.
    """
    try:
        request = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(request, dict) or set(request) != {"jsonrpc", "id", "method", "params"}:
        return None
    number, params = request["id"], request["params"]
    if request["jsonrpc"] != "2.0" or type(number) not in (int, str) or not isinstance(params, dict):
        return None
    result: dict[str, Any] | None = None
    if request["method"] == "initialize":
        result = _initialized(params)
    elif request["method"] == "server/discover":
        result = _discovered(params)
    if result is None:
        return None
    answer = {"jsonrpc": "2.0", "id": number, "result": result | {"instructions": told()}}
    return number, json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace") + b"\n"


def _initialized(params: Mapping[str, Any]) -> dict[str, Any] | None:
    """The answer to the handshake of 2025."""
    version = params.get("protocolVersion")
    if set(params) != {"protocolVersion", "capabilities", "clientInfo"} or not isinstance(version, str):
        return None
    if version not in HANDSHAKE_VERSIONS:
        return None
    if not (_is_plain(params["capabilities"]) and _names_a_program(params["clientInfo"])):
        return None
    return {"protocolVersion": version, "capabilities": _CAPABILITIES, "serverInfo": _SERVER_INFO}


def _discovered(params: Mapping[str, Any]) -> dict[str, Any] | None:
    """The answer to the question of a stateless client of 2026."""
    meta = params.get("_meta")
    if set(params) != {"_meta"} or not isinstance(meta, dict):
        return None
    if set(meta) != {_META_PREFIX + name for name in ("protocolVersion", "clientInfo", "clientCapabilities")}:
        return None
    known = meta[f"{_META_PREFIX}protocolVersion"] == STATELESS_VERSION
    capabilities, client = meta[f"{_META_PREFIX}clientCapabilities"], meta[f"{_META_PREFIX}clientInfo"]
    if not (known and _is_plain(capabilities) and _names_a_program(client)):
        return None
    return {
        "supportedVersions": [STATELESS_VERSION],
        "capabilities": _CAPABILITIES,
        "resultType": "complete",
        "ttlMs": LIST_TTL_MS,
        "cacheScope": "private",
        "_meta": {f"{_META_PREFIX}serverInfo": _SERVER_INFO},
    }


def _is_plain(capabilities: object) -> bool:
    """Whether capabilities are of a shape that no version of the protocol refuses: names with flags or nothing."""
    return isinstance(capabilities, dict) and all(
        isinstance(value, dict) and all(flag in (True, False, {}) for flag in value.values())
        for value in capabilities.values()
    )


def _names_a_program(client: object) -> bool:
    if not isinstance(client, dict) or not {"name", "version"} <= set(client) <= {"name", "version", "title"}:
        return False
    return all(isinstance(value, str) for value in client.values())
