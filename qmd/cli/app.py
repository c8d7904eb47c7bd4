"""Entry point: finds the command, parses its options, runs it, and turns every failure into a message and a status."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from itertools import pairwise
from typing import Any

import qmd
from qmd.cli.arguments import VALUE_OPTIONS, Arguments, find_command, is_option, sort_arguments
from qmd.cli.declare import (
    CommandFunction,
    bind_arguments,
    check_numbers,
    declared_options,
    declared_parameters,
    typer_command,
)
from qmd.cli.failures import report, report_unforeseen
from qmd.cli.output import flush_result, out, prepare_streams, say, settle_streams, warn
from qmd.errors import EXIT_FAILURE, EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE, QmdError, UsageError, nearest_name
from qmd.names import typed_text
from qmd.quick_dataclasses import dataclass

EXIT_BROKEN_PIPE = 141


@dataclass(frozen=True, slots=True)
class CommandSpec:
    """One command: `function` of `module` runs it. `usage` is what follows `qmd `, `help` one line."""

    name: str
    module: str
    function: str
    usage: str
    help: str


COMMANDS: tuple[CommandSpec, ...] = (
    CommandSpec(
        "index",
        "qmd.cli.indexing",
        "index",
        "index [options] [path…]",
        "Make folders or files searchable, or refresh what is known.",
    ),
    CommandSpec("search", "qmd.cli.search", "find", "search [options] <query>", "Search by words (BM25); no models."),
    CommandSpec("vsearch", "qmd.cli.search", "find", "vsearch [options] <query>", "Search by meaning (vectors)."),
    CommandSpec(
        "query",
        "qmd.cli.search",
        "find",
        "query [options] <query>",
        "Search by words and meaning, reranked: best results.",
    ),
    CommandSpec(
        "get",
        "qmd.cli.documents",
        "get",
        "get <filepath>[:from[:count]] [--from <line>] [-l <lines>] [--no-line-numbers] [--full-path]",
        "Show one document or some of its lines.",
    ),
    CommandSpec(
        "multi-get",
        "qmd.cli.documents",
        "multi_get",
        "multi-get <pattern> [-l <lines>] [--max-bytes <bytes>] [--no-line-numbers] [--full-path]"
        " [--format json|csv|md|xml|files]",
        "Show several documents: a glob, or a comma-separated list.",
    ),
    CommandSpec(
        "ls", "qmd.cli.documents", "list_files", "ls [collection[/prefix]]", "List collections or their files."
    ),
    CommandSpec("status", "qmd.cli.status", "status", "status [--json]", "Show what the index holds."),
    CommandSpec("doctor", "qmd.cli.doctor", "doctor", "doctor [--json]", "Check the installation and the index."),
    CommandSpec(
        "bench",
        "qmd.cli.bench",
        "bench",
        "bench <fixture.json|folder|run> [--auto [N]] [--json] [-c <collection>]",
        "Measure how well and how fast it searches.",
    ),
    CommandSpec(
        "collection add",
        "qmd.cli.collections",
        "add",
        "collection add <path> [--name <name>] [--mask <glob>]",
        "Add a folder as a collection and index its words.",
    ),
    CommandSpec(
        "collection list",
        "qmd.cli.collections",
        "list_collections",
        "collection list [--json]",
        "List the collections.",
    ),
    CommandSpec("collection show", "qmd.cli.collections", "show", "collection show <name>", "Show one collection."),
    CommandSpec(
        "collection rename", "qmd.cli.collections", "rename", "collection rename <old> <new>", "Rename a collection."
    ),
    CommandSpec(
        "collection remove", "qmd.cli.collections", "remove", "collection remove <name>", "Forget a collection."
    ),
    CommandSpec(
        "collection include",
        "qmd.cli.collections",
        "include",
        "collection include <name>",
        "Search it when no collection is named.",
    ),
    CommandSpec(
        "collection exclude",
        "qmd.cli.collections",
        "exclude",
        "collection exclude <name>",
        "Search it only when it is named.",
    ),
    CommandSpec(
        "collection update-cmd",
        "qmd.cli.collections",
        "update_command",
        "collection update-cmd <name> [command]",
        "Set or clear the command that 'update' runs first.",
    ),
    CommandSpec(
        "context add",
        "qmd.cli.contexts",
        "add",
        'context add [path] "text" [-c <collection>]',
        "Attach a note to a path; results below it show the note.",
    ),
    CommandSpec("context list", "qmd.cli.contexts", "list_contexts", "context list", "List the notes."),
    CommandSpec("context rm", "qmd.cli.contexts", "remove", "context rm <path>", "Remove a note."),
    CommandSpec(
        "context check", "qmd.cli.contexts", "check", "context check", "List collections and folders without a note."
    ),
    CommandSpec(
        "update", "qmd.cli.indexing", "update", "update [-c <collection>]", "Refresh the words of all collections."
    ),
    CommandSpec(
        "embed", "qmd.cli.indexing", "embed", "embed [-f] [-c <collection>]", "Compute the vectors that are missing."
    ),
    CommandSpec(
        "cleanup", "qmd.cli.indexing", "cleanup", "cleanup [--dry-run]", "Drop what nothing uses, compact the file."
    ),
    CommandSpec("init", "qmd.cli.project", "init", "init", "Start an index of this folder's own, in ./.qmd."),
    CommandSpec(
        "trust",
        "qmd.cli.project",
        "trust",
        "trust [list|revoke]",
        "Let this project's .qmd run commands and choose models.",
    ),
    CommandSpec(
        "mcp",
        "qmd.cli.mcp_command",
        "mcp",
        "mcp [stop] [--http [--host <name>] [--port <n>] [--daemon] [--watch]] [--print-config <client>]",
        "Serve editors and agents over MCP.",
    ),
    CommandSpec(
        "watch",
        "qmd.cli.watch_command",
        "watch",
        "watch [-c <collection>] [--interval <s>] [--no-embed]",
        "Keep the index up to date while files change.",
    ),
    CommandSpec("skill show", "qmd.cli.skills", "show", "skill show", "Print how an agent should use qmd."),
    CommandSpec(
        "skill install",
        "qmd.cli.skills",
        "install",
        "skill install [--global] [--yes] [-f]",
        "Put the skill where agents look for it.",
    ),
    CommandSpec("skills list", "qmd.cli.skills", "list_skills", "skills list [--json]", "List the skills."),
    CommandSpec("skills get", "qmd.cli.skills", "get", "skills get <name>… [--full] [--all] [--json]", "Print skills."),
    CommandSpec("skills path", "qmd.cli.skills", "path", "skills path [name] [--json]", "Print where skills lie."),
    CommandSpec(
        "pull", "qmd.cli.models", "pull", "pull [name…]", "Fetch the larger models (the same as 'models pull')."
    ),
    CommandSpec("models list", "qmd.cli.models", "list_models", "models list [--json]", "List known models."),
    CommandSpec(
        "models pull", "qmd.cli.models", "pull", "models pull [name…]", "Fetch models; resumes what was cut off."
    ),
    CommandSpec(
        "models prepare",
        "qmd.cli.models",
        "prepare",
        "models prepare [name…] [--form <form>]",
        "Make the fastest CPU forms of fetched models.",
    ),
    CommandSpec("models path", "qmd.cli.models", "path", "models path <name>", "Print the folder of a model."),
    CommandSpec("models verify", "qmd.cli.models", "verify", "models verify [name…]", "Check model files."),
    CommandSpec("models remove", "qmd.cli.models", "remove", "models remove <name>", "Delete the files of a model."),
    CommandSpec(
        "models export",
        "qmd.cli.models",
        "export",
        "models export <name> <target>",
        "Copy a model to a folder or archive.",
    ),
    CommandSpec(
        "models import", "qmd.cli.models", "import_", "models import <source>", "Take a model from a folder or archive."
    ),
)

ALIASES: Mapping[str, str] = {
    "vector-search": "vsearch",
    "deep-search": "query",
    "collection info": "collection show",
    "collection mv": "collection rename",
    "collection rm": "collection remove",
    "collection set-update": "collection update-cmd",
    "context remove": "context rm",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: Arguments without the program's name; None takes those of the process.

    Returns:
        The exit status of `qmd.errors`.
    """
    prepare_streams()
    try:
        return _run_reporting([typed_text(argument) for argument in (sys.argv[1:] if argv is None else argv)])
    except BrokenPipeError:
        return EXIT_BROKEN_PIPE
    except KeyboardInterrupt:
        # The second one, while the first was being reported.
        return EXIT_INTERRUPTED
    finally:
        settle_streams()


