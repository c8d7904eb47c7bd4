"""Long runs: progress, reports to other commands, and the state after an interrupt."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal

import pytest

from qmd import open_index
from qmd.cli.embedding import EmbeddingProgress
from qmd.cli.progress import ProgressLine
from qmd.config.paths import locate
from qmd.errors import QmdError
from qmd.plugins.warm.process import WarmProcess
from qmd.progress import Progress
from qmd.status import EmbeddingRun
from qmd.store.opening import open_reader
from qmd.store.runs import EmbeddingLock
from tests.cli.terminal_runs import run_all
from tests.program import Qmd

if sys.platform == "win32":
    pytest.skip("needs pseudo-terminals and signals", allow_module_level=True)

ALREADY = "Another embed process is already running. Skipping.\n"
BAR = re.compile(r"Vectors  [━╸╺ ]+ +\d+ %")


def database() -> Path:
    return locate(None, Path.cwd(), os.environ).database


@pytest.fixture
def running(indexed: Qmd) -> Iterator[EmbeddingRun]:
    """Record a run of this process that is 43 % done."""
    with EmbeddingLock(database()) as record:
        record.update(Progress(430, 1_000, 60.0, 5.0, 114.0))
        yield record.run


@pytest.fixture
def long_notes(home: Path) -> Iterator[Path]:
    """Write notes whose vectors take some seconds on any machine."""
    folder = home / "long"
    folder.mkdir()
    for number in range(60):
        lines = [f"## Part {part}\n\n" + f"note {number} says little in part {part}. " * 30 for part in range(6)]
        (folder / f"{number:02}.md").write_text(f"# Note {number}\n\n" + "\n\n".join(lines), encoding="utf-8")
    if sys.platform != "linux":
        yield folder
        return
    cpus = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cpus)})
    yield folder
    os.sched_setaffinity(0, cpus)


def wait_for_vectors(pid: int) -> EmbeddingRun:
    """Return the run of a process once it has stored vectors."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        # The process has not created the index yet.
        with suppress(QmdError), open_reader(database()) as reader:
            status = reader.status(None)
            if status.embedding is not None and status.embedding.pid == pid and status.vectors:
                return status.embedding
        time.sleep(0.05)
    raise AssertionError("no vectors have come")


def test_status_says_that_a_run_is_going_on_and_how_far(indexed: Qmd, running: EmbeddingRun) -> None:
    shown = indexed("status").out
    assert "  Pending:  3 need embedding (being computed)\n" in shown
    assert f"  Running:  computing vectors, 43 % done, 1 min 55 s left (process {running.pid}, began " in shown
    assert indexed("status", "--json").json["embedding"] == {
        "percent": 43,
        "secondsLeft": 114,
        "startedAt": running.started_at,
        "pid": running.pid,
        "by": "embed",
    }


def test_a_person_sees_the_run_in_status_and_no_advice_to_start_one(indexed: Qmd, running: EmbeddingRun) -> None:
    terminal = {"streams": ("empty", "tty", "tty"), "env": {"NO_COLOR": "1", "COLUMNS": "100"}}
    [shown] = run_all([{"argv": ("status",), **terminal}])
    assert f"being computed: 43 % done, 1 min 55 s left (process {running.pid}, began " in shown.out
    assert "qmd embed" not in shown.out


@pytest.mark.parametrize(("by", "who"), [("watch", "qmd watch, process"), ("server", "a server, process")])
def test_status_says_who_computes(indexed: Qmd, by: Literal["watch", "server"], who: str) -> None:
    with EmbeddingLock(database(), by=by) as record:
        record.update(Progress(430, 1_000, 60.0, 5.0, 114.0))
        shown = indexed("status").out
        assert f"  Running:  computing vectors, 43 % done, 1 min 55 s left ({who} {os.getpid()}, began " in shown
        assert indexed("status", "--json").json["embedding"]["by"] == by


