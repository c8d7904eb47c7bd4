"""Report of `qmd doctor` on an open model. No device is needed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from msgspec.structs import replace

from qmd.inference.loader import choose_model
from qmd.inference.models.builtin import locate_builtin
from qmd.inference.models.catalogue import JINA_ZH, QWEN_EXPANDER
from qmd.inference.records import Role
from qmd.inference.runtime import sessions
from qmd.inference.runtime.sessions import Session, open_session
from qmd.inference.settings import EngineSettings
from qmd.plugins.doctor import inspection
from qmd.plugins.doctor.inspection import ModelFacts, inspect_engine, missing_gpu_file, operators_on_cpu
from tests.inference.tiny_models import PUBLISHED, SHAPE, random_weights, write_model
from tests.inference.tiny_tokenizer import write_tokenizer


@pytest.fixture
def settings(tmp_path: Path) -> EngineSettings:
    """Settings with the expander's CPU file and without its GPU file."""
    folder = tmp_path / QWEN_EXPANDER.folder
    write_tokenizer(folder)
    write_model(folder / QWEN_EXPANDER.formats[1].weights.path, replace(PUBLISHED, linear="q4"), random_weights())
    return EngineSettings(tmp_path, threads=1)


def test_context_layers_vocabulary_key_value_memory_and_end_tokens_are_told(settings: EngineSettings) -> None:
    report = inspect_engine(settings, "expand")
    per_token = SHAPE.layers * 2 * SHAPE.kv_heads * SHAPE.head_size * 4
    assert (report.facts.layers, report.facts.kv_bytes_per_token) == (SHAPE.layers, per_token)
    context = report.facts.context_tokens
    assert context is not None and report.facts.kv_bytes == per_token * context
    assert report.facts.vocabulary is not None and report.facts.vocabulary > 0
    assert "<|im_end|>" in report.facts.end_tokens
    _, network, reads, *_ = report.more
    assert network.startswith("0M x 9.8 bits, 2 layers x 64, 4 heads, 2 KV")
    assert reads.startswith(f"context {context} tokens, KV cache float32 {context / 1024:.1f} MiB, vocabulary ")
    assert len(network) <= 60


def test_a_model_without_key_value_tensors_has_no_line_of_them(tmp_path: Path) -> None:
    facts = inspect_engine(EngineSettings(tmp_path, threads=1), "embed").facts
    assert facts.lines == ("23M x 8.3 bits, 6 layers x 384, 12 heads", "context 256 tokens")
    assert (facts.kv_type, facts.kv_bytes) == (None, None)
    assert ModelFacts().lines == ()


class Mixed(Session, frozen=True):
    """Session on a device that left some operators to the CPU."""

    def operators(self) -> Counter[tuple[str, str]]:
        return Counter(
            {
                ("cuda", "MatMulNBits"): 20,
                ("cpu", "MatMulNBits"): 2,
                ("cpu", "Shape"): 9,
                ("cpu", "GroupQueryAttention"): 1,
            }
        )


def test_only_operators_that_compute_are_named_when_a_gpu_leaves_them_to_the_cpu() -> None:
    session = open_session(locate_builtin() / "model.onnx", format="int8", threads=1)
    fields = {name: getattr(session, name) for name in session.__struct_fields__}
    assert operators_on_cpu(Mixed(**{**fields, "got": "cuda"})) == {"GroupQueryAttention": 1, "MatMulNBits": 2}
    assert operators_on_cpu(session) == {}


def test_operators_that_were_left_behind_are_in_the_report(
    settings: EngineSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspection, "operators_on_cpu", lambda session: {"MatMulNBits": 2})
    assert "still computed on the CPU: 2 MatMulNBits" in inspect_engine(settings, "expand").more


def _missing(settings: EngineSettings, role: Role = "expand") -> str | None:
    return missing_gpu_file(settings, choose_model(settings, role))


def test_a_cpu_file_on_a_machine_that_has_a_gpu_by_now_is_told_with_the_command(
    settings: EngineSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _missing(settings) is None
    monkeypatch.setattr(sessions, "cuda_verdict", lambda device=0: None)
    assert _missing(settings) == f"qmd models pull {QWEN_EXPANDER.name}"
    assert _missing(replace(settings, allow_gpu=False)) is None
    gpu_file = settings.models_dir / QWEN_EXPANDER.folder / QWEN_EXPANDER.formats[0].weights.path
    gpu_file.parent.mkdir(parents=True, exist_ok=True)
    gpu_file.write_bytes(b"x")
    assert _missing(settings) is None


def test_the_built_in_model_lacks_no_file_for_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "cuda_verdict", lambda device=0: None)
    assert _missing(EngineSettings(tmp_path), "embed") is None
    assert any(item.device == "cuda" for item in JINA_ZH.formats)
    assert inspection.bulk_line(object()) is None
