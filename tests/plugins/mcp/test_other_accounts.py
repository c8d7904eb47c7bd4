"""Access of another account to a server on the same machine, with real processes."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from tests.plugins.mcp.test_http import MCP_HEADERS, SEARCH
from tests.processes import environment

NOBODY = 65534
PNG = b"\x89PNG\r\n\x1a\n"

pytestmark = pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="needs root on Linux")

_BECOME = """
import encodings.idna, http.client, json, os, socket, sys, threading
account = int(sys.argv[1])
os.setgroups([])
os.setresgid(account, account, account)
os.setresuid(account, account, account)
"""

_ASK = f"""{_BECOME}
for method, path, headers, body in json.load(sys.stdin):
    connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[2]), timeout=60)
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    print(json.dumps([answer.status, dict(answer.getheaders()), answer.read().decode("latin-1")]), flush=True)
    connection.close()
"""

_RELAY = f"""{_BECOME}
def pass_on(one, other):
    while data := one.recv(65536):
        other.sendall(data)
    other.shutdown(socket.SHUT_WR)
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
while True:
    near, _ = listener.accept()
    far = socket.create_connection(("127.0.0.1", int(sys.argv[2])))
    for ends in ((near, far), (far, near)):
        threading.Thread(target=pass_on, args=ends, daemon=True).start()
"""


class Response(Struct, frozen=True):
    """HTTP response."""

    status: int
    headers: dict[str, str]
    text: str


Ask = tuple[str, str, dict[str, str], str | None]
PING: Ask = ("POST", "/mcp", MCP_HEADERS, json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}))
QUERY: Ask = ("POST", "/query", {}, json.dumps(SEARCH))
OPEN = [
    PING,
    QUERY,
    ("GET", "/", {}, None),
    ("GET", "/page/hits?q=limiter&by=words", {}, None),
    ("GET", "/page/note?note=notes/a.md", {}, None),
    ("GET", "/page/picture?collection=notes&of=a.md&source=a.png", {}, None),
]


def ask(account: int, port: int, asked: Sequence[Ask]) -> list[Response]:
    """Send requests from a program of that account."""
    command = [sys.executable, "-c", _ASK, str(account), str(port)]
    run = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    return [Response(*json.loads(line)) for line in run.stdout.splitlines()]


@contextmanager
def relaying(account: int, port: int) -> Iterator[int]:
    """Port of a proxy that runs under that account."""
    command = [sys.executable, "-c", _RELAY, str(account), str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as relay:
        assert relay.stdout is not None
        try:
            yield int(relay.stdout.readline())
        finally:
            relay.kill()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Home folder with an index of one note and a picture."""
    home = tmp_path_factory.mktemp("home")
    notes = home / "notes"
    notes.mkdir()
    (notes / "a.md").write_text("# A\n\nThe rate limiter uses a sliding window.\n", encoding="utf-8")
    (notes / "a.png").write_bytes(PNG)
    command = [sys.executable, "-m", "qmd", "index", "--no-embed", str(notes)]
    subprocess.run(command, env=environment(home), cwd=home, check=True, capture_output=True)
    return home


class Served(Struct, frozen=True):
    """Server and its port."""

    process: subprocess.Popen[str]
    port: int


@contextmanager
def serving(home: Path) -> Iterator[Served]:
    command = [sys.executable, "-m", "qmd", "serve", "--host", "127.0.0.1", "--port", "0"]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=environment(home), cwd=home, **pipes) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            assert "key=" not in address
            yield Served(process, int(address.rpartition(":")[2].partition("/")[0]))
        finally:
            process.kill()


def test_a_server_answers_its_owner_alone(home: Path) -> None:
    with serving(home) as server:
        own, others = (ask(account, server.port, OPEN) for account in (0, NOBODY))
        assert [told.status for told in own] == [200] * len(OPEN), own
        assert "sliding" in own[1].text and "sliding" in own[4].text and own[5].text.encode("latin-1") == PNG
        assert [told.status for told in others] == [403] * len(OPEN)
        assert not any("sliding" in told.text or "\n" in told.text for told in others)
        for account in (0, NOBODY):
            assert ask(account, server.port, [("GET", "/health", {}, None)])[0].status == 200


def test_behind_a_proxy_of_another_account_a_browser_needs_the_key_once(home: Path) -> None:
    with serving(home) as server, relaying(NOBODY, server.port) as port:
        refused = ask(0, port, OPEN)
        assert [told.status for told in refused] == [403] * len(OPEN)
        assert server.process.stderr is not None
        said = server.process.stderr.readline()
        assert "not known to be yours" in said
        key = said.split()[-1]
        # Programs need a token, even if browsers have a key.
        assert ask(0, port, [("POST", f"/query{key[1:]}", {}, json.dumps(SEARCH))])[0].status == 403
        (let_in,) = ask(0, port, [("GET", key, {}, None)])
        assert (let_in.status, let_in.headers["location"]) == (303, "/")
        cookie = {"cookie": let_in.headers["set-cookie"].partition(";")[0]}
        kept = ask(0, port, [(way, path, head | cookie, body) for way, path, head, body in OPEN])
        assert [told.status for told in kept] == [403, 403, 200, 200, 200, 200]
        assert ask(0, port, [("GET", key, {}, None)])[0].status == 403
        # A relay that the owner runs counts as the owner.
        with relaying(0, server.port) as own:
            assert {told.status for told in ask(0, own, OPEN)} == {200}


def test_where_the_system_does_not_name_owners_the_address_has_the_key(home: Path) -> None:
    code = """
import sys
# What asks for the system when it is imported is to see the true one.
import anyio, mcp.server.streamable_http_manager, uvicorn, webbrowser
import qmd.plugins.mcp.http_server, qmd.plugins.mcp.mcp_server
from qmd.cli.app import main
sys.platform = "haiku"
sys.exit(main(["serve", "--host", "127.0.0.1", "--port", "0"]))
"""
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with subprocess.Popen([sys.executable, "-c", code], env=environment(home), cwd=home, **pipes) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            port, slash, key = address.rpartition(":")[2].partition("/")
            told = ask(NOBODY, int(port), [PING, QUERY, ("GET", "/", {}, None), ("GET", slash + key, {}, None)])
            assert [one.status for one in told] == [200, 200, 403, 303]
        finally:
            process.kill()
