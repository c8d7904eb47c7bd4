"""Which file of a model's folder is opened, and what is said where it is not the one that was asked for."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from qmd.inference.loader import load_engines
from qmd.inference.models import prepared
from qmd.inference.models.catalogue import QWEN_EXPANDER, QWEN_RERANKER
from qmd.inference.models.prepared import prepared_notes
from qmd.inference.models.weights_choice import choose_weights, form_note, unused_forms
from qmd.inference.records import ModelRecord
from qmd.inference.settings import EngineSettings
from tests.inference.tiny_models import PUBLISHED, random_weights, write_model
from tests.inference.tiny_tokenizer import write_tokenizer


def _folder(folder: Path, record: ModelRecord, *forms: str) -> Path:
    """Every published file of a model, a byte each, and some forms."""
    for item in record.formats:
        (folder / item.weights.path).parent.mkdir(parents=True, exist_ok=True)
        (folder / item.weights.path).write_bytes(b"x")
    for form in forms:
        place = folder / "prepared" / form
        place.mkdir(parents=True)
        (place / "model.onnx").write_bytes(b"x")
        files = [{"path": "model.onnx", "size_bytes": 1, "sha256": "0" * 64}]
        source = next(item.weights.path for item in record.formats if item.name == "fp16")
        manifest = {"source": source, "source_bytes": 1, "files": files}
        (place / "manifest.json").write_text(json.dumps(manifest), "utf-8")
    return folder


def _chosen(folder: Path, record: ModelRecord, form: str = "auto") -> str:
    path = choose_weights(folder, record, allow_gpu=False, form=form).path
    return path.relative_to(folder).as_posix()


def test_a_reranker_runs_in_its_fastest_exact_form_and_as_published_when_asked(tmp_path: Path) -> None:
    _folder(tmp_path, QWEN_RERANKER, "q8")
    assert _chosen(tmp_path, QWEN_RERANKER) == "prepared/q8/model.onnx"
    assert _chosen(tmp_path, QWEN_RERANKER, "published") == "model.onnx"
    assert _chosen(tmp_path, QWEN_RERANKER, "q8") == "prepared/q8/model.onnx"


def test_products_of_bytes_come_first_with_amx_after_blocks_with_vnni_and_never_without_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _folder(tmp_path, QWEN_RERANKER, "fp32", "q8", "i16w8", "i16w16")
    cases = (("avx512_vnni amx_int8", "i16w8", "i16w16"), ("avx_vnni", "q8", "i16w16"), ("avx2", "fp32", "fp32"))
    for flags, first, asked in cases:
        monkeypatch.setattr(prepared, "_processor_flags", lambda cpuinfo, value=flags: frozenset(value.split()))
        assert _chosen(tmp_path, QWEN_RERANKER) == f"prepared/{first}/model.onnx"
        assert _chosen(tmp_path, QWEN_RERANKER, "i16w16") == f"prepared/{asked}/model.onnx"
    note = form_note(tmp_path, QWEN_RERANKER, "i16w16")
    assert "has no form 'i16w16'; possible: auto, published, fp32, q8" in (note or "")


def test_a_form_of_an_older_version_is_left_alone_and_its_place_is_told(tmp_path: Path) -> None:
    _folder(tmp_path, QWEN_RERANKER, "w8a8", "q8")
    assert _chosen(tmp_path, QWEN_RERANKER, "w8a8") == "prepared/q8/model.onnx"
    step = f"qmd models prepare {QWEN_RERANKER.name}"
    (line,) = unused_forms(tmp_path, QWEN_RERANKER, "q8")
    assert line.startswith("w8a8 is not used: ") and line.endswith(step)
    note = form_note(tmp_path, QWEN_RERANKER, "w8a8") or ""
    assert "has no form 'w8a8' any more; possible: auto, published, " in note and note.endswith(step)


def test_an_expander_runs_its_published_cpu_file_and_a_form_when_asked(tmp_path: Path) -> None:
    _folder(tmp_path, QWEN_EXPANDER, "q4")
    assert "cpu_and_mobile" in _chosen(tmp_path, QWEN_EXPANDER)
    assert _chosen(tmp_path, QWEN_EXPANDER, "q4") == "prepared/q4/model.onnx"
    (tmp_path / _chosen(tmp_path, QWEN_EXPANDER)).unlink()
    assert _chosen(tmp_path, QWEN_EXPANDER) == "prepared/q4/model.onnx"


def test_an_unfinished_form_and_one_of_another_version_are_left_out(tmp_path: Path) -> None:
    _folder(tmp_path, QWEN_RERANKER, "q8", "fp32")
    (tmp_path / "prepared/q8/manifest.json").unlink()
    assert _chosen(tmp_path, QWEN_RERANKER) == "prepared/fp32/model.onnx"
    (tmp_path / "model.onnx").write_bytes(b"another version")
    assert _chosen(tmp_path, QWEN_RERANKER) == "model.onnx"
    (note,) = prepared_notes(QWEN_RERANKER, tmp_path)
    assert "another version" in note and "qmd models prepare Qwen3-Reranker-0.6B --form fp32" in note


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("auto", None),
        ("published", None),
        ("q8", None),
        ("fp32", "is not on this machine; make it: qmd models prepare Qwen3-Reranker-0.6B --form fp32"),
        ("q5", "has no form 'q5'; possible: auto, published, "),
    ],
)
def test_a_missing_form_is_one_line_with_the_command(tmp_path: Path, form: str, expected: str | None) -> None:
    note = form_note(_folder(tmp_path, QWEN_RERANKER, "q8"), QWEN_RERANKER, form)
    assert (note is None) == (expected is None)
    assert expected is None or (note is not None and expected in note and "\n" not in note)
    assert _chosen(tmp_path, QWEN_RERANKER, form) == ("model.onnx" if form == "published" else "prepared/q8/model.onnx")


def test_the_configuration_chooses_before_the_environment(tmp_path: Path) -> None:
    environ = {"QMD_RERANK_FORM": "FP32", "QMD_GENERATE_FORM": "q4"}
    chosen = EngineSettings(tmp_path, options={"rerank_form": "published"}, env=environ)
    assert (chosen.form_for("rerank"), chosen.form_for("expand")) == ("published", "q4")
    assert EngineSettings(tmp_path, env=environ).form_for("rerank") == "fp32"
    assert EngineSettings(tmp_path).form_for("rerank") == "auto"


def test_a_form_that_is_not_there_is_said_when_the_model_is_opened_and_another_is_used(tmp_path: Path) -> None:
    folder = tmp_path / QWEN_RERANKER.folder
    write_tokenizer(folder)
    form = replace(PUBLISHED, head="score", past=False, positions=False)
    write_model(folder / "model.onnx", form, random_weights())
    engines = load_engines(EngineSettings(tmp_path, options={"rerank_form": "q8"}, allow_gpu=False), ["rerank"])
    assert engines.reranker is not None and engines.reranker.description.format == "fp32"
    assert engines.failures == () and "--form q8" in engines.notes[0]
