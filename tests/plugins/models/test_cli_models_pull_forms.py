"""Forms that `qmd models pull` makes of a fetched model, on tiny graphs from a hub on this machine."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from qmd.inference.models.catalogue import QWEN_EXPANDER, QWEN_RERANKER
from qmd.inference.models.prepared import form_that_pays, forms_for
from tests.inference.tiny_models import PUBLISHED, random_weights, write_model
from tests.inference.tiny_tokenizer import write_tokenizer
from tests.plugins.models.model_hub import FakeHub, serve_hub
from tests.program import Qmd

FORM = forms_for(QWEN_RERANKER)[0]
NAME = QWEN_RERANKER.name
OTHER_BASE = b'{"model_type": "qwen3", "rope_theta": 2.0}'
"""A configuration with a wrong rotary base: a form made by it differs from the published graph."""


@pytest.fixture
def folder(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("QMD_FORCE_CPU", "1")
    return tmp_path / "cache" / "qmd" / "models" / QWEN_RERANKER.folder


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    source = tmp_path / "published"
    write_tokenizer(source)
    form = replace(PUBLISHED, head="score", past=False, positions=False, activations="fp16")
    write_model(source / "model.onnx", form, random_weights())
    monkeypatch.setenv("no_proxy", "*")
    with serve_hub() as running:
        running.files = {path.name: path.read_bytes() for path in source.iterdir()}
        monkeypatch.setenv("HF_ENDPOINT", running.url)
        yield running


def _rows(qmd: Qmd) -> dict[str, dict[str, object]]:
    return {row["name"]: row for row in qmd("models", "list", "--json").json}


def test_a_pulled_reranker_has_its_fastest_form_and_is_prepared_once(qmd: Qmd, hub: FakeHub, folder: Path) -> None:
    run = qmd("pull", NAME)
    assert run.status == 0, run.err
    assert f"✓ {NAME} {FORM} -> {folder / 'prepared' / FORM}" in run.out
    assert f"{NAME}: making {FORM}" in run.err and "hint" not in run.err
    assert _rows(qmd)[NAME]["prepared"] == [FORM]
    shown = qmd("doctor").out
    assert f"{NAME} {FORM}" in shown and f"form: {FORM}, prepared here" in shown
    again = qmd("pull", NAME)
    assert "already downloaded" in again.out and "making" not in again.err


def test_a_pull_without_forms_is_made_whole_by_the_next_one(qmd: Qmd, hub: FakeHub, folder: Path) -> None:
    assert "making" not in qmd("pull", NAME, "--no-prepare").err
    assert not (folder / "prepared").exists()
    assert f"faster on this CPU after: qmd models prepare {NAME}" in qmd("doctor").out
    assert f"✓ {NAME} {FORM}" in qmd("models", "pull", NAME).out


def test_a_refused_form_leaves_the_published_file_and_is_not_tried_again(qmd: Qmd, hub: FakeHub, folder: Path) -> None:
    hub.files["config.json"] = OTHER_BASE
    run = qmd("pull", NAME)
    assert run.status == 0
    assert f"✗ {NAME} {FORM} is not kept: " in run.out and "the published file stays in use" in run.out
    assert f"{NAME} fp16" in qmd("doctor").out
    assert "making" not in qmd("pull", NAME).err
    assert "the self-check refused it" in str(_rows(qmd)[NAME]["not_used"])


def test_a_form_that_cannot_be_made_leaves_the_model_fetched_and_says_so(qmd: Qmd, hub: FakeHub, folder: Path) -> None:
    hub.files["config.json"] = b'{"model_type": "llama"}'
    run = qmd("pull", NAME)
    assert run.status == 0
    assert f"warning: {NAME} {FORM} is not made: 'model.onnx' is not a plain Qwen3 network" in run.err
    assert f"hint: to try again: qmd models prepare {NAME}" in run.err
    assert (folder / "model.onnx").is_file() and not list((folder / "prepared").iterdir())


def test_nothing_is_made_of_the_expander_nor_on_a_machine_with_cuda() -> None:
    assert form_that_pays(QWEN_EXPANDER, has_cuda=False) is None
    assert form_that_pays(QWEN_RERANKER, has_cuda=True) is None
    assert form_that_pays(QWEN_RERANKER, has_cuda=False) == FORM


def test_room_for_a_form_is_asked_first(qmd: Qmd, hub: FakeHub, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.files["model.onnx"] += b"\0" * (8 << 20)
    free = (64 << 20) + sum(map(len, hub.files.values())) + (1 << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**9, 10**9, free))
    run = qmd("pull", NAME)
    assert run.status == 4 and "not enough space" in run.err and "form" in run.err
    assert f"qmd models pull {NAME} --no-prepare" in run.err
    assert not [name for command, name, _ in hub.requests if command == "GET" and name == "model.onnx"]
    assert qmd("pull", NAME, "--no-prepare").status == 0


@pytest.mark.skipif(sys.platform == "win32", reason="needs signals of POSIX")
@pytest.mark.parametrize("name", ["SIGINT", "SIGKILL"])
def test_a_pull_that_is_stopped_is_finished_by_the_next_one(qmd: Qmd, hub: FakeHub, folder: Path, name: str) -> None:
    process = subprocess.Popen([sys.executable, "-m", "qmd", "pull", NAME], env=dict(os.environ))
    deadline = time.monotonic() + 60
    while process.poll() is None and not list(folder.glob("prepared/.*/*/*_data")) and time.monotonic() < deadline:
        time.sleep(0.001)
    process.send_signal(getattr(signal, name))
    process.wait(60)
    place = folder / "prepared"
    # It may have finished before the signal came; then it is complete.
    assert not (place / FORM).exists() or (place / FORM / "manifest.json").is_file()
    assert name == "SIGKILL" or not list(place.glob(".*"))
    assert qmd("models", "verify", NAME).status == 0
    assert qmd("pull", NAME).status == 0
    assert [path.name for path in place.iterdir()] == [FORM]
    assert _rows(qmd)[NAME]["prepared"] == [FORM]
