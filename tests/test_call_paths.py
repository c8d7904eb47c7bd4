"""The call paths of docs/dev/architecture.md are those of the program."""

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from types import FrameType

import pytest

from qmd.cli.app import main
from tests.processes import unmeasured

ROOT = Path(__file__).parents[1]
PACKAGE = str(ROOT / "qmd") + "/"
MOST = {
    ("status",): {"functions": 161, "modules": 70, "median": 12, "deepest": 18},
    ("get", "pricing.md"): {"functions": 157, "modules": 71, "median": 14, "deepest": 20},
    ("search", "pricing"): {"functions": 368, "modules": 96, "median": 15, "deepest": 19},
    ("query", "how is the price decided"): {"functions": 524, "modules": 134, "median": 16, "deepest": 22},
    ("index",): {"functions": 318, "modules": 119, "median": 13, "deepest": 20},
}
"""Functions that a command runs, modules of ours that it imports, and our frames above its SQL statements."""


@dataclass
class Trace:
    """Functions of the package that ran, in the order of their first call."""

    called: dict[str, None] = field(default_factory=dict)

    def see(self, frame: FrameType, event: str, argument: object) -> None:
        """Count a call, for `sys.setprofile`."""
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            self.called.setdefault(_name(frame))


def _name(frame: FrameType) -> str:
    module = frame.f_code.co_filename.removeprefix(PACKAGE).removesuffix(".py").replace("/", ".")
    return f"qmd.{module}.{frame.f_code.co_qualname}"


@contextmanager
def traced() -> Iterator[Trace]:
    trace, before = Trace(), sys.getprofile()
    try:
        with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            threading.setprofile(trace.see)
            sys.setprofile(trace.see)
            yield trace
    finally:
        sys.setprofile(before)
        threading.setprofile(None)


def described(path: str) -> list[str]:
    """Return the functions of a call path in the document."""
    text = (ROOT / "docs" / "dev" / "architecture.md").read_text(encoding="utf-8")
    block = re.search(rf"```calls {path}\n(.*?)```", text, re.DOTALL)
    assert block is not None
    return block[1].split()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    for name in ("INDEX_PATH", "QMD_CONFIG_DIR", "QMD_DAEMON"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "pricing.md").write_text(
        "# Pricing\n\nWe chose per-seat pricing after the interviews.\n", encoding="utf-8"
    )
    (notes / "roses.md").write_text("# Roses\n\nPrune roses in winter.\n", encoding="utf-8")
    # The next search would check files of this very moment again.
    for place in (*notes.iterdir(), notes):
        os.utime(place, (1_700_000_000, 1_700_000_000))
    return notes


def test_the_paths_of_a_file_and_of_a_question_are_those_of_the_document(folder: Path) -> None:
    with traced() as indexing:
        assert main(["index", str(folder)]) == 0
    with traced() as searching:
        assert main(["query", "how is the price decided"]) == 0
    for path, trace in (("index", indexing), ("query", searching)):
        expected = described(path)
        assert [name for name in trace.called if name in expected] == expected


@pytest.mark.parametrize("argv", MOST, ids=" ".join)
def test_a_command_runs_no_more_and_reaches_no_deeper_than_is_written_here(folder: Path, argv: tuple[str, ...]) -> None:
    with traced():
        assert main(["index", str(folder)]) == 0
    done = subprocess.run(
        [sys.executable, "-m", "tests.call_figures", *argv],
        capture_output=True,
        encoding="utf-8",
        check=True,
        env={**unmeasured(), "PYTHONPATH": str(ROOT)},
    )
    figures = json.loads(done.stdout)
    assert figures["status"] == 0
    assert {name: figures[name] for name, most in MOST[argv].items() if figures[name] > most} == {}
