"""The call paths of docs/architecture.md are those that the program takes."""

from __future__ import annotations

import re
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

ROOT = Path(__file__).parents[1]
PACKAGE = str(ROOT / "qmd") + "/"
MOST_HOPS = 11
"""Calls from the command to its first SQL statement."""


@dataclass
class Trace:
    """What ran: functions of the package in the order of their first call, and the way to the first statement."""

    called: dict[str, None] = field(default_factory=dict)
    way_to_sql: tuple[str, ...] = ()

    def see(self, frame: FrameType, event: str, argument: object) -> None:
        """A function for `sys.setprofile`."""
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            self.called.setdefault(_name(frame))
        elif event == "c_call" and not self.way_to_sql and getattr(argument, "__qualname__", "").endswith(".execute"):
            self.way_to_sql = tuple(reversed(list(_callers(frame))))


def _callers(frame: FrameType | None) -> Iterator[str]:
    while frame is not None:
        if frame.f_code.co_filename.startswith(PACKAGE):
            yield _name(frame)
        frame = frame.f_back


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
    """The functions of a call path in the document."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
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
    return notes


def test_the_paths_of_a_file_and_of_a_question_are_those_of_the_document(folder: Path) -> None:
    with traced() as indexing:
        assert main(["index", str(folder)]) == 0
    with traced() as searching:
        assert main(["query", "how is the price decided"]) == 0
    for path, trace in (("index", indexing), ("query", searching)):
        expected = described(path)
        assert [name for name in trace.called if name in expected] == expected
    assert 2 < len(searching.way_to_sql) <= MOST_HOPS + 1, searching.way_to_sql
