"""The tools of a server as clients in Python call them: `__main__.py` starts this file by each client's own Python.

It reads a server and calls from standard input and writes a line of JSON for each call: the forms of the answer that
the client hands on (a framework what its model is shown, an SDK the text and the object), or the error.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any, NamedTuple

Server = Mapping[str, Any]
Forms = list[str]
"""What an answer consists of, each form complete."""


class Failed(Exception):
    """The client says that the call has failed."""


class Door(NamedTuple):
    """A connected client; `call` raises whatever the client has for an error."""

    list_tools: Callable[[], Awaitable[Mapping[str, Any]]]
    call: Callable[[str, dict[str, Any]], Awaitable[Forms]]
    withdraw: Callable[[], Awaitable[None]] | None = None
    """Says to the server that the running call is not wanted any more, where leaving it does not."""


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _forms(result: Any) -> Forms:
    failed = getattr(result, "is_error", None) or getattr(result, "isError", None)
    text = "\n".join(part.text if part.type == "text" else f"<{part.type}>" for part in result.content)
    if failed:
        raise Failed(text)
    shown = getattr(result, "structured_content", None) or getattr(result, "structuredContent", None)
    return [text] if shown is None else [text, _compact(shown)]


def _listed(tools: Any) -> dict[str, Any]:
    schemas = ((one.name, getattr(one, "input_schema", None) or one.inputSchema) for one in tools)
    return dict(schemas)


def _started(server: Server) -> Any:
    return import_module("mcp").StdioServerParameters(
        command=server["command"][0], args=server["command"][1:], env=server["env"]
    )


@asynccontextmanager
async def sdk_1(server: Server) -> AsyncIterator[Door]:
    """`mcp` before 2."""
    mcp: Any = import_module("mcp")
    if "url" in server:
        transport = import_module("mcp.client.streamable_http").streamable_http_client(server["url"])
    else:
        transport = import_module("mcp.client.stdio").stdio_client(_started(server))
    async with transport as (reading, writing, *_), mcp.ClientSession(reading, writing) as session:
        await session.initialize()

        async def list_tools() -> Mapping[str, Any]:
            return _listed((await session.list_tools()).tools)

        async def call(name: str, arguments: dict[str, Any]) -> Forms:
            return _forms(await session.call_tool(name, arguments))

        async def withdraw() -> None:
            types: Any = import_module("mcp.types")
            params = types.CancelledNotificationParams(requestId=session._request_id - 1, reason="not wanted")
            notice = types.CancelledNotification(method="notifications/cancelled", params=params)
            await session.send_notification(types.ClientNotification(notice))

        yield Door(list_tools, call, withdraw)


@asynccontextmanager
async def sdk_2(server: Server, mode: str = "auto") -> AsyncIterator[Door]:
    """`mcp` from 2 on, in the era that it and the server agree on."""
    where = server["url"] if "url" in server else _started(server)
    async with import_module("mcp").Client(where, mode=mode) as client:

        async def list_tools() -> Mapping[str, Any]:
            return _listed((await client.list_tools()).tools)

        async def call(name: str, arguments: dict[str, Any]) -> Forms:
            return _forms(await client.call_tool(name, arguments))

        yield Door(list_tools, call)


@asynccontextmanager
async def sdk_2_handshake(server: Server) -> AsyncIterator[Door]:
    """`mcp` from 2 on with the handshake of the years before."""
    async with sdk_2(server, "legacy") as door:
        yield door


def _fastmcp_transport(server: Server) -> Any:
    if "url" in server:
        return server["url"]
    transports: Any = import_module("fastmcp.client.transports")
    return transports.StdioTransport(server["command"][0], server["command"][1:], env=server["env"])


@asynccontextmanager
async def fastmcp(server: Server) -> AsyncIterator[Door]:
    """`fastmcp`'s client."""
    async with import_module("fastmcp").Client(_fastmcp_transport(server)) as client:

        async def list_tools() -> Mapping[str, Any]:
            return _listed(await client.list_tools())

        async def call(name: str, arguments: dict[str, Any]) -> Forms:
            return _forms(await client.call_tool_mcp(name, arguments))

        yield Door(list_tools, call)


