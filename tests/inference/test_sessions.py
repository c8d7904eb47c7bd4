"""The session factory: placement, environment words, and one line for every kind of broken file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from qmd.errors import ModelError
from qmd.inference.models.builtin import locate_builtin
from qmd.inference.runtime.sessions import (
    cuda_verdict,
    cuda_works,
    gpu_allowed,
    open_session,
    preferred_provider,
)

MODEL = locate_builtin() / "model.onnx"


def test_int8_runs_on_the_cpu_without_a_note() -> None:
    session = open_session(MODEL, format="int8", threads=1)
    assert (session.asked, session.got, session.note) == ("cpu", "cpu", None)


def test_full_precision_kept_off_the_gpu_says_why() -> None:
    session = open_session(MODEL, format="fp32", allow_gpu=False)
    assert (session.asked, session.got) == ("cuda", "cpu")
    assert session.note is not None
    assert "switched off" in session.note


@pytest.mark.skipif(cuda_works(), reason="this machine has CUDA")
def test_without_cuda_full_precision_falls_back_with_the_reason() -> None:
    session = open_session(MODEL, format="fp16")
    assert session.got == "cpu"
    assert session.note is not None
    assert str(cuda_verdict()) in session.note


@pytest.mark.gpu
@pytest.mark.skipif(not cuda_works(), reason="needs a working CUDA device")
def test_with_cuda_full_precision_runs_on_it() -> None:
    assert open_session(MODEL, format="fp32").got == "cuda"


def test_asking_for_cuda_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    open_session(MODEL, format="fp32")
    captured = capfd.readouterr()
    assert captured.out + captured.err == ""


def test_nodes_are_counted_per_provider() -> None:
    counts = open_session(MODEL, format="int8").nodes_by_provider()
    assert counts["cpu"] > 0
    assert set(counts) == {"cpu"}


def test_an_unknown_format_runs_on_the_cpu() -> None:
    assert preferred_provider("q3").provider == "cpu"


@pytest.mark.parametrize("word", ["false", "off", "None", "disable", "disabled", "0", "", None])
def test_off_words_and_no_word_do_not_force_the_cpu(word: str | None) -> None:
    assert gpu_allowed({} if word is None else {"QMD_FORCE_CPU": word})


@pytest.mark.parametrize("word", ["1", "true", "yes"])
def test_other_words_force_the_cpu(word: str) -> None:
    assert not gpu_allowed({"QMD_FORCE_CPU": word})


def assert_one_line(error: ModelError, name: str) -> None:
    assert name in error.message
    assert "\n" not in error.message
    assert error.hint


def test_a_missing_file_is_one_line_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(ModelError) as caught:
        open_session(tmp_path / "gone.onnx", format="int8")
    assert_one_line(caught.value, "gone.onnx")


@pytest.mark.parametrize("content", [b"", b"not a model", b"\x08\x08", MODEL.read_bytes()[:100_000]])
def test_a_damaged_file_is_one_line_that_names_it(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "damaged.onnx"
    path.write_bytes(content)
    with pytest.raises(ModelError) as caught:
        open_session(path, format="int8")
    assert_one_line(caught.value, "damaged.onnx")


def test_wrong_inputs_are_one_line_that_names_the_model() -> None:
    session = open_session(MODEL, format="int8")
    with pytest.raises(ModelError) as caught:
        session.run(None, {"pixels": np.zeros((1, 2), np.int64)})
    assert_one_line(caught.value, "model.onnx")
