"""A command that another package brings."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Option

from qmd.cli.invocation import Invocation
from qmd.cli.output import out


def hello(
    invocation: Invocation,
    name: Annotated[str, Argument(help="Whom.")],
    loud: Annotated[bool, Option("--loud", help="Cry it.")] = False,
) -> int:
    """Greet somebody."""
    text = f"{invocation.command} {name}\n"
    out(text.upper() if loud else text)
    return 0
