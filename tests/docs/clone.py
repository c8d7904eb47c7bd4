"""Commands of the documentation, run for a new user in an empty home, from a clone of the repository."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.processes import environment

ROOT = Path(__file__).parents[2]
_FENCE = re.compile(r"^```(\S*)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: str, *languages: str) -> list[tuple[str, str, str]]:
    """Return language, mark and text of each block in these languages."""
    text = (ROOT / page).read_text("utf-8")
    return [(language, mark.strip(), body) for language, mark, body in _FENCE.findall(text) if language in languages]


def make_clone(place: Path) -> Path:
    """Return a folder with the documentation, as in a clone, next to an empty home and a `qmd` on the path."""
    folder = place / "clone"
    shutil.copytree(ROOT / "docs" / "vault", folder / "docs" / "vault")
    for programs in (place / "bin", folder / ".venv" / "bin", place / "home" / ".local" / "bin"):
        programs.mkdir(parents=True)
        (programs / "qmd").write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m qmd "$@"\n', "utf-8")
        (programs / "qmd").chmod(0o755)
    return folder


def run_in(clone: Path, command: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command in the clone."""
    env = environment(clone.parent / "home", **variables)
    # A recipe starts the warm process; end it with the test.
    env["QMD_DAEMON_IDLE"] = "3"
    env["PATH"] = f"{clone.parent / 'bin'}:{env['PATH']}"
    return subprocess.run(command, cwd=clone, env=env, capture_output=True, text=True, timeout=300)
