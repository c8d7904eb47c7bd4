"""The lean answer to the opening request equals the SDK's own; what is out of the ordinary is left to the SDK."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest
from mcp.shared.memory import create_client_server_memory_streams
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

from qmd.server.mcp_server import build_server
from qmd.server.opening import HANDSHAKE_VERSIONS, STATELESS_VERSION, answer_opening, instructions_for
from qmd.server.service import SearchService

META = "io.modelcontextprotocol/"
CLIENT = {"name": "editor", "version": "1.2"}


def initialize(version: object = "2025-06-18", number: object = 1, **other: object) -> dict[str, Any]:
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": CLIENT} | other
    return {"jsonrpc": "2.0", "id": number, "method": "initialize", "params": params}


def discover(version: object = STATELESS_VERSION, **other: object) -> dict[str, Any]:
    meta = {f"{META}protocolVersion": version, f"{META}clientInfo": CLIENT, f"{META}clientCapabilities": {}} | other
    return {"jsonrpc": "2.0", "id": "first", "method": "server/discover", "params": {"_meta": meta}}


def lean(message: object, told: str = "told") -> dict[str, Any] | None:
    answer = answer_opening(json.dumps(message).encode() + b"\n", lambda: told)
    return None if answer is None else json.loads(answer[1])


async def answer_of_sdk(service: SearchService, message: dict[str, Any]) -> dict[str, Any]:
    server = build_server(service)
    async with (
        create_client_server_memory_streams() as ((read, write), (server_read, server_write)),
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(server.run, server_read, server_write, server.create_initialization_options())
        await write.send(SessionMessage(jsonrpc_message_adapter.validate_python(message, by_name=False)))
        answer = await read.receive()
        tasks.cancel_scope.cancel()
    assert isinstance(answer, SessionMessage)
    dumped: dict[str, Any] = answer.message.model_dump(by_alias=True, exclude_unset=True, mode="json")
    return dumped


@pytest.mark.anyio
@pytest.mark.parametrize(
    "message",
    [
        *(initialize(version) for version in HANDSHAKE_PROTOCOL_VERSIONS),
        initialize(number="a", capabilities={"roots": {"listChanged": True}, "sampling": {}, "elicitation": {}}),
        initialize(clientInfo={"name": "editor", "version": "1", "title": "Editor"}),
        initialize(capabilities={"elicitation": {"form": {}}, "experimental": {"x": {}}, "later": {}}),
        discover(),
    ],
)
async def test_the_answer_is_the_one_that_the_sdk_gives(service: SearchService, message: dict[str, Any]) -> None:
    assert lean(message, instructions_for(service)) == await answer_of_sdk(service, message)


def test_the_versions_are_those_of_the_sdk() -> None:
    assert set(HANDSHAKE_PROTOCOL_VERSIONS) == HANDSHAKE_VERSIONS
    assert MODERN_PROTOCOL_VERSIONS == (STATELESS_VERSION,)


@pytest.mark.parametrize(
    "message",
    [
        [],
        {},
        initialize("2099-01-01"),
        initialize(5),
        initialize([]),
        initialize(number=None),
        initialize(number=True),
        initialize(number=1.5),
        initialize(capabilities=None),
        initialize(capabilities={"roots": 5}),
        initialize(capabilities={"roots": {"listChanged": "yes"}}),
        initialize(clientInfo={"name": "x"}),
        initialize(clientInfo={"name": "x", "version": 1}),
        initialize(extra=1),
        initialize() | {"jsonrpc": "1.0"},
        initialize() | {"params": []},
        initialize() | {"method": "ping"},
        discover("2025-06-18"),
        discover(**{f"{META}clientCapabilities": None}),
        discover() | {"params": {}},
    ],
)
def test_whatever_is_out_of_the_ordinary_is_left_to_the_sdk(message: object) -> None:
    assert lean(message) is None


@pytest.mark.parametrize("line", [b"", b"\n", b"{", b"\xff\xfe\n", b"null\n"])
def test_what_is_no_message_is_left_to_the_sdk(line: bytes) -> None:
    assert answer_opening(line, lambda: "told") is None
