"""The README, the tutorial and the recipes, run for a new user in an empty home.

In a block `console` the lines below a command are its output on a terminal; `…` matches any text.
"""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import environment

_ROOT = Path(__file__).parents[2]
_FENCE = re.compile(r"^```(\S*)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
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


def _blocks(page: str, *languages: str) -> list[tuple[str, str, str]]:
    """Yield language, mark and text of each block in these languages."""
    text = (_ROOT / page).read_text("utf-8")
    return [(language, mark.strip(), body) for language, mark, body in _FENCE.findall(text) if language in languages]


def _script(page: str, outputs: Path) -> tuple[str, list[str]]:
    """Return a shell script, and the expected lines of each command, whose output goes to a numbered file."""
    lines, expected = [], list[str]()
    for language, mark, body in _blocks(page, "sh", "console"):
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
    """Return whether the expected lines appear; runs of blanks count as one, since widths differ."""
    pieces = [re.escape(" ".join(piece.split())) for piece in expected.split("…")]
    return bool(re.search(".*?".join(pieces), " ".join(_SEQUENCE.sub("", shown).split())))


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Return a folder with the documentation, as in a clone, and a `qmd` on the path."""
    folder = tmp_path / "clone"
    shutil.copytree(_ROOT / "docs" / "vault", folder / "docs" / "vault")
    for place in (tmp_path / "bin", folder / ".venv" / "bin"):
        place.mkdir(parents=True)
        (place / "qmd").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m qmd "$@"\n', "utf-8")
        (place / "qmd").chmod(0o755)
    (tmp_path / "home").mkdir()
    return folder


@pytest.mark.skipif(sys.platform == "win32", reason="the commands are written for a POSIX shell")
def test_every_command_of_the_pages_runs(clone: Path) -> None:
    for page in ("README.md", "docs/tutorial.md", "docs/recipes.md"):
        _run_page(page, clone)


def _run_page(page: str, clone: Path) -> None:
    outputs = clone.parent / f"outputs of {Path(page).stem}"
    outputs.mkdir()
    script, expected = _script(page, outputs)
    assert script
    run = _run(["bash", "-ex", "-c", script], clone)
    printed = [file.read_text("utf-8") for file in sorted(outputs.iterdir(), key=lambda file: int(file.name))]
    assert run.returncode == 0, run.stderr[-2000:] + "".join(printed[-1:])
    empty = [line for line in run.stderr.splitlines() if line.startswith(("error:", "No results"))]
    assert empty == []
    missed = [
        f"{shown}\nis not:\n{lines}" for lines, shown in zip(expected, printed, strict=True) if not _holds(shown, lines)
    ]
    assert not missed, "\n".join(missed)


@pytest.mark.skipif(sys.platform == "win32", reason="`~` is another folder there")
def test_the_python_example_of_the_readme_finds_the_note_that_answers(clone: Path) -> None:
    shutil.copytree(clone / "docs" / "vault", clone.parent / "home" / "notes")
    [(_, _, example)] = _blocks("README.md", "python")
    run = _run([sys.executable, "-c", example], clone)
    assert run.stdout.startswith("qmd://notes/Projects/Pricing.md "), run.stdout + run.stderr


def _run(command: list[str], clone: Path) -> subprocess.CompletedProcess[str]:
    """Run a script in the clone, with results drawn for 80 columns."""
    env = environment(clone.parent / "home", FORCE_COLOR="1", TERM="xterm-256color", COLUMNS="80")
    # A recipe starts the warm process; end it with the test.
    env["QMD_DAEMON_IDLE"] = "3"
    env["PATH"] = f"{clone.parent / 'bin'}:{env['PATH']}"
    return subprocess.run(command, cwd=clone, env=env, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("page", _NOT_RUN)
def test_only_the_named_commands_are_not_run(page: str) -> None:
    marked = [(mark, body) for _, mark, body in _blocks(page, "sh", "console") if mark]
    assert all(re.fullmatch(r'no-run="[^"]+"', mark) for mark, _ in marked)
    assert len(marked) == len(_NOT_RUN[page])
    assert all(body.startswith(start) for (_, body), start in zip(marked, _NOT_RUN[page], strict=True))
