"""Owner of a connection by the system's table, and responses to browsers of unknown owner."""

import logging
import socket
import sys
from collections.abc import AsyncIterator

import httpx2
import pytest
from httpx2 import AsyncClient as Client

from qmd.app.index import Index
from qmd.plugins.mcp.guard import AccessPolicy
from qmd.plugins.mcp.http_app import build_app
from qmd.plugins.mcp.page_key import find_owner, is_owner, lists_owners
from tests.plugins.mcp.test_http import BASE, MCP_HEADERS, ROUTES, SEARCH, running

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
HERE = ("127.0.0.1", 8181)
LINUX = pytest.mark.skipif(not lists_owners(), reason="this system does not show who owns a socket")
LITTLE = pytest.mark.skipif(sys.byteorder != "little", reason="the rows are those of a little-endian processor")
MAPPED = "0000000000000000FFFF00000100007F"
PAGE = ("/", "/?q=limiter", "/page/hits?q=limiter", "/page/note?note=docs/a.md", "/page/picture?source=a.png")


def row(local: str, remote: str, uid: str = "1000", inode: str = "4711", state: str = "01") -> str:
    numbers = "00000000:00000000 02:000A7214 00000000"
    return f"   0: {local} {remote} {state} {numbers} {uid:>5}        0 {inode} 2 00000000b8a5bd3c 20 4 30 10 -1\n"


@LITTLE
@pytest.mark.parametrize(
    ("table", "client", "expected"),
    [
        (row("0100007F:C350", "0100007F:1FF5"), ("127.0.0.1", 50000), 1000),
        (row(f"{MAPPED}:C350", f"{MAPPED}:1FF5"), ("127.0.0.1", 50000), 1000),
        (row("0100007F:C350", "0100007F:1FF5"), ("::ffff:127.0.0.1", 50000), 1000),
        (row("0100007F:C350", "0100007F:1FF5", uid="0"), ("127.0.0.1", 50000), 0),
        # The server's own end, another port, another connection.
        (row("0100007F:1FF5", "0100007F:C350"), ("127.0.0.1", 50000), None),
        (row("0100007F:C351", "0100007F:1FF5"), ("127.0.0.1", 50000), None),
        (row("0100007F:C350", "0100007F:1FF6"), ("127.0.0.1", 50000), None),
        (row("0200007F:C350", "0100007F:1FF5"), ("127.0.0.1", 50000), None),
        # Closed by its program, on the way out, in TIME_WAIT.
        (row("0100007F:C350", "0100007F:1FF5", uid="0", inode="0"), ("127.0.0.1", 50000), None),
        (row("0100007F:C350", "0100007F:1FF5", state="05"), ("127.0.0.1", 50000), None),
        (row("0100007F:C350", "0100007F:1FF5", uid="0", inode="0", state="06"), ("127.0.0.1", 50000), None),
        # Not as the kernel writes it.
        ("", ("127.0.0.1", 50000), None),
        ("   0: 0100007F:C350 0100007F:1FF5 01\n\n \nx y z", ("127.0.0.1", 50000), None),
        (row("0100007F:C350", "0100007F:1FF5", uid="-1"), ("127.0.0.1", 50000), None),
    ],
)
def test_the_owner_of_a_connection_is_in_its_row(table: str, client: tuple[str, int], expected: int | None) -> None:
    others = row("0100007F:1FF5", "00000000:0000", uid="7", state="0A") + row("0100007F:1FF5", "0100007F:C350", uid="8")
    assert find_owner((HEAD + others + table).splitlines(), client, HERE) == expected


@LITTLE
def test_an_address_of_ipv6_is_found_with_its_zone_or_without() -> None:
    one = "00000000000000000000000001000000"
    linked = "000080FE000000000000000001000000"
    rows = [HEAD, row(f"{one}:C350", f"{one}:1FF5"), row(f"{linked}:C350", f"{linked}:1FF5", uid="1001")]
    assert find_owner(rows, ("::1", 50000), ("::1", 8181)) == 1000
    assert find_owner(rows, ("fe80::1%eth0", 50000), ("fe80::1%eth0", 8181)) == 1001
    assert find_owner(rows, ("::1", 50001), ("::1", 8181)) is None


@LINUX
@pytest.mark.parametrize(
    ("listens", "asks", "address"),
    [
        (socket.AF_INET, socket.AF_INET, "127.0.0.1"),
        (socket.AF_INET, socket.AF_INET6, "::ffff:127.0.0.1"),
        (socket.AF_INET6, socket.AF_INET6, "::1"),
    ],
)
def test_an_own_connection_is_known_until_its_program_closes_it(listens: int, asks: int, address: str) -> None:
    host = "::1" if listens == socket.AF_INET6 else "127.0.0.1"
    with socket.socket(listens) as listener, socket.socket(asks) as client:
        try:
            listener.bind((host, 0))
        except OSError as error:
            pytest.skip(f"no such address here: {error}")
        listener.listen()
        client.connect((address, listener.getsockname()[1]))
        connection, _ = listener.accept()
        with connection:
            ends = connection.getpeername()[:2], connection.getsockname()[:2]
            assert is_owner(*ends) is True
            client.close()
            assert is_owner(*ends) is False


