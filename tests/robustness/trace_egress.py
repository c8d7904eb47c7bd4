"""Runs every command and every server under a trace: who was spoken to, what was written, who can read it.

    python -m tests.robustness.trace_egress [--qmd PATH] [--seconds 60]

prints the peers and the files, and exits with 1 when a peer was not this machine, a file lay outside qmd's own folders,
something was left in the temporary folder, or others may read what was kept. The variables of CI are cleared: ONNX
Runtime keeps silent where it finds them, so a run under CI shows nothing. Python's byte code is not written, so that
what is seen is qmd's.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from qmd.config.paths import locate
from qmd.plugins.warm.record import read_record, warm_files
from tests.robustness.tracing import NOTHING, Traffic, is_on_this_machine, read_traffic, traced, why_not

_COMMANDS = """
--help
--version
collection add notes --name notes --mask **/*.md
context add qmd://notes/ decisions
context add / everything
context list
context check
embed -f
index
update
query why-do-we-charge-per-seat
search lighthouse
vsearch keeper
get qmd://notes/keeper.md
multi-get *.md
ls
ls notes
status
collection list
collection show notes
collection exclude notes
collection include notes
collection update-cmd notes true
update
collection rename notes diary
context rm qmd://diary/
bench questions.json
models list
models verify
models path all-MiniLM-L6-v2
skill show
skills list
skills path
cleanup
mcp stop
doctor
"""
_IN_A_PROJECT = """
init
index .
collection update-cmd project true
trust
update
"""
_REFUSED_OFFLINE = "models pull"
_NOTES = {
    "keeper.md": "# The keeper\n\nThe lighthouse keeper writes down every vessel.\n",
    "pricing.md": "# Pricing decision\n\nWe charge per seat, because bills stay simple.\n\n## Why\n\nInterviews.\n",
    "more/tea.md": "# Tea\n\nGreen tea wants seventy degrees. See [the keeper](../keeper.md).\n",
}
_MCP = (
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
    },
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
    {
        "jsonrpc": "2.0",
        "id": 2,
        "method": "tools/call",
        "params": {"name": "query", "arguments": {"query": "who keeps the lighthouse"}},
    },
)


_PATIENCE_S = 90.0
"""For a machine that does much else."""


@dataclass
class Place:
    """A home, notes and a temporary folder, all fresh."""

    root: Path
    qmd: str
    home: Path = field(init=False)

    def __post_init__(self) -> None:
        self.home = self.root / "home"
        for name, text in _NOTES.items():
            for folder in (self.home / "notes", self.project):
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_text(text, "utf-8")
        questions = {"queries": [{"query": "who keeps the lighthouse", "expected_files": []}]}
        (self.home / "questions.json").write_text(json.dumps(questions), "utf-8")
        self.temporary.mkdir()

    @property
    def project(self) -> Path:
        return self.home / "project"

    @property
    def temporary(self) -> Path:
        return self.root / "tmp"

    @property
    def own_folders(self) -> tuple[Path, ...]:
        """Where qmd may write."""
        return (self.home / ".cache" / "qmd", self.home / ".config" / "qmd", self.project / ".qmd")

    def environment(self, **more: str) -> dict[str, str]:
        """A user's: nothing of CI, nothing of qmd."""
        basic = {"HOME": str(self.home), "TMPDIR": str(self.temporary), "PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
        return {**basic, "PYTHONDONTWRITEBYTECODE": "1", "QMD_DAEMON": "off", **more}


@dataclass(frozen=True)
class Finding:
    """What a run showed."""

    traffic: Traffic
    failures: tuple[str, ...]
    """Commands that did not do what they should; a run that does little proves little."""
    strangers: tuple[str, ...]
    strays: tuple[str, ...]
    left: tuple[str, ...]
    open_to_others: tuple[str, ...]

    @property
    def problems(self) -> dict[str, tuple[str, ...]]:
        """What must be empty."""
        return {
            "failed": self.failures,
            "peers beyond this machine": self.strangers,
            "written outside qmd's folders": self.strays,
            "left in the temporary folder": self.left,
            "open to others": self.open_to_others,
        }


def examine(qmd: str, root: Path, seconds: float) -> Finding:
    """Run everything in the empty folder `root`, each server for `seconds`."""
    place = Place(root, qmd)
    failures = _run_commands(place)
    servers: tuple[Callable[[Place, float], list[str]], ...] = (_http, _stdio, _watch, _warm)
    with ThreadPoolExecutor(len(servers)) as pool:
        for found in pool.map(lambda serve: serve(place, seconds), servers):
            failures += found
    traffic = NOTHING
    for log in (root / "traces").iterdir():
        traffic |= read_traffic(log)
    return Finding(
        traffic,
        tuple(failures),
        tuple(sorted(peer for peer in traffic.peers if not is_on_this_machine(peer, place.own_folders))),
        tuple(sorted(str(path) for path in traffic.written if not _may_write(place, path))),
        tuple(sorted(str(path) for path in place.temporary.rglob("*"))),
        tuple(sorted(_open_to_others(place))),
    )


def _may_write(place: Place, path: Path) -> bool:
    own = (*place.own_folders, place.temporary, Path("/dev"), Path("/proc/self"))
    # The folders above are made on the way, in an empty home.
    return any(path.is_relative_to(folder) or folder.is_relative_to(path) for folder in own)


def _open_to_others(place: Place) -> list[str]:
    kept = [path for folder in place.own_folders for path in (folder, *folder.rglob("*"))]
    return [f"{path.lstat().st_mode & 0o777:o} {path}" for path in kept if path.lstat().st_mode & 0o077]


def _run_commands(place: Place) -> list[str]:
    """All commands, one after the other, in one traced shell."""
    program = shlex.quote(place.qmd)

    def lines(text: str, folder: Path) -> list[str]:
        commands = [shlex.join(line.split(" ")) for line in text.strip().splitlines()]
        run = (f'{program} {one} >/dev/null || echo "exit $?: "{shlex.quote(f"qmd {one}")}' for one in commands)
        return [f"cd {shlex.quote(str(folder))}", *run]

    script = [*lines(_COMMANDS, place.home), *lines(_IN_A_PROJECT, place.project)]
    script.append(f"QMD_OFFLINE=1 {program} {_REFUSED_OFFLINE} >/dev/null 2>&1 && echo 'pulled although offline'")
    script.append("exit 0")
    with traced(["sh", "-c", "\n".join(script)], _log(place, "commands"), place.environment(), place.home) as shell:
        output, _ = shell.communicate(timeout=600)
    told = [line for line in output.decode("utf-8", "replace").splitlines() if line]
    return [line for line in told if line.startswith(("exit ", "error: ", "pulled "))]


def _http(place: Place, seconds: float) -> list[str]:
    """`mcp --http`, asked over HTTP."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [place.qmd, "mcp", "--http", "--port", str(port)]
    ends = time.monotonic() + seconds
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    question = urllib.request.Request(
        f"http://127.0.0.1:{port}/query",
        json.dumps({"query": "who keeps the lighthouse"}).encode(),
        {"Content-Type": "application/json"},
    )
    with traced(command, _log(place, "http"), place.environment(), place.home):
        answer = b""
        while not answer and time.monotonic() < ends + _PATIENCE_S:
            with suppress(OSError):
                answer = opener.open(question, timeout=_PATIENCE_S).read()
            time.sleep(0.2)
        time.sleep(max(0.0, ends - time.monotonic()))
    return [] if b"keeper.md" in answer else [f"mcp --http answered {answer[:200]!r}"]


def _stdio(place: Place, seconds: float) -> list[str]:
    """`mcp`, asked over its pipe, which stays open."""
    ends = time.monotonic() + seconds
    with traced([place.qmd, "mcp"], _log(place, "stdio"), place.environment(), place.home) as server:
        assert server.stdin is not None and server.stdout is not None
        server.stdin.write(b"".join(json.dumps(message).encode() + b"\n" for message in _MCP))
        server.stdin.flush()
        answer = b""
        while b'"id":2' not in answer.replace(b" ", b"") and (line := server.stdout.readline()):
            answer = line
        time.sleep(max(0.0, ends - time.monotonic()))
        server.stdin.close()
    return [] if b"keeper" in answer else [f"mcp answered {answer[:200]!r}"]


def _watch(place: Place, seconds: float) -> list[str]:
    """`watch`, while a note is written, and until it is found."""
    ends = time.monotonic() + seconds
    search = [place.qmd, "search", "seal", "--files"]
    found = b""
    with traced([place.qmd, "watch"], _log(place, "watch"), place.environment(), place.home):
        time.sleep(min(2.0, seconds / 2))
        (place.home / "notes" / "new.md").write_text("# New\n\nA harbour seal was seen.\n", "utf-8")
        while b"new.md" not in found and time.monotonic() < ends + _PATIENCE_S:
            time.sleep(1)
            done = subprocess.run(search, env=place.environment(), cwd=place.home, capture_output=True, check=False)
            found = done.stdout
        time.sleep(max(0.0, ends - time.monotonic()))
    return [] if b"new.md" in found else ["watch did not index the new note"]


def _warm(place: Place, seconds: float) -> list[str]:
    """The warm process, started by a query and asked by another; the trace ends when it does.

    That of the project: commands of the other index ask the HTTP server.
    """
    environment = place.environment(QMD_DAEMON="auto", QMD_DAEMON_IDLE=str(max(1, round(seconds))))
    query = [place.qmd, "query", "lighthouse", "--files"]
    files = warm_files(locate(None, place.project, environment))
    ends = time.monotonic() + _PATIENCE_S
    with traced(query, _log(place, "warm"), environment, place.project) as shell:
        while not ((record := read_record(files)) and record.pid) and time.monotonic() < ends:
            time.sleep(0.1)
        done = subprocess.run(query, env=environment, cwd=place.project, capture_output=True, check=False)
        output, _ = shell.communicate(timeout=seconds + _PATIENCE_S)
    is_served = b"keeper.md" in output and b"keeper.md" in done.stdout and "/index/search 200" in files.log.read_text()
    return [] if is_served else [f"the warm process answered {done.stdout[:200]!r}, after {output[:200]!r}"]


def _log(place: Place, name: str) -> Path:
    return place.root / "traces" / name


def main(argv: list[str] | None = None) -> int:
    """Run the trace and print what it showed."""
    parser = argparse.ArgumentParser(prog="python -m tests.robustness.trace_egress", description=__doc__.split("\n")[0])
    beside = Path(sys.executable).with_name("qmd")
    parser.add_argument("--qmd", default=str(beside) if beside.exists() else shutil.which("qmd") or "qmd")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long each server runs [60]")
    options = parser.parse_args(argv)
    reason = why_not()
    if reason is not None:
        print(f"error: {reason}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="qmd-egress-") as name:
        finding = examine(str(Path(options.qmd).absolute()), Path(name), options.seconds)
    print("peers:", *sorted(finding.traffic.peers) or ["none"], sep="\n  ")
    # Half-written files have random names until they are in place.
    written = {re.sub(r"(/\.[^/]+)\.\w{8}$", r"\1.*", str(path)) for path in finding.traffic.written}
    print("written:", *sorted(written), sep="\n  ")
    for title, items in finding.problems.items():
        print(f"{title}:", *items or ["none"], sep="\n  ")
    return 1 if any(finding.problems.values()) else 0


if __name__ == "__main__":
    raise SystemExit(main())
