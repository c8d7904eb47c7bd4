"""Every command of the README, the tutorial and the recipes runs as it is written, for a new user in an empty home."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import environment

_ROOT = Path(__file__).parents[2]
_FENCE = re.compile(r"^```(\S*)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INSTALL = re.compile(r"^python3 -m venv \.venv && \.venv/bin/pip install -q \. && ", re.MULTILINE)
"""What a test cannot do without a network; the commands behind it run with the program under test."""

_NOT_RUN = {
    "README.md": ("python3 -m venv .venv && .venv/bin/pip install -q -U pip",),
    "docs/tutorial.md": (),
    "docs/recipes.md": ("qmd watch",),
}
"""The beginnings of all blocks that are marked `no-run`, so that the mark is no way out."""


def _blocks(page: str) -> list[tuple[str, str]]:
    """The mark and the text of each block of commands."""
    text = (_ROOT / page).read_text("utf-8")
    return [(mark.strip(), body) for language, mark, body in _FENCE.findall(text) if language in ("sh", "console")]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A folder with the documentation, as in a clone, and a `qmd` on the path."""
    folder = tmp_path / "clone"
    shutil.copytree(_ROOT / "docs" / "vault", folder / "docs" / "vault")
    for place in (tmp_path / "bin", folder / ".venv" / "bin"):
        place.mkdir(parents=True)
        (place / "qmd").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m qmd "$@"\n', "utf-8")
        (place / "qmd").chmod(0o755)
    (tmp_path / "home").mkdir()
    return folder


@pytest.mark.skipif(sys.platform == "win32", reason="the commands are written for a POSIX shell")
@pytest.mark.parametrize("page", _NOT_RUN)
def test_every_command_of_a_page_runs(page: str, clone: Path) -> None:
    if page == "docs/recipes.md":
        shutil.copytree(clone / "docs" / "vault", clone.parent / "home" / "bakery")
    commands = [_INSTALL.sub("", body) for mark, body in _blocks(page) if not mark]
    assert commands
    env = environment(clone.parent / "home")
    env["PATH"] = f"{clone.parent / 'bin'}:{env['PATH']}"
    run = subprocess.run(
        ["bash", "-ex", "-c", "\n".join(commands)], cwd=clone, env=env, capture_output=True, text=True, timeout=300
    )
    assert run.returncode == 0, run.stderr[-2000:]
    empty = [line for line in run.stderr.splitlines() if line.startswith(("error:", "No results"))]
    assert empty == []


@pytest.mark.parametrize("page", _NOT_RUN)
def test_only_the_named_commands_are_not_run(page: str) -> None:
    marked = [(mark, body) for mark, body in _blocks(page) if mark]
    assert all(re.fullmatch(r'no-run="[^"]+"', mark) for mark, _ in marked)
    assert len(marked) == len(_NOT_RUN[page])
    assert all(body.startswith(start) for (_, body), start in zip(marked, _NOT_RUN[page], strict=True))
