"""Background server processes: start and stop, pid file and log, and recognition of other processes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from msgspec import Struct

from qmd.errors import QmdError
from qmd.files import make_private_folder, open_private, write_atomically
from qmd.process import OWN_PROGRAM

if TYPE_CHECKING:
    from qmd.config.paths import Locations

_START_TIMEOUT_S = 20.0
_STOP_TIMEOUT_S = 10.0
_POLL_S = 0.05


class ServerFiles(Struct, frozen=True):
    """Files of one index's HTTP server. The pid file contains only the number, which other programs read."""

    pid: Path
    log: Path


def server_files(cache: Path, index_name: str) -> ServerFiles:
    """Return `mcp.pid` and `mcp.log`, or `mcp-NAME.*` for a named index."""
    stem = "mcp" if index_name == "index" else f"mcp-{index_name}"
    return ServerFiles(cache / f"{stem}.pid", cache / f"{stem}.log")


def server_of(locations: Locations) -> int | None:
    """Return the process id of an index's live server; see `running_server`."""
    return running_server(server_files(locations.cache, locations.stem))


def running_server(files: ServerFiles) -> int | None:
    """Return the process id of the live server in the pid file; None if stale, recycled, damaged or missing."""
    try:
        pid = int(files.pid.read_text(encoding="ascii").strip())
    except (OSError, ValueError):
        return None
    return pid if pid > 0 and _is_our_server(pid) else None


def _is_our_server(pid: int) -> bool:
    """Return whether the process is alive with the command line of a qmd server; systems reuse process ids."""
    command = _command_line(pid)
    if command is None:
        return False
    words = [Path(word).name for word in command]
    return any("qmd" in word for word in words) and ("serve" in words or ("mcp" in words and "--http" in words))


def _command_line(pid: int) -> Sequence[str] | None:
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        if Path("/proc/self/cmdline").exists():
            return None
    else:
        # A zombie keeps its id but has no command line.
        return [os.fsdecode(word) for word in raw.split(b"\0") if word] or None
    return _command_line_from_system(pid)


def _command_line_from_system(pid: int) -> Sequence[str] | None:
    if sys.platform == "win32":
        query = f'(Get-CimInstance Win32_Process -Filter "ProcessId={pid}").CommandLine'
        command = ["powershell", "-NoProfile", "-Command", query]
    else:
        command = ["ps", "-ww", "-p", str(pid), "-o", "command="]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False).stdout.split()
    except (OSError, subprocess.SubprocessError):
        return None
    return found or None


def write_pid(files: ServerFiles) -> None:
    write_atomically(files.pid, f"{os.getpid()}\n")


def remove_own_pid(files: ServerFiles) -> None:
    """Remove the pid file if it names this process."""
    try:
        if files.pid.read_text(encoding="ascii").strip() == str(os.getpid()):
            files.pid.unlink()
    except OSError:
        return


def start_server(
    files: ServerFiles, arguments: Sequence[str], url: str, environ: Mapping[str, str], token: str | None = None
) -> int:
    """Start `qmd ARGUMENTS` in the background, wait until that process answers at `url`, and return its id.

    Raises:
        QmdError: A server of this index already runs, or this one ends (the message contains the last line of its log)
            or does not answer.
    """
    running = running_server(files)
    if running is not None:
        raise QmdError(f"Already running (PID {running}). Run 'qmd mcp stop' first.")
    files.pid.unlink(missing_ok=True)
    process = start_process(arguments, files.log, environ)
    deadline = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise QmdError(f"the server ended at once: {last_line(files.log)}", f"see {files.log}")
        if health_pid(url, token) == process.pid:
            return process.pid
        time.sleep(_POLL_S)
    process.terminate()
    raise QmdError(f"the server did not answer within {_START_TIMEOUT_S:.0f} s", f"see {files.log}")


def server_url(host: str, port: int) -> str:
    """Return the URL of a server that listens on `host`."""
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def reachable_host(host: str) -> str:
    """Return the host name by which this machine reaches a server that listens on `host`."""
    return "127.0.0.1" if host in ("0.0.0.0", "::", "") else host


def health_pid(url: str, token: str | None) -> int | None:
    """Return the process id that `url`/health reports, or None."""
    import urllib.request

    request = urllib.request.Request(f"{url}/health")
    if token is not None:
        request.add_header("Authorization", f"Bearer {token}")
    # Without the proxies of the environment: the server is on this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=2) as answer:
            pid = json.load(answer).get("pid")
    except (OSError, ValueError, AttributeError):
        return None
    return pid if isinstance(pid, int) else None


def end_process(status: int = 0) -> NoReturn:
    """Exit without the interpreter's shutdown, which a thread that runs a model in native code would abort.

    Close and remove files before this call.
    """
    for stream in (sys.stdout, sys.stderr):
        # Their reader may have closed the pipe.
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


def stop_server(files: ServerFiles) -> str:
    """End the server and return a line about the result. Other programs' processes are not touched."""
    if not files.pid.exists():
        return "Not running (no PID file)."
    pid = running_server(files)
    if pid is None:
        files.pid.unlink(missing_ok=True)
        return "Cleaned up stale PID file (server was not running)."
    message = _end("QMD MCP server", pid)
    if not _is_our_server(pid):
        files.pid.unlink(missing_ok=True)
    return message


def stop_warm_process(pid: int) -> str | None:
    """End a warm process as `stop_server` does; None if the id belongs to another process."""
    return _end("warm process", pid) if warm_process(pid) else None


def warm_process(pid: int) -> int | None:
    """Return the id if it belongs to a live warm process, which serves only commands."""
    return pid if _is_our_server(pid) and "--socket-only" in (_command_line(pid) or ()) else None


def _end(what: str, pid: int) -> str:
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + _STOP_TIMEOUT_S
    while time.monotonic() < deadline and _is_our_server(pid):
        time.sleep(_POLL_S)
    if _is_our_server(pid):
        return f"Asked the {what} (PID {pid}) to stop; it is still finishing a request."
    return f"Stopped {what} (PID {pid})."


def command_on(
    locations: Locations, environ: Mapping[str, str], words: Sequence[str]
) -> tuple[list[str], dict[str, str]]:
    """Return arguments and environment that run `qmd WORDS` on the index of these locations."""
    if locations.project_root is not None:
        return list(words), dict(environ)
    return [*words, "--index", locations.index_name], {
        **environ,
        "INDEX_PATH": locations.address or str(locations.database),
    }


def start_process(arguments: Sequence[str], log: Path, environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start `qmd ARGUMENTS` so that it outlives this process and its terminal.

    Args:
        arguments: Without the program's name.
        log: New file for stdout and stderr.
        environ: Environment of the process.

    Raises:
        OSError: The process cannot be started.
    """
    make_private_folder(log.parent)
    with os.fdopen(open_private(log, os.O_WRONLY | os.O_TRUNC), "wb") as stream:
        return subprocess.Popen(
            [*OWN_PROGRAM, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            env=dict(environ),
            start_new_session=sys.platform != "win32",
        )


def last_line(log: Path) -> str:
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    except OSError:
        lines = []
    return lines[-1] if lines else "it wrote nothing"
