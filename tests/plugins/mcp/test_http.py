"""HTTP routes, and the refusal of hostile and broken requests."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import TextContent

from qmd.app.index import Index
from qmd.plugins.mcp.guard import MAX_BODY_BYTES, AccessPolicy, check_request, is_loopback
from qmd.plugins.mcp.http_app import build_app
from tests.plugins.mcp.test_stdio import INITIALIZE
from tests.plugins.serving import known_as

pytestmark = pytest.mark.anyio
BASE = "http://127.0.0.1:8181"
SEARCH = {"searches": [{"type": "lex", "query": "rate limiter"}], "rerank": False}
MCP_HEADERS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
HttpClient = httpx2.AsyncClient
ROUTES = (("GET", "/health"), ("POST", "/query"), ("POST", "/search"), ("POST", "/mcp"), ("GET", "/nowhere"))


@asynccontextmanager
async def running(
    index: Index, policy: AccessPolicy, is_owner: bool | None = True, **options: Any
) -> AsyncIterator[httpx2.AsyncClient]:
    """Client of the application, known as the owner's or not; the lifespan runs as in a real server."""
    app: Any = build_app(index, policy, **options)
    send_in, receive_in = anyio.create_memory_object_stream[dict[str, Any]](2)
    done = anyio.Event()

    async def lifespan() -> None:
        async def receive() -> dict[str, Any]:
            return await receive_in.receive()

        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "lifespan.startup.complete":
                ready.set()

        await app({"type": "lifespan", "asgi": {"version": "3.0"}}, receive, send)
        done.set()

    ready = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lifespan)
        await send_in.send({"type": "lifespan.startup"})
        await ready.wait()
        transport = httpx2.ASGITransport(app=known_as(app, is_owner))
        async with httpx2.AsyncClient(transport=transport, base_url=BASE) as client:
            yield client
        await send_in.send({"type": "lifespan.shutdown"})
        await done.wait()
    send_in.close()
    receive_in.close()


@pytest.fixture
async def client(index: Index, policy: AccessPolicy) -> AsyncIterator[HttpClient]:
    async with running(index, policy) as opened:
        yield opened


async def test_health_tells_uptime(client: HttpClient) -> None:
    answer = await client.get("/health")
    assert answer.status_code == 200
    assert answer.json()["status"] == "ok"
    assert answer.json()["uptime"] >= 0


async def test_query_and_search_answer_alike_with_encoded_addresses(client: HttpClient) -> None:
    first = await client.post("/query", json=SEARCH)
    second = await client.post("/search", json=SEARCH)
    odd = await client.post("/query", json={"searches": [{"type": "lex", "query": "teapots"}], "rerank": False})
    assert first.json() == second.json()
    row = first.json()["results"][0]
    fields = "docid file title score context line start_line end_line snippet"
    assert set(row) == set(fields.split())
    assert row["file"] == "qmd://docs/a.md"
    assert odd.json()["results"][0]["file"] == "qmd://docs/we%20ird/c%20%26%20d.md"


@pytest.mark.parametrize(
    ("body", "status", "expected"),
    [
        (b"{}", 400, "Missing required field: searches (array)"),
        (b'{"query":null}', 400, "Missing required field: searches (array)"),
        (b"{", 400, "not JSON"),
        (b"\xff\xfe", 400, "not JSON"),
        (b"[]", 400, "must be a JSON object"),
        (b"[" * 100_000, 400, "not JSON"),
        (b'{"searches":5}', 400, "searches: expected a list"),
        (b'{"searches":[{"type":"zip","query":"x"}]}', 400, "searches.0.type"),
        (b'{"searches":[{"type":"lex","query":"a\\nb"}]}', 400, "single-line"),
    ],
)
async def test_malformed_bodies_get_the_reason(client: HttpClient, body: bytes, status: int, expected: str) -> None:
    answer = await client.post("/query", content=body)
    assert answer.status_code == status
    assert expected in answer.json()["error"]


async def test_a_body_is_read_as_programs_send_it(client: HttpClient) -> None:
    plain = await client.post("/query", json={**SEARCH, "limit": 2, "collections": ["docs"]})
    for sent in ({"limit": "2", "collection": "docs"}, {"max_results": 2, "collections": '["docs"]'}):
        answer = await client.post(
            "/query", json={"searches": json.dumps(SEARCH["searches"]), "rerank": "False", **sent}
        )
        assert answer.json() == plain.json()
    assert (await client.post("/query", json={"q": "teapots"})).json()["results"]


