from pathlib import Path

from qmd.cli.manual import render_manual


def test_the_manual_says_what_the_commands_do() -> None:
    manual = Path(__file__).parents[2] / "docs/cli.md"
    assert manual.read_text("utf-8") == render_manual(), "write it anew: python -m qmd.cli.manual > docs/cli.md"
