"""Memory of the GPU: shares of the engines, and errors of exhausted memory. No device is needed."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from msgspec.structs import replace

from qmd.errors import ModelError
from qmd.inference.models.builtin import locate_builtin
from qmd.inference.runtime import gpu_memory, sessions
from qmd.inference.runtime.gpu_memory import SHARES, GpuMemory, GpuUse, OutOfMemory, is_out_of_memory, memory_now
from qmd.inference.runtime.sessions import mapped_errors, open_session
from qmd.inference.settings import EngineSettings
from qmd.plugins.qwen.decoding import Decoder
from tests.inference.tiny_models import PUBLISHED, random_weights, write_model

GIB = 1 << 30
ARENA = (
    "[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : Non-zero status code returned while running MatMul node. Name:'x' "
    "Status Message: bfc_arena.cc:376 void* onnxruntime::BFCArena::AllocateRawInternal(size_t, bool) Failed to "
    "allocate memory for requested buffer of size 939524096"
)
LIMIT = "bfc_arena.cc:177 Available memory of 1048576 is smaller than requested bytes of 8388608"
DEVICE = "[ONNXRuntimeError] : 1 : FAIL : CUDA failure 2: out of memory ; GPU=0 ; expr=cudaStreamCreateWithFlags(&s)"
CUBLAS = "CUBLAS failure 3: CUBLAS_STATUS_ALLOC_FAILED ; GPU=0 ; expr=cublasCreate(&cublas_handle_);"
BROKEN_DEVICE = "CUDA failure 700: an illegal memory access was encountered ; GPU=0"


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[GpuMemory]]:
    """Set the driver's answers, one after the other."""
    answers = [GpuMemory(8 * GIB, 10 * GIB), GpuMemory(2 * GIB, 10 * GIB)]
    monkeypatch.setattr(gpu_memory, "memory_now", lambda device: answers.pop(0))
    gpu_memory.memory_at_start.cache_clear()
    yield answers
    gpu_memory.memory_at_start.cache_clear()


@pytest.mark.parametrize("text", [ARENA, LIMIT, DEVICE, CUBLAS, "std::bad_alloc", "bad allocation"])
def test_every_way_of_running_out_of_memory_is_known(text: str) -> None:
    assert is_out_of_memory(RuntimeError(text))


def test_python_running_out_of_memory_counts_and_other_failures_do_not() -> None:
    assert is_out_of_memory(MemoryError())
    assert not is_out_of_memory(RuntimeError(BROKEN_DEVICE))
    assert not is_out_of_memory(RuntimeError("Got invalid dimensions for input: input_ids"))


@pytest.mark.parametrize("text", [ARENA, DEVICE])
def test_running_out_of_memory_never_says_to_fetch_the_model_again(text: str) -> None:
    with pytest.raises(OutOfMemory) as caught, mapped_errors("model.onnx", "cuda"):
        raise RuntimeError(text)
    assert caught.value.message == "model 'model.onnx' needs more memory than the GPU has left"
    assert caught.value.hint is not None
    assert "--no-gpu" in caught.value.hint and "fetch" not in caught.value.hint


def test_a_device_that_fails_is_not_a_broken_file() -> None:
    with pytest.raises(ModelError) as caught, mapped_errors("model.onnx", "cuda"):
        raise RuntimeError(BROKEN_DEVICE)
    assert caught.value.hint is not None
    assert "--no-gpu" in caught.value.hint and "fetch" not in caught.value.hint


def test_engines_share_what_was_free_before_the_first_of_them(free: list[GpuMemory]) -> None:
    limits = {role: GpuUse(role).limit_bytes() for role in SHARES}
    assert limits == {"embed": 2 * GIB, "rerank": int(8 * GIB * 0.4), "expand": 2 * GIB}
    assert sum(SHARES.values()) < 1
    assert len(free) == 1


def test_a_limit_of_the_user_is_shared_whatever_is_free(free: list[GpuMemory]) -> None:
    limits = [GpuUse(role, all_roles_mib=900).limit_bytes() for role in SHARES]
    assert sum(limit or 0 for limit in limits) == pytest.approx(900 << 20, abs=3)


