"""Which systems the package installs on from wheels alone, as a resolver sees them; asks the package index."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[1]
_RUNTIMES = ("onnxruntime", "onnxruntime-gpu")
_NO_INDEX = re.compile(r"Failed to fetch|error sending request|dns error|[Cc]onnect|timed out|operation timed out")

_SYSTEMS = [
    ("x86_64-unknown-linux-gnu", "3.11", {}, "onnxruntime-gpu"),
    ("x86_64-unknown-linux-gnu", "3.14", {}, "onnxruntime-gpu"),
    ("aarch64-unknown-linux-gnu", "3.13", {}, "onnxruntime"),
    ("x86_64-pc-windows-msvc", "3.13", {}, "onnxruntime-gpu"),
    ("aarch64-pc-windows-msvc", "3.12", {}, "onnxruntime"),
    ("aarch64-apple-darwin", "3.11", {"MACOSX_DEPLOYMENT_TARGET": "13.0"}, "onnxruntime"),
    ("aarch64-apple-darwin", "3.14", {"MACOSX_DEPLOYMENT_TARGET": "14.0"}, "onnxruntime"),
    ("x86_64-apple-darwin", "3.13", {"MACOSX_DEPLOYMENT_TARGET": "13.0"}, "onnxruntime"),
    # Words alone: the last ONNX Runtime for Intel Macs is older than this Python.
    ("x86_64-apple-darwin", "3.14", {"MACOSX_DEPLOYMENT_TARGET": "13.0"}, None),
]


def _resolve(platform: str, python: str, *options: str, **environ: str) -> list[str]:
    """Names of the distributions that a system gets; skips where the package index cannot be asked."""
    uv = shutil.which("uv", path=sysconfig.get_path("scripts")) or shutil.which("uv")
    if uv is None:
        pytest.skip("uv is not installed: pip install --group test")
    command = [uv, "pip", "compile", "-q", "--no-header", "--no-annotate", "--only-binary", ":all:"]
    command += ["--python", sys.executable, "--python-platform", platform, "--python-version", python, *options]
    run = subprocess.run(
        [*command, "pyproject.toml"],
        cwd=_ROOT,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=300,
    )
    if run.returncode and _NO_INDEX.search(run.stderr):
        pytest.skip(f"the package index cannot be asked: {run.stderr.strip().splitlines()[0]}")
    assert run.returncode == 0, run.stderr
    return re.findall(r"^([\w.-]+)==", run.stdout, re.MULTILINE)


@pytest.mark.slow
@pytest.mark.parametrize(("platform", "python", "environ", "runtime"), _SYSTEMS)
def test_a_system_gets_wheels_and_one_runtime_of_models_or_none(
    platform: str, python: str, environ: dict[str, str], runtime: str | None
) -> None:
    names = _resolve(platform, python, **environ)
    assert [name for name in names if name in _RUNTIMES] == ([] if runtime is None else [runtime])
    assert {"apsw", "numpy", "textual", "typer"} <= set(names)


@pytest.mark.slow
def test_alpine_gets_words_by_the_command_that_is_documented(tmp_path: Path) -> None:
    (command,) = re.findall(r"^printf '(.+)' > no-models\.txt$", (_ROOT / "docs/install.md").read_text(), re.MULTILINE)
    excluded = tmp_path / "no-models.txt"
    excluded.write_text(command.replace("\\n", "\n"), "utf-8")
    names = _resolve("x86_64-unknown-linux-musl", "3.13", "--excludes", str(excluded))
    assert "apsw" in names
    assert not {*_RUNTIMES, "fastembed", "fastembed-gpu"} & set(names)


def test_an_old_python_is_refused_in_one_line() -> None:
    pretend = "import sys; sys.version_info = (3, 10, 13); exec(open('hatch_build.py').read())"
    run = subprocess.run([sys.executable, "-c", pretend], cwd=_ROOT, capture_output=True, text=True)
    assert run.returncode == 1
    assert run.stderr == "qmd-search needs Python 3.11 or newer, and this is Python 3.10\n"


def test_the_page_of_a_package_index_has_no_link_that_leads_nowhere() -> None:
    hooks = tomllib.loads((_ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["metadata"]["hooks"]
    text = (_ROOT / "README.md").read_text("utf-8")
    assert re.search(r"\]\(docs/", text)
    for one in hooks["fancy-pypi-readme"]["substitutions"]:
        text = re.sub(one["pattern"], one["replacement"], text)
    assert re.findall(r"\]\((?!https?:|#)[^)]*\)", text) == []
