"""Search by words on platforms without packages for models."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import environment

_ABSENT = """
from importlib.machinery import PathFinder

_find = PathFinder.find_spec


def _without(name, path=None, target=None):
    return None if name.partition(".")[0] in {names!r} else _find(name, path, target)


PathFinder.find_spec = _without
"""


_MISSING = [("onnxruntime", "fastembed", "sqlite_vec"), ("tokenizers", "huggingface_hub"), ("sqlite_vec",)]


@pytest.fixture(params=_MISSING, ids=" ".join)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """Return the environment of a machine without these modules."""
    (tmp_path / "sitecustomize.py").write_text(_ABSENT.format(names=request.param), "utf-8")
    (tmp_path / "home" / "notes").mkdir(parents=True)
    (tmp_path / "home" / "notes" / "pricing.md").write_text("# Pricing\n\nWe chose per-seat pricing.\n", "utf-8")
    env = environment(tmp_path / "home", QMD_DAEMON="0")
    return {**env, "PYTHONPATH": f"{tmp_path}:{env['PYTHONPATH']}"}


def _qmd(world: dict[str, str], *argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "qmd", *argv], env=world, cwd=world["HOME"], capture_output=True, text=True, timeout=60
    )


def test_without_the_packages_of_models_words_are_indexed_and_searched(world: dict[str, str]) -> None:
    indexed = _qmd(world, "index", "notes")
    assert (indexed.returncode, indexed.stdout[:15]) == (0, "✓ notes  1 note")
    assert "is not installed" in indexed.stderr
    assert indexed.stderr.endswith("to search by words: qmd search\n")
    for command in ("search", "query"):
        found = _qmd(world, command, "pricing", "--files")
        assert (found.returncode, found.stdout.count("qmd://notes/pricing.md")) == (0, 1), found.stderr


def test_without_the_packages_of_models_a_command_that_needs_one_says_what_is_missing(world: dict[str, str]) -> None:
    _qmd(world, "index", "notes")
    embedded = _qmd(world, "embed")
    assert embedded.returncode == 4
    assert "is not installed" in embedded.stderr
    assert "Traceback" not in embedded.stderr
    assert _qmd(world, "doctor").returncode == 0
