"""Adapters that send one request through every front end and return its answer in one form."""

from __future__ import annotations

import contextlib
import io
import json
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import unquote

import anyio
import httpx2
import pytest
from mcp import Client
from mcp_types import TextContent

import qmd
from qmd.app.index import Index
from qmd.cli.app import main
from qmd.errors import QmdError
from qmd.inference import loader
from qmd.plugins.mcp.guard import AccessPolicy
from qmd.plugins.mcp.http_app import build_app
from qmd.plugins.mcp.mcp_server import build_server
from tests.plugins.serving import known_as
from tests.processes import wait_until

COMMANDS = {"hybrid": "query", "dense": "vsearch", "lexical": "search"}
TOOLS = {"hybrid": "query", "dense": "vector_search", "lexical": "search"}

_TIPS = ("No results found",)


@dataclass(frozen=True)
class Ask:
    """Search request; None stands for the front end's default."""

    text: str
    mode: str = "hybrid"
    collections: tuple[str, ...] = ()
    limit: int = 10
    min_score: float | None = None
    candidate_limit: int | None = None
    intent: str | None = None
    sort: str | None = None
    rerank: bool | None = None
    filter: str | None = None


@dataclass(frozen=True)
class Fetch:
    """Request for documents: one reference with its lines, or a pattern."""

    reference: str
    from_line: int | None = None
    max_lines: int | None = None
    several: bool = False


@dataclass(frozen=True)
class Connect:
    """Request for the links of a note, or its related notes."""

    reference: str
    related: bool = False
    limit: int = 10
    collections: tuple[str, ...] = ()


Request = Ask | Fetch | Connect


@dataclass(frozen=True)
class Answer:
    """Answer of a front end: (address, score) or (path, lines) rows, warnings, or the error's message."""

    rows: tuple[tuple[str, float | str], ...] = ()
    warnings: tuple[str, ...] = ()
    error: str | None = None
    copies: frozenset[str] | None = field(default=frozenset(), compare=False)
    """Addresses of rows with the text of an earlier row; None if this front end omits them."""
    verdict: str = field(default="", compare=False)

    def agrees_with(self, whole: Answer) -> bool:
        """Return whether both answers agree; agents get no copies, and only two hits without a good match."""
        rows = whole.rows
        if self.copies is None:
            rows = tuple(row for row in rows if row[0] not in (whole.copies or ()))
        if self.verdict == "none" and self.rows:
            rows = rows[: len(self.rows)]
        return (self.rows, self.warnings, self.error) == (rows, whole.warnings, whole.error)


FrontEnd = Callable[[Request], Answer | None]
"""Function that sends a request; returns None if the front end does not support it."""


def _score(value: float) -> float:
    return float(f"{value:.2f}")


def _error_line(text: str) -> str:
    """Return only the message: front ends add different prefixes, and the hint on its own line."""
    first = text.strip().splitlines()[0]
    for prefix in ("error: ", "Error: ", "Input validation error: Invalid arguments for tool query: "):
        first = first.removeprefix(prefix)
    return first


def _rows(found: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, float], ...]:
    """Return the rows of a search; each copy of a hit is another row."""
    return tuple((unquote(uri), row["score"]) for row in found for uri in (row["uri"], *row.get("also_in", ())))


def _lines_of(address: str, text: str) -> tuple[str, str]:
    """Return (path, lines): `multi-get --json` names files only by their path."""
    path = address.removeprefix("qmd://").partition("/")[2] if address.startswith("qmd://") else address
    return unquote(path), text.rstrip("\n")


