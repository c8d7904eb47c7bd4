"""This process: its CPUs, its priority, its age, and the command that starts it again."""

from __future__ import annotations

import os
import sys
import threading
import time
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


PROMPT_S = 0.7
"""Age at which the process of a hook ends, so that its client never waits longer than 0.8 s."""


def process_age_s(stat: Path = Path("/proc/self/stat")) -> float:
    """Return the seconds since this process started; outside Linux its processor time, the minimum that has passed."""
    if sys.platform == "linux":
        with suppress(OSError, ValueError, IndexError):
            # The name of the program, in parentheses, may contain spaces and parentheses.
            ticks = int(stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[19])
            return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.process_time()


def exit_at_age(age_s: float) -> None:
    """End this process without a word at that age, with status 0, even while another thread works or waits."""
    end = threading.Timer(max(0.0, age_s - process_age_s()), os._exit, (0,))
    end.daemon = True
    end.start()


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
