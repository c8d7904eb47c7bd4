"""Closed and full streams, a deleted working directory, numbers and names beyond limits."""

import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.terminal_runs import Shown, run_all
from tests.program import Qmd

if sys.platform == "win32":
    pytest.skip("needs descriptors as POSIX has them", allow_module_level=True)

ROOT = Path(__file__).parents[2]
INTERRUPTED = "interrupted: the work done so far is kept; run the same command to continue\n"
HUGE = "99999999999999999999"
LONG = "n" * 300

COMMANDS = [
    ("search", "pricing"),
    ("search", "pricing", "--json"),
    ("get", "pricing.md"),
    ("multi-get", "*.md", "--json"),
    ("ls", "notes"),
    ("status",),
    ("collection", "list"),
    ("context", "list"),
    ("models", "list"),
    ("skill", "show"),
    ("trust", "list"),
    ("update",),
    ("--help",),
    ("--version",),
]


def on(streams: tuple[str, str, str], *commands: tuple[str, ...], **more: object) -> list[Shown]:
    return run_all([{"argv": argv, "streams": streams, **more} for argv in commands])


def is_one_error(shown: Shown, status: int | None = None) -> bool:
    """Return whether stderr is one `error:` line, optional details or the usage, and a hint, without a traceback."""
    first, *rest = shown.err.splitlines()
    return (
        shown.status in ((1, 2, 3, 4) if status is None else (status,))
        and first.startswith("error: ")
        and all(line.startswith(("  ", "Usage: ", "hint: ")) for line in rest)
        and "unexpected" not in shown.err
    )


@pytest.mark.parametrize(("kind", "reason"), [("closed", "Bad file descriptor"), ("full", "No space left on device")])
def test_a_result_that_cannot_be_written_is_one_line_and_a_failure(indexed: Qmd, kind: str, reason: str) -> None:
    if kind == "full" and not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    for argv, shown in zip(COMMANDS, on(("empty", kind, "pipe"), *COMMANDS), strict=True):
        assert (argv, shown.status, shown.err) == (argv, 1, f"error: cannot write to stdout: {reason}\n")


def test_a_long_result_that_cannot_be_written_is_one_line_too(qmd: Qmd, notes: Path) -> None:
    (notes / "long.md").write_text("pricing line\n" * 100_000)
    qmd("index", str(notes), "--no-embed")
    for kind in ("closed", "full") if Path("/dev/full").exists() else ("closed",):
        (shown,) = on(("empty", kind, "pipe"), ("get", "long.md"))
        assert is_one_error(shown, 1)


@pytest.mark.parametrize("kind", ["closed", "full"])
def test_messages_that_cannot_be_written_change_no_result(indexed: Qmd, kind: str) -> None:
    if kind == "full" and not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    argv = ("search", "pricing", "--verbose")
    ((quiet,), (as_grep_line,)) = on(("empty", "pipe", kind), argv), on(("empty", "pipe", "pipe"), argv)
    assert (quiet.status, quiet.out) == (0, as_grep_line.out)
    assert "--verbose" in as_grep_line.err
    (failed,) = on(("empty", "pipe", kind), ("get", "no-such-note"))
    assert (failed.status, failed.out) == (3, "")


@pytest.mark.parametrize(
    "streams", list(itertools.product(("empty", "closed"), ("pipe", "closed"), ("pipe", "closed")))
)
def test_whatever_streams_are_closed_the_index_is_written_whole(
    qmd: Qmd, notes: Path, streams: tuple[str, str, str]
) -> None:
    (index, search) = on(streams, ("index", str(notes), "--no-embed"), ("search", "pricing"))
    assert {index.status, search.status} == ({1} if streams[1] == "closed" else {0})
    assert "unexpected" not in index.err + search.err
    assert "Pricing decision" in qmd("search", "pricing").out
    assert qmd("update").status == 0


