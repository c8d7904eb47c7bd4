"""Commands as real processes: what they print is the same with a warm worker and without one."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes import environment

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="ends the worker by signal")


@pytest.fixture
def environ(tmp_path: Path) -> Iterator[dict[str, str]]:
    (tmp_path / "notes").mkdir()
    for number, words in enumerate(("the lighthouse keeper", "rare words of the harbour", "ships and their cargo")):
        (tmp_path / "notes" / f"{number}.md").write_text(f"# Note {number}\n\n{words}\n", encoding="utf-8")
    own = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    environ = environment(tmp_path, QMD_DAEMON="off", **own)
    qmd(environ, "index", "notes", "--no-embed")
    yield environ
    for record in tmp_path.rglob("worker-*.json"):
        os.kill(json.loads(record.read_text(encoding="utf-8"))["pid"], signal.SIGTERM)


def qmd(environ: dict[str, str], *words: str) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "qmd", *words]
    done = subprocess.run(command, cwd=environ["HOME"], env=environ, capture_output=True, text=True, timeout=90)
    return done.returncode, re.sub(r"in [\d.]+s", "in Ns", done.stdout), done.stderr


def test_embed_and_searches_print_the_same_with_a_worker(environ: dict[str, str], tmp_path: Path) -> None:
    auto = environ | {"QMD_DAEMON": "auto"}
    cold = qmd(environ, "embed", "--force")
    warm = qmd(auto, "embed", "--force")
    assert list(tmp_path.rglob("worker-*.json"))
    assert warm == cold
    assert "Embedded 3 chunks from 3 documents" in cold[1]
    assert qmd(auto, "embed") == qmd(environ, "embed")
    qmd(environ, "query", "lighthouse")  # says once that larger models exist
    for words in (("query", "who keeps the lighthouse", "--json"), ("vsearch", "vessels"), ("query", "zzz", "--files")):
        assert qmd(auto, *words) == qmd(environ, *words)
    missing = ("query", "x", "-c", "nowhere")
    assert qmd(auto, *missing) == qmd(environ, *missing)
