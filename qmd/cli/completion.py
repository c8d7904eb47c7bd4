"""What a shell offers when the user presses Tab: commands, options and their values, and the script that asks for them.

Typer speaks the shells' protocols. The values are read from the configuration and the index as they are; whatever
stands in the way of that, there is nothing to offer, and the user's line stays undisturbed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import redirect_stderr, redirect_stdout, suppress
from io import StringIO
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Context, Option, Typer
from typer.core import TyperGroup
from typer.main import get_command

from qmd.cli.app import find_built_command
from qmd.cli.commands import COMMANDS, COMPLETION_REQUEST, NAMES, build_command, find_spec, group_of
from qmd.cli.invocation import Invocation, working_folder
from qmd.cli.output import out
from qmd.cli.screen import CHOICES
from qmd.config.paths import locate
from qmd.errors import EXIT_OK, UsageError

if TYPE_CHECKING:
    from qmd.app.index import Index

_MOST = 500
"""Values that are offered at once; a shell asks before it lists so many."""

_HELP = "help"
_SHELLS = ("bash", "zsh", "fish", "powershell")

# --- values ---------------------------------------------------------------------------------------


def one_of(*names: str) -> Callable[[], list[str]]:
    """The completion of a value that is one of a few names."""
    return lambda: list(names)


def indexes(incomplete: str) -> list[str]:
    """Names of the indexes in the user's cache folder."""
    names = {
        file.stem.removesuffix(".qmd") for file in locate(None, working_folder(), os.environ).cache.glob("*.sqlite")
    }
    return _offered(names, incomplete)


def collections(ctx: Context, incomplete: str) -> list[str]:
    """Names of the configured collections."""
    with _open_index(ctx) as index:
        return _offered((one.name for one in index.collections()), incomplete)


def documents(ctx: Context, incomplete: str) -> list[str]:
    """Documents as `collection/path`, `qmd://` addresses or, behind a `#`, docids."""
    with _open_index(ctx) as index:
        if incomplete.startswith("#"):
            return _offered((document.docid for document in index.documents()), incomplete)
        scheme = "qmd://" if incomplete.startswith("qmd://") else ""
        return _offered((f"{scheme}{path}" for path in _paths(index, incomplete.removeprefix(scheme))), incomplete)


def folders(ctx: Context, incomplete: str) -> list[str]:
    """Collections, and the folders in them."""
    with _open_index(ctx) as index:
        names = {one.name for one in index.indexed_collections()}
        for path in _paths(index, incomplete):
            parts = path.split("/")
            names.update("/".join(parts[:count]) for count in range(2, len(parts)))
        return _offered(names, incomplete)


def models(incomplete: str) -> list[str]:
    """Names of the models that qmd knows."""
    from qmd.inference.models.catalogue import MODELS

    return _offered((record.name for record in MODELS), incomplete)


def _offered(names: Iterable[str], incomplete: str) -> list[str]:
    """The names that the user may mean, without those that would be more than a word in the user's shell.

    A file of a cloned project can be called `$(…)`. For bash `answer_shell` quotes, and fish does so itself.
    """
    quotes = os.environ.get(COMPLETION_REQUEST) in ("complete_bash", "complete_fish")
    is_safe = str.isprintable if quotes else re.compile(r"[\w ./:#@+=,%-]*").fullmatch
    return sorted(name for name in names if name.startswith(incomplete) and is_safe(name))[:_MOST]


def _paths(index: Index, incomplete: str) -> Iterator[str]:
    """`collection/path` of the documents; those of one collection once its name is complete."""
    name, slash, _ = incomplete.partition("/")
    for document in index.documents(name if slash else None):
        yield f"{document.collection}/{document.path}"


def _open_index(ctx: Context) -> Index:
    invocation = Invocation("", "", os.environ, working_folder())
    return invocation.open(invocation.locate(ctx.params.get("index")))


# --- answering ------------------------------------------------------------------------------------


class _Commands(TyperGroup):
    """The program, or a group such as `qmd collection`: a command is built when the line names it."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The words that may come next."""
        names = [spec.name.split() for spec in COMMANDS]
        if self._group(ctx):
            return [second for first, *rest in names for second in rest if first == self._group(ctx)]
        return [*dict.fromkeys(first for first, *_ in names), *([] if ctx.parent else [_HELP])]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command, or the group of commands, of that word."""
        group = self._group(ctx)
        if not group and group_of(cmd_name):
            below = ", ".join(spec.name.partition(" ")[2] for spec in group_of(cmd_name))
            return _Commands(name=cmd_name, help=f"{cmd_name.capitalize()}: {below}.")
        if cmd_name == _HELP and ctx.parent is None:
            return _Commands(name=_HELP, help="Show the help of a command.")
        name = f"{group} {cmd_name}".strip()
        if name not in NAMES:
            return None
        command = build_command(find_spec(name))
        command.params += _settings()
        return command

    def _group(self, ctx: Any) -> str:
        """The first word of the commands that may come next; none for the program and for `qmd help`."""
        return "" if ctx.parent is None or self.name == _HELP else str(self.name)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Bring the command's name to the front: options may stand before it."""
        found = find_built_command(args) if ctx.parent is None else None
        if found is not None:
            spec, _, rest = found
            args = [*spec.name.split(), *rest]
        return super().parse_args(ctx, args)


def answer_shell() -> int:
    """Print what the script of a shell asks for in its variables."""
    app = Typer(cls=_Commands, rich_markup_mode=None)
    app.callback()(_no_options)
    root = get_command(app)
    # The options that help before there is a command; typer's own would install scripts.
    root.params = [one for one in build_command(find_spec("status")).params if one.name == "index"] + _settings()
    # A line that is being typed is no place for warnings and questions.
    with suppress(Exception, SystemExit), redirect_stderr(StringIO()), redirect_stdout(StringIO()) as answer:
        root.main([], "qmd")
    text = answer.getvalue()
    if os.environ[COMPLETION_REQUEST] == "complete_bash":
        # The script puts them on the line as they come.
        text = re.sub(r"[^\w\n./:@+=,%-]", r"\\\g<0>", text)
    out(text)
    return EXIT_OK


def _settings() -> list[Any]:
    """The options of the program, which `spelling` reads before typer sees a line."""

    def options(
        color: Annotated[str, Option("--color", metavar="WHEN", help="Colours.", autocompletion=one_of(*CHOICES))] = "",
        no_pager: Annotated[bool, Option("--no-pager", help="Show long results without a pager.")] = False,
    ) -> None:
        pass

    app = Typer(add_completion=False, rich_markup_mode=None)
    app.command()(options)
    params: list[Any] = get_command(app).params
    return params


def _no_options() -> None:
    """What typer wants in order to make a group."""


def print_script(
    invocation: Invocation,
    shell: Annotated[str | None, Argument(help="The shell.", autocompletion=one_of(*_SHELLS))] = None,
) -> int:
    """Print what makes a shell complete qmd's commands, options and values."""
    if shell is None:
        raise invocation.missing_argument()
    if shell not in _SHELLS:
        raise UsageError(f"unknown shell '{shell}'", f"known: {', '.join(_SHELLS)}")
    os.environ[COMPLETION_REQUEST] = f"source_{shell}"
    try:
        return answer_shell()
    finally:
        del os.environ[COMPLETION_REQUEST]
