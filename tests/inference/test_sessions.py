"""The session factory: placement, environment words, and one line for every kind of broken file."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnxruntime
import pytest
from msgspec.structs import replace

from qmd.errors import ModelError
from qmd.inference.models.builtin import locate_builtin
from qmd.inference.runtime.sessions import cuda_verdict, cuda_works, gpu_allowed, open_session, preferred_provider

MODEL = locate_builtin() / "model.onnx"


def test_int8_runs_on_the_cpu_without_a_note() -> None:
    session = open_session(MODEL, format="int8", threads=1)
    assert (session.preferred, session.got, session.note) == ("cpu", "cpu", None)


def test_full_precision_kept_off_the_gpu_says_why() -> None:
    session = open_session(MODEL, format="fp32", allow_gpu=False)
    assert (session.preferred, session.got) == ("cuda", "cpu")
    assert session.note is not None
    assert "switched off" in session.note


@pytest.mark.skipif(cuda_works(), reason="this machine has CUDA")
def test_without_cuda_full_precision_falls_back_with_the_reason() -> None:
    session = open_session(MODEL, format="fp16")
    assert session.got == "cpu"
    assert session.note is not None
    hindrance = cuda_verdict()
    assert hindrance is not None and hindrance.reason in session.note


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


def test_where_the_runtime_does_not_tell_its_nodes_the_file_is_read() -> None:
    session = open_session(MODEL, format="int8")
    silent = replace(session, ort=SimpleNamespace())  # as onnxruntime 1.23 is
    assert silent.operators() == session.operators()


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


_DRIVER = """
#include <stddef.h>
int cuDriverGetVersion(int *version) { *version = VERSION; return 0; }
int cuInit(unsigned flags) { return 0; }
int cuDeviceGet(int *device, int index) { *device = 0; return 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = (void *)1; return 0; }
int cuCtxPushCurrent_v2(void *context) { return 0; }
int cuCtxPopCurrent_v2(void **context) { return 0; }
int cuMemGetInfo_v2(size_t *free, size_t *total) { *free = (size_t)6 << 30; *total = (size_t)8 << 30; return 0; }
"""


@pytest.mark.skipif("CUDAExecutionProvider" not in onnxruntime.get_available_providers(), reason="built without CUDA")
@pytest.mark.skipif(cuda_works() or sys.platform != "linux", reason="needs Linux, and no CUDA of its own")
@pytest.mark.skipif(not (compiler := shutil.which("cc")), reason="needs a compiler for a driver of stubs")
@pytest.mark.parametrize(
    ("version", "reason", "remedy"),
    [
        (13000, "the libraries of CUDA {built} do not load", "[cuda]'"),
        (12040, "the NVIDIA driver is for CUDA 12.4, ONNX Runtime for CUDA {built}", "update the driver, or: "),
        (11080, "the NVIDIA driver is for CUDA 11.8, ONNX Runtime for CUDA {built}", "update the driver"),
    ],
)
def test_a_driver_that_cuda_does_not_fit_is_named_with_what_to_install(
    tmp_path: Path, version: int, reason: str, remedy: str
) -> None:
    (tmp_path / "driver.c").write_text(_DRIVER.replace("VERSION", str(version)))
    made = [str(compiler), "-shared", "-fPIC", "-o", str(tmp_path / "libcuda.so.1"), str(tmp_path / "driver.c")]
    subprocess.run(made, check=True)
    script = (
        "from qmd.inference.models.builtin import locate_builtin; from qmd.inference.runtime.sessions import *;"
        "print(open_session(locate_builtin() / 'model.onnx', format='fp32').note); print(cuda_verdict().remedy)"
    )
    environ = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    run = subprocess.run([sys.executable, "-c", script], env=environ, capture_output=True, text=True)
    built = onnxruntime.cuda_version.partition(".")[0]
    assert run.stderr == ""
    note, told = run.stdout.splitlines()
    assert note == f"'model.onnx' (fp32) runs on the CPU: {reason.format(built=built)}"
    assert remedy in told and ("[cuda12]'" in told) == (version == 12040)