@asynccontextmanager
async def smolagents(server: Server) -> AsyncIterator[Door]:
    """`smolagents`: what a tool returns to the agent's code."""
    where = {"url": server["url"], "transport": "streamable-http"} if "url" in server else _started(server)
    with import_module("smolagents").MCPClient(where, structured_output=False) as tools:
        by_name = {tool.name: tool for tool in tools}

        async def list_tools() -> Mapping[str, Any]:
            return {name: {"properties": tool.inputs} for name, tool in by_name.items()}

        async def call(name: str, arguments: dict[str, Any]) -> Forms:
            answer = await asyncio.to_thread(by_name[name], **arguments)
            return [answer if isinstance(answer, str) else _compact(answer)]

        yield Door(list_tools, call)


@asynccontextmanager
async def pydantic_ai(server: Server) -> AsyncIterator[Door]:
    """`pydantic-ai`: what its tool manager would put into the model's conversation."""
    toolset = import_module("pydantic_ai.mcp").MCPToolset(_fastmcp_transport(server))
    part: Any = import_module("pydantic_ai.messages").ToolReturnPart
    async with toolset:

        async def list_tools() -> Mapping[str, Any]:
            return _listed(await toolset.list_tools())

        async def call(name: str, arguments: dict[str, Any]) -> Forms:
            answer = await toolset.direct_call_tool(name, arguments)
            return [part(tool_name=name, content=answer, tool_call_id="1").model_response_str()]

        yield Door(list_tools, call)


@asynccontextmanager
async def langchain(server: Server) -> AsyncIterator[Door]:
    """`langchain-mcp-adapters`: the content of the message for the model; over stdio a process for each call."""
    if "url" in server:
        connection = {"transport": "streamable_http", "url": server["url"]}
    else:
        command, *words = server["command"]
        connection = {"transport": "stdio", "command": command, "args": words, "env": server["env"]}
    adapter = import_module("langchain_mcp_adapters.client").MultiServerMCPClient({"qmd": connection})
    by_name = {tool.name: tool for tool in await adapter.get_tools()}

    async def list_tools() -> Mapping[str, Any]:
        return {name: tool.args_schema for name, tool in by_name.items()}

    async def call(name: str, arguments: dict[str, Any]) -> Forms:
        asked = {"type": "tool_call", "id": "1", "name": name, "args": arguments}
        message = await by_name[name].ainvoke(asked)
        parts = message.content if isinstance(message.content, list) else [{"text": message.content}]
        text = "\n".join(part.get("text", str(part)) for part in parts)
        if message.status == "error":
            raise Failed(text)
        return [text]

    yield Door(list_tools, call)


CLIENTS = {one.__name__: one for one in (sdk_1, sdk_2, sdk_2_handshake, fastmcp, smolagents, pydantic_ai, langchain)}


def _reason(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"


async def _answer(door: Door, step: Mapping[str, Any]) -> Mapping[str, Any]:
    if step["tool"] is None:
        return {"tools": await door.list_tools()}
    running = asyncio.ensure_future(door.call(step["tool"], dict(step["arguments"])))
    if (after_s := step["cancel_after_s"]) is None:
        return {"forms": await running}
    await asyncio.wait((running,), timeout=after_s)
    if running.done():
        return {"forms": await running}
    if door.withdraw is not None:
        await door.withdraw()
        await asyncio.wait((running,), timeout=1)
    running.cancel()
    await asyncio.wait((running,), timeout=30)
    return {"cancelled": running.done()}


async def _serve(name: str, asked: Mapping[str, Any]) -> None:
    async with CLIENTS[name](asked["server"]) as door:
        for step in asked["steps"]:
            begun = time.monotonic()
            try:
                said = await asyncio.wait_for(_answer(door, step), 60)
            except Exception as error:  # whatever a client raises is its word for a failed call
                said = {"error": _reason(error)}
            print(json.dumps({"step": step["name"], "seconds": time.monotonic() - begun, **said}), flush=True)


if __name__ == "__main__":
    logging.disable()
    asyncio.run(_serve(sys.argv[1], json.load(sys.stdin)))
