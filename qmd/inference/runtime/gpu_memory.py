"""GPU memory: free bytes, the share of each engine, and errors of exhausted memory."""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Mapping

from msgspec import Struct

from qmd.errors import ModelError

SHARES: Mapping[str, float] = {"embed": 0.25, "rerank": 0.40, "expand": 0.25}
"""Role → share of the memory that is free when the first engine is opened. All may be open in one process, so together
they stay below the whole; key-value tensors, which belong to no session, and other programs get the rest."""

_MEBIBYTE = 1 << 20
_OUT_OF_MEMORY = (
    "failed to allocate memory",
    "is smaller than requested bytes",
    "cuda failure 2:",
    "out of memory",
    "status_alloc_failed",
    "bad_alloc",
    "bad allocation",
)
"""Messages of the runtime's arena and its limit, CUDA and its libraries, and C++; there is no exception type for it."""


class OutOfMemory(ModelError):
    """A model needs more memory than is free: a smaller batch, or another device, may succeed."""


class GpuMemory(Struct, frozen=True):
    """Memory of one GPU, in bytes; what other programs use counts as used."""

    free_bytes: int
    total_bytes: int


class GpuUse(Struct, frozen=True):
    """The GPU that an engine uses, and its limits."""

    role: str
    """A key of `SHARES`."""
    device: int = 0
    """Index among the GPUs that `CUDA_VISIBLE_DEVICES` shows."""
    all_roles_mib: int | None = None
    """Limit of all engines together; None takes the free memory."""
    needs_fp32: bool = False
    """Products of fp32 tensors keep their 24 bits; without it CUDA rounds them to 11 (TF32)."""

    def provider_options(self) -> dict[str, str]:
        """Return the options of ONNX Runtime's CUDA provider.

        The arena grows by the requested size: with doubling, the default, three sessions fill a card that has space for
        them all.
        """
        options = {"device_id": str(self.device), "arena_extend_strategy": "kSameAsRequested"}
        limit = self.limit_bytes()
        if limit is not None:
            options["gpu_mem_limit"] = str(limit)
        if self.needs_fp32:
            options["use_tf32"] = "0"
        return options

    def limit_bytes(self) -> int | None:
        """Return the share of this role; None if the driver does not report free memory."""
        at_start = memory_at_start(self.device)
        if self.all_roles_mib is not None:
            return int(self.all_roles_mib * _MEBIBYTE * SHARES[self.role] / sum(SHARES.values()))
        return None if at_start is None else int(at_start.free_bytes * SHARES[self.role])


@functools.cache
def memory_at_start(device: int) -> GpuMemory | None:
    """Return `memory_now` of the first call. Limits taken from later free memory would depend on the order."""
    return memory_now(device)


def memory_now(device: int) -> GpuMemory | None:
    """Return the memory of a GPU; None without a driver, such a device, or an answer."""
    driver = load_driver()
    context = None if driver is None else _primary_context(device)
    if driver is None or context is None:
        return None
    free, total, popped = ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_void_p()
    if driver.cuCtxPushCurrent_v2(context):
        return None
    failed = driver.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
    driver.cuCtxPopCurrent_v2(ctypes.byref(popped))
    return None if failed else GpuMemory(free.value, total.value)


@functools.cache
def load_driver() -> ctypes.CDLL | None:
    """Load the CUDA driver's library, None if there is none."""
    try:
        return ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return None


def driver_version(driver: ctypes.CDLL) -> tuple[int, int] | None:
    """Return the newest CUDA that the driver can run, as (12, 4); None if unknown."""
    version = ctypes.c_int()
    if driver.cuDriverGetVersion(ctypes.byref(version)):
        return None
    return version.value // 1000, version.value % 1000 // 10


@functools.cache
def _primary_context(device: int) -> ctypes.c_void_p | None:
    """Return the context that ONNX Runtime's sessions use as well; kept, because creating it takes 0.2 s."""
    driver, handle, context = load_driver(), ctypes.c_int(), ctypes.c_void_p()
    if driver is None or driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(handle), device):
        return None
    return None if driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), handle) else context


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error of the runtime means that memory ran out."""
    text = str(error).lower()
    return isinstance(error, MemoryError) or any(sign in text for sign in _OUT_OF_MEMORY)