def test_the_provider_grows_by_what_is_asked_for_on_the_chosen_device(free: list[GpuMemory]) -> None:
    assert GpuUse("embed", device=1, needs_fp32=True).provider_options() == {
        "device_id": "1",
        "arena_extend_strategy": "kSameAsRequested",
        "gpu_mem_limit": str(2 * GIB),
        "use_tf32": "0",
    }


@pytest.mark.skipif(gpu_memory.load_driver() is not None, reason="this machine has a CUDA driver")
def test_without_a_driver_there_is_no_limit_and_no_failure() -> None:
    gpu_memory.memory_at_start.cache_clear()
    assert memory_now(0) is None
    assert "gpu_mem_limit" not in GpuUse("rerank").provider_options()


def test_device_and_memory_come_from_the_environment() -> None:
    settings = EngineSettings(Path(), env={"QMD_GPU_DEVICE": "2", "QMD_GPU_MEMORY": "4096"})
    assert settings.gpu_use("rerank") == GpuUse("rerank", 2, 4096)
    assert EngineSettings(Path()).gpu_use("embed") == GpuUse("embed")


def test_a_device_that_is_no_number_is_named() -> None:
    with pytest.raises(ModelError, match="'QMD_GPU_DEVICE' is 'first'"):
        EngineSettings(Path(), env={"QMD_GPU_DEVICE": "first"}).gpu_use("embed")


Create = Callable[..., Any]


def _with_cuda(monkeypatch: pytest.MonkeyPatch, cuda: Create) -> list[Any]:
    """Pretend that CUDA works; `cuda` opens its sessions. Return the requested providers."""
    asked: list[Any] = []
    real = onnxruntime.InferenceSession

    def create(path: str, options: Any, providers: list[Any], enable_fallback: int) -> Any:
        # The runtime's own fallback would print, and open a model that does not fit on the CPU.
        assert not enable_fallback
        asked.append(providers)
        if providers != ["CPUExecutionProvider"]:
            return cuda(path, options)
        return real(path, options, providers=providers)

    monkeypatch.setattr(sessions, "cuda_verdict", lambda device=0: None)
    monkeypatch.setattr(onnxruntime, "InferenceSession", create)
    return asked


def test_a_model_too_large_opens_on_the_cpu_and_says_so(monkeypatch: pytest.MonkeyPatch, free: list[GpuMemory]) -> None:
    def full(path: str, options: Any) -> Any:
        raise RuntimeError(ARENA)

    asked = _with_cuda(monkeypatch, full)
    session = open_session(locate_builtin() / "model.onnx", format="fp16", gpu=GpuUse("rerank", 1))
    assert session.note == "'model.onnx' (fp16) runs on the CPU: it does not fit in the GPU's memory"
    assert (session.got, session.device_id) == ("cpu", 0)
    (name, options), cpu = asked[0]
    assert (name, cpu, options["device_id"]) == ("CUDAExecutionProvider", "CPUExecutionProvider", "1")
    assert int(options["gpu_mem_limit"]) == int(8 * GIB * 0.4)


def test_key_value_memory_on_a_device_begins_as_zeros(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    write_model(tmp_path / "model.onnx", replace(PUBLISHED, linear="q4"), random_weights())
    decoder = Decoder(open_session(tmp_path / "model.onnx", format="q4", threads=1))
    assert decoder.in_place
    decoder.session = replace(decoder.session, got="cuda", device_id=3)
    made: list[tuple[bool, str, int]] = []
    from_numpy = onnxruntime.OrtValue.ortvalue_from_numpy

    def record(array: np.ndarray, device: str = "cpu", device_id: int = 0) -> Any:
        made.append((not array.any(), device, device_id))
        return from_numpy(array)

    monkeypatch.setattr(onnxruntime.OrtValue, "ortvalue_from_numpy", record)
    decoder.open_context(16)
    assert made == [(True, "cuda", 3)] * len(decoder.signature.past)
