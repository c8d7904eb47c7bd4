"""MCP server on the official SDK: tools, one of which may write, and the resource `qmd://{+path}`.

One `Server` object serves both protocol eras; the transports (`stdio`, `http_app`) deliver the messages.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import anyio
import anyio.from_thread
import mcp_types as types
from mcp.server.caching import CacheHint
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

import qmd
from qmd.addresses import split_address
from qmd.app.index import Index
from qmd.errors import MissingDocumentError, NotFoundError, QmdError, UsageError
from qmd.escapes import address_line, error_line, message_line, one_line
from qmd.plugins.mcp import presentation
from qmd.plugins.mcp.arguments import check_arguments, input_schema
from qmd.plugins.mcp.guard import MAY_WRITE
from qmd.plugins.mcp.tools import ADD, LEGACY_TOOLS, TOOLS, Tool, Values
from qmd.plugins.warm.deadline import AsyncListener, run_with_timeout
from qmd.retrieval.trace import CancelledSearch

_logger = logging.getLogger("qmd.mcp")

Context = ServerRequestContext[Any, Any]

_LIST_TTL_MS = 60_000
"""Time for which clients may cache the lists; they change with the version and with the right to write."""

_STATELESS, _NO_RESOURCE = "2026-07-28", -32002
"""First revision in which a missing resource has the code of wrong parameters, and the code in earlier revisions."""

_MOST_COMPLETIONS = 100
"""Limit of the protocol for one response."""

_STAGES = ("loading models", "searching", "expanding", "embedding", "reranking")


def build_server(index: Index) -> Server[Any]:
    """Build an MCP server for an index. This reads only a few counts and loads no model."""
    handlers = _Handlers(index)
    server: Server[Any] = Server(
        "qmd",
        version=qmd.__version__,
        title="QMD",
        instructions=_instructions(index),
        cache_hints={
            "tools/list": CacheHint(ttl_ms=_LIST_TTL_MS),
            "resources/list": CacheHint(ttl_ms=_LIST_TTL_MS),
            "resources/templates/list": CacheHint(ttl_ms=_LIST_TTL_MS),
            "server/discover": CacheHint(ttl_ms=_LIST_TTL_MS),
        },
        get_tool_input_schema=_input_schema,
        on_list_tools=handlers.list_tools,
        on_call_tool=handlers.call_tool,
        on_list_resources=handlers.list_resources,
        on_list_resource_templates=handlers.list_resource_templates,
        on_read_resource=handlers.read_resource,
        on_completion=handlers.complete,
    )
    return server


def _instructions(index: Index) -> str:
    """Return the instructions for a session; a damaged index must not keep the session from opening."""
    try:
        return presentation.instructions(index.overview())
    except NotFoundError:
        return presentation.instructions(None)
    except QmdError as error:
        return presentation.instructions(None, error)


def _input_schema(name: str) -> Mapping[str, Any] | None:
    tool = next((tool for tool in (*TOOLS, ADD) if tool.name == name), None)
    return input_schema(tool.arguments) if tool else None


class _Handlers:
    """Request handlers; each runs the index in a thread and builds the response."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._shown_notices: set[str] = set()
        """Notices that this session has shown; HTTP has no sessions."""

    async def list_tools(self, ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        offered: tuple[Tool, ...] = TOOLS
        with contextlib.suppress(QmdError):
            places = await run_with_timeout(self._index.timeout_s, self._index.agents_may_write)
            offered = (*TOOLS, ADD) if places and _may_write(ctx) else TOOLS
        tools = [
            types.Tool(
                name=tool.name,
                title=tool.title or None,
                description=tool.description,
                input_schema=input_schema(tool.arguments),
                annotations=types.ToolAnnotations(read_only_hint=tool is not ADD, open_world_hint=False),
            )
            for tool in offered
        ]
        return types.ListToolsResult(tools=tools)

    async def call_tool(self, ctx: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        """Run a tool; return failures that the model can act on as `isError` results."""
        tool = next((tool for tool in (*TOOLS, ADD, *LEGACY_TOOLS) if tool.name == params.name), None)
        if tool is None:
            raise MCPError(types.INVALID_PARAMS, f"Tool {one_line(params.name)} not found")
        if tool is ADD and not _may_write(ctx):
            return _error_result("Error: over HTTP, web pages and clients without the token may not write")
        try:
            asked, client = _check_call(tool, params.arguments or {}), _ProgressListener(ctx)
            shown = await client.wait_for(self._index.timeout_s, lambda: tool.answer(self._index, asked, client))
        except NotFoundError as error:
            return _error_result(_not_found_text(error))
        except QmdError as error:
            return _error_result(error_text(error))
        except (MCPError, CancelledSearch):
            raise
        except Exception as error:
            _logger.exception("tool %s failed", params.name)
            return _error_result(f"Error: {type(error).__name__}: {error_line(error)}")
        if ctx.request is None:
            shown = presentation.without_repeats(shown, self._shown_notices)
        return types.CallToolResult(
            content=[types.TextContent(text=part) for part in shown.parts], structured_content=shown.structured
        )

    async def list_resources(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        collections = await run_with_timeout(self._index.timeout_s, self._index.indexed_collections)
        return types.ListResourcesResult(
            resources=[
                types.Resource(name=one_line(one.name), uri=presentation.collection_uri(one), mime_type="text/plain")
                for one in collections
            ]
        )

    async def list_resource_templates(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        template = types.ResourceTemplate(
            name="document",
            title="QMD Document",
            uri_template="qmd://{+path}",
            description="An indexed document by collection and path, as in the uri of a search result.",
            mime_type="text/markdown",
        )
        return types.ListResourceTemplatesResult(resource_templates=[template])

    async def read_resource(self, ctx: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        uri = str(params.uri)
        wanted = unquote(uri)
        if not wanted.lower().startswith("qmd:"):
            message = f"Resource {message_line(uri)} not found: expected qmd://collection/path"
            raise MCPError(types.INVALID_PARAMS, message)
        try:
            read = await run_with_timeout(self._index.timeout_s, lambda: _read_resource(self._index, uri, wanted))
        except (NotFoundError, UsageError):
            code = types.INVALID_PARAMS if ctx.protocol_version >= _STATELESS else _NO_RESOURCE
            name = message_line(wanted.split("://", 1)[-1])
            raise MCPError(code, f"Document not found: {name}", {"uri": uri}) from None
        except QmdError as error:
            raise MCPError(types.INTERNAL_ERROR, error_text(error)) from error
        return types.ReadResourceResult(contents=[read])

    async def complete(self, ctx: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
        """Complete the path of an address."""
        paths: list[str] = []
        if isinstance(params.ref, types.ResourceTemplateReference) and params.argument.name == "path":
            with contextlib.suppress(NotFoundError):
                start = params.argument.value
                paths = await run_with_timeout(self._index.timeout_s, lambda: _complete_paths(self._index, start))
        shown = paths[:_MOST_COMPLETIONS]
        more = len(paths) > len(shown)
        return types.CompleteResult(completion=types.Completion(values=shown, total=len(paths), has_more=more))


def _may_write(ctx: Context) -> bool:
    return ctx.request is None or bool(ctx.request.scope.get("state", {}).get(MAY_WRITE))


def _read_resource(index: Index, uri: str, wanted: str) -> types.TextResourceContents:
    """Read a document, or list the addresses in a collection or folder.

    Raises:
        NotFoundError: Nothing is indexed there.
        UsageError: Several documents have this name.
    """
    if not wanted.endswith("/"):
        text = presentation.resource_text(index.get(wanted))
        return types.TextResourceContents(uri=uri, mime_type="text/markdown", text=text)
    listed = index.ls(wanted.removesuffix("/")).documents
    if not listed:
        raise NotFoundError(f"nothing is indexed under '{wanted}'")
    text = "".join(f"{presentation.document_uri(one)}\n" for one in listed)
    return types.TextResourceContents(uri=uri, mime_type="text/plain", text=text)


def _complete_paths(index: Index, start: str) -> list[str]:
    """Return the collections, or the documents of one, whose paths begin with `start`."""
    names = [one.name for one in index.indexed_collections()]
    place = split_address(start, names)
    if place is None:
        return [f"{name}/" for name in names if name.startswith(start)]
    name, below = place
    return [presentation.file_of(one) for one in index.documents(name) if one.path.startswith(below)]


def _check_call(tool: Tool, given: Mapping[str, object]) -> Values:
    """Check the arguments of a call; errors have the same prefix as in tobi/qmd."""
    try:
        return check_arguments(tool.arguments, given)
    except UsageError as error:
        message = f"Input validation error: Invalid arguments for tool {tool.name}: {error.message}"
        raise UsageError(message, error.hint) from error


def error_text(error: QmdError) -> str:
    """Return message and hint of a failure, for a model."""
    message = error.message if error.message.startswith("Input validation error") else f"Error: {error.message}"
    return f"{message}\n{error.hint}" if error.hint else message


def _not_found_text(error: NotFoundError) -> str:
    """Return the text of an error; `Document not found` lists similar paths, one per line."""
    if not error.message.startswith("Document not found"):
        return error_text(error)
    if isinstance(error, MissingDocumentError) and error.similar:
        similar = "\n".join(f"  - {address_line(path)}" for path in error.similar)
        return f"{error.message}\n\nDid you mean one of these?\n{similar}"
    return error.message


def _error_result(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=text)], is_error=True)


class _ProgressListener(AsyncListener):
    """Listener that reports the stages of a search as MCP progress, from the search's thread."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._reported = 0

    def stage(self, name: str, /) -> None:
        self._reported += 1
        # A disconnected client causes a cancellation elsewhere.
        with contextlib.suppress(Exception):
            anyio.from_thread.run(self._ctx.session.report_progress, float(self._reported), float(len(_STAGES)), name)
