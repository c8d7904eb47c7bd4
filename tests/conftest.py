"""What all tests share."""

import gc
import sys
import time
from collections.abc import Callable, Iterator

import pytest
from hypothesis import settings

# A busy machine makes single examples slow, which says nothing about the program.
settings.register_profile("qmd", deadline=None)
settings.load_profile("qmd")


def pytest_collection() -> None:
    """Look for no garbage while modules are imported and tests are made, of which hardly any is."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Let no search for garbage go through the modules and the tests again, which stay.

    The program searches whenever it gives models back, which took a quarter of a second with the suite in memory.
    """
    gc.collect()
    gc.freeze()
    gc.enable()


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