async def test_unknown_fields_are_ignored_with_a_warning(client: HttpClient) -> None:
    answer = await client.post("/query", json={**SEARCH, "skipRerank": True, "colection": "docs"})
    assert answer.status_code == 200 and answer.json()["results"]
    assert answer.json()["warnings"] == [
        "ignored unknown field 'skipRerank', did you mean 'rerank'?",
        "ignored unknown field 'colection', did you mean 'collections'?",
    ]
    many = await client.post("/query", json={**SEARCH, **{f"x{n}" * 1000: 1 for n in range(100)}})
    assert len(many.json()["warnings"]) == 5 and len(many.text) < len(answer.text) + 2000


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8181", "127.0.0.1.evil.example", "0.0.0.0:8181"])
async def test_every_route_refuses_foreign_hosts(client: HttpClient, host: str) -> None:
    for method, path in ROUTES:
        answer = await client.request(method, path, headers={"host": host})
        assert answer.status_code == 403, path
        assert answer.json()["error"] == {"code": -32003, "message": f"Forbidden: Host not allowed: {host}"}


@pytest.mark.parametrize(
    "origin",
    ["https://evil.example", "null", "file://", "http://0.0.0.0", "http://localhost.evil.example", "", "http://["],
)
async def test_every_route_refuses_foreign_origins(client: HttpClient, origin: str) -> None:
    for method, path in ROUTES:
        answer = await client.request(method, path, headers={"origin": origin})
        assert answer.status_code == 403, path
        assert answer.json()["error"]["message"] == f"Forbidden: Origin not allowed: {origin}"


@pytest.mark.parametrize(
    "origin", ["http://localhost:3000", "https://app.localhost", "http://127.8.9.1", "http://[::1]:1"]
)
async def test_pages_of_this_machine_are_let_in(client: HttpClient, origin: str) -> None:
    assert (await client.get("/health", headers={"origin": origin})).status_code == 200


async def test_listed_hosts_and_origins_are_let_in(index: Index) -> None:
    policy = AccessPolicy("127.0.0.1", ("notes.lan",), ("https://notes.example",))
    async with running(index, policy) as client:
        listed = {"host": "Notes.LAN:8181", "origin": "https://notes.example"}
        assert (await client.get("/health", headers=listed)).status_code == 200


async def test_every_route_asks_for_the_token(index: Index) -> None:
    async with running(index, AccessPolicy("127.0.0.1", token="s3cret")) as client:
        for method, path in ROUTES:
            for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "Basic s3cret"}):
                answer = await client.request(method, path, headers=headers)
                assert answer.status_code == 401, path
                assert answer.headers["www-authenticate"] == "Bearer"
                assert "s3cret" not in answer.text
        assert (await client.get("/health", headers={"authorization": "bearer s3cret"})).status_code == 200


async def test_oversized_bodies_are_refused_with_and_without_length(client: HttpClient) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(MAX_BODY_BYTES // 65536 + 1):
            yield b" " * 65536

    for path in ("/query", "/mcp"):
        sized = await client.post(path, content=b" " * (MAX_BODY_BYTES + 1), headers=MCP_HEADERS)
        chunked = await client.post(path, content=pieces(), headers=MCP_HEADERS)
        assert (sized.status_code, chunked.status_code) == (413, 413)


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"query": "a", "limit": ' + b"9" * 5000 + b"}",
        b'{"query": "a", "limit": ' + b"9" * 4000 + b"}",
        b'{"query": "a", "minScore": NaN}',
        b'{"query": "\\ud800"}',
        b'{"query": "a", "\\ud800": 1}',
        b'{"searches": [{"\\ud800": 1}]}',
        b'{"query": "' + b"a " * 20_000 + b'"}',
        b'{"query": "' + b"tag:a " * 2000 + b'"}',
    ],
)
async def test_bodies_made_to_break_the_server_are_wrong_usage(client: HttpClient, body: bytes) -> None:
    assert (await client.post("/query", content=body)).status_code == 400


async def test_get_and_delete_on_mcp_are_not_allowed(client: HttpClient) -> None:
    for method in ("GET", "DELETE"):
        answer = await client.request(method, "/mcp")
        assert answer.status_code == 405
        error = {"code": -32000, "message": "Method not allowed."}
        assert answer.json() == {"jsonrpc": "2.0", "error": error, "id": None}


async def test_unknown_paths_are_not_found(client: HttpClient) -> None:
    answer = await client.get("/../../etc/passwd")
    assert (answer.status_code, answer.text) == (404, "Not Found")


async def test_mcp_refuses_bad_json(client: HttpClient) -> None:
    answer = await client.post("/mcp", content=b"{", headers=MCP_HEADERS)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == -32700


