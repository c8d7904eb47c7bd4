"""Report of `qmd doctor` on engines and vectors."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from qmd.inference.engines.embedder import load_embedder
from qmd.inference.models.builtin import MINILM, locate_builtin
from qmd.inference.models.catalogue import QWEN_EXPANDER
from qmd.installation import install_command
from qmd.plugins.doctor.vector_sample import sample_vectors
from qmd.store.opening import open_reader
from tests.inference.embedder_folders import make_folder, sentence_transformer
from tests.inference.tiny_models import PUBLISHED, random_weights, write_model
from tests.inference.tiny_tokenizer import write_tokenizer
from tests.program import Qmd


def _engine(qmd: Qmd, role: str) -> dict[str, Any]:
    (row,) = [row for row in qmd("doctor", "--json").json["engines"] if row["role"] == role]
    return dict(row)


def test_an_engine_is_shown_with_its_placement_and_cost(qmd: Qmd) -> None:
    row = _engine(qmd, "embed")
    assert (row["model"], row["format"], row["provider_asked"], row["provider"]) == (MINILM.name, "int8", "cpu", "cpu")
    assert "no CUDA kernels" in row["reason"]
    assert row["nodes"]["cpu"] > 10 and row["nodes_elsewhere"] == 0
    assert row["load_s"] > 0 and row["answer_s"] > 0
    shown = qmd("doctor").out
    assert "provider: asked cpu, got cpu (" in shown
    assert "0 off the preferred provider" in shown


def test_a_format_for_cuda_kept_on_the_cpu_says_why_and_counts_its_nodes(
    qmd: Qmd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "cache" / "qmd" / "models" / QWEN_EXPANDER.folder
    write_tokenizer(folder)
    form = replace(PUBLISHED, activations="fp16", linear="q4")
    write_model(folder / QWEN_EXPANDER.formats[0].weights.path, form, random_weights())
    monkeypatch.setenv("QMD_FORCE_CPU", "1")
    row = _engine(qmd, "expand")
    assert (row["format"], row["provider_asked"], row["provider"]) == ("q4f16", "cuda", "cpu")
    assert "switched off" in row["reason"]
    assert row["nodes_elsewhere"] == row["nodes"]["cpu"] > 0


def test_how_an_expander_draws_its_tokens_is_shown_and_a_wrong_value_is_one_line(qmd: Qmd, tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "qmd" / "models" / QWEN_EXPANDER.folder
    write_tokenizer(folder)
    write_model(folder / QWEN_EXPANDER.formats[1].weights.path, replace(PUBLISHED, linear="q4"), random_weights())
    config = tmp_path / "config" / "qmd" / "index.yml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text("sampling:\n  top_k: 40\n  order: llama.cpp\n", "utf-8")
    assert _engine(qmd, "expand")["sampling"] == {
        "temperature": "0.7",
        "top_k": "40",
        "top_p": "0.8",
        "presence_penalty": "0.5",
        "order": "llama.cpp",
    }
    assert (
        "    sampling: temperature 0.7, top_k 40, top_p 0.8, presence_penalty 0.5, order llama.cpp\n"
        in qmd("doctor").out
    )
    settings = qmd("doctor", "--json").json["settings"]
    assert {row["name"]: row["value"] for row in settings} == {"sampling.top_k": "40", "sampling.order": "llama.cpp"}
    config.write_text("sampling:\n  top_p: 7\n", "utf-8")
    said = qmd("doctor").out
    assert said.count(f"sampling.top_p in '{config}' must be a number <= 1.0, not 7") == 1
    assert "⚠ models: not examined: see configuration\n" in said


def test_a_role_without_a_model_is_no_fault(qmd: Qmd) -> None:
    assert _engine(qmd, "expand")["model"] is None
    assert "✓ expand model: none" in qmd("doctor").out


def test_a_model_that_cannot_be_opened_is_named_and_doctor_goes_on(
    qmd: Qmd, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("QMD_EMBED_MODEL", str(tmp_path))
    run = qmd("doctor")
    assert run.status == 0
    assert f"⚠ embed model: embedding model '{tmp_path}' cannot be used: no ONNX model" in run.out
    assert "✓ rerank model" in run.out


def test_the_pooling_and_prompts_of_a_folders_model_are_shown_with_who_says_so(qmd: Qmd, tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "bge-small-en-v1.5", sentence_transformer("cls_token"))
    config = tmp_path / "config" / "qmd" / "index.yml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(f"models: {{embed: {{model: '{folder}', document_prompt: 'note: '}}}}\n")
    said = _engine(qmd, "embed")["handling"]
    assert said[0] == "pooling: first (1_Pooling/config.json)"
    assert said[1].endswith("document 'note: ' (your settings, else known as BGE English)")
    assert f"    {said[1]}\n" in qmd("doctor").out
    assert "query 'Represent this" in said[1]


def test_keys_are_not_shown(qmd: Qmd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QMD_API_KEY", "very-secret")
    assert "QMD_API_KEY=(set)" in qmd("doctor").out
    assert "very-secret" not in qmd("doctor", "--json").out


def _check(qmd: Qmd, name: str) -> dict[str, Any]:
    (row,) = [row for row in qmd("doctor", "--json").json["checks"] if row["name"] == name]
    return dict(row)


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_telemetry_is_off_and_what_it_had_left_is_deleted_and_named(
    qmd: Qmd, home: Path, tmp_path: Path, temporary: Path
) -> None:
    (temporary / ".ses").write_text("1795308080551\nf74df3bf-04a4-758a-3ebf-ad8b22af00ee\n")
    microsoft = tmp_path / "cache" / "Microsoft"
    folder = microsoft / "DeveloperTools" / ".onnxruntime"
    folder.mkdir(parents=True)
    for name in ("deviceid", "onnxruntime.db", "onnxruntime.db-wal"):
        (folder / name).write_text("")
    shown = qmd("doctor").out
    assert "✓ telemetry of ONNX Runtime: off; deleted the files that it had left on this machine: " in shown
    assert str(folder / "deviceid") in shown
    assert not microsoft.exists()
    assert not (temporary / ".ses").exists()
    assert _check(qmd, "telemetry of ONNX Runtime")["detail"] == "off"


def test_files_of_other_programs_beside_what_telemetry_left_stay(qmd: Qmd, home: Path, temporary: Path) -> None:
    (temporary / ".ses").write_text("a session of something else")
    folder = home / ".cache" / "Microsoft" / "DeveloperTools" / ".onnxruntime"
    folder.mkdir(parents=True)
    (folder / "deviceid").write_text("")
    (folder.parent / "other").write_text("")
    (folder / "onnxruntime.database").write_text("")
    qmd("doctor")
    assert [path.name for path in folder.iterdir()] == ["onnxruntime.database"]
    assert (folder.parent / "other").exists()
    assert (temporary / ".ses").exists()


@pytest.mark.skipif(os.name != "posix", reason="permission bits are POSIX's")
def test_what_others_can_read_is_named_with_the_command_that_closes_it(
    indexed: Qmd, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _check(indexed, "permissions")["ok"]
    # pytest's own folders are private, so nothing in them can be open.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        Path(name).chmod(0o755)
        database = Path(name) / "it's.sqlite"
        monkeypatch.setenv("INDEX_PATH", str(database))
        indexed("update")
        assert _check(indexed, "permissions")["ok"]
        database.chmod(0o644)
        check = _check(indexed, "permissions")
        assert not check["ok"]
        assert str(database) in check["detail"]
        subprocess.run(check["advice"].removeprefix("run: "), shell=True, check=True)
        assert _check(indexed, "permissions")["ok"]


def test_missing_vectors_are_advised_and_present_ones_sampled(indexed: Qmd) -> None:
    run = indexed("doctor")
    assert (run.status, "✓ index: sound, 3 documents" in run.out) == (0, True)
    assert "3 of 3 documents have none; run: qmd embed" in run.out
    indexed("embed")
    checks = {check["name"]: check for check in indexed("doctor", "--json").json["checks"]}
    assert checks["vectors"]["ok"]
    assert ", scale 0.676 to 0.138; 3 chunks embedded again" in checks["vectors"]["detail"]


def test_vectors_of_another_model_are_told_from_missing_ones(
    indexed: Qmd, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    indexed("embed")
    other = tmp_path / "other-model"
    other.mkdir()
    for name in ("model.onnx", "tokenizer.json"):
        (other / name).symlink_to(locate_builtin() / name)
    (other / "1_Pooling").mkdir()
    (other / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    monkeypatch.setenv("QMD_EMBED_MODEL", str(other))
    assert "vectors belong to another model" in indexed("doctor").out


class Drifted:
    """Built-in model that computes other vectors under its old fingerprint."""

    def __init__(self) -> None:
        self._inner = load_embedder(locate_builtin(), MINILM)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def embed_documents(self, texts: Sequence[str]) -> Any:
        vectors = self._inner.embed_documents(texts)[:, ::-1]
        return np.ascontiguousarray(vectors)


def test_vectors_that_the_model_no_longer_computes_are_found(indexed: Qmd, tmp_path: Path) -> None:
    indexed("embed")
    with open_reader(tmp_path / "cache" / "qmd" / "index.sqlite") as reader:
        sound = sample_vectors(reader, load_embedder(locate_builtin(), MINILM), seed=1)
        drifted = sample_vectors(reader, Drifted(), seed=1)  # type: ignore[arg-type]
    assert sound is not None and sound.agrees and sound.n_chunks == 3
    assert drifted is not None and not drifted.agrees


@pytest.mark.parametrize("has_driver", [True, False])
def test_room_that_no_driver_can_use_is_told_with_the_command_that_frees_it(
    qmd: Qmd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_driver: bool
) -> None:
    operators = tmp_path / "onnxruntime" / "capi" / "libonnxruntime_providers_cuda.so"
    operators.parent.mkdir(parents=True)
    with operators.open("wb") as file:
        file.truncate(284_000_000)
    (tmp_path / "onnxruntime" / "__init__.py").touch()
    spec = importlib.util.spec_from_file_location("onnxruntime", tmp_path / "onnxruntime" / "__init__.py")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: spec)
    monkeypatch.setattr("qmd.inference.runtime.gpu_memory.load_driver", lambda: object() if has_driver else None)
    (line,) = [one for one in qmd("doctor").out.splitlines() if " CUDA: " in one]
    assert (f"284 MB can be freed: {install_command(None)}" in line) == (not has_driver)


def test_packages_that_overwrite_each_other_are_told(qmd: Qmd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("qmd_search", "qmd_search_cpu"):
        (tmp_path / f"{name}-9.dist-info").mkdir()
    told = "qmd-search and qmd-search-cpu are both installed and overwrite each other's files"
    assert f"⚠ CUDA: {told}; remove them, then install qmd again: " in qmd("doctor").out
