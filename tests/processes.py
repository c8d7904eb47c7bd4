"""The environment of the processes that tests start."""

import os
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def environment(home: Path, **own: str) -> dict[str, str]:
    """As little as the program needs, so that no setting of the person who runs the tests reaches it.

    What measures coverage goes along: it starts by variables of its own.
    """
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "SYSTEMROOT")}
    measuring = {name: value for name, value in os.environ.items() if name.startswith("COVERAGE_")}
    return {**kept, **measuring, "HOME": str(home), "PYTHONPATH": str(ROOT), **own}


def unmeasured() -> dict[str, str]:
    """The environment of the tests for a process whose imports are looked at: coverage would add its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    return {**kept, "PYTHONPATH": str(ROOT)}


def wait_until(is_so: Callable[[], object]) -> None:
    """Wait for what another thread or process will bring about."""
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.01)


def processor_time_s(pid: int) -> float:
    """The time that a process and the children it waited for have computed; 0 where there is no /proc."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
