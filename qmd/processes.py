"""Processes of this program that outlive the command that starts them, and work that gives way to everything else."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from qmd.files import make_private_folder, open_private

if TYPE_CHECKING:
    from qmd.config.paths import Locations

_NICENESS = 10
"""A tenth of the processor time that others get who want it too. The lowest there is could keep a write to the index
waiting, and with it the writes of others."""


def command_on(
    locations: Locations, environ: Mapping[str, str], words: Sequence[str]
) -> tuple[list[str], dict[str, str]]:
    """Arguments and environment of a `qmd WORDS` on the index of these places, however they were chosen."""
    if locations.project_root is not None:
        return list(words), dict(environ)
    return [*words, "--index", locations.index_name], {
        **environ,
        "INDEX_PATH": locations.address or str(locations.database),
    }


def start_process(arguments: Sequence[str], log: Path, environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start `qmd ARGUMENTS` so that it outlives this process and its terminal, and writes to a new log.

    Args:
        arguments: What follows the program's name.
        log: Its stdout and stderr.
        environ: Its variables.

    Raises:
        OSError: It cannot be started.
    """
    make_private_folder(log.parent)
    with os.fdopen(open_private(log, os.O_WRONLY | os.O_TRUNC), "wb") as stream:
        return subprocess.Popen(
            [sys.executable, "-m", "qmd", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            env=dict(environ),
            start_new_session=sys.platform != "win32",
        )


def give_way(pid: int = 0) -> None:
    """Run a process (0 for this one) at a low priority, as far as the system can.

    Disks take a process's niceness for their own, where they know priorities.
    """
    if sys.platform == "win32":
        return
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, pid, max(_NICENESS, os.getpriority(os.PRIO_PROCESS, pid)))
    if sys.platform == "linux":
        # Longer turns, and none at the cost of whoever is interactive.
        with suppress(OSError):
            os.sched_setscheduler(pid, os.SCHED_BATCH, os.sched_param(0))


def thread_gives_way() -> None:
    """Run the calling thread at a low priority, where a thread has one of its own, which is on Linux."""
    if sys.platform == "linux":
        give_way(threading.get_native_id())


def last_line(log: Path) -> str:
    """What a process wrote to its log at last."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    except OSError:
        lines = []
    return lines[-1] if lines else "it wrote nothing"
