"""What the process was given: switches in environment variables, and CPUs."""

from __future__ import annotations

import os
from pathlib import Path

_OFF_WORDS = frozenset({"0", "off", "no", "false", "none", "never", "disable", "disabled"})


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
