"""Background server: pid file, start, stop, and settings for editors."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from qmd.cli.app import main
from qmd.config.paths import locate
from qmd.errors import QmdError
from qmd.plugins.warm.lifecycle import (
    remove_own_pid,
    running_server,
    server_files,
    start_server,
    stop_server,
    write_pid,
)
from qmd.plugins.warm.record import WarmRecord, warm_files, write_record
from qmd.process import OWN_PROGRAM
from tests.processes import environment, wait_until


def test_named_indexes_have_files_of_their_own(tmp_path: Path) -> None:
    assert server_files(tmp_path, "index").pid == tmp_path / "mcp.pid"
    assert server_files(tmp_path, "work").log == tmp_path / "mcp-work.log"


def test_no_pid_file_means_not_running(tmp_path: Path) -> None:
    assert stop_server(server_files(tmp_path, "index")) == "Not running (no PID file)."


@pytest.mark.parametrize("content", ["", "abc", "0", "-1", "999999999", "1 2"])
def test_stale_pid_files_are_cleaned_up(tmp_path: Path, content: str) -> None:
    files = server_files(tmp_path, "index")
    files.pid.write_text(content, encoding="ascii")
    assert running_server(files) is None
    assert stop_server(files) == "Cleaned up stale PID file (server was not running)."
    assert not files.pid.exists()


def test_a_stranger_with_a_recycled_number_is_never_signalled(tmp_path: Path) -> None:
    files = server_files(tmp_path, "index")
    stranger = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        files.pid.write_text(str(stranger.pid), encoding="ascii")
        assert stop_server(files) == "Cleaned up stale PID file (server was not running)."
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_only_the_own_pid_file_is_removed(tmp_path: Path) -> None:
    files = server_files(tmp_path, "index")
    files.pid.write_text("1\n", encoding="ascii")
    remove_own_pid(files)
    assert files.pid.exists()
    write_pid(files)
    assert files.pid.read_text(encoding="ascii").strip() == str(os.getpid())
    remove_own_pid(files)
    assert not files.pid.exists()


@pytest.fixture
def environ(tmp_path: Path, database: Path) -> dict[str, str]:
    return environment(tmp_path, XDG_CACHE_HOME=str(tmp_path / "c"), INDEX_PATH=str(database))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run(environ: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "qmd", "mcp", *arguments]
    return subprocess.run(command, env=environ, cwd=environ["HOME"], capture_output=True, text=True, timeout=60)


def test_the_daemon_answers_once_started_and_stops_on_request(environ: dict[str, str], tmp_path: Path) -> None:
    port = free_port()
    started = run(environ, "--http", "--daemon", "--port", str(port), "--host", "127.0.0.1")
    assert started.returncode == 0, started.stderr
    files = server_files(tmp_path / "c" / "qmd", "index")
    pid = running_server(files)
    assert pid is not None
    assert started.stdout == f"Started on http://127.0.0.1:{port}/mcp (PID {pid})\nLogs: {files.log}\n"
    assert started.stderr == ""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
            assert json.load(answer)["pid"] == pid
        again = run(environ, "--http", "--daemon", "--port", str(port))
        assert again.returncode == 1
        assert f"Already running (PID {pid}). Run 'qmd mcp stop' first." in again.stderr
        assert run(environ, "status").stdout == f"MCP server: running (PID {pid})\nWarm process: not running\n"
        stopped = run(environ, "stop")
        assert f"Stopped QMD MCP server (PID {pid})." in stopped.stdout
        assert not files.pid.exists()
    finally:
        if running_server(files):
            os.kill(pid, signal.SIGKILL)


def test_a_server_started_in_a_strangers_folder_takes_no_module_of_it(environ: dict[str, str], tmp_path: Path) -> None:
    clone, ran = tmp_path / "clone", tmp_path / "ran"
    (clone / "rows.dist-info").mkdir(parents=True)
    (clone / "rows.dist-info" / "entry_points.txt").write_text("[qmd.plugins]\nrows = typer\n")
    for module in ("typer", "msgspec", "json", "qmd"):
        (clone / f"{module}.py").write_text(f"open({str(ran)!r}, 'w').close()\n")
    port = str(free_port())
    for words in (("--help",), ("mcp", "--http", "--daemon", "--port", port, "--host", "127.0.0.1"), ("mcp", "stop")):
        done = subprocess.run([*OWN_PROGRAM, *words], env=environ, cwd=clone, capture_output=True, timeout=60)
        assert done.returncode == 0, done.stderr
    assert not ran.exists()


@pytest.mark.skipif(sys.platform == "win32", reason="ends by signal")
@pytest.mark.parametrize("has_server", [False, True])
def test_stop_ends_the_warm_process_as_well(environ: dict[str, str], tmp_path: Path, has_server: bool) -> None:
    command = [sys.executable, "-m", "qmd", "mcp", "--http", "--socket-only"]
    records = tmp_path / "c" / "qmd"
    with subprocess.Popen(command, env=environ, cwd=environ["HOME"], stderr=subprocess.DEVNULL) as warm:
        try:
            wait_until(lambda: list(records.glob("warm-*.json")))
            other = run(environ, "stop", "--index", "other")
            assert (other.returncode, warm.poll()) == (0, None)
            assert f"Warm process: running (PID {warm.pid})\n" in run(environ, "status").stdout
            if has_server:
                server_files(records, "index").pid.write_text("4194304\n", encoding="ascii")
            stopped = run(environ, "stop")
            assert stopped.returncode == 0
            assert f"Stopped warm process (PID {warm.pid})." in stopped.stdout
            assert ("Cleaned up stale PID file" in stopped.stdout) == has_server
            assert "Not running" not in stopped.stdout
            assert warm.wait(60) == 0
            assert not list(records.glob("warm-*.json")) and not list(records.glob("warm-*.sock"))
            assert "Not running (no PID file)." in run(environ, "stop").stdout
        finally:
            warm.kill()


def test_a_record_that_names_another_process_stops_nothing(environ: dict[str, str], tmp_path: Path) -> None:
    files = warm_files(locate(None, tmp_path, environ))
    words = ["mcp", "--http"]
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", "qmd", *words]) as stranger:
        try:
            write_record(files, WarmRecord(stranger.pid, "1", "x", "t", 1))
            assert "running (" not in run(environ, "status").stdout
            stopped = run(environ, "stop")
            assert (stopped.returncode, stopped.stdout) == (0, "Not running (no PID file).\n")
            assert stranger.poll() is None
        finally:
            stranger.kill()


def test_a_daemon_that_cannot_listen_is_reported_not_announced(environ: dict[str, str], tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        files = server_files(tmp_path, "index")
        arguments = ["mcp", "--http", "--host", "127.0.0.1", "--port", str(port)]
        with pytest.raises(QmdError) as raised:
            start_server(files, arguments, f"http://127.0.0.1:{port}", environ)
    assert "the server ended at once" in raised.value.message
    assert f"Port {port} already in use" in files.log.read_text(encoding="utf-8")


@pytest.mark.skipif(sys.platform == "win32", reason="ends by signal")
def test_a_server_that_is_ended_while_it_searches_for_a_command_breaks_neither(environ: dict[str, str]) -> None:
    port = free_port()
    command = [sys.executable, "-m", "qmd"]
    words = ["mcp", "--http", "--host", "127.0.0.1", "--port", str(port)]
    server = subprocess.Popen([*command, *words], env=environ, cwd=environ["HOME"], stderr=subprocess.PIPE, text=True)
    assert server.stderr is not None
    try:
        assert "listening" in server.stderr.readline()
        asking = [*command, "query", "rate limiter", "--json"]
        query = subprocess.Popen(
            asking, env=environ, cwd=environ["HOME"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        time.sleep(1.0)
        server.terminate()
        found, errors = query.communicate(timeout=60)
        assert query.returncode == 0, errors
        assert "a.md" in found
        assert server.wait(60) == 0
    finally:
        server.kill()
        server.communicate()


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("mcp --http --host 0.0.0.0 --port 1", "which needs a token\nhint: set QMD_TOKEN"),
        ("serve --host 0.0.0.0", "which needs a token\nhint: set QMD_TOKEN"),
        ("mcp --http --host 127.0.0.1 --port TAKEN", "Port TAKEN already in use. Try a different port with --port."),
        ("serve --host 127.0.0.1 --port TAKEN", "Port TAKEN already in use. Try a different port with --port."),
        ("mcp --daemon", "--daemon needs --http"),
        ("mcp start", "action 'start' is not one of stop, status"),
    ],
)
def test_what_cannot_be_served_is_named(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: str, line: str
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert main(words.replace("TAKEN", port).split()) == 2
    assert line.replace("TAKEN", port) in capsys.readouterr().err
