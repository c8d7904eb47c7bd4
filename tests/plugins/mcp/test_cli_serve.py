"""`qmd serve`: start, address and end."""

import shlex
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.processes import environment, wait_until

QMD = (sys.executable, "-m", "qmd")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with an index of one note."""
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "a.md").write_text("# A\n\nThe rate limiter uses a sliding window.\n", encoding="utf-8")
    subprocess.run([*QMD, "index", "--no-embed", str(notes)], env=environment(tmp_path), cwd=tmp_path, check=True)
    return tmp_path


def run(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [*QMD, "serve", *arguments]
    return subprocess.run(command, env=environment(home), cwd=home, capture_output=True, text=True, timeout=60)


@contextmanager
def serving(home: Path, *arguments: str, **variables: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server, and the address that it printed."""
    process = subprocess.Popen(
        [*QMD, "serve", "--host", "127.0.0.1", *arguments],
        env=environment(home, **variables),
        cwd=home,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


def read(address: str) -> str:
    with urllib.request.urlopen(address, timeout=10) as answer:
        text: str = answer.read().decode()
        return text


@pytest.mark.skipif(sys.platform == "win32", reason="ends by signal")
def test_it_prints_its_address_answers_there_and_ends_quietly_with_ctrl_c(home: Path) -> None:
    with serving(home, "--port", "0") as (process, address):
        assert address.startswith("http://127.0.0.1:")
        assert "sliding" in read(f"{address}?q=sliding")
        assert '"status"' in read(f"{address}health")
        process.send_signal(signal.SIGINT)
        rest, messages = process.communicate(timeout=20)
    assert (process.returncode, rest, messages) == (0, "", "")


def test_a_second_one_says_where_the_first_one_is(home: Path) -> None:
    with serving(home, "--port", "0") as (process, address):
        port = address.rstrip("/").rpartition(":")[2]
        again = run(home, "--host", "127.0.0.1", "--port", port)
        assert (again.returncode, again.stdout) == (0, f"{address}\n")
        assert f"process {process.pid} already serves" in again.stderr
        other = run(home, "--host", "127.0.0.1", "--port", port, "--index", "work")
        assert other.returncode == 2
        assert f"port {port} is taken by another qmd server (process {process.pid})" in other.stderr
        assert f"qmd serve --port {int(port) + 1}" in other.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="the browser is a shell script")
def test_it_opens_the_browser_when_asked(home: Path) -> None:
    browser, seen = home / "browser", home / "seen"
    browser.write_text(f'#!/bin/sh\necho "$1" > "{seen}.new"; mv "{seen}.new" "{seen}"\n', encoding="utf-8")
    browser.chmod(0o700)
    with serving(home, "--port", "0", "--open", BROWSER=f"{shlex.quote(str(browser))} %s") as (_, address):
        wait_until(seen.exists)
        assert seen.read_text(encoding="utf-8").strip() == address
