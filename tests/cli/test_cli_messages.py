"""Failures, warnings and hints: wrapped on a terminal, one line each for a program."""

import os
import sys
from pathlib import Path

import pytest

from qmd.render.terminal import without_sequences
from tests.cli.terminal_runs import run_all
from tests.program import Qmd

if sys.platform == "win32":
    pytest.skip("needs pseudo-terminals", allow_module_level=True)

HOSTILE = "\x1b]0;x\x07 \x1b[31mred"


def said(*argv: str, stderr: str = "tty", **env: str) -> str:
    """Return the stderr of a command."""
    request = {"argv": argv, "streams": ("empty", "pipe", stderr), "env": {"COLUMNS": "80", **env}}
    return run_all([request])[0].err.replace("\r\n", "\n")


def test_the_label_of_a_message_has_a_colour_and_its_text_none(qmd: Qmd) -> None:
    assert said("search", "--jsn") == (
        "\x1b[31merror: \x1b[0munknown option '--jsn'\n"
        "\x1b[36mhint: \x1b[0mdid you mean '--json'? see: qmd search --help\n"
    )
    assert said("search", "x", "--no-rerank").startswith("\x1b[33mwarning: \x1b[0moption '--no-rerank'")


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}, {"CLICOLOR": "0"}])
def test_a_message_obeys_whoever_wants_no_colours(qmd: Qmd, env: dict[str, str]) -> None:
    assert said("search", "--jsn", **env).startswith("error: unknown option '--jsn'\nhint: did")


def test_a_message_obeys_the_option_and_an_option_that_is_none_is_reported(qmd: Qmd) -> None:
    assert said("get", "nothing", "--color", "never").startswith("error: ")
    assert "unknown --color 'yes'" in said("get", "nothing", "--color", "yes")


def test_whole_words_of_a_message_stand_beside_its_label(indexed: Qmd) -> None:
    narrow = without_sequences(said("get", "word " * 30, COLUMNS="50"))
    error = narrow.partition("hint: ")[0].splitlines()
    assert len(error) > 2
    assert all(line.startswith("       ") for line in error[1:])
    assert max(map(len, narrow.splitlines())) <= 50
    assert " ".join(line.strip() for line in error) == said("get", "word " * 30, stderr="pipe").splitlines()[0].strip()


def test_neither_a_path_nor_a_command_is_torn_apart(indexed: Qmd) -> None:
    name = "a-name-without-blanks" * 5
    assert name in said("get", name, COLUMNS="40")
    assert "\n      qmd search --help\n" in said("search", "--jsn", NO_COLOR="1", COLUMNS="45")


def test_a_message_cannot_steer_the_terminal(indexed: Qmd) -> None:
    assert r"\x1b]0;x\x07 \x1b[31mred" in said("get", HOSTILE, NO_COLOR="1", COLUMNS="200")


def test_a_program_reads_one_line_of_each_message(indexed: Qmd) -> None:
    lines = said("get", "word " * 30, stderr="pipe", COLUMNS="40").splitlines()
    assert [line.partition(":")[0] for line in lines] == ["error", "hint"]


def test_a_notice_about_the_index_comes_once_a_day_on_a_terminal_and_always_to_programs(
    indexed: Qmd, notes: Path, tmp_path: Path
) -> None:
    (notes / "copy.md").write_text((notes / "pricing.md").read_text())
    indexed("update")
    docid = indexed("search", "pricing", "--files", "-n", "1").out.partition(",")[0]
    pending = "need embeddings. Run 'qmd embed'"
    copies = "the same text is in qmd://notes/pricing.md\n"
    assert [pending in said("query", "gardening") for _ in range(2)] == [True, False]
    assert [said("get", docid), said("get", docid)] == [copies, ""]
    for _ in range(2):
        assert pending in said("query", "gardening", stderr="pipe")
        assert said("get", docid, stderr="pipe") == f"warning: {copies}"
    for mark in (tmp_path / "cache/qmd").glob("*.shown"):
        os.utime(mark, (1_700_000_000, 1_700_000_000))
    assert said("get", docid) == copies


def test_an_unknown_variable_is_named_where_a_person_reads(indexed: Qmd) -> None:
    line = "QMD_RERANC is no variable of this version; nearest: QMD_RERANK"
    assert line in said("query", "gardening", QMD_RERANC="maybe")
    assert "QMD_RERANC" not in said("query", "gardening", stderr="pipe", QMD_RERANC="maybe")
