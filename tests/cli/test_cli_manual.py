import runpy
import shutil
import subprocess
from pathlib import Path

import pytest

from qmd.cli.commands import COMMANDS
from qmd.cli.help import EXAMPLES

DOCS = Path(__file__).parents[2] / "docs"
MANUAL = runpy.run_path(str(DOCS / "manual.py"))


def test_the_manual_says_what_the_commands_do() -> None:
    assert (DOCS / "cli.md").read_text("utf-8") == MANUAL["render_manual"](), (
        "write it again: python docs/manual.py > docs/cli.md"
    )


def test_the_man_page_says_what_the_commands_do() -> None:
    assert (DOCS / "qmd.1").read_text("utf-8") == MANUAL["render_man_page"](), (
        "write it again: python docs/manual.py man > docs/qmd.1"
    )


@pytest.mark.skipif(shutil.which("man") is None, reason="man is not at hand")
def test_man_shows_the_page_without_a_warning() -> None:
    done = subprocess.run(
        ["man", "--warnings", "-E", "UTF-8", "-l", str(DOCS / "qmd.1")],
        capture_output=True,
        encoding="utf-8",
        check=True,
        env={"PATH": "/usr/bin:/bin", "MANWIDTH": "100", "LC_ALL": "C.UTF-8", "MANPAGER": "cat"},
    )
    assert done.stderr == ""
    shown = " ".join(done.stdout.split())
    for spec in COMMANDS:
        assert all(" ".join(line.split()) in shown for line in (spec.examples or EXAMPLES[spec.name]))
