"""What is made on first use behaves like what is made at once."""

import re
from typing import AnyStr

import pytest

from qmd.lazy import lazy_pattern, load_module


@pytest.mark.parametrize(("pattern", "text"), [(r"(?P<word>\w+) \d", "page 7"), (rb"\w+", b"page")])
def test_a_lazy_pattern_answers_like_a_compiled_one(pattern: AnyStr, text: AnyStr) -> None:
    lazy, compiled = lazy_pattern(pattern), re.compile(pattern)
    assert lazy.pattern == pattern
    assert lazy.findall(text) == compiled.findall(text)
    for _ in range(2):
        found, expected = lazy.search(text), compiled.search(text)
        assert found is not None and expected is not None
        assert found.groupdict() == expected.groupdict()


def test_a_lazy_pattern_keeps_its_flags() -> None:
    assert lazy_pattern("PAGE", re.IGNORECASE).match("page")
    assert not lazy_pattern("PAGE").match("page")


def test_a_lazy_pattern_is_compiled_when_it_is_used() -> None:
    broken = lazy_pattern("(")
    with pytest.raises(re.error):
        broken.match("")


def test_a_module_inside_a_package_is_the_innermost_one() -> None:
    assert load_module("qmd.cli.app").__name__ == "qmd.cli.app"