def test_a_shell_that_closes_the_streams_gets_the_same(indexed: Qmd) -> None:
    done = _shell("search pricing >&-")
    assert (done.returncode, done.stderr) == (1, "error: cannot write to stdout: Bad file descriptor\n")
    done = _shell("search pricing 2>&-")
    assert (done.returncode, "Pricing decision" in done.stdout) == (0, True)
    assert _shell("search pricing <&- >&- 2>&-").returncode == 1


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_goes_away_ends_the_program_without_a_word(
    qmd: Qmd, notes: Path, monkeypatch: pytest.MonkeyPatch, unbuffered: str
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    (notes / "long.md").write_text("pricing line\n" * 100_000)
    qmd("index", str(notes), "--no-embed")
    done = _shell("get long.md | head -1; exit ${PIPESTATUS[0]}")
    assert (done.returncode, done.stderr) == (141, "")
    done = _shell("get long.md 2>&1 | head -1; exit ${PIPESTATUS[0]}")
    assert (done.returncode, done.stderr) == (141, "")
    # a reader of the messages alone
    done = _shell("search pricing --verbose 2>&1 >/dev/null | true; exit ${PIPESTATUS[0]}")
    assert done.returncode in (0, 141)
    assert (done.stdout, done.stderr) == ("", "")


def _shell(command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", f"{sys.executable} -m qmd {command}"],
        capture_output=True,
        encoding="utf-8",
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


@pytest.mark.parametrize("delay_s", [0.02, 0.05, 0.08, 0.12, 0.2, 0.4, 0.8])
def test_an_interrupt_at_any_moment_is_one_line_and_its_status(indexed: Qmd, delay_s: float) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "qmd", "vsearch", "pricing"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    time.sleep(delay_s)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    # Python prints its own message before qmd runs.
    if "Traceback" not in err or "/qmd/cli/app.py" in err:
        assert process.returncode in (0, 130, -signal.SIGINT)
        assert err in ("", INTERRUPTED) if process.returncode else "cannot be used" not in err


def in_a_deleted_folder(home: Path, *commands: tuple[str, ...], pwd: str | None = None) -> list[Shown]:
    here = str(home / "gone")
    return on(("empty", "pipe", "pipe"), *commands, gone=here, env={"PWD": here if pwd is None else pwd})


def test_a_deleted_working_directory_hinders_nothing_that_needs_none(indexed: Qmd, home: Path) -> None:
    commands = [*COMMANDS, ("collection", "show", "notes"), ("context", "check"), ("index", "--no-embed"), ("cleanup",)]
    for argv, shown in zip(commands, in_a_deleted_folder(home, *commands), strict=True):
        assert (argv, shown.status, "unexpected" in shown.err) == (argv, 0, False)


def test_what_is_relative_to_a_deleted_working_directory_is_not_there(indexed: Qmd, home: Path) -> None:
    commands = [
        ("index", "notes"),
        ("index", "."),
        ("collection", "add", "."),
        ("collection", "add", "notes"),
        ("context", "add", "a note"),
        ("get", "./no-such.md"),
        ("get", "../notes/no-such.md"),
        ("bench", "some.json"),
        ("models", "import", "model.tar"),
        ("models", "export", "all-MiniLM-L6-v2", "out.tar"),
        ("search", "pricing", "--index", "./other"),
        ("mcp", "--http", "--token-file", "token"),
    ]
    for argv, shown in zip(commands, in_a_deleted_folder(home, *commands), strict=True):
        assert (argv, is_one_error(shown)) == (argv, True)


def test_a_deleted_working_directory_of_unknown_name_is_one_line(indexed: Qmd, home: Path) -> None:
    (shown,) = in_a_deleted_folder(home, ("search", "pricing"), pwd="")
    assert shown.err == "error: the working directory no longer exists\nhint: change to another one: cd ~\n"


@pytest.mark.parametrize("number", [HUGE, "0", "-1", "-" + HUGE, "9" * 5000, "1e3", "nan", "²", "٣"])
def test_no_number_is_too_odd_for_a_count(indexed: Qmd, number: str) -> None:
    for argv in (
        ("search", "pricing", "-n", number),
        ("search", "pricing", f"-n{number}"),
        ("search", "pricing", "-C", number),
        ("vsearch", "pricing", "-n", number),
        ("get", "pricing.md", "-l", number),
        ("get", "pricing.md", "--from", number),
        ("get", f"pricing.md:{number}"),
        ("get", f"pricing.md:1:{number}"),
        ("multi-get", "*.md", "-l", number, "--max-bytes", number),
        ("embed", "--max-docs-per-batch", number),
        ("embed", "--timeout", number),
        ("search", "pricing", "--min-score", number),
        ("query", "pricing", "--budget", number),
    ):
        run = indexed(*argv)
        assert (argv[:3], "unexpected" in run.err, run.status in (0, 1, 2, 3, 4)) == (argv[:3], False, True)


def test_the_largest_number_of_results_is_all_of_them(indexed: Qmd) -> None:
    everything = indexed("search", "pricing", "--all", "--json").out
    assert indexed("search", "pricing", "-n", HUGE, "--json").out == everything
    assert indexed("get", "pricing.md", "-l", HUGE).out == indexed("get", "pricing.md").out


@pytest.mark.parametrize("number", ["nan", "inf", "-inf", "1e400", "1e10"])
def test_a_number_that_counts_nothing_is_wrong_usage(indexed: Qmd, number: str) -> None:
    run = indexed("search", "pricing", "--min-score", number)
    assert (run.status, run.out) == (2, "")
    assert run.err.startswith("error: --min-score '")


@pytest.mark.parametrize("name", [LONG, "x/" * 3000, "~nobody-of-that-name/x", "a\0b", "e\u0301" * 150])
def test_no_name_is_too_long_or_too_odd(indexed: Qmd, home: Path, name: str) -> None:
    for argv in (
        ("get", name),
        ("get", f"./{name}"),
        ("get", f"qmd://notes/{name}"),
        ("get", f"notes/{name}:3"),
        ("multi-get", name),
        ("multi-get", f"{name}/*.md"),
        ("ls", name),
        ("ls", f"notes/{name}"),
        ("search", name),
        ("search", "pricing", "-c", name),
        ("search", "pricing", "--index", name),
        ("--help", "--index", name),
        ("status", "--index", name),
        ("collection", "add", name),
        ("collection", "add", str(home / name)),
        ("collection", "show", name),
        ("collection", "rename", "notes", name),
        ("collection", "remove", name),
        ("context", "add", name, "text"),
        ("context", "add", f"qmd://notes/{name}", "text"),
        ("context", "rm", name),
        ("index", name),
        ("index", str(home), "--name", name, "--no-embed", "--yes"),
        ("index", str(home), "--glob", name, "--no-embed", "--yes"),
        ("index", str(home), "--glob", f"{name}/*.md", "--no-embed", "--yes"),
        ("update", "-c", name),
        ("models", "path", name),
        ("models", "import", name),
        ("models", "export", "all-MiniLM-L6-v2", name + "/x"),
        ("bench", name),
        ("skills", "get", name),
        ("mcp", "--http", "--token-file", name),
        ("mcp", "--http", "--host", name),
        (name,),
    ):
        run = indexed(*argv)
        assert (argv, "unexpected" in run.err, "Traceback" in run.err) == (argv, False, False)
        assert run.status in (0, 1, 2, 3)


def test_an_index_name_that_no_file_can_have_is_wrong_usage(indexed: Qmd) -> None:
    run = indexed("status", "--index", LONG)
    assert (run.status, run.out) == (2, "")
    shown = f"{'n' * 98}…{'n' * 98}"
    assert run.err == f"error: --index '{shown}' is too long for the name of a file\nhint: choose a shorter one\n"
