"""What is made on first use is what was asked for."""

from qmd.lazy import load_module


def test_a_module_inside_a_package_is_the_innermost_one() -> None:
    assert load_module("qmd.cli.app").__name__ == "qmd.cli.app"
