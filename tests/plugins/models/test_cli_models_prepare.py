"""`qmd models prepare` as a user runs it, on tiny graphs with the signatures of the published ones."""

import json
import shutil
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from qmd.inference.models.catalogue import QWEN_EXPANDER, QWEN_RERANKER
from qmd.inference.models.prepared import forms_for
from qmd.inference.records import ModelRecord
from tests.inference.exported_graphs import ExportForm
from tests.inference.tiny_models import PUBLISHED, random_weights, write_model
from tests.inference.tiny_tokenizer import write_tokenizer
from tests.program import Qmd

RERANKER_FORM = replace(PUBLISHED, head="score", past=False, positions=False, activations="fp16")
DECODER_FORM = replace(PUBLISHED, activations="fp16")
QUANTISED_FORM = replace(PUBLISHED, activations="fp16", linear="q4")


@pytest.fixture
def models(home: Path, tmp_path: Path) -> Path:
    return tmp_path / "cache" / "qmd" / "models"


@pytest.fixture
def reranker(models: Path) -> Path:
    return _publish(models, QWEN_RERANKER, RERANKER_FORM)


def _publish(models: Path, record: ModelRecord, form: ExportForm, *, format: str = "fp16") -> Path:
    folder = models / record.folder
    write_tokenizer(folder)
    source = next(item for item in record.formats if item.name == format)
    write_model(folder / source.weights.path, form, random_weights())
    return folder


def test_preparing_shows_what_it_made_and_how_well_it_agrees_and_needs_no_package_onnx(
    qmd: Qmd, reranker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    run = qmd("models", "prepare", QWEN_RERANKER.name, "--form", "q8")
    assert run.status == 0, run.err
    assert run.out.startswith(f"✓ {QWEN_RERANKER.name} q8 -> {reranker / 'prepared' / 'q8'}")
    assert "rank agreement" in run.out
    assert run.err.startswith(f"{QWEN_RERANKER.name}: making q8")


def test_without_a_name_every_model_here_gets_its_default_form(qmd: Qmd, models: Path, reranker: Path) -> None:
    _publish(models, QWEN_EXPANDER, DECODER_FORM)
    assert qmd("models", "prepare").status == 0
    rows = {row["name"]: row["prepared"] for row in qmd("models", "list", "--json").json}
    assert rows[QWEN_RERANKER.name] == list(forms_for(QWEN_RERANKER)[:1])
    assert rows[QWEN_EXPANDER.name] == ["q4"]


def test_a_form_is_listed_verified_used_and_removed(qmd: Qmd, reranker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QMD_FORCE_CPU", "1")
    assert " fp16 " in qmd("doctor").out
    qmd("models", "prepare", QWEN_RERANKER.name, "--form", "q8")
    assert "prepared: q8" in qmd("models", "list").out
    assert "prepared/q8/model.onnx" in qmd("models", "verify", QWEN_RERANKER.name).out
    assert f"{QWEN_RERANKER.name} q8" in qmd("doctor").out
    assert qmd("models", "remove", QWEN_RERANKER.name).status == 0
    assert not reranker.exists()


def test_the_configuration_chooses_the_form_and_doctor_says_why(
    qmd: Qmd, reranker: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QMD_FORCE_CPU", "1")
    qmd("models", "prepare", QWEN_RERANKER.name, "--form", "q8")
    assert "form: q8, prepared here: the fastest" in qmd("doctor").out
    monkeypatch.setenv("QMD_RERANK_FORM", "fp32")
    shown = qmd("doctor").out
    assert f"{QWEN_RERANKER.name} q8" in shown
    assert f"'fp32' of '{QWEN_RERANKER.name}' is not on this machine; make it: qmd models prepare" in shown
    config = tmp_path / "config" / "qmd" / "index.yml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text("models:\n  rerank_form: published\n")
    shown = qmd("doctor").out
    assert "form: fp16, published, as asked for; q8 is here for use on request" in shown


def test_a_damaged_form_is_named_and_the_published_file_is_used(qmd: Qmd, reranker: Path) -> None:
    qmd("models", "prepare", QWEN_RERANKER.name, "--form", "q8")
    weights = reranker / "prepared" / "q8" / "model.onnx"
    weights.write_bytes(weights.read_bytes()[:500])
    assert "q8 (not used: its file 'model.onnx' is damaged)" in qmd("models", "list").out
    assert qmd("models", "verify", QWEN_RERANKER.name).status == 1
    shown = qmd("doctor").out
    assert f"{QWEN_RERANKER.name} fp16" in shown
    assert f"qmd models prepare {QWEN_RERANKER.name}" in shown


def test_a_form_that_disagrees_is_refused_with_the_reason(qmd: Qmd, models: Path) -> None:
    folder = _publish(models, QWEN_EXPANDER, DECODER_FORM)
    # With a wrong rotary base in the configuration, the prepared graph computes something else.
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen3", "rope_theta": 2.0}), "utf-8")
    run = qmd("models", "prepare", QWEN_EXPANDER.name, "--form", "q8")
    assert run.status == 1
    assert "q8 is not kept: correlation" in run.out
    assert "the published file stays in use" in run.out
    assert "q8 (not used: the self-check refused it: correlation" in qmd("models", "list").out


def test_a_disk_without_room_is_refused_beforehand(qmd: Qmd, reranker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nearly_full(path: object) -> object:
        return shutil._ntuple_diskusage(10**9, 10**9, 1 << 20)

    monkeypatch.setattr(shutil, "disk_usage", nearly_full)
    run = qmd("models", "prepare", QWEN_RERANKER.name)
    assert run.status == 4
    assert "not enough space" in run.err
    assert not list((reranker / "prepared").iterdir())


def test_preparing_a_model_whose_weights_have_4_bits_says_why_not_and_makes_nothing(qmd: Qmd, models: Path) -> None:
    folder = _publish(models, QWEN_EXPANDER, QUANTISED_FORM, format="q4")
    run = qmd("models", "prepare", QWEN_EXPANDER.name)
    assert run.status == 4
    assert "its weights here are quantised already (q4)" in run.err
    assert not (folder / "prepared").exists()
    assert qmd("models", "prepare").status == 3
    assert "models prepare" not in qmd("doctor").out


def test_what_an_interrupted_run_left_is_cleared_away(qmd: Qmd, reranker: Path) -> None:
    left = reranker / "prepared" / ".q8-left"
    left.mkdir(parents=True)
    (left / "model.onnx_data").write_bytes(b"x" * 1000)
    assert qmd("models", "prepare", QWEN_RERANKER.name).status == 0
    assert not left.exists()


@pytest.mark.parametrize(
    ("argv", "status", "said"),
    [
        (["prepare"], 3, "qmd models pull"),
        (["prepare", QWEN_RERANKER.name], 3, "not on this machine"),
        (["prepare", "all-MiniLM-L6-v2"], 2, "part of a package"),
        (["prepare", "nope"], 3, "'nope'"),
    ],
)
def test_what_cannot_be_prepared_is_said_in_one_line(qmd: Qmd, argv: list[str], status: int, said: str) -> None:
    run = qmd("models", *argv)
    assert run.status == status
    assert said in run.err
    assert len(run.err.splitlines()) <= 2
