"""This process: its CPUs, its priority, and the command that starts it again."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path


def usable_cpus() -> int:
    """Return the CPUs that this process may use, at least 1: its affinity and the quota of its control group."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()[:2]
        return max(1, min(cpus, round(int(quota) / int(period))))
    except (OSError, ValueError, ZeroDivisionError):
        return cpus


OWN_PROGRAM = (sys.executable, "-P", "-m", "qmd")
"""Start this very installation from any folder: without `-P` an untrusted folder could supply modules."""


_NICENESS = 10
"""A tenth of the processor time of normal processes. The lowest priority could delay a write to the index and, with it,
the writes of others."""


def lower_process_priority() -> None:
    """Lower the priority of this process (on Linux: of the calling thread and its children); do nothing on Windows.

    Disks that know priorities use a process's niceness.
    """
    if sys.platform == "win32":
        return
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, max(_NICENESS, os.getpriority(os.PRIO_PROCESS, 0)))
    if sys.platform == "linux":
        # Batch scheduling has longer time slices and does not delay interactive processes.
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def lower_thread_priority() -> None:
    """Lower the priority of the calling thread on Linux, where threads have their own."""
    if sys.platform == "linux":
        lower_process_priority()
