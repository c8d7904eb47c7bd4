"""ONNX Runtime sessions, opened only here: provider by quantisation format, proved, with plain errors."""

from __future__ import annotations

import contextlib
import functools
import io
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from qmd.errors import ModelError
from qmd.escapes import error_line
from qmd.inference.onnx_files import Model, read_model
from qmd.inference.runtime.gpu_memory import GpuUse, OutOfMemory, driver_version, is_out_of_memory, load_driver
from qmd.switches import is_off, is_on

if TYPE_CHECKING:
    import onnxruntime as ort

Provider = Literal["cpu", "cuda"]

_ORT_NAMES: Mapping[Provider, str] = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
_REINSTALL = "reinstall qmd; onnxruntime and onnxruntime-gpu overwrite each other, keep only one"
_FETCH_AGAIN = "fetch it again: qmd models pull, or check it: qmd models verify"
_WITHOUT_GPU = "turn the GPU off with --no-gpu or QMD_FORCE_CPU=1; see: qmd doctor"
_DEVICE_FAILURES = ("cuda failure", "cublas failure", "cudnn failure", "cuda error")
"""Messages of the runtime when the device or its libraries fail, and no file is at fault."""

_CUDA_FAILURE = re.compile(r"CUDA failure \d+: [^;]+?(?= *;|$)")

# A 2x2 MatMul, opset 17, as ONNX bytes: the smallest graph whose placement shows whether CUDA works.
_PROBE_MODEL = bytes.fromhex(
    "08083a400a110a01780a017812017922064d61744d756c1201675a130a0178120e0a0c0801"
    "12080a0208020a02080262130a0179120e0a0c080112080a0208020a02080242040a001011"
)

# A product of two pairs of bytes, MatMulInteger with the weights (127, 127): its sum needs more than 16 bits.
_BYTES_MODEL = bytes.fromhex(
    "080812003a560a180a01780a0162120179220d4d61744d756c496e74656765721201702a0d0802080110034201624a027f7f5a130a0178120e0a"
    "0c080212080a0208010a02080262130a0179120e0a0c080612080a0208010a02080142040a001011"
)


class ProviderChoice(Struct, frozen=True):
    """The best provider of a weight format, and why."""

    provider: Provider
    reason: str


_BYTE_PRODUCTS = ProviderChoice("cpu", "products of bytes are MatMulIntegerToFloat, which has no CUDA kernel")
PROVIDER_BY_FORMAT: Mapping[str, ProviderChoice] = {
    "int8": ProviderChoice(
        "cpu", "dynamic INT8 operators have no CUDA kernels; they would fall back one by one, copying at every step"
    ),
    "i16w8": _BYTE_PRODUCTS,
    "i16w16": _BYTE_PRODUCTS,
    "q8": ProviderChoice("cpu", "8-bit blocks are made for machines without CUDA; the full-precision file is there"),
    "q4": ProviderChoice("cpu", "accuracy level 4 computes in INT8 on the CPU"),
    "q4f16": ProviderChoice("cuda", "MatMulNBits and fp16 attention have native CUDA kernels"),
    "fp16": ProviderChoice("cuda", "fully native on CUDA; on x86 the CPU casts the weights to fp32 at load"),
    "fp32": ProviderChoice("cuda", "fully native on CUDA"),
}


class NoCuda(Struct, frozen=True):
    """Reason why CUDA does not run."""

    reason: str
    remedy: str | None = None
    """The remedy if there is a driver, and so a GPU to use."""


class Session(Struct, frozen=True):
    """An open model and the device on which it runs."""

    ort: ort.InferenceSession
    path: Path
    format: str
    preferred: Provider
    got: Provider
    note: str | None = None
    """One line when the session is not on the preferred provider, else None."""
    device_id: int = 0
    """The GPU if it runs on one, else 0."""
    head: Any = None
    """The `OutputHead` (`qmd.plugins.qwen`) of a graph that returns hidden states; None if it returns logits."""

    @property
    def name(self) -> str:
        """File name, for messages."""
        return self.path.name

    def run(self, outputs: Sequence[str] | None, feeds: Mapping[str, Any]) -> list[Any]:
        """Run the graph.

        Raises:
            ModelError: The runtime refused the inputs or failed.
            OutOfMemory: The device has no memory for intermediate values.
        """
        with mapped_errors(self.name, self.got):
            return list(self.ort.run(outputs, dict(feeds)))

    def operators(self) -> Counter[tuple[str, str]]:
        """Return the number of graph nodes per (provider, operator), the provider as `cpu` or `cuda`."""
        if not hasattr(self.ort, "get_provider_graph_assignment_info"):
            # Up to ONNX Runtime 1.23, the last for Intel Macs and macOS 13: the file's own nodes, all on the CPU.
            return Counter((self.got, node.op_type) for node in read_model(self.path, Model).graph.node)
        with mapped_errors(self.name):
            parts = self.ort.get_provider_graph_assignment_info()
            return Counter(
                (part.ep_name.removesuffix("ExecutionProvider").lower(), node.op_type)
                for part in parts
                for node in part.get_nodes()
            )

    def nodes_by_provider(self) -> Mapping[str, int]:
        """Return the number of graph nodes per provider (`cpu`, `cuda`)."""
        return Counter(provider for provider, _ in self.operators().elements())


