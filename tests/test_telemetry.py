"""Switches that `import qmd` sets before any package that reports home is loaded."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from qmd import NO_TELEMETRY
from qmd.inference.models.catalogue import QWEN_RERANKER
from tests.plugins.models.model_hub import WEIGHTS, serve_hub

ROOT = Path(__file__).parents[1]
_CI = ("CI", "TF_BUILD", "GITHUB_ACTIONS", "GITLAB_CI", "CIRCLECI", "TRAVIS", "JENKINS_URL", "BUILDKITE", "APPVEYOR")


def _run(program: str, home: Path, **variables: str) -> str:
    """Run a program as a user would: an empty home, none of the variables that silence ONNX Runtime."""
    kept = {name: value for name, value in os.environ.items() if name not in {*_CI, *NO_TELEMETRY, "XDG_CACHE_HOME"}}
    environment = {**kept, "HOME": str(home), "PYTHONPATH": str(ROOT), **variables}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, encoding="utf-8", check=True, env=environment, cwd=home
    )
    return done.stdout


def test_importing_qmd_switches_telemetry_off_for_this_process_and_its_children(tmp_path: Path) -> None:
    program = "import json, os, subprocess, sys, qmd; subprocess.run([sys.executable, '-c', "
    program += "'import json, os; print(json.dumps(dict(os.environ)))'])"
    seen = json.loads(_run(program, tmp_path))
    assert {name: seen.get(name) for name in NO_TELEMETRY} == dict.fromkeys(NO_TELEMETRY, "1")


def test_a_user_who_asked_for_telemetry_elsewhere_has_none_from_qmd(tmp_path: Path) -> None:
    wanted = dict.fromkeys(NO_TELEMETRY, "0")
    program = "import os, qmd; print(*(os.environ[name] for name in qmd.NO_TELEMETRY))"
    assert set(_run(program, tmp_path, **wanted).split()) == {"1"}


@pytest.mark.parametrize(
    "load",
    [
        "from qmd.inference.runtime.sessions import import_runtime; import_runtime()",
        "from qmd.plugins.fastembed.catalogue import find_fastembed\n"
        "assert find_fastembed('fastembed:no-such-model') is None",
    ],
    ids=["sessions", "fastembed"],
)
def test_loading_the_runtime_leaves_no_device_id_behind(tmp_path: Path, load: str) -> None:
    _run(f"import qmd; {load}", tmp_path)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_pull_asks_the_hub_for_files_of_the_model_and_names_nothing_but_qmd(tmp_path: Path) -> None:
    program = f"from qmd.cli.app import main; raise SystemExit(main(['pull', {QWEN_RERANKER.name!r}]))"
    with serve_hub() as hub:
        hub.files["model.onnx"] = WEIGHTS
        _run(program, tmp_path, HF_ENDPOINT=hub.url)
    assert len(hub.paths) >= 4
    assert [path for path in hub.paths if not path.startswith(f"/{QWEN_RERANKER.repository}/resolve/")] == []
    assert hub.agents == {"qmd"}
    assert {path.name for path in tmp_path.iterdir()} == {".cache"}
    assert {path.name for path in (tmp_path / ".cache").iterdir()} == {"qmd"}


def test_the_hub_client_adds_nothing_to_its_requests(tmp_path: Path) -> None:
    program = "import qmd, huggingface_hub.constants as known; print(known.HF_HUB_DISABLE_TELEMETRY)"
    assert _run(program, tmp_path).strip() == "True"


def test_events_of_a_runtime_that_was_loaded_before_qmd_are_switched_off(tmp_path: Path) -> None:
    # The upload at the start of the process cannot be prevented; later ones can.
    program = (
        "import onnxruntime as runtime; calls = []\n"
        "runtime.disable_telemetry_events = lambda: calls.append('off')\n"
        "from qmd.inference.runtime.sessions import import_runtime; import_runtime(); print(*calls)"
    )
    assert _run(program, tmp_path, ORT_DISABLE_TELEMETRY="1").strip() == "off"
