"""`qmd watch` as a real process: a change on disk is found by a search, and signals end it."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes import environment

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="ends by signal")


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "first.md").write_text("# First\n\nlighthouse\n", encoding="utf-8")
    own = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    environ = environment(tmp_path, **own)
    qmd(environ, "collection", "add", "notes")
    return environ


def qmd(environ: dict[str, str], *words: str) -> str:
    command = [sys.executable, "-m", "qmd", *words]
    return subprocess.run(command, cwd=environ["HOME"], env=environ, capture_output=True, text=True, timeout=60).stdout


@pytest.fixture
def watcher(environ: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "qmd", "watch"],
        cwd=environ["HOME"],
        env=environ,
        stderr=subprocess.PIPE,
        text=True,
        # Tests that run as a background job of a shell ignore Ctrl-C, and the watcher would inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stderr is not None and "watching notes" in process.stderr.readline()
    yield process
    process.kill()
    process.communicate()


def test_an_interrupt_during_the_first_round_ends_it_well(watcher: subprocess.Popen[str]) -> None:
    # The model is loaded now; native packages swallow an interrupt during their import.
    time.sleep(0.3)
    watcher.send_signal(signal.SIGINT)
    _, said = watcher.communicate(timeout=60)
    assert watcher.returncode == 0
    assert said.endswith("stopped\n") and "Traceback" not in said and "cannot be" not in said


def test_files_come_and_go_in_searches(watcher: subprocess.Popen[str], environ: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "notes" / "second.md"
    for write, expected in ((lambda: file.write_text("# Second\n\nunicorn\n"), True), (file.unlink, False)):
        write()
        deadline = time.monotonic() + 60
        while ("second.md" in qmd(environ, "search", "unicorn", "--json")) is not expected:
            assert time.monotonic() < deadline
            time.sleep(0.1)
    watcher.terminate()
    assert watcher.wait(60) == 0
