"""Fixtures of clients: the installed program, an environment, a folder of notes. They import nothing from qmd."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.processes import environment

NOTES: Mapping[str, str] = {
    "pricing.md": "# Pricing decision\n\nWe chose per-seat pricing after the March interviews.\n\n"
    "## Why not usage based\n\nCustomers could not predict their bills.\n",
    "deploy.md": "---\ntags: [ops, release]\n---\n# Deploy runbook\n\nRoll back with the previous image tag.\n"
    "<!-- id: 6512f -->\nThe rate limiter uses a sliding window.\n",
    "daily/2026-03-01.md": "# Sunday\n\nTalked to Ana about the rate limiter and the sliding window.\n",
    "sub/日记.md": "# 日记\n\n今天讨论了数据库迁移的计划。\n",
    "we ird/c & d.md": "# Beta & co\n\nAn odd file name about gardening and tomatoes.\n",
}


_STRETCH = 20.0
"""Factor of clients' timeouts: only a run that hangs may fail here; tests/benchmarks measures durations."""


@dataclass(frozen=True)
class Client:
    """Program that uses qmd: its environment and working directory."""

    env: Mapping[str, str]
    cwd: Path
    notes: Path
    timeout_s: float = 60.0
    command: tuple[str, ...] = field(default_factory=lambda: qmd_command())

    def run(
        self, *args: str, stdin: str | None = None, limit_s: float | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run the program; `limit_s` is the client's own limit, stretched because tests share the machine."""
        return subprocess.run(
            [*self.command, *args],
            env=dict(self.env),
            cwd=self.cwd,
            input=stdin,
            capture_output=True,
            encoding="utf-8",
            timeout=self.timeout_s if limit_s is None else limit_s * _STRETCH,
            check=False,
        )

    def ok(self, *args: str, limit_s: float | None = None) -> str:
        done = self.run(*args, limit_s=limit_s)
        assert done.returncode == 0, f"{args}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout


@dataclass
class McpPipe:
    """Client of `qmd mcp` over pipes, in the 2025 era like the JavaScript SDK: initialize, then calls."""

    process: subprocess.Popen[str]
    number: int = 0

    def request(self, method: str, **params: Any) -> dict[str, Any]:
        self.number += 1
        self._send({"jsonrpc": "2.0", "id": self.number, "method": method, "params": params})
        while True:
            assert self.process.stdout is not None
            line = self.process.stdout.readline()
            assert line, "the server closed its output"
            message: dict[str, Any] = json.loads(line)
            if message.get("id") == self.number:
                assert "error" not in message, message
                result: dict[str, Any] = message["result"]
                return result

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        return self.request("tools/call", name=tool, arguments=arguments)

    def notify(self, method: str) -> None:
        self._send({"jsonrpc": "2.0", "method": method})

    def _send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()


MakeClient = Callable[..., Client]
Connect = Callable[[Client], McpPipe]


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Start the server of a client and initialize the session; every server ends with the test."""
    pipes: list[McpPipe] = []

    def start(client: Client) -> McpPipe:
        process = subprocess.Popen(
            [*client.command, "mcp"],
            env=dict(client.env),
            cwd=client.cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            encoding="utf-8",
        )
        pipe = McpPipe(process)
        pipes.append(pipe)
        info = {"name": "client", "version": "1.0.0"}
        opened = pipe.request("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo=info)
        assert opened["protocolVersion"] == "2025-06-18"
        assert opened["serverInfo"]["name"] == "qmd"
        pipe.notify("notifications/initialized")
        return pipe

    yield start
    for pipe in pipes:
        assert pipe.process.stdin is not None
        pipe.process.stdin.close()
        try:
            pipe.process.wait(timeout=30)
        finally:
            pipe.process.kill()
            pipe.process.wait()
            assert pipe.process.stdout is not None
            pipe.process.stdout.close()


def qmd_command() -> tuple[str, ...]:
    script = shutil.which("qmd", path=str(Path(sys.executable).parent))
    return (script,) if script else (sys.executable, "-m", "qmd")


def write_notes(folder: Path) -> Path:
    for name, text in NOTES.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    return folder


@pytest.fixture
def make_client(tmp_path: Path) -> MakeClient:
    def build(**env: str) -> Client:
        notes = write_notes(tmp_path / "notes")
        home = tmp_path / "home"
        home.mkdir(exist_ok=True)
        return Client(env=environment(home, QMD_DAEMON="0", **env), cwd=tmp_path, notes=notes)

    return build
