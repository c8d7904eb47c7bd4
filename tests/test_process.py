import os
import sys
import time
from pathlib import Path

import pytest

from qmd.process import process_age_s, usable_cpus
from qmd.switches import is_off, is_on


@pytest.mark.parametrize("word", ["0", "off", "No", " FALSE ", "none", "never", "disable", "disabled"])
def test_every_off_word_switches_off_whichever_variable_holds_it(word: str) -> None:
    assert is_off(word)
    assert not is_on(word)


@pytest.mark.parametrize("word", ["1", "on", "yes", "auto", "anything"])
def test_any_other_word_switches_on(word: str) -> None:
    assert is_on(word)
    assert not is_off(word)


@pytest.mark.parametrize("value", [None, "", "  "])
def test_a_variable_that_is_not_set_switches_nothing(value: str | None) -> None:
    assert not is_on(value)
    assert not is_off(value)


def test_there_is_a_cpu_to_use() -> None:
    assert usable_cpus() >= 1


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows when a process started")
def test_the_age_of_a_process_counts_from_its_start_by_the_clock_of_the_system(tmp_path: Path) -> None:
    assert time.process_time() * 0.5 < process_age_s() < 3600 * 24
    stat = tmp_path / "stat"
    started = time.clock_gettime(time.CLOCK_BOOTTIME) - 5
    ticks = int(started * os.sysconf("SC_CLK_TCK"))
    stat.write_text(f"7 (a) b) {'S ' + '0 ' * 18}{ticks} 0 0\n")
    assert process_age_s(stat) == pytest.approx(5, abs=0.5)
    for damaged in ("", "7 (a", "7 (a) S 1 2", f"7 (a) {'x ' * 30}"):
        stat.write_text(damaged)
        assert process_age_s(stat) == pytest.approx(time.process_time(), abs=0.5)
    assert process_age_s(tmp_path / "missing") == pytest.approx(time.process_time(), abs=0.5)