def test_who_is_interrupted_learns_that_a_server_goes_on(indexed: Qmd, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*args: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("qmd.app.updating.embed", interrupt)
    locations = locate(None, Path.cwd(), os.environ)
    warm = WarmProcess(locations, os.environ)
    with warm.published():
        advice = f"and queries work; the server (process {os.getpid()}) continues when it is idle\n"
        assert indexed("embed").err.endswith(advice)
        monkeypatch.setenv("QMD_AUTO_EMBED", "0")
        assert indexed("embed").err.endswith("and queries work; run 'qmd embed' to continue\n")
        monkeypatch.delenv("QMD_AUTO_EMBED")
        warm.socket.close()
        assert indexed("embed").err.endswith("and queries work; run 'qmd embed' to continue\n")


@pytest.mark.parametrize(("n_notes", "is_reported"), [(5_000, False), (6_571, True)])
def test_a_log_is_told_once_how_long_the_vectors_of_many_notes_take(
    capsys: pytest.CaptureFixture[str], n_notes: int, is_reported: bool
) -> None:
    shown = EmbeddingProgress(ProgressLine("Vectors", None), "run 'qmd embed' to continue", lambda: n_notes)
    for elapsed in (0.5, 6.0, 7.0):
        shown.update(Progress(10, 1_000, elapsed, 5.0, 660.0))
    as_grep_line = "Searches and queries work now. Vectors of 6,571 notes take about 11 minutes.\nCtrl-C is safe: run "
    messages = capsys.readouterr().err
    assert messages.startswith(as_grep_line) if is_reported else not messages
    assert messages.count("Vectors of") == is_reported


def test_status_says_nothing_of_a_run_that_was_killed(indexed: Qmd) -> None:
    with EmbeddingLock(database()):
        left = (database().parent / f".{database().name}.embed.json").read_bytes()
    (database().parent / f".{database().name}.embed.json").write_bytes(left)
    assert "(run 'qmd embed')" in indexed("status").out
    assert indexed("status", "--json").json["embedding"] is None


@pytest.mark.parametrize("command", ["query", "vsearch"])
def test_searches_do_not_advise_what_is_being_done(indexed: Qmd, running: EmbeddingRun, command: str) -> None:
    messages = indexed(command, "pricing").err
    assert "3 documents (100%) need embeddings: they are being computed (43 % done, 1 min 55 s left)" in messages
    assert "qmd embed" not in messages


def test_qmd_alone_asks_nobody_to_embed_while_vectors_are_computed(indexed: Qmd, running: EmbeddingRun) -> None:
    page = indexed().out
    assert "computing vectors (43 %)" in page
    assert "(qmd embed)" not in page


@pytest.mark.parametrize("argv", [("embed",), ("index",)])
def test_a_second_run_that_is_waited_for_fails_as_busy_and_says_who_computes(
    indexed: Qmd, running: EmbeddingRun, argv: tuple[str, ...]
) -> None:
    run = indexed(*argv)
    assert (run.status, run.out.endswith(ALREADY)) == (5, True)
    who = f"(process {running.pid}, since {running.started_at}, 43 % done, 1 min 55 s left)"
    assert run.err.startswith(f"error: another process {who} is computing vectors for index '{database()}' (")


def test_doctor_waits_for_vectors_that_are_being_computed(indexed: Qmd, running: EmbeddingRun) -> None:
    assert "3 of 3 documents have none; they are being computed (43 % done" in indexed("doctor").out


def test_a_background_run_is_a_run_in_front_with_a_warning(indexed: Qmd) -> None:
    run = indexed("embed", "--background")
    assert (run.status, "✓ Done! Embedded" in run.out) == (0, True)
    assert run.err == "warning: option '--background' has no effect on 'qmd embed'\n"


def test_a_run_that_was_killed_is_gone_and_the_next_one_goes_on(qmd: Qmd, long_notes: Path) -> None:
    assert qmd("index", str(long_notes), "--no-embed").status == 0
    arguments = [sys.executable, "-m", "qmd", "embed"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(arguments, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        assert wait_for_vectors(process.pid).total > 0
        assert "qmd://long/" in qmd("search", "little", "-n", "1").out
        process.kill()
    killed = qmd("status", "--json").json
    assert killed["embedding"] is None and killed["vectors"] > 0
    for number in range(3, 60):
        (long_notes / f"{number:02}.md").unlink()
    qmd("update")
    assert "✓ Done! Embedded" in qmd("embed").out
    assert qmd("status", "--json").json["needsEmbedding"] == 0


def test_vectors_computed_in_slices_are_one_run_to_others(qmd: Qmd, long_notes: Path) -> None:
    assert qmd("index", str(long_notes), "--no-embed").status == 0
    with open_index() as index:
        assert index.embed(timeout_s=0.001, resumes=True).stopped
        first = index.status().embedding
        assert index.embed(timeout_s=0.001, resumes=True).stopped
        second = index.status().embedding
        assert index.embed(timeout_s=0.001).stopped
        assert index.status().embedding is None
    assert first is not None and second is not None
    assert (first.started_at, first.total) == (second.started_at, second.total)
    assert first.total > 60_000


def test_a_terminal_sees_one_bar_and_how_to_go_on_after_ctrl_c(qmd: Qmd, long_notes: Path) -> None:
    import pty

    assert qmd("index", str(long_notes), "--no-embed").status == 0
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-m", "qmd", "embed"]
    with subprocess.Popen(
        command,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment,
        # A shell's background jobs ignore interrupts, and so would the command.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        os.close(theirs)
        shown, is_stopped = "", False
        while True:
            try:
                piece = os.read(ours, 65_536).decode("utf-8", "replace")
            except OSError:
                break
            shown += piece
            if not is_stopped and " left" in shown:
                is_stopped = True
                process.send_signal(signal.SIGINT)
    os.close(ours)
    assert process.returncode == 130, shown[-2000:]
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert BAR.search(plain), plain
    message = r"interrupted: the work done so far is kept \(\d+ %\), and queries work; run 'qmd embed' to continue\s*$"
    assert re.search(message, plain), plain
    assert qmd("status", "--json").json["embedding"] is None


def test_a_dumb_terminal_gets_no_sequence(indexed: Qmd) -> None:
    [shown] = run_all([{"argv": ("embed",), "streams": ("empty", "tty", "tty"), "env": {"TERM": "dumb"}}])
    assert shown.status == 0
    assert "\x1b" not in shown.out + shown.err
    assert "\r" not in shown.err


def test_a_program_sees_no_progress(indexed: Qmd) -> None:
    [shown] = run_all([{"argv": ("embed",), "streams": ("empty", "tty", "pipe")}])
    assert (shown.status, shown.err) == (0, "")
