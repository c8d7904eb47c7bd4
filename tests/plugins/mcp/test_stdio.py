"""`qmd mcp` as a real process, with raw lines of JSON."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp_types import TextResourceContents

from qmd.plugins.mcp.tools import TOOLS
from tests.processes import environment

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}},
}
NAMES = [tool.name for tool in TOOLS]
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


@pytest.fixture
def environ(database: Path, tmp_path: Path) -> dict[str, str]:
    own = {"INDEX_PATH": str(database), "QMD_CONFIG_DIR": str(tmp_path / "config")}
    own |= {"QMD_DAEMON": "off", "QMD_DEBUG": "1"}
    return environment(tmp_path, XDG_CACHE_HOME=str(tmp_path / "cache"), **own)


def start(environ: dict[str, str], cwd: Path, *command: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command or (sys.executable, "-m", "qmd", "mcp"),
        cwd=cwd,
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


@pytest.fixture
def server(environ: dict[str, str], tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = start(environ, tmp_path)
    yield process
    process.kill()
    process.communicate()


def lines_of(messages: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(message).encode() + b"\n" for message in messages)


def call(number: int, tool: str, arguments: dict[str, Any], meta: dict[str, Any] | None = None) -> dict[str, Any]:
    params = {"name": tool, "arguments": arguments} | ({"_meta": meta} if meta else {})
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


def finish(process: subprocess.Popen[bytes], messages: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """Send everything, close stdin at once, and return the responses by id; every line must be JSON-RPC."""
    stdout, stderr = process.communicate(lines_of(messages), timeout=60)
    answers = [json.loads(line) for line in stdout.splitlines()]
    assert all(answer["jsonrpc"] == "2.0" for answer in answers)
    assert process.returncode == 0, stderr.decode()
    assert "Shutting down (stdin closed)..." in stderr.decode()
    return {answer["id"]: answer for answer in answers if "id" in answer}


def test_a_session_of_2025_is_answered_to_the_last_request(server: subprocess.Popen[bytes]) -> None:
    search = call(3, "query", {"searches": [{"type": "lex", "query": "rate limiter"}], "rerank": False})
    listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
    answers = finish(server, [INITIALIZE, INITIALIZED, listing, search])
    opened = answers[1]["result"]
    assert opened["protocolVersion"] == "2025-06-18"
    assert opened["serverInfo"]["name"] == "qmd"
    assert "prompts" not in opened["capabilities"]
    assert [tool["name"] for tool in answers[2]["result"]["tools"]] == NAMES
    assert answers[3]["result"]["structuredContent"]["results"][0]["file"] == "docs/a.md"


def test_the_stateless_era_needs_no_opening(server: subprocess.Popen[bytes]) -> None:
    discover = {"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": META}}
    listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {"_meta": META}}
    answers = finish(server, [discover, listing, call(3, "get", {"file": "docs/a.md:3:1"}, META)])
    assert answers[1]["result"]["supportedVersions"] == ["2026-07-28"]
    assert answers[1]["result"]["resultType"] == "complete"
    assert answers[1]["result"]["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "qmd"
    assert (answers[2]["result"]["ttlMs"], answers[2]["result"]["cacheScope"]) == (60_000, "private")
    assert answers[3]["result"]["content"][0]["text"].endswith("3: The rate limiter uses a sliding window.")


@pytest.mark.skipif(sys.platform == "win32", reason="a new parent cannot be seen there")
def test_it_ends_when_its_parent_dies_with_the_pipe_still_open(environ: dict[str, str], tmp_path: Path) -> None:
    # The shell is the server's parent and only waits; our end of stdin stays open when it is killed.
    script = f'exec 3<&0; "{sys.executable}" -m qmd mcp <&3 & wait'
    shell = start(environ, tmp_path, "sh", "-c", script)
    assert shell.stderr is not None and shell.stdin is not None and shell.stdout is not None
    shell.stdin.write(lines_of([INITIALIZE]))
    shell.stdin.flush()
    assert b'"protocolVersion"' in shell.stdout.readline()
    shell.kill()
    # The server has the pipe's other end open; it closes when the last process ends.
    assert b"the parent process ended" in shell.stderr.read()
    shell.communicate()


TOO_DEEP = b"[" * 100_000 + b"]" * 100_000
BROKEN = [
    (None, TOO_DEEP),
    (None, b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":' + TOO_DEEP + b"}"),
    (None, b'{"jsonrpc":"2.0","id":' + b"9" * 5000 + b',"method":"ping"}'),
    (None, b'{"jsonrpc":"2.0","id":5,"method":"ping","params":{"x":"' + b"a" * 10_000_000 + b'"}}'),
    (None, b'[{"jsonrpc":"2.0","id":5,"method":"ping"}]'),
    (None, b"\xff\x00"),
    (None, b"not json"),
    (None, b"[]"),
    (6, b'{"jsonrpc":"2.0","id":6,"method":"tools/call","params":{"name":"query","arguments":{"query":"\\ud800"}}}'),
    (7, b'{"jsonrpc":"1.0","id":7,"method":"ping"}'),
]


def test_every_line_that_is_no_request_is_answered_with_an_error(server: subprocess.Popen[bytes]) -> None:
    lines = [line for _, line in BROKEN]
    ping = {"jsonrpc": "2.0", "id": 9, "method": "ping"}
    sent = b"\n".join([*lines, b"", lines_of([INITIALIZE, INITIALIZED]), *lines, lines_of([ping])])
    stdout, _ = server.communicate(sent, timeout=120)
    answers = [json.loads(line) for line in stdout.splitlines()]
    assert [answer["id"] for answer in answers if "error" in answer] == [number for number, _ in BROKEN] * 2
    assert [answer["id"] for answer in answers if "result" in answer] == [1, 9]
    assert server.returncode == 0


def test_nothing_sent_means_a_quiet_end(server: subprocess.Popen[bytes]) -> None:
    stdout, _ = server.communicate(b"", timeout=60)
    assert (stdout, server.returncode) == (b"", 0)


@pytest.mark.anyio
async def test_the_sdk_client_works_over_stdio(environ: dict[str, str], tmp_path: Path) -> None:
    program = StdioServerParameters(command=sys.executable, args=["-m", "qmd", "mcp"], env=environ, cwd=str(tmp_path))
    async with Client(stdio_client(program), mode="2026-07-28") as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == NAMES
        found = await client.call_tool("query", {"query": "rate limiter", "rerank": False})
        assert found.structured_content is not None
        assert found.structured_content["results"][0]["file"] == "docs/a.md"
        (content,) = (await client.read_resource("qmd://docs/sub/b.md")).contents
        assert isinstance(content, TextResourceContents) and "cache is flushed" in content.text


def test_a_session_imports_no_client_until_somebody_asks_the_sdk_for_one() -> None:
    code = (
        "import sys; from qmd.plugins.mcp.stdio import _defer_sdk_imports; _defer_sdk_imports();"
        "import qmd.plugins.mcp.stdio_session;"
        "print(sorted(name for name in sys.modules if name.startswith(('mcp.client', 'mcp.server.mcpserver'))));"
        "import mcp; print(mcp.ClientSession.__name__, mcp.server.MCPServer.__name__, mcp.types.Tool.__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=True)
    assert done.stdout.splitlines() == ["[]", "ClientSession MCPServer Tool"]