def gpu_allowed(env: Mapping[str, str]) -> bool:
    """Return False when `QMD_FORCE_CPU` is set to anything but an off-word, or `QMD_LLAMA_GPU` to one."""
    return not is_on(env.get("QMD_FORCE_CPU")) and not is_off(env.get("QMD_LLAMA_GPU"))


def preferred_provider(format: str) -> ProviderChoice:
    """Return the provider for a weight format, with the reason; the CPU for an unknown format."""
    unknown = ProviderChoice("cpu", "a format that is not in the table runs where every operator exists")
    return PROVIDER_BY_FORMAT.get(format, unknown)


def import_runtime() -> ModuleType:
    """Import `onnxruntime`, silenced.

    The environment that `qmd` sets when it is imported silences a runtime that is loaded afterwards. A runtime that a
    host program loaded earlier is silenced here: it may have sent its first report, but sends no more.

    Raises:
        ModelError: It is missing, cannot load its libraries, or is the empty shell a removed twin package leaves.
    """
    try:
        import onnxruntime
    except ImportError as exc:
        if isinstance(exc, ModuleNotFoundError) and exc.name == "onnxruntime":
            raise ModelError("onnxruntime is not installed; it has no package for some systems") from exc
        raise ModelError(f"onnxruntime cannot be imported: {error_line(exc, 240)}", _REINSTALL) from exc
    if not hasattr(onnxruntime, "InferenceSession"):
        raise ModelError("onnxruntime is installed but empty", _REINSTALL)
    onnxruntime.disable_telemetry_events()
    module: ModuleType = onnxruntime
    return module


def open_session(
    path: Path,
    *,
    format: str,
    threads: int | None = None,
    allow_gpu: bool = True,
    fuse: bool = True,
    options: Mapping[str, str] | None = None,
    gpu: GpuUse | None = None,
    graph: bytes | None = None,
) -> Session:
    """Open a model where its format, a key of `PROVIDER_BY_FORMAT`, runs best, and record where it really runs.

    Args:
        threads: Threads inside one operator; None lets the runtime take one per physical core.
        fuse: False for a graph that is already fused by hand; the runtime then only folds constants.
        options: Extra session configuration entries of ONNX Runtime.
        gpu: The GPU, and the role whose share of its memory the model may take; None takes the first, as embedding.
        graph: Graph to open instead of the file's; `options` locate its constants.

    Raises:
        ModelError: The runtime is missing, or the file is absent, damaged or not a model.
    """
    runtime = import_runtime()
    if not path.is_file():
        raise ModelError(f"model file '{path}' is missing", _FETCH_AGAIN)
    preferred = preferred_provider(format).provider
    session_options = _session_options(runtime, threads, fuse, options)
    use = gpu or GpuUse("embed")

    def create(providers: list[Any]) -> Any:
        with _quiet(runtime):
            # The runtime's own fallback prints, and hides the reason for leaving the GPU.
            return runtime.InferenceSession(graph or str(path), session_options, providers=providers, enable_fallback=0)

    verdict: str | None = None
    opened: Any = None
    if preferred == "cuda":
        fault = cuda_verdict(use.device) if allow_gpu else NoCuda("GPU use is switched off")
        verdict = None if fault is None else fault.reason
        if verdict is None:
            try:
                opened = create([(_ORT_NAMES["cuda"], use.provider_options()), _ORT_NAMES["cpu"]])
            except _runtime_errors() as exc:
                verdict = "it does not fit in the GPU's memory" if is_out_of_memory(exc) else error_line(exc, 240)
    if opened is None:
        with mapped_errors(path.name):
            opened = create([_ORT_NAMES["cpu"]])
    got: Provider = "cuda" if _ORT_NAMES["cuda"] in opened.get_providers() else "cpu"
    device_id = use.device if got == "cuda" else 0
    note: str | None = None
    if preferred != got:
        note = f"'{path.name}' ({format}) runs on the CPU: {verdict or 'CUDA was listed but did not load'}"
    return Session(opened, path, format, preferred, got, note, device_id)


