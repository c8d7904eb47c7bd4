import pytest

from qmd.process import usable_cpus
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
