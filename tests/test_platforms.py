"""Systems on which the package installs from wheels alone, as a resolver sees them; asks the package index.

Also the lists that `hatch_build.py` makes from pyproject.toml.
"""

import os
import re
import runpy
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from packaging.requirements import Requirement

_ROOT = Path(__file__).parents[1]
_RUNTIMES = ("onnxruntime", "onnxruntime-gpu")
_PROJECT = tomllib.loads((_ROOT / "pyproject.toml").read_text("utf-8"))
_HOOKS, _EXTRAS = _PROJECT["tool"]["hatch"]["metadata"]["hooks"], _PROJECT["project"]["optional-dependencies"]
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


def _resolve(platform: str, python: str, pair: str, *options: str, **environ: str) -> list[str]:
    """Return the distributions that a system gets with a pair or an extra; skip without a package index."""
    pairs = _HOOKS["custom"]
    uv = shutil.which("uv", path=sysconfig.get_path("scripts")) or shutil.which("uv")
    if uv is None:
        pytest.skip("uv is not installed: pip install --group test")
    command = [uv, "pip", "compile", "-q", "--no-header", "--no-annotate", "--only-binary", ":all:"]
    command += ["--python", sys.executable, "--python-platform", platform, "--python-version", python, *options]
    run = subprocess.run(
        [*command, "-"],
        cwd=_ROOT,
        input="\n".join([*pairs["dependencies"], *pairs.get(pair, pairs["gpu"]), *_EXTRAS.get(pair, ())]),
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
@pytest.mark.parametrize("pair", ["gpu", "cpu"])
@pytest.mark.parametrize(("platform", "python", "environ", "runtime"), _SYSTEMS)
def test_a_system_gets_wheels_and_one_runtime_of_models_or_none(
    platform: str, python: str, environ: dict[str, str], runtime: str | None, pair: str
) -> None:
    names = _resolve(platform, python, pair, **environ)
    expected = runtime if pair == "gpu" or runtime is None else "onnxruntime"
    assert [name for name in names if name in _RUNTIMES] == ([] if expected is None else [expected])
    assert {"apsw", "numpy", "textual", "typer"} <= set(names)


@pytest.mark.parametrize(
    ("python", "kernel", "gets_models"),
    [("3.13", "22.6.0: Wed", True), ("3.14", "22.6.0: Wed", False), ("3.14", "23.0.0: Fri", True)],
)
def test_macos_13_gets_words_alone_where_the_runtime_has_no_wheel(python: str, kernel: str, gets_models: bool) -> None:
    mac = {"sys_platform": "darwin", "platform_machine": "arm64", "platform_version": f"Darwin Kernel Version {kernel}"}
    system = {**mac, "python_version": python}
    wanted = map(Requirement, [*_HOOKS["custom"]["dependencies"], *_HOOKS["custom"]["gpu"]])
    names = {one.name for one in wanted if one.marker is None or one.marker.evaluate(system)}
    assert {name for name in names if "fastembed" in name or "onnx" in name} == (
        {"fastembed", "onnxruntime"} if gets_models else set()
    )


@pytest.mark.slow
def test_what_reads_pdf_and_office_has_wheels_for_every_system_and_brings_no_runtime() -> None:
    for platform, python, environ, runtime in _SYSTEMS:
        names = _resolve(platform, python, "files", **environ)
        assert {"mammoth", "openpyxl", "pypdfium2", "python-pptx"} <= {*names}
        assert [name for name in names if name in _RUNTIMES] == ([] if runtime is None else [runtime])


@pytest.mark.slow
@pytest.mark.parametrize(("extra", "cublas"), [("cuda", "nvidia-cublas"), ("cuda12", "nvidia-cublas-cu12")])
def test_the_libraries_of_cuda_come_with_the_runtime_that_is_built_for_them(extra: str, cublas: str) -> None:
    names = _resolve("x86_64-unknown-linux-gnu", "3.13", extra)
    assert [name for name in names if name.startswith("nvidia-cublas")] == [cublas]


def _build(monkeypatch: pytest.MonkeyPatch, file: Path, **environ: str) -> dict[str, Any]:
    """Return the metadata of a build, for hatchling, which calls the hook."""
    monkeypatch.setitem(
        sys.modules, "hatchling.metadata.plugin.interface", SimpleNamespace(MetadataHookInterface=object)
    )
    for name in ("QMD_RUNTIME", "QMD_DISTRIBUTION"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    hook = runpy.run_path(str(file))["Dependencies"]()
    hook.config = _HOOKS["custom"]
    metadata: dict[str, Any] = {"name": "qmd-search", "optional-dependencies": dict(_EXTRAS)}
    hook.update(metadata)
    return metadata


@pytest.mark.parametrize(
    ("environ", "name", "pair"),
    [
        ({}, "qmd-search", "gpu"),
        ({"QMD_RUNTIME": "cpu"}, "qmd-search", "cpu"),
        ({"QMD_DISTRIBUTION": "qmd-search-cpu"}, "qmd-search-cpu", "cpu"),
    ],
)
def test_a_build_brings_one_pair_of_packages_that_run_models(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], name: str, pair: str
) -> None:
    made = _build(monkeypatch, _ROOT / "hatch_build.py", **environ)
    assert made["name"] == name
    assert made["dependencies"] == _HOOKS["custom"]["dependencies"] + _HOOKS["custom"][pair]
    asked = " ".join(one for extra in made["optional-dependencies"].values() for one in extra)
    assert ("onnxruntime-gpu" in asked) == (pair == "gpu")


@pytest.mark.parametrize(
    "environ",
    [
        {"QMD_RUNTIME": "tpu"},
        {"QMD_DISTRIBUTION": "../x"},
        {"QMD_DISTRIBUTION": "qmd-search-cpu", "QMD_RUNTIME": "gpu"},
    ],
)
def test_a_build_that_there_is_not_is_refused(monkeypatch: pytest.MonkeyPatch, environ: dict[str, str]) -> None:
    with pytest.raises(SystemExit, match="QMD_RUNTIME is cpu or gpu"):
        _build(monkeypatch, _ROOT / "hatch_build.py", **environ)


def test_a_source_archive_reports_that_it_keeps_its_packages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shutil.copy(_ROOT / "hatch_build.py", tmp_path)
    (tmp_path / "PKG-INFO").touch()
    assert _build(monkeypatch, tmp_path / "hatch_build.py")["name"] == "qmd-search"
    with pytest.raises(SystemExit, match="from a clone"):
        _build(monkeypatch, tmp_path / "hatch_build.py", QMD_RUNTIME="cpu")


@pytest.mark.slow
def test_alpine_gets_words_by_the_command_that_is_documented(tmp_path: Path) -> None:
    (command,) = re.findall(r"^printf '(.+)' > no-models\.txt$", (_ROOT / "docs/install.md").read_text(), re.MULTILINE)
    excluded = tmp_path / "no-models.txt"
    excluded.write_text(command.replace("\\n", "\n"), "utf-8")
    names = _resolve("x86_64-unknown-linux-musl", "3.13", "gpu", "--excludes", str(excluded))
    assert "apsw" in names
    assert not {*_RUNTIMES, "fastembed", "fastembed-gpu"} & set(names)


def test_an_old_python_is_refused_in_one_line() -> None:
    pretend = "import sys; sys.version_info = (3, 10, 13); exec(open('hatch_build.py').read())"
    run = subprocess.run([sys.executable, "-c", pretend], cwd=_ROOT, capture_output=True, text=True)
    assert run.returncode == 1
    assert run.stderr == "qmd-search needs Python 3.11 or newer, and this is Python 3.10\n"


def test_the_page_of_a_package_index_has_no_link_that_leads_nowhere() -> None:
    text = (_ROOT / "README.md").read_text("utf-8")
    assert re.search(r"\]\(docs/", text)
    for one in _HOOKS["fancy-pypi-readme"]["substitutions"]:
        text = re.sub(one["pattern"], one["replacement"], text)
    assert re.findall(r"\]\((?!https?:|#)[^)]*\)", text) == []