def _link_rows(found: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return every link of an answer with its line; front ends name files with and without the scheme."""
    lists = ("outgoing", "incoming", "unresolved")
    return tuple(
        (f"{kind} {one.get('file', one['target']).removeprefix('qmd://')}", f"{one['line']} {one.get('text')}")
        for kind in lists
        for one in found[kind]
    )


def run(*argv: str) -> tuple[int, str, str]:
    """Return a command's status, stdout and stderr."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(argv)
    return status, out.getvalue(), err.getvalue()


def ask_command_line(ask: Request) -> Answer:
    """Send a request by `qmd … --json`, in this process."""
    status, out, err = run(*_arguments(ask))
    lines = [line for line in err.splitlines() if not line.startswith(_TIPS)]
    if status:
        return Answer(error=_error_line(next(line for line in lines if line.startswith("error: "))))
    warnings = tuple(line.removeprefix("warning: ") for line in lines if line.startswith("warning: "))
    if isinstance(ask, Ask):
        found = json.loads(out)
        copies = frozenset(unquote(uri) for row in found for uri in row.get("also_in", ()))
        return Answer(_rows(found), warnings, copies=copies)
    if isinstance(ask, Connect) and ask.related:
        return Answer(_rows(json.loads(out)), warnings)
    if isinstance(ask, Connect):
        return Answer(_link_rows(json.loads(out)), warnings)
    if ask.several:
        return Answer(tuple(_lines_of(row["file"], row["body"]) for row in json.loads(out)), warnings)
    head, _, body = out.partition("\n---\n\n")
    return Answer((_lines_of(head.split("  ")[0].strip(), body),), warnings)


def _arguments(ask: Request) -> list[str]:
    if isinstance(ask, Fetch):
        lines = [f"--from={ask.from_line}"] if ask.from_line else []
        lines += [f"-l={ask.max_lines}"] if ask.max_lines else []
        command = ["multi-get", "--json"] if ask.several else ["get"]
        return [*command, "--no-line-numbers", *lines, "--", ask.reference]
    if isinstance(ask, Connect) and not ask.related:
        return ["links", "--json", "--", ask.reference]
    options = ["--json", "-n", str(ask.limit)]
    options += [part for name in ask.collections for part in ("-c", name)]
    if isinstance(ask, Connect):
        return ["related", *options, "--", ask.reference]
    options += ["--min-score", str(ask.min_score)] if ask.min_score is not None else []
    options += ["-C", str(ask.candidate_limit)] if ask.candidate_limit is not None else []
    options += ["--intent", ask.intent] if ask.intent else []
    options += [f"--sort={ask.sort}"] if ask.sort else []
    options += ["--filter", ask.filter] if ask.filter else []
    options += [] if ask.rerank is None else ["--rerank" if ask.rerank else "--no-rerank"]
    return [COMMANDS[ask.mode], *options, "--", ask.text]


def warm_front_end(home: Path) -> FrontEnd:
    """Return the command line as front end, with searches by model only in a warm process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("QMD_DAEMON", "auto")
        run("query", "anything")
    wait_until(lambda: any(json.loads(one.read_bytes())["pid"] for one in home.rglob("warm-*.json")))

    def load_nothing(*_: object) -> NoReturn:
        raise AssertionError("the command searched by itself")

    def ask_warm_process(ask: Request) -> Answer | None:
        if not isinstance(ask, Ask) or ask.mode == "lexical":
            return None
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("QMD_DAEMON", "")
            patch.setattr(loader, "load_engines", load_nothing)
            return ask_command_line(ask)

    return ask_warm_process


def python_front_end(index: qmd.Index) -> FrontEnd:
    """Return the methods of `qmd.Index` as front end."""

    def ask_python(ask: Request) -> Answer:
        try:
            if isinstance(ask, Connect):
                return _connected(index, ask)
            return _fetched(index, ask) if isinstance(ask, Fetch) else _found(index, ask)
        except QmdError as error:
            return Answer(error=_error_line(error.message))

    return ask_python


def _found(index: qmd.Index, ask: Ask) -> Answer:
    wishes: dict[str, Any] = {"mode": ask.mode, "limit": ask.limit}
    wishes |= {"min_relevance": ask.min_score} if ask.min_score is not None else {}
    if ask.mode == "hybrid":
        wishes |= {"intent": ask.intent, "rerank": ask.rerank, "sort": ask.sort}
        wishes |= {"candidate_limit": ask.candidate_limit} if ask.candidate_limit is not None else {}
    wishes |= {"filter": ask.filter} if ask.filter else {}
    response = index.search(ask.text, collections=ask.collections, **wishes)
    found = [{"uri": hit.document.uri, "score": _score(hit.relevance), "also_in": hit.also_in} for hit in response.hits]
    return Answer(_rows(found), response.warnings)


def _connected(index: qmd.Index, ask: Connect) -> Answer:
    if ask.related:
        related = index.related(ask.reference, limit=ask.limit, collections=ask.collections)
        return Answer(tuple((one.document.uri, _score(one.score)) for one in related.notes), related.warnings)
    found = index.links(ask.reference)
    rows = []
    for kind in ("outgoing", "incoming", "unresolved"):
        for one in getattr(found, kind):
            name = one.document.uri.removeprefix("qmd://") if one.document else one.link.target
            rows.append((f"{kind} {name}", f"{one.link.line} {one.link.text or None}"))
    return Answer(tuple(rows), found.warnings)


def _fetched(index: qmd.Index, ask: Fetch) -> Answer:
    if ask.several:
        found = index.multi_get(ask.reference, max_lines=ask.max_lines)
        return Answer(tuple(_lines_of(one.document.uri, one.text) for one in found.documents), found.problems)
    one = index.get(ask.reference, from_line=ask.from_line, max_lines=ask.max_lines)
    return Answer((_lines_of(one.document.uri, one.text),), one.warnings)


def mcp_front_end(index: Index) -> FrontEnd:
    """Return the MCP tools as front end, through the SDK's client in memory."""

    async def call(tool: str, arguments: Mapping[str, Any]) -> Any:
        async with Client(build_server(index)) as client:
            return await client.call_tool(tool, dict(arguments))

    def ask_mcp(ask: Request) -> Answer | None:
        tool, arguments = _tool_call(ask)
        if tool is None:
            return None
        result = anyio.run(call, tool, arguments)
        texts = [block.text for block in result.content if isinstance(block, TextContent)]
        if result.is_error:
            return Answer(error=_error_line("\n".join(texts)))
        warnings = tuple(text.removeprefix("Warning: ") for text in texts if text.startswith("Warning: the same text"))
        if isinstance(ask, Connect) and not ask.related:
            return Answer(_link_rows(result.structured_content), warnings)
        if isinstance(ask, Ask):
            return _as_agents_see(result.structured_content)
        if isinstance(ask, Connect):
            found = result.structured_content
            return Answer(_rows(found["results"]), tuple(found.get("warnings", ())))
        found, blocks = {}, iter(texts)
        for block in blocks:
            if head := re.fullmatch(r"(qmd://\S+) #[0-9a-f]{6}", block):
                found[head[1]] = next(blocks)
            elif block.startswith("[... truncated"):
                found[[*found][-1]] += f"\n\n{block}"
        return Answer(tuple(_lines_of(uri, text) for uri, text in found.items()), warnings)

    return ask_mcp


def _as_agents_see(found: Mapping[str, Any]) -> Answer:
    rows = tuple((f"qmd://{unquote(row['file']).removeprefix('qmd://')}", row["score"]) for row in found["results"])
    return Answer(rows, tuple(found.get("warnings", ())), copies=None, verdict=found["verdict"])


def _tool_call(ask: Request) -> tuple[str | None, dict[str, Any]]:
    if isinstance(ask, Fetch):
        lines = {"maxLines": ask.max_lines} if ask.max_lines else {}
        lines |= {"fromLine": ask.from_line} if ask.from_line else {}
        tool, name = ("multi_get", "pattern") if ask.several else ("get", "file")
        return tool, {name: ask.reference, "lineNumbers": False, **lines}
    if isinstance(ask, Connect):
        named = {"collections": list(ask.collections)} if ask.collections else {}
        return ("related", {"file": ask.reference, "limit": ask.limit, **named}) if ask.related else (
            "links", {"file": ask.reference}
        )  # fmt: skip
    arguments: dict[str, Any] = {"query": ask.text, "limit": ask.limit}
    arguments |= {"minScore": ask.min_score} if ask.min_score is not None else {}
    arguments |= {"collections": list(ask.collections)} if ask.collections else {}
    if ask.mode == "hybrid":
        arguments |= {"candidateLimit": ask.candidate_limit} if ask.candidate_limit else {}
        arguments |= {"intent": ask.intent} if ask.intent else {}
        arguments |= {"sort": ask.sort} if ask.sort else {}
        arguments |= {"filter": json.loads(ask.filter) if ask.filter[0] == "{" else ask.filter} if ask.filter else {}
        return "query", arguments | ({} if ask.rerank is None else {"rerank": ask.rerank})
    return None if ask.filter else TOOLS[ask.mode], arguments


def http_front_end(index: Index) -> FrontEnd:
    """Return `POST /query` of the HTTP application as front end."""

    async def post(arguments: Mapping[str, Any]) -> httpx2.Response:
        async with _running(index) as client:
            return await client.post("/query", json=dict(arguments))

    def ask_http(ask: Request) -> Answer | None:
        if not isinstance(ask, Ask) or ask.mode != "hybrid":
            return None
        response = anyio.run(post, _tool_call(ask)[1])
        content = response.json()
        if response.status_code != 200:
            return Answer(error=_error_line(content["error"]))
        return _as_agents_see(content)

    return ask_http


@contextlib.asynccontextmanager
async def _running(index: Index) -> AsyncIterator[httpx2.AsyncClient]:
    app = known_as(build_app(index, AccessPolicy("127.0.0.1")))
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://127.0.0.1:8181") as client:
        yield client
