"""`completion`, and the answers to its scripts by typer, which implements the protocols of the shells."""

from __future__ import annotations

import os
import re
from contextlib import redirect_stderr, redirect_stdout, suppress
from copy import copy
from inspect import Parameter
from io import StringIO
from typing import Annotated, Any, Literal

from typer import Argument, Option, Typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from qmd.cli.commands import COMMANDS, COMPLETION_REQUEST, NAMES, group_of
from qmd.cli.completion import one_of
from qmd.cli.invocation import Invocation
from qmd.cli.options import Index
from qmd.cli.output import COLOUR_CHOICES, out
from qmd.cli.parser import find_command, make_typer
from qmd.cli.topics import TOPICS
from qmd.errors import EXIT_OK

_OPTIONS = {
    "index": Index,
    "color": Annotated[
        str | None, Option("--color", metavar="WHEN", help="Colours.", autocompletion=one_of(*COLOUR_CHOICES))
    ],
    "quiet": Annotated[bool | None, Option("-q", "--quiet", help="Print only results and errors.")],
    "no_pager": Annotated[bool | None, Option("--no-pager", help="Show long results without a pager.")],
}
"""Options of every command; the parser reads all but the first before typer."""


def print_script(
    invocation: Invocation,
    shell: Annotated[Literal["bash", "zsh", "fish", "powershell"], Argument(help="The shell.")],
) -> int:
    os.environ[COMPLETION_REQUEST] = f"source_{shell}"
    try:
        return answer_shell()
    finally:
        del os.environ[COMPLETION_REQUEST]


def answer_shell() -> int:
    """Answer the completion request in the environment variables."""
    # Warnings and questions would appear in the line that the user types.
    with suppress(Exception, SystemExit), redirect_stderr(StringIO()), redirect_stdout(StringIO()) as answer:
        _program().main([], "qmd")
    text = answer.getvalue()
    if os.environ[COMPLETION_REQUEST] == "complete_bash":
        # The script inserts the values without quotes.
        text = re.sub(r"[^\w\n./:@+=,%-]", r"\\\g<0>", text)
    out(text)
    return EXIT_OK


class _Program(TyperGroup):
    """All commands by name and help; only the named command is complete."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Load the named command and move its name to the front, since options can precede it."""
        found = find_command(args, NAMES)
        if found is not None:
            command, rest = found
            names = command.spec.name.split()
            group: Any = self
            for name in names[:-1]:
                group = group.commands[name]
            group.commands[names[-1]] = copy(command.typer)
            group.commands[names[-1]].params = [*command.typer.params, *_options()[1:]]
            args = [*names, *rest]
        return super().parse_args(ctx, args)


def _program() -> Any:
    app = Typer(cls=_Program, rich_markup_mode=None)
    app.callback()(lambda: None)
    root: Any = get_command(app)
    commands: dict[str, Any] = {}
    for spec in COMMANDS:
        first, _, second = spec.name.partition(" ")
        if second and first not in commands:
            below = ", ".join(one.name.partition(" ")[2] for one in group_of(first))
            commands[first] = TyperGroup(name=first, help=f"{first.capitalize()}: {below}.")
        group = commands[first].commands if second else commands
        group[second or first] = TyperCommand(second or first, help=spec.help)
    pages = {**TOPICS, "all": "All commands."}
    topics = {one: TyperCommand(one, help=text.partition("\n")[0]) for one, text in pages.items()}
    commands["help"] = TyperGroup(name="help", help="Show the help of a command.", commands={**commands, **topics})
    root.commands = commands
    # Typer's own options would install scripts.
    root.params = _options()
    return root


def _options() -> list[Any]:
    parameters = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=kind) for name, kind in _OPTIONS.items()
    ]
    params: list[Any] = make_typer("qmd", "", parameters).params
    return params