def cuda_works(device: int = 0) -> bool:
    """Return True when a session really runs on CUDA in this process; decided once."""
    return cuda_verdict(device) is None


@functools.cache
def cuda_verdict(device: int = 0) -> NoCuda | None:
    """Return None when CUDA works on this GPU, else the reason why not.

    `get_available_providers()` lists what was compiled in, so the proof is a small session that ran there. A machine
    without the driver library pays only for one failed `dlopen`. The verdict cannot change during the process, so it is
    cached.
    """
    driver = load_driver()
    if driver is None:
        return NoCuda("no CUDA driver")
    from qmd.installation import install_command

    runtime = import_runtime()
    if _ORT_NAMES["cuda"] not in runtime.get_available_providers():
        return NoCuda("this onnxruntime was built without CUDA")
    # "13.0"; a custom build may have none.
    major = str(getattr(runtime, "cuda_version", "")).partition(".")[0]
    version = driver_version(driver)
    if version is not None and major.isdecimal() and version[0] < int(major):
        remedy = "update the driver" + (f", or: {install_command('cuda12')}" if version[0] == 12 else "")
        return NoCuda(f"the NVIDIA driver is for CUDA {version[0]}.{version[1]}, ONNX Runtime for CUDA {major}", remedy)
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    with _quiet(runtime):
        try:
            # From the `nvidia-*` wheels. Missing libraries are printed by the runtime.
            with contextlib.redirect_stdout(io.StringIO()):
                runtime.preload_dlls()
            providers = [(_ORT_NAMES["cuda"], {"device_id": str(device)})]
            session = runtime.InferenceSession(_PROBE_MODEL, options, providers=providers, enable_fallback=0)
            if _ORT_NAMES["cuda"] not in session.get_providers():
                command = install_command("cuda12" if major == "12" else "cuda")
                return NoCuda(f"the libraries of CUDA {major} do not load", f"run: {command}")
            import numpy as np

            session.run(None, {"x": np.eye(2, dtype=np.float32)})
        except _runtime_errors() as exc:
            failure = _CUDA_FAILURE.search(error_line(exc, 2000))
            return NoCuda(failure[0] if failure else f"CUDA does not work ({error_line(exc, 120)})")
    return None


@functools.cache
def byte_sums_are_exact() -> bool:
    """Return whether this processor adds products of bytes in 32 bits, by trial: AVX2 without VNNI saturates at 16.

    Raises:
        ModelError: There is no runtime.
    """
    runtime = import_runtime()
    import numpy as np

    session = runtime.InferenceSession(_BYTES_MODEL, providers=[_ORT_NAMES["cpu"]])
    return int(session.run(None, {"x": np.full((1, 2), 255, np.uint8)})[0][0, 0]) == 2 * 255 * 127


@contextlib.contextmanager
def mapped_errors(name: str, provider: Provider = "cpu") -> Iterator[None]:
    """Turn errors of ONNX Runtime inside the block into one `ModelError` line that names `name`.

    The hint to fetch the file again appears only if neither memory nor the device is at fault.
    """
    try:
        yield
    except _runtime_errors() as exc:
        device = "the GPU" if provider == "cuda" else "this machine"
        if is_out_of_memory(exc):
            remedy = _WITHOUT_GPU if provider == "cuda" else "close other programs, or choose a smaller model"
            raise OutOfMemory(f"model '{name}' needs more memory than {device} has left", remedy) from exc
        is_device = any(sign in str(exc).lower() for sign in _DEVICE_FAILURES)
        hint = _WITHOUT_GPU if is_device else _FETCH_AGAIN
        raise ModelError(f"model '{name}' cannot be used: {error_line(exc, 240)}", hint) from exc


def _session_options(runtime: ModuleType, threads: int | None, fuse: bool, entries: Mapping[str, str] | None) -> Any:
    options = runtime.SessionOptions()
    if not fuse:
        options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.log_severity_level = 4
    options.inter_op_num_threads = 1
    if threads is not None:
        options.intra_op_num_threads = threads
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    for key, value in (entries or {}).items():
        options.add_session_config_entry(key, value)
    return options


@contextlib.contextmanager
def _quiet(runtime: ModuleType) -> Iterator[None]:
    """Silence the default logger, which prints two red lines on a failed CUDA load whatever the session's level is."""
    runtime.set_default_logger_severity(4)
    try:
        yield
    finally:
        runtime.set_default_logger_severity(2)


def _runtime_errors() -> tuple[type[Exception], ...]:
    """Return every exception type of ONNX Runtime's binding (their only base is `Exception`), and those of loading."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    bound = [item for item in vars(state).values() if isinstance(item, type) and issubclass(item, Exception)]
    return (*bound, RuntimeError, ValueError, OSError, MemoryError)
