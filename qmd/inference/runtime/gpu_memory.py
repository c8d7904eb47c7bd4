"""Memory of the GPU: what is free, how much of it each engine may take, and what running out of it looks like."""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Mapping

from msgspec import Struct

from qmd.errors import ModelError

SHARES: Mapping[str, float] = {"embed": 0.25, "rerank": 0.40, "expand": 0.25}
"""Of the memory that is free when the first engine is opened, by role. All may be open in one process, so together
they stay below the whole; the rest is left to key-value tensors, which belong to no session, and to other programs."""

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
"""What the runtime's arena and its limit, CUDA and its libraries, and C++ say; there is no exception type of it."""


class OutOfMemory(ModelError):
    """A model needs more memory than there is: a smaller batch, or another device, may do."""


class GpuMemory(Struct, frozen=True):
    """Memory of one GPU, in bytes; what other programs use counts as used."""

    free_bytes: int
    total_bytes: int


class GpuUse(Struct, frozen=True):
    """Which GPU an engine uses, and how."""

    role: str
    """A key of `SHARES`."""
    device: int = 0
    """Among those that `CUDA_VISIBLE_DEVICES` shows."""
    all_roles_mib: int | None = None
    """What the engines together may take; None takes what is free."""
    needs_fp32: bool = False
    """Products of fp32 tensors keep their 24 bits; without it CUDA rounds them to 11 (TF32)."""

    def provider_options(self) -> dict[str, str]:
        """Options of ONNX Runtime's CUDA provider.

        The arena grows by what is asked for: doubled, as it grows by default, three sessions fill a card that would
        hold them all.
        """
        options = {"device_id": str(self.device), "arena_extend_strategy": "kSameAsRequested"}
        limit = self.limit_bytes()
        if limit is not None:
            options["gpu_mem_limit"] = str(limit)
        if self.needs_fp32:
            options["use_tf32"] = "0"
        return options

    def limit_bytes(self) -> int | None:
        """The share of this role; None where the driver does not say what is free."""
        at_start = memory_at_start(self.device)
        if self.all_roles_mib is not None:
            return int(self.all_roles_mib * _MEBIBYTE * SHARES[self.role] / sum(SHARES.values()))
        return None if at_start is None else int(at_start.free_bytes * SHARES[self.role])


@functools.cache
def memory_at_start(device: int) -> GpuMemory | None:
    """`memory_now` when first asked. Limits that were taken from what is free later would depend on the order."""
    return memory_now(device)


def memory_now(device: int) -> GpuMemory | None:
    """Memory of a GPU; None without a driver, such a device, or an answer."""
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
    """The CUDA driver's library, None where there is none."""
    try:
        return ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return None


def driver_version(driver: ctypes.CDLL) -> tuple[int, int] | None:
    """The newest CUDA that the driver can run, as (12, 4); None where it does not say."""
    version = ctypes.c_int()
    if driver.cuDriverGetVersion(ctypes.byref(version)):
        return None
    return version.value // 1000, version.value % 1000 // 10


@functools.cache
def _primary_context(device: int) -> ctypes.c_void_p | None:
    """The context that ONNX Runtime's sessions use as well; kept, since making it anew takes 0.2 s."""
    driver, handle, context = load_driver(), ctypes.c_int(), ctypes.c_void_p()
    if driver is None or driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(handle), device):
        return None
    return None if driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), handle) else context


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error of the runtime means that memory ran out."""
    text = str(error).lower()
    return isinstance(error, MemoryError) or any(sign in text for sign in _OUT_OF_MEMORY)