def _run_reporting(argv: list[str]) -> int:
    """Run one command and say what went wrong; the exit status."""
    try:
        status = _run(argv)
        flush_result()
    except QmdError as exc:
        return report(exc)
    except KeyboardInterrupt:
        say("interrupted: what is done is kept, run the same command to go on")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        raise
    except Exception as exc:
        if os.environ.get("QMD_DEBUG"):
            raise
        return report_unforeseen(exc)
    return status


def _run(argv: list[str]) -> int:
    if any("\0" in argument for argument in argv):
        raise UsageError("an argument holds a NUL character, which no name and no text can have")
    names = {spec.name for spec in COMMANDS}
    name, args = find_command(argv, names | ALIASES.keys())
    options = _options(argv)
    if {"--version", "-v"} & set(options):
        out(f"qmd {qmd.__version__}\n")
        return EXIT_OK
    if "--skill" in options:
        name, args = "skill show", []
    if name is None:
        return _run_without_command(argv, options)
    spec = _spec(ALIASES.get(name, name))
    if spec is not None:
        return _run_command(spec, args)
    if _group(name):
        return _run_group(name, args)
    if name == "help":
        return _print_help(argv)
    raise UsageError(f"Unknown command: {name}", _nearest_hint(name, [*names, *ALIASES]))


