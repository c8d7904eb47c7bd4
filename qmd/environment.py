"""What this process was given: switches in variables, CPUs, and its priority."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path

_OFF_WORDS = frozenset({"0", "off", "no", "false", "none", "never", "disable", "disabled"})

BUSY_TIMEOUT_VARIABLE = "QMD_SQLITE_BUSY_TIMEOUT"
_DEFAULT_BUSY_TIMEOUT_MS = 120_000


def is_off(value: str | None) -> bool:
    """Whether an environment variable switches off: `0`, `off`, `no`, `false`, `none`, `never`, `disable(d)`."""
    return value is not None and value.strip().lower() in _OFF_WORDS


def is_on(value: str | None) -> bool:
    """Whether an environment variable switches on: it is set, not blank, and no word that switches off."""
    return value is not None and bool(value.strip()) and not is_off(value)


def usable_cpus() -> int:
    """CPUs that this process may use, at least 1: its affinity, and the quota of its control group."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()[:2]
        return max(1, min(cpus, round(int(quota) / int(period))))
    except (OSError, ValueError, ZeroDivisionError):
        return cpus


def busy_timeout_ms() -> int:
    """How long to wait for another process, from the environment or the default, in milliseconds."""
    raw = os.environ.get(BUSY_TIMEOUT_VARIABLE, "").strip()
    # SQLite counts to no more.
    return min(int(raw), 2**31 - 1) if raw.isdecimal() and len(raw) < 20 else _DEFAULT_BUSY_TIMEOUT_MS


TWINS = (("qmd-search", "qmd-search-cpu"), ("onnxruntime-gpu", "onnxruntime"), ("fastembed-gpu", "fastembed"))
"""Distributions that write the same folder: with what an NVIDIA card needs, and without."""


def overwritten() -> list[str]:
    """Twins that are both installed, in pairs.

    By names of files: `importlib.metadata` takes longer to import than the program to say its version.
    """
    noted = (file.name for folder in sys.path for file in Path(folder).glob("*.dist-info"))
    found = {name.partition("-")[0].replace("_", "-") for name in noted}
    return [name for pair in TWINS if found.issuperset(pair) for name in pair]


OWN_PROGRAM = (sys.executable, "-P", "-m", "qmd")
"""Starts this very installation from any folder: without `-P` a stranger's folder would lend its modules."""

_NICENESS = 10
"""A tenth of the processor time that others get who want it too. The lowest there is could keep a write to the index
waiting, and with it the writes of others."""


def lower_process_priority() -> None:
    """Run this process at a low priority, on Linux the calling thread and those that it starts; nothing on Windows.

    Disks take a process's niceness for their own, where they know priorities.
    """
    if sys.platform == "win32":
        return
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, max(_NICENESS, os.getpriority(os.PRIO_PROCESS, 0)))
    if sys.platform == "linux":
        # Longer turns, and none at the cost of whoever is interactive.
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def lower_thread_priority() -> None:
    """Run the calling thread at a low priority, where a thread has one of its own, which is on Linux."""
    if sys.platform == "linux":
        lower_process_priority()


def sha256(content: bytes) -> str:
    """The digest in hexadecimal; by OpenSSL, six times as fast and slow to load, where hashlib is imported."""
    for name in ("hashlib",) if "hashlib" in sys.modules else ("_sha2", "_sha256", "hashlib"):
        with suppress(ImportError):
            return str(import_module(name).sha256(content).hexdigest())
    raise AssertionError("hashlib is always there")
