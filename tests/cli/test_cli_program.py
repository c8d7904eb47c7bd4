import re
import subprocess
import sys
from pathlib import Path

import pytest

from qmd.cli.commands import ALIASES, COMMANDS
from tests.processes import unmeasured
from tests.program import Qmd


def test_the_version_is_one_line(qmd: Qmd) -> None:
    run = qmd("--version")
    assert (run.status, run.err) == (0, "")
    assert re.fullmatch(r"qmd \d+\.\d+\.\d+\S*\n", run.out)


def test_no_arguments_print_help_and_fail(qmd: Qmd) -> None:
    run = qmd()
    assert run.status == 1
    assert "\nUsage: qmd <command>" in run.out


def test_every_alias_means_a_command() -> None:
    assert set(ALIASES.values()) <= {spec.name for spec in COMMANDS}


@pytest.mark.parametrize("name", ["search", "vsearch", "query"])
def test_a_missing_query_prints_the_usage_line(qmd: Qmd, name: str) -> None:
    run = qmd(name)
    assert (run.status, run.out) == (2, "")
    reason, usage, hint = run.err.splitlines()
    assert (reason, usage) == ("error: no question given", f"Usage: qmd {name} [options] <query>")
    assert hint.startswith(f"hint: qmd {name} ")


def test_collection_alone_shows_its_sub_commands_on_stdout(qmd: Qmd) -> None:
    run = qmd("collection")
    assert run.status == 0
    assert "qmd collection add <path> [--name <name>]" in run.out


def test_an_interrupt_says_that_nothing_is_lost(indexed: Qmd, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("apsw.Connection", interrupt)
    run = indexed("status")
    assert run.status == 130
    assert run.err == "interrupted: the work done so far is kept; run the same command to continue\n"


def test_an_unforeseen_failure_is_one_line_and_names_the_switch_for_more(
    qmd: Qmd, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> Path:
        raise ZeroDivisionError("odd\nfailure")

    monkeypatch.setattr(Path, "cwd", fail)
    run = qmd("status")
    assert run.status == 1
    assert run.err.splitlines()[0] == "error: unexpected ZeroDivisionError: odd failure"
    assert "QMD_DEBUG" in run.err


def test_a_reader_that_goes_away_is_no_error(indexed: Qmd) -> None:
    command = f"{sys.executable} -m qmd search the --all --json | head -c 1"
    done = subprocess.run(["sh", "-c", command], capture_output=True, encoding="utf-8", check=False, env=unmeasured())
    assert (done.stdout, done.stderr) == ("[", "")
