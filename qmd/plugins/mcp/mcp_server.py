"""The MCP server: read-only tools and the resource `qmd://{+path}`, on the official SDK.

One `Server` object speaks both protocol eras; the transports (`stdio`, `http_app`) decide how messages arrive.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar
from urllib.parse import unquote

import anyio
import anyio.from_thread
import mcp_types as types
from mcp.server import CacheHint, Server, ServerRequestContext
from mcp.shared.exceptions import MCPError
from msgspec import Struct

import qmd
from qmd.app.index import Index
from qmd.app.records import DocumentText
from qmd.app.searching import SearchRequest
from qmd.errors import NotFoundError, QmdError, UsageError
from qmd.plugins.mcp import presentation, requests
from qmd.plugins.mcp.deadline import AsyncListener, within
from qmd.retrieval.trace import CancelledSearch

_logger = logging.getLogger("qmd.mcp")

Context = ServerRequestContext[Any, Any]
T = TypeVar("T")
_Answer = Callable[[Mapping[str, Any]], Awaitable[types.CallToolResult]]

_LIST_TTL_MS = 60_000
"""How long clients may reuse the lists: they change only with the program."""

_STAGES = ("loading models", "searching", "expanding", "embedding", "reranking")


class Tool(Struct, frozen=True):
    """A published tool. `arguments` makes both its schema and its checks."""

    name: str
    title: str
    description: str
    arguments: tuple[requests.ToolArgument, ...]


TOOLS = (
    Tool(
        "query",
        "Query",
        "Search the user's own markdown notes and documents. Pass 'query' (a plain question) or 'searches' (typed "
        "sub-queries: lex for keywords, vec for meaning, hyde for a made-up answer), and 'intent'. Returns docid, "
        "file, title, score in 0..1, context, line and a snippet with the line numbers of the file.",
        requests.QUERY_ARGUMENTS,
    ),
    Tool(
        "get",
        "Get Document",
        "Read one document, or some of its lines, by path, qmd:// address or #docid from a search result. "
        "Suggests similar paths when nothing fits.",
        requests.GET_ARGUMENTS,
    ),
    Tool(
        "multi_get",
        "Multi-Get Documents",
        "Read several documents by glob ('journals/2025-*.md') or by a comma-separated list of paths and #docids. "
        "Documents larger than maxBytes are named but left out.",
        requests.MULTI_GET_ARGUMENTS,
    ),
    Tool(
        "status",
        "Index Status",
        "Show what is indexed: number of documents, collections with folder and pattern, and how many documents "
        "still lack vectors.",
        (),
    ),
    Tool("links", "Links", "List the links from a note and to it, with line numbers.", requests.LINKS_ARGUMENTS),
    Tool(
        "related",
        "Related Notes",
        "List notes that are similar to a note, by meaning and links.",
        requests.RELATED_ARGUMENTS,
    ),
)
LEGACY_TOOLS = ("search", "vector_search", "deep_search")
"""Names of version 1, answered but not listed."""


def build_server(index: Index) -> Server[Any]:
    """An MCP server over an index. Nothing but a few counts is read from it here, and no model is loaded."""
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
    )
    return server


def _instructions(index: Index) -> str:
    """What a client is told at the start of a session; a damaged index must not keep the session from opening."""
    try:
        return presentation.instructions(index.overview())
    except NotFoundError:
        return presentation.instructions(None)
    except QmdError as error:
        # The tools then say what is wrong.
        return presentation.instructions(None, error)


def _input_schema(name: str) -> Mapping[str, Any] | None:
    tool = next((tool for tool in TOOLS if tool.name == name), None)
    return requests.input_schema(tool.arguments) if tool else None


class _Handlers:
    """The request handlers; each runs the index in a thread and shapes its answer."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._tools: Mapping[str, tuple[Sequence[requests.ToolArgument], _Answer]] = {
            "get": (requests.GET_ARGUMENTS, self._get),
            "multi_get": (requests.MULTI_GET_ARGUMENTS, self._multi_get),
            "links": (requests.LINKS_ARGUMENTS, self._links),
            "related": (requests.RELATED_ARGUMENTS, self._related),
            "status": ((), self._status),
        }

    async def list_tools(self, ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        annotations = types.ToolAnnotations(read_only_hint=True, open_world_hint=False)
        tools = [
            types.Tool(
                name=tool.name,
                title=tool.title,
                description=tool.description,
                input_schema=requests.input_schema(tool.arguments),
                annotations=annotations,
            )
            for tool in TOOLS
        ]
        return types.ListToolsResult(tools=tools)

    async def call_tool(self, ctx: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        """Run a tool; failures that the model can act on come back as `isError` results."""
        name, given = params.name, params.arguments or {}
        try:
            if name == "query":
                return await self._query(ctx, _checked(name, requests.parse_query, given))
            if name in LEGACY_TOOLS:
                return await self._query(ctx, _checked(name, partial(requests.parse_legacy_query, name), given))
            tool = self._tools.get(name)
            if tool is not None:
                known, answer = tool
                return await answer(_checked(name, partial(requests.check_arguments, known), given))
        except NotFoundError as error:
            return _error_result(_not_found_text(error))
        except QmdError as error:
            return _error_result(error_text(error))
        except (MCPError, CancelledSearch):
            raise
        except Exception as error:
            _logger.exception("tool %s failed", params.name)
            return _error_result(f"Error: {type(error).__name__}: {error}")
        raise MCPError(types.INVALID_PARAMS, f"Tool {params.name} not found")

    async def list_resources(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        return types.ListResourcesResult(resources=[])

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
            raise MCPError(types.INVALID_PARAMS, f"Resource {uri} not found: expected qmd://collection/path")
        try:
            fetched = await self._within(lambda: self._index.get(wanted))
        except (NotFoundError, UsageError):
            missing = f"Document not found: {wanted.split('://', 1)[-1]}"
            return types.ReadResourceResult(contents=[types.TextResourceContents(uri=uri, text=missing)])
        except QmdError as error:
            raise MCPError(types.INTERNAL_ERROR, error_text(error)) from error
        return types.ReadResourceResult(contents=[_resource(fetched, uri=uri)])

    async def _within(self, work: Callable[[], T]) -> T:
        return await within(self._index.timeout_s, work)

    async def _query(self, ctx: Context, request: SearchRequest) -> types.CallToolResult:
        client = _Client(ctx)
        response = await client.wait_for(self._index.timeout_s, lambda: self._index.search(request, client))
        return types.CallToolResult(
            content=[types.TextContent(text=presentation.results_text(response, request.label))],
            structured_content=presentation.structured_results(response),
        )

    async def _get(self, wanted: Mapping[str, Any]) -> types.CallToolResult:
        file: str = wanted["file"]
        fetched = await self._within(
            lambda: self._index.get(file, from_line=wanted["fromLine"], max_lines=wanted["maxLines"])
        )
        return types.CallToolResult(content=[_embedded(fetched, line_numbers=wanted["lineNumbers"])])

    async def _multi_get(self, wanted: Mapping[str, Any]) -> types.CallToolResult:
        found = await self._within(
            lambda: self._index.multi_get(wanted["pattern"], max_bytes=wanted["maxBytes"], max_lines=wanted["maxLines"])
        )
        content: list[types.ContentBlock] = []
        problems = presentation.problems_text(found)
        if problems:
            content.append(types.TextContent(text=problems))
        for entry in found.entries:
            if isinstance(entry, DocumentText):
                content.append(_embedded(entry, line_numbers=wanted["lineNumbers"]))
            else:
                content.append(types.TextContent(text=presentation.skipped_text(entry)))
        return types.CallToolResult(content=content)

    async def _links(self, wanted: Mapping[str, Any]) -> types.CallToolResult:
        found = await self._within(lambda: self._index.links(wanted["file"]))
        return types.CallToolResult(
            content=[types.TextContent(text=presentation.links_text(found))],
            structured_content=presentation.structured_links(found),
        )

    async def _related(self, wanted: Mapping[str, Any]) -> types.CallToolResult:
        found = await self._within(
            lambda: self._index.related(wanted["file"], limit=wanted["limit"], collections=wanted["collections"])
        )
        return types.CallToolResult(
            content=[types.TextContent(text=presentation.related_text(found))],
            structured_content=presentation.structured_related(found),
        )

    async def _status(self, wanted: Mapping[str, Any]) -> types.CallToolResult:
        status = await self._within(self._index.status)
        return types.CallToolResult(
            content=[types.TextContent(text=presentation.status_text(status))],
            structured_content=presentation.structured_status(status),
        )


def _checked(tool: str, parse: Callable[[Mapping[str, object]], T], arguments: Mapping[str, object]) -> T:
    """The parsed arguments; what is wrong with them is prefixed as in the original."""
    try:
        return parse(arguments)
    except UsageError as error:
        if error.message.startswith(("provide either", "'query' and")):
            raise
        raise UsageError(
            f"Input validation error: Invalid arguments for tool {tool}: {error.message}", error.hint
        ) from error


def error_text(error: QmdError) -> str:
    """Message and remedy of a failure, for a model to read."""
    message = error.message if error.message.startswith("Input validation error") else f"Error: {error.message}"
    return f"{message}\n{error.hint}" if error.hint else message


def _not_found_text(error: NotFoundError) -> str:
    """`Document not found` with similar paths, one a line; other things that are missing keep their own words."""
    if not error.message.startswith("Document not found"):
        return error_text(error)
    if error.hint and error.hint.startswith("similar: "):
        similar = error.hint.removeprefix("similar: ").split(", ")
        return f"{error.message}\n\nDid you mean one of these?\n" + "\n".join(f"  - {path}" for path in similar)
    return error.message


def _error_result(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=text)], is_error=True)


def _resource(
    fetched: DocumentText, *, line_numbers: bool = True, uri: str | None = None
) -> types.TextResourceContents:
    return types.TextResourceContents(
        uri=uri or presentation.document_uri(fetched.document),
        mime_type="text/markdown",
        text=presentation.document_text(fetched, line_numbers=line_numbers),
    )


def _embedded(fetched: DocumentText, *, line_numbers: bool) -> types.EmbeddedResource:
    return types.EmbeddedResource(resource=_resource(fetched, line_numbers=line_numbers))


class _Client(AsyncListener):
    """Hears of stages as progress, from the thread that works for it."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._reported = 0

    def stage(self, name: str, /) -> None:
        """See `Listener`."""
        self._reported += 1
        # A client that has gone shows by the cancellation, not here.
        with contextlib.suppress(Exception):
            anyio.from_thread.run(self._ctx.session.report_progress, float(self._reported), float(len(_STAGES)), name)
