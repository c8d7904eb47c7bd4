"""The `add` tool: availability, access and refusals."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from qmd.analysis.tokens import count_tokens
from qmd.app.configuration import FileConfiguration
from qmd.app.index import Index
from qmd.app.notices import Notices
from qmd.app.opening import open_index
from qmd.config.paths import locate
from qmd.config.settings import load_config
from qmd.config.trust import gated_items, record_trust
from qmd.plugins.mcp.guard import AccessPolicy
from qmd.plugins.mcp.mcp_server import build_server
from tests.plugins.mcp.test_http import BASE, running

pytestmark = pytest.mark.anyio
FACT = "The boiler is serviced every May by Mr Fix."
Connect = Callable[..., Any]
PAGES = [{"origin": "http://localhost:3000"}, {"origin": BASE}]
PAGES += [{"sec-fetch-site": site} for site in ("cross-site", "same-origin")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("open", "closed"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.md").write_text(f"# An {name} note\n", "utf-8")
    return tmp_path


def opened(folder: Path, **switches: object) -> Index:
    collections = {name: {"path": str(folder / name)} for name in ("open", "closed")}
    collections["open"] |= switches  # type: ignore[arg-type]
    index = open_index(folder / "index.sqlite", config={"collections": collections}, environ={})
    index.update()
    return index


@pytest.fixture(params=["legacy", "2026-07-28"])
def connect(request: pytest.FixtureRequest) -> Connect:
    @asynccontextmanager
    async def connected(index: Index, headers: dict[str, str] | None = None, token: str = "") -> AsyncIterator[Client]:
        if headers is None:
            async with Client(build_server(index), mode=request.param) as client:
                yield client
            return
        async with running(index, AccessPolicy("127.0.0.1", token=token or None)) as http:
            http.headers.update(headers)
            transport = streamable_http_client(f"{BASE}/mcp", http_client=http)
            async with Client(transport, mode=request.param) as client:
                yield client

    return connected


async def tools_of(client: Client) -> dict[str, Any]:
    return {tool.name: tool for tool in (await client.list_tools()).tools}


async def test_the_list_of_all_tools_costs_a_session_little(folder: Path, connect: Connect) -> None:
    async with connect(opened(folder, agents_may_write=True)) as client:
        tools = [tool.model_dump(by_alias=True, exclude_none=True) for tool in (await tools_of(client)).values()]
    assert len(tools) == 8
    assert count_tokens(json.dumps(tools, separators=(",", ":"))) <= 1_315  # 1,250 of o200k


@pytest.mark.parametrize("headers", [None, {}, {"authorization": "Bearer key"}])
async def test_a_note_is_added_where_the_user_lets_agents_write(
    folder: Path, connect: Connect, headers: dict[str, str] | None
) -> None:
    token = "key" if headers else ""
    async with connect(opened(folder, agents_may_write=True), headers, token) as client:
        assert (await tools_of(client))["add"].annotations.read_only_hint is False
        done = await client.call_tool("add", {"text": FACT, "tags": ["home"], "source": "claude"})
        assert done.structured_content["file"] == "qmd://open/the-boiler-is-serviced-every-may-by-mr-fix.md"
        assert done.content[0].text == f"added {done.structured_content['file']}"
        found = await client.call_tool("query", {"searches": [{"type": "lex", "query": "boiler"}], "rerank": False})
        assert found.structured_content["results"][0]["file"].startswith("open/the-boiler")
        again = await client.call_tool("add", {"text": FACT})
        assert (again.is_error, "has nearly the same text" in again.content[0].text) == (True, True)
        for place in ("closed", "closed/a.md", "open/../closed/x.md"):
            refused = await client.call_tool("add", {"text": "else", "to": place})
            assert refused.is_error
    written = (folder / "open" / "the-boiler-is-serviced-every-may-by-mr-fix.md").read_text("utf-8")
    assert 'source: "agent, claude"\ntags: ["home"]\n' in written
    assert [path.name for path in (folder / "closed").iterdir()] == ["a.md"]


@pytest.mark.parametrize("switches", [{}, {"agents_may_write": False}, {"agents_may_write": None}])
async def test_without_the_switch_there_is_no_tool(folder: Path, connect: Connect, switches: dict[str, object]) -> None:
    async with connect(opened(folder, **switches)) as client:
        assert "add" not in await tools_of(client)
        refused = await client.call_tool("add", {"text": FACT})
    assert refused.is_error
    assert refused.content[0].text.startswith("Error: agents may write to no collection\n")
    assert len(list((folder / "open").iterdir())) == 1


@pytest.mark.parametrize("headers", PAGES)
async def test_a_page_in_a_browser_cannot_write(folder: Path, connect: Connect, headers: dict[str, str]) -> None:
    index = opened(folder, agents_may_write=True)
    for token in ("", "key"):
        async with connect(index, headers | {"authorization": "Bearer key"}, token) as client:
            assert "add" not in await tools_of(client)
            assert (await client.call_tool("add", {"text": FACT})).is_error
    assert len(list((folder / "open").iterdir())) == 1


async def test_whoever_cannot_be_told_from_other_accounts_cannot_write(folder: Path) -> None:
    async with running(opened(folder, agents_may_write=True), AccessPolicy("127.0.0.1"), is_owner=None) as http:
        transport = streamable_http_client(f"{BASE}/mcp", http_client=http)
        async with Client(transport) as client:
            assert {"query"} == {"query", "add"} & set(await tools_of(client))
            assert (await client.call_tool("add", {"text": FACT})).is_error


@pytest.mark.parametrize("is_trusted", [False, True])
async def test_the_switch_of_a_project_is_not_heard(folder: Path, connect: Connect, is_trusted: bool) -> None:
    (folder / ".qmd").mkdir()
    text = "collections: {open: {path: open, agents_may_write: true, update: 'true'}}\n"
    (folder / ".qmd" / "index.yml").write_text(text, "utf-8")
    environ = {"HOME": str(folder / "home"), "QMD_CONFIG_DIR": str(folder / "config")}
    places = locate(None, folder, environ)
    if is_trusted:
        record_trust(gated_items(load_config(places), places), places)
        environ["QMD_TRUST_LOCAL_CONFIG"] = "1"
    index = Index(places, FileConfiguration(places, environ, Notices()), environ)
    index.update()
    async with connect(index) as client:
        assert "add" not in await tools_of(client)
        assert (await client.call_tool("add", {"text": FACT, "to": "open"})).is_error
    assert len(list((folder / "open").iterdir())) == 1
