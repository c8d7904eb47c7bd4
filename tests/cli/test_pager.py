"""Results that are longer than the screen."""

import sys
from pathlib import Path

import pytest

from tests.cli.terminal_runs import Shown, run_all
from tests.program import Qmd

if sys.platform == "win32":
    pytest.skip("needs pseudo-terminals", allow_module_level=True)

PAGED = "sed 's/^/paged: /'"
LONG = ("get", "long.md", "--no-line-numbers")


@pytest.fixture
def long(qmd: Qmd, notes: Path) -> Qmd:
    (notes / "long.md").write_text("".join(f"line {number}\n" for number in range(1, 200)), "utf-8")
    assert qmd("index", str(notes), "--no-embed").status == 0
    return qmd


def shown(argv: tuple[str, ...], *, stdin: str = "empty", stdout: str = "tty", **env: str) -> Shown:
    return run_all([{"argv": argv, "streams": (stdin, stdout, "pipe"), "env": env}])[0]


def is_paged(shown: Shown) -> bool:
    return all(line.startswith("paged: ") for line in shown.out.splitlines())


def test_a_long_result_goes_through_the_pager(long: Qmd) -> None:
    result = shown(LONG, QMD_PAGER=PAGED)
    assert (result.status, result.err, is_paged(result), "line 199" in result.out) == (0, "", True, True)


def test_colours_reach_the_pager(long: Qmd) -> None:
    result = shown(("ls", "notes", "--color", "always"), QMD_PAGER=PAGED, LINES="3", COLUMNS="60")
    assert is_paged(result)
    assert "\x1b[" in result.out


def test_less_is_told_to_keep_colours_and_to_quit_where_one_screen_is_enough(long: Qmd) -> None:
    assert shown(LONG, QMD_PAGER='printf "%s" "$LESS"; cat >/dev/null').out == "FRX"
    assert shown(LONG, QMD_PAGER='printf "%s" "$LESS"; cat >/dev/null', LESS="-i").out == "-i"


def test_a_result_that_fits_the_screen_is_not_paged(long: Qmd) -> None:
    assert not is_paged(shown(("get", "pricing.md"), QMD_PAGER=PAGED))


def test_a_program_gets_no_pager(long: Qmd) -> None:
    assert not is_paged(shown(LONG, stdout="pipe", QMD_PAGER=PAGED))
    assert not is_paged(shown((*LONG, "--color", "always"), stdout="pipe", QMD_PAGER=PAGED))


def test_a_terminal_that_sends_no_keys_gets_no_pager(long: Qmd) -> None:
    assert not is_paged(shown(LONG, stdin="ended", QMD_PAGER=PAGED))


def test_the_pager_can_be_left_out(long: Qmd) -> None:
    assert not is_paged(shown((*LONG, "--no-pager"), QMD_PAGER=PAGED))
    assert not is_paged(shown(LONG, QMD_PAGER=PAGED, TERM="dumb"))
    assert "line 199" in shown(LONG, QMD_PAGER="", PAGER=PAGED).out
    assert not is_paged(shown(LONG, QMD_PAGER="cat", PAGER=PAGED))


def test_the_pager_of_all_programs_is_used_where_qmd_has_none(long: Qmd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("QMD_PAGER")
    assert is_paged(shown(LONG, PAGER=PAGED))


def test_without_less_the_result_is_printed(long: Qmd, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("QMD_PAGER")
    monkeypatch.delenv("PAGER", raising=False)
    result = shown(LONG, PATH=str(tmp_path))
    assert ("line 199" in result.out, result.err) == (True, "")


def test_a_pager_that_cannot_be_run_is_named_and_the_result_printed(long: Qmd) -> None:
    result = shown(LONG, QMD_PAGER="no-such-pager -x")
    assert (result.status, "line 199" in result.out) == (0, True)
    assert "the pager 'no-such-pager -x' cannot be run" in result.err


@pytest.mark.parametrize("pager", ["head -n 1", "kill -INT $PPID; cat"])
def test_leaving_early_and_interrupting_are_quiet(long: Qmd, pager: str) -> None:
    result = shown(LONG, QMD_PAGER=pager)
    assert (result.status, result.err) == (0, "")
    assert "long.md" in result.out.splitlines()[0]


def test_a_text_steers_no_terminal_through_the_pager(qmd: Qmd, notes: Path) -> None:
    (notes / "long.md").write_text("\x1b[2Jtext\n" * 100, "utf-8")
    assert qmd("index", str(notes), "--no-embed").status == 0
    result = shown(LONG, QMD_PAGER=PAGED, TERM="xterm")
    assert "\\x1b[2Jtext" in result.out
    assert "\x1b[2J" not in result.out
