"""The README, the tutorial and the recipes, run for a new user in an empty home.

In a block `console` the lines below a command are its output on a terminal; `…` matches any text. Of an answer they are
its first rows, with title and verdict.
"""

import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from tests.docs.clone import blocks, make_clone, run_in

_INSTALL = re.compile(r"^python3 -m venv \.venv && \.venv/bin/pip install -q \. && ", re.MULTILINE)
"""Commands that need a network; the commands after them run with the program under test."""

_NOT_RUN = {
    "README.md": ("python3 -m venv .venv && .venv/bin/pip install -q -U pip",),
    "docs/tutorial.md": ("qmd search oven\nqmd open 1", "qmd browse"),
    "docs/recipes.md": ("qmd watch", "qmd browse"),
}
"""The start of every block that is marked `no-run`, so that new ones are reviewed."""

_SEQUENCE = re.compile(r"\x1b(?:\[[0-9;]*m|\]8;[^\x1b]*\x1b\\)")
"""A colour or a link of a terminal."""


_ANSWER = re.compile(r"^(?:(\d+)  (\S.*?)  .*\b(strong|likely|weak)$|(No \w+ match)\b)", re.MULTILINE)
"""A row of an answer: rank, title and verdict; or the verdict on a whole answer without a good match."""

_SEARCH = re.compile(r"^qmd (?:--index \w+ )?(?:query|search|vsearch|\")(?!.*--(?:files|format files))", re.MULTILINE)


def _script(page: str, outputs: Path) -> tuple[str, list[str]]:
    """Return a shell script, and the expected lines of each command, whose output goes to a numbered file."""
    lines, expected = [], list[str]()
    for language, mark, body in blocks(page, "sh", "console"):
        if mark:
            continue
        if language == "sh":
            lines.append(_INSTALL.sub("", body))
            continue
        for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
            command, _, printed = part.partition("\n")
            lines.append(f"{{ {command}\n}} > {shlex.quote(str(outputs / str(len(expected))))} 2>&1")
            expected.append(printed)
    return "\n".join(lines), expected


def _holds(shown: str, expected: str) -> bool:
    """Return whether the expected lines appear in this order; runs of blanks count as one, since widths differ."""
    pieces = [re.escape(" ".join(piece.split())) for piece in re.split("…|\n", expected)]
    return bool(re.search(".*?".join(pieces), " ".join(_SEQUENCE.sub("", shown).split())))


def _has_answer(shown: str, expected: str) -> bool:
    """Return whether the first rows of an answer, two if it has them, are in the page with title and verdict."""
    real, stated = _ANSWER.findall(_SEQUENCE.sub("", shown)), _ANSWER.findall(expected)
    return real[: len(stated)] == stated and len(stated) >= min(len(real), 2)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    return make_clone(tmp_path)


@pytest.mark.skipif(sys.platform == "win32", reason="the commands are written for a POSIX shell")
def test_every_command_of_the_pages_runs(clone: Path) -> None:
    for page in ("README.md", "docs/tutorial.md", "docs/recipes.md"):
        _run_page(page, clone)


def _run_page(page: str, clone: Path) -> None:
    outputs = clone.parent / f"outputs of {Path(page).stem}"
    outputs.mkdir()
    script, expected = _script(page, outputs)
    assert script
    run = run_in(clone, ["bash", "-ex", "-c", script], FORCE_COLOR="1", TERM="xterm-256color", COLUMNS="80")
    printed = [file.read_text("utf-8") for file in sorted(outputs.iterdir(), key=lambda file: int(file.name))]
    assert run.returncode == 0, run.stderr[-2000:] + "".join(printed[-1:])
    empty = [line for line in run.stderr.splitlines() if line.startswith(("error:", "No results"))]
    assert empty == []
    missed = [
        f"{shown}\nis not:\n{lines}"
        for lines, shown in zip(expected, printed, strict=True)
        if not _holds(shown, lines) or not _has_answer(shown, lines)
    ]
    assert not missed, "\n".join(missed)


@pytest.mark.skipif(sys.platform == "win32", reason="`~` is another folder there")
def test_the_python_example_of_the_readme_finds_the_note_that_answers(clone: Path) -> None:
    shutil.copytree(clone / "docs" / "vault", clone.parent / "home" / "notes")
    [(_, _, example)] = blocks("README.md", "python")
    run = run_in(clone, [sys.executable, "-c", example])
    assert run.stdout.startswith("qmd://notes/Projects/Pricing.md "), run.stdout + run.stderr


@pytest.mark.parametrize("page", _NOT_RUN)
def test_every_search_of_a_page_shows_its_answer(page: str) -> None:
    scripts = [_INSTALL.sub("", body) for _, mark, body in blocks(page, "sh") if not mark]
    assert [script for script in scripts if _SEARCH.search(script)] == []


@pytest.mark.parametrize("page", _NOT_RUN)
def test_only_the_named_commands_are_not_run(page: str) -> None:
    marked = [(mark, body) for _, mark, body in blocks(page, "sh", "console") if mark]
    assert all(re.fullmatch(r'no-run="[^"]+"', mark) for mark, _ in marked)
    assert len(marked) == len(_NOT_RUN[page])
    assert all(body.startswith(start) for (_, body), start in zip(marked, _NOT_RUN[page], strict=True))
