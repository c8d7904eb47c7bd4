"""What all tests share."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterator

import pytest
from hypothesis import settings

# A busy machine makes single examples slow, which says nothing about the program.
settings.register_profile("qmd", deadline=None)
settings.load_profile("qmd")


def pytest_collection_finish() -> None:
    """Let no collection of garbage look through the collected tests and their modules again.

    The program collects each time that it gives models back, which was a quarter of a second with all of the suite in
    memory.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture
def set_zone() -> Iterator[Callable[[str], None]]:
    """Takes the user somewhere else."""
    if sys.platform == "win32":
        pytest.skip("a process has the zone of its system")

    with pytest.MonkeyPatch.context() as patch:

        def move(zone: str) -> None:
            patch.setenv("TZ", zone)
            time.tzset()

        yield move
    time.tzset()