def test_who_has_no_address_is_not_the_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_owner(None, ("/run/socket", None))
    monkeypatch.setattr(sys, "platform", "darwin")
    assert is_owner(("127.0.0.1", 50000), HERE) is None


anyio = pytest.mark.anyio


@pytest.fixture
async def client(index: Index, policy: AccessPolicy) -> AsyncIterator[Client]:
    """Client of another account."""
    async with running(index, policy, False) as opened:
        yield opened


@anyio
async def test_another_account_is_told_in_one_line_and_gets_nothing_but_health(client: Client) -> None:
    for method, path in ROUTES:
        answer = await client.request(method, path, json=SEARCH if method == "POST" else None)
        assert answer.status_code == (200 if path == "/health" else 403), path
        if path != "/health":
            assert "--token-file" in answer.json()["error"]["message"]
            assert "\n" not in answer.text
    for path in PAGE:
        answer = await client.get(path)
        assert (answer.status_code, answer.text.count("\n")) == (403, 0), path
        assert "limiter" not in answer.text


@anyio
async def test_a_request_over_no_known_connection_is_another_accounts(index: Index, policy: AccessPolicy) -> None:
    transport = httpx2.ASGITransport(app=build_app(index, policy))
    async with httpx2.AsyncClient(transport=transport, base_url=BASE) as client:
        assert (await client.post("/query", json=SEARCH)).status_code == 403
        assert (await client.get("/")).status_code == 403


@anyio
async def test_a_valid_token_lets_everybody_in(index: Index) -> None:
    bearer = {"authorization": "Bearer s3cret"}
    for known in (True, False, None):
        async with running(index, AccessPolicy("127.0.0.1", token="s3cret"), known) as client:
            assert (await client.post("/query", json=SEARCH, headers=bearer)).status_code == 200
            assert (await client.post("/query", json=SEARCH)).status_code == 401
            assert (await client.get("/", headers=bearer)).status_code == 200


@anyio
async def test_without_owners_programs_are_let_in_and_browsers_are_asked(index: Index, policy: AccessPolicy) -> None:
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    async with running(index, policy, None) as client:
        assert (await client.post("/query", json=SEARCH)).status_code == 200
        assert (await client.post("/mcp", json=ping, headers=MCP_HEADERS)).status_code == 200
        for path in PAGE:
            assert (await client.get(path)).status_code == 403, path


@anyio
async def test_a_key_lets_one_browser_in_once_and_its_cookie_from_then_on(client: Client, policy: AccessPolicy) -> None:
    key = policy.key
    first = key.address
    let_in = await client.get(first)
    assert (let_in.status_code, let_in.headers["location"]) == (303, "/")
    cookie = let_in.headers["set-cookie"]
    assert cookie.startswith("qmd-8181=")
    assert "HttpOnly" in cookie and "SameSite=strict" in cookie and "Max-Age" not in cookie
    # The client keeps the cookie, as a browser does.
    assert "sliding" in (await client.get("/?q=rate+limiter")).text
    for path in PAGE[:-1]:
        assert (await client.get(path)).status_code == 200, path
    # The key opens only the page.
    assert (await client.post("/query", json=SEARCH)).status_code == 403
    client.cookies.clear()
    assert (await client.get(first)).status_code == 403
    assert (await client.get(key.address)).status_code == 303


@anyio
async def test_a_key_that_was_made_up_is_refused(client: Client, policy: AccessPolicy) -> None:
    key = policy.key
    for given in ("/?key=", "/?key=%C3%A4%00", f"{key.address}x", f"/page/hits{key.address[1:]}"):
        assert (await client.get(given)).status_code == 403, given
    for cookie in ("qmd-8181=", "qmd-8181=\xe4", "qmd-8181", ";;=", f"qmd-8181={key.address}"):
        headers = {"cookie": cookie.encode("latin-1")}
        assert (await client.get("/", headers=headers)).status_code == 403, cookie  # type: ignore[arg-type]


@anyio
async def test_the_way_in_is_shown_where_the_server_runs_once_for_each_key(
    client: Client, policy: AccessPolicy, caplog: pytest.LogCaptureFixture
) -> None:
    key = policy.key
    caplog.set_level(logging.WARNING, "qmd.http")
    first = key.address
    for _ in range(3):
        assert first not in (await client.get("/")).text
    await client.get(first)
    client.cookies.clear()
    await client.get("/")
    assert [record.getMessage().rpartition(" ")[2] for record in caplog.records] == [first, key.address]
