"""Choice of the screen for results."""

import pytest

from qmd.cli.output import find_screen
from qmd.errors import UsageError

PLAIN = {"TERM": "xterm-256color"}


def colours(environ: dict[str, str], colour: str = "auto", is_terminal: bool = True) -> str | None:
    """Return the colours of the screen, `plain` without colours, None for programs."""
    screen = find_screen({**PLAIN, **environ}, colour, is_terminal)
    return None if screen is None else screen.colours or "plain"


def test_a_terminal_is_drawn_on_in_its_colours() -> None:
    assert colours({}) == "256"
    assert colours({"COLORTERM": "truecolor"}) == "truecolor"
    assert colours({"TERM": "linux"}) == "standard"


def test_a_program_gets_plain_lines() -> None:
    assert colours({}, is_terminal=False) is None
    assert colours({"COLORTERM": "truecolor"}, "never", is_terminal=False) is None


@pytest.mark.parametrize("environ", [{"NO_COLOR": "1"}, {"TERM": "dumb"}, {"CLICOLOR": "0"}])
def test_a_terminal_without_colours_is_still_drawn_on(environ: dict[str, str]) -> None:
    assert colours(environ) == "plain"


@pytest.mark.parametrize("name", ["FORCE_COLOR", "CLICOLOR_FORCE"])
def test_colours_can_be_forced_into_a_pipe(name: str) -> None:
    assert colours({name: "1"}, is_terminal=False) == "256"
    assert colours({name: "0"}, is_terminal=False) is None
    assert colours({name: "1", "TERM": "dumb"}) == "standard"
    assert colours({name: "1", "NO_COLOR": "1"}, is_terminal=False) is None


def test_the_option_beats_the_environment() -> None:
    assert colours({"NO_COLOR": "1"}, "always", is_terminal=False) == "256"
    assert colours({"FORCE_COLOR": "1"}, "never") == "plain"


def test_an_unknown_choice_is_named() -> None:
    with pytest.raises(UsageError, match="unknown --color 'yes'") as error:
        find_screen({}, "yes", is_terminal=True)
    assert error.value.hint == "Valid: auto, always, never"