async def test_mcp_checks_version_headers_of_the_stateless_era(client: HttpClient) -> None:
    prefix = "io.modelcontextprotocol"
    meta = {f"{prefix}/clientInfo": {"name": "test", "version": "1"}, f"{prefix}/clientCapabilities": {}}
    version = "2099-01-01"
    params = {"_meta": meta | {f"{prefix}/protocolVersion": version}}
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": params}
    headers = MCP_HEADERS | {"mcp-protocol-version": version, "mcp-method": "tools/list"}
    unknown = await client.post("/mcp", json=request, headers=headers)
    assert unknown.status_code == 400
    assert unknown.json()["error"]["code"] == -32022
    assert "2026-07-28" in unknown.json()["error"]["data"]["supported"]


@pytest.mark.parametrize("era", ["legacy", "2026-07-28"])
async def test_the_sdk_client_works_over_http(index: Index, policy: AccessPolicy, era: str) -> None:
    async with running(index, policy) as http:
        transport = streamable_http_client(f"{BASE}/mcp", http_client=http)
        async with Client(transport, mode=era) as client:
            assert (await client.list_tools()).tools[0].name == "query"
            # Requests over HTTP have no session, so every response shows the notices.
            for _ in range(2):
                found = await client.call_tool("query", {"query": "rate limiter", "rerank": False})
                assert found.structured_content["results"][0]["file"] == "docs/a.md"
                assert any("need embeddings" in warning for warning in found.structured_content["warnings"])


async def test_sessions_of_2025_need_no_state(client: HttpClient) -> None:
    listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}}
    opened = await client.post("/mcp", json=INITIALIZE, headers=MCP_HEADERS)
    listed = await client.post("/mcp", json=listing, headers=MCP_HEADERS | {"mcp-protocol-version": "2025-06-18"})
    assert "mcp-session-id" not in opened.headers
    line = next(line for line in opened.text.splitlines() if line.startswith("data:"))
    first = json.loads(line.removeprefix("data:"))
    assert first["result"]["protocolVersion"] == "2025-06-18"
    assert first["result"]["serverInfo"]["name"] == "qmd"
    assert '"multi_get"' in listed.text


@pytest.mark.parametrize("accept", ["application/json", "*/*"])
async def test_a_client_that_takes_json_alone_gets_json(client: HttpClient, accept: str) -> None:
    opened = await client.post("/mcp", json=INITIALIZE, headers=MCP_HEADERS | {"accept": accept})
    assert opened.headers["content-type"] == "application/json"
    assert opened.json()["result"]["serverInfo"]["name"] == "qmd"


@pytest.fixture
def huge(index: Index, notes: Path) -> Iterator[str]:
    """Note of more than a megabyte, in the index that other tests share."""
    (notes / "huge.md").write_text("# Huge\n\n" + "ten words on a line of it, said again\n" * 30_000)
    index.update(["docs"])
    yield "docs/huge.md"
    (notes / "huge.md").unlink()
    index.update(["docs"])


async def test_an_answer_too_large_for_an_event_goes_out_as_json(index: Index, policy: AccessPolicy, huge: str) -> None:
    async with running(index, policy) as http:
        transport = streamable_http_client(f"{BASE}/mcp", http_client=http)
        async with Client(transport, mode="legacy") as client:
            wanted = {"pattern": huge, "maxBytes": 10_000_000, "maxTokens": 10_000_000}
            read = await client.call_tool("multi_get", wanted)
    (text,) = [block.text for block in read.content if isinstance(block, TextContent)]
    assert len(text) > 1024 * 1024


def test_plain_addresses_are_fine_only_when_bound_beyond_loopback() -> None:
    headers = [("host", "192.168.1.5:8181"), ("authorization", "Bearer t")]
    assert check_request(AccessPolicy("0.0.0.0", token="t"), headers) is None
    assert check_request(AccessPolicy("127.0.0.1", token="t"), headers) is not None
    assert check_request(AccessPolicy("0.0.0.0", token="t"), [("host", "evil.example"), headers[1]]) is not None


def test_every_page_is_let_in_only_where_a_token_is_asked_for() -> None:
    headers = [("host", "localhost"), ("origin", "https://any.example"), ("authorization", "Bearer t")]
    assert check_request(AccessPolicy("127.0.0.1", (), ("*",), "t"), headers) is None
    without_token = check_request(AccessPolicy("127.0.0.1", (), ("*",)), headers)
    assert without_token is not None and without_token.status == 403


def test_repeated_headers_are_refused() -> None:
    refusal = check_request(AccessPolicy("127.0.0.1"), [("host", "localhost"), ("host", "evil.example")])
    assert refusal is not None and refusal.status == 400


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("localhost", True),
        ("a.localhost", True),
        ("localhost.", True),
        ("127.255.0.1", True),
        ("::1", True),
        ("[::ffff:127.0.0.1]", True),
        ("0.0.0.0", False),
        ("::", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.nip.io", False),
    ],
)
def test_loopback_names(name: str, expected: bool) -> None:
    assert is_loopback(name) is expected
