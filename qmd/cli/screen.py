"""Whether a person reads stdout, and what their terminal can show."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from typing import TYPE_CHECKING

from qmd.errors import UsageError
from qmd.render.drawing import Screen

if TYPE_CHECKING:
    from qmd.render.drawing import Colours

CHOICES = ("auto", "always", "never")
_NO = ("", "0", "false")


def find_screen(environ: Mapping[str, str], colour: str, is_terminal: bool) -> Screen | None:
    """The screen to draw results for; None where a program reads them, which gets plain lines that never change.

    What was asked on the command line beats `NO_COLOR`, that beats `FORCE_COLOR` and `CLICOLOR_FORCE`, and these beat
    `TERM=dumb` and `CLICOLOR=0`.

    Args:
        environ: The environment variables.
        colour: The value of `--color`.
        is_terminal: Whether stdout is one.

    Raises:
        UsageError: `colour` is none of `CHOICES`.
    """
    if colour not in CHOICES:
        raise UsageError(f"unknown --color '{colour}'", f"Valid: {', '.join(CHOICES)}")
    is_forced = any(environ.get(name, "").lower() not in _NO for name in ("FORCE_COLOR", "CLICOLOR_FORCE"))
    if colour == "auto":
        if environ.get("NO_COLOR"):
            colour = "never"
        elif is_forced:
            colour = "always"
        elif environ.get("TERM") == "dumb" or environ.get("CLICOLOR") == "0":
            colour = "never"
    if not is_terminal and colour != "always":
        return None
    size = shutil.get_terminal_size()
    return Screen(size.columns, size.lines, None if colour == "never" else _colours(environ))


def _colours(environ: Mapping[str, str]) -> Colours:
    if environ.get("COLORTERM", "").lower() in ("truecolor", "24bit") or environ.get("WT_SESSION"):
        return "truecolor"
    return "256" if environ.get("TERM", "").endswith("256color") else "standard"