def _options(argv: Sequence[str]) -> list[str]:
    """The options among the arguments, without values and without what follows `--`."""
    found: list[str] = []
    rest = iter(argv)
    for argument in rest:
        if argument == "--":
            break
        if is_option(argument):
            found.append(argument)
            if argument in VALUE_OPTIONS:
                next(rest, None)
    return found


def _run_without_command(argv: Sequence[str], options: Sequence[str]) -> int:
    if {"--help", "-h"} & set(options):
        return _print_help(argv)
    if options:
        # An unknown option is the likelier mistake than a forgotten command.
        sort_arguments(argv, {"--help": False, "--version": False, "--index": True}, "")
    _print_help(argv)
    return EXIT_FAILURE


def _print_help(argv: Sequence[str]) -> int:
    from qmd.cli.help import general_help
    from qmd.cli.session import working_folder
    from qmd.config.paths import locate

    index = next((value for option, value in pairwise(argv) if option == "--index"), None)
    out(general_help(COMMANDS, locate(index, working_folder(), os.environ).database))
    return EXIT_OK


def _run_group(name: str, args: Sequence[str]) -> int:
    """`qmd collection` and `qmd context` without a known sub-command."""
    words = [arg for arg in args if not arg.startswith("-")]
    wants_help = bool({"--help", "-h"} & set(args)) or words[:1] == ["help"]
    if words and not wants_help:
        known = [spec.name.partition(" ")[2] for spec in _group(name)]
        hint = f"Available: {', '.join(known)}; run 'qmd {name} help' for usage"
        raise UsageError(f"Unknown subcommand: {words[0]}", hint)
    from qmd.cli.help import group_help

    # A program that lists collections this way reads stdout; a context needs its text, so there it is an error.
    is_error = name == "context" and not wants_help
    text = group_help(name, _group(name))
    if is_error:
        say(text.removesuffix("\n"))
        return EXIT_USAGE
    out(text)
    return EXIT_OK


def _run_command(spec: CommandSpec, args: Sequence[str]) -> int:
    function = _load(spec)
    parameters = declared_parameters(function)
    arguments = sort_arguments(args, declared_options(parameters), spec.name)
    for warning in arguments.warnings:
        warn(warning)
    values = bind_arguments(parameters, arguments)
    if values is None:
        values = _bind_by_typer(spec, arguments)
    if values is None:
        return EXIT_OK
    check_numbers(parameters, values)
    from qmd.cli.session import Session, working_folder

    return function(Session(spec.name, spec.usage, dict(os.environ), working_folder()), **values)


def _bind_by_typer(spec: CommandSpec, arguments: Arguments) -> dict[str, object] | None:
    """The values of the command's parameters; None when typer did what was wanted, which is to show the help.

    Raises:
        UsageError: The command line is wrong.
    """
    import typer

    command = build_command(spec)
    # The base of every parser error, whichever copy of click this typer brings along.
    parser_error: type[Any] = typer.BadParameter.__mro__[1]
    try:
        # Not command.main: that one swallows interrupts and closed pipes, each with a status of its own.
        with command.make_context(f"qmd {spec.name}", arguments.argv) as context:
            values: dict[str, object] = command.invoke(context)
    except parser_error as exc:
        message = " ".join(exc.format_message().split())
        raise UsageError(f"{message[:1].lower()}{message[1:].rstrip('.')}", f"usage: qmd {spec.usage}") from exc
    except typer.Exit:
        return None
    return values


def build_command(spec: CommandSpec) -> Any:
    """Typer's command of `spec`; imports its module and typer."""
    return typer_command(_load(spec), spec.name, spec.help)


def _load(spec: CommandSpec) -> CommandFunction:
    function: CommandFunction = getattr(import_module(spec.module), spec.function)
    return function


def _spec(name: str) -> CommandSpec | None:
    return next((spec for spec in COMMANDS if spec.name == name), None)


def _group(name: str) -> list[CommandSpec]:
    return [spec for spec in COMMANDS if spec.name.startswith(f"{name} ")]


def _nearest_hint(name: str, names: Iterable[str]) -> str:
    near = nearest_name(name, names)
    return f"did you mean 'qmd {near}'?" if near else "Run 'qmd --help' for usage."
