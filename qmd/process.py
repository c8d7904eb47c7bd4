"""This process: its CPUs, its priority, and the command that starts it again."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path


def usable_cpus() -> int:
    """CPUs that this process may use, at least 1: its affinity, and the quota of its control group."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()[:2]
        return max(1, min(cpus, round(int(quota) / int(period))))
    except (OSError, ValueError, ZeroDivisionError):
        return cpus


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
