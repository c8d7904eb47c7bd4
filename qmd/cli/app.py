"""Entry point: find the command, parse its arguments, run it, and report failures.

Typer is imported with the module of the command, so `qmd --version` and unknown commands start without it.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from itertools import pairwise

import qmd
from qmd.cli.commands import COMPLETION_REQUEST, NAMES, WORKERS, foreign_commands, group_of
from qmd.cli.output import (
    find_screen,
    flush_result,
    flush_streams,
    out,
    prepare_streams,
    report,
    report_unexpected,
    run_quietly,
    say,
    set_message_colours,
    stderr_is_terminal,
    stdout_is_terminal,
    warn,
)
from qmd.cli.parser import (
    Arguments,
    BuiltCommand,
    DeclaredOptions,
    all_options,
    arrange,
    build_command,
    find_command,
    is_option,
)
from qmd.errors import (
    EXIT_FAILURE,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_USAGE,
    NotFoundError,
    QmdError,
    UsageError,
    nearest_name,
)
from qmd.file_names import typed_text

EXIT_BROKEN_PIPE = 141


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
        # A second interrupt arrived while the first was reported.
        return EXIT_INTERRUPTED
    finally:
        flush_streams()


def _run_reporting(argv: list[str]) -> int:
    """Run one command, report its failure, and return the exit status."""
    try:
        status = _run(argv)
        flush_result()
    except QmdError as exc:
        return report(exc)
    except KeyboardInterrupt as exc:
        say(f"interrupted: {str(exc) or 'the work done so far is kept; run the same command to continue'}")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        raise
    except Exception as exc:
        if os.environ.get("QMD_DEBUG"):
            raise
        return report_unexpected(exc)
    return status


def _run(argv: list[str]) -> int:
    if os.environ.get(COMPLETION_REQUEST):
        from qmd.cli.shell import answer_shell

        return answer_shell()
    if any("\0" in argument for argument in argv):
        raise UsageError("an argument contains a NUL character, which is not allowed in names and text")
    if argv[:1] in (["--version"], ["-v"]) or argv == ["version"]:
        return _print_version()
    if argv in ([], ["--help"], ["-h"]):
        return _print_help(arrange(argv, DeclaredOptions()))
    found = find_command(argv, NAMES)
    return _run_without_command(argv) if found is None else _run_command(*found)


def _run_command(command: BuiltCommand, args: Sequence[str], *, is_quiet: bool = False) -> int:
    spec = command.spec
    try:
        arguments = arrange(args, command.declared)
        if "--version" in arguments.flags:
            if command.declared.is_search:
                say("hint: -v prints the version; to exclude a word: qmd search 'oven -bread'")
            return _print_version()
        if "--skill" in arguments.flags:
            return _run(["skill", "show"])
        if "--help" in arguments.flags:
            from qmd.cli.help import command_help, describe

            return _show_help(command_help(describe(command)), arguments)
        if "--quiet" in arguments.settings and not is_quiet:
            has_result = not re.fullmatch(WORKERS, spec.name)
            return run_quietly(lambda: _run_command(command, args, is_quiet=True), has_result=has_result)
        colour = arguments.settings.get("--color", "auto")
        if stderr_is_terminal():
            set_message_colours(colour)
        for warning in arguments.warnings:
            warn(warning)
        values = command.read(arguments)
        from qmd.cli.invocation import Invocation, working_folder

        invocation = Invocation(
            spec.name,
            dict(os.environ),
            working_folder(),
            find_screen(os.environ, colour, stdout_is_terminal()),
            "--no-pager" in arguments.settings,
            # Messages to a program stay plain whatever --color and the environment say.
            find_screen(os.environ, colour, is_terminal=True) if stderr_is_terminal() else None,
        )
        status: int = command.function(invocation, **command.bind(values))
    except NotFoundError as error:
        # Scripts read 1 as "it does not exist", and any other status as a failure.
        return EXIT_FAILURE if report(error) and spec.name.startswith(("collection ", "context ")) else error.exit_code
    except UsageError as error:
        from qmd.cli.help import example

        error.hint = error.hint or example(spec, args)
        raise
    return status


def _print_version() -> int:
    from qmd.distributions import overwritten

    out(f"qmd {qmd.__version__}\n")
    if twins := overwritten():
        warn(f"{' and '.join(twins[:2])} are both installed and overwrite each other's files; see: qmd doctor")
    return EXIT_OK


def _run_without_command(argv: list[str]) -> int:
    arguments = Arguments([], argv, [], [], {})
    is_known = is_option(argv[0]) or argv[0] == "help" or group_of(argv[0])
    if is_known and any(is_option(argument) for argument in argv):
        arguments = arrange(argv, DeclaredOptions(options=all_options()))
    if "--version" in arguments.flags:
        return _print_version()
    if "--skill" in arguments.flags:
        return _run(["skill", "show"])
    name, *rest = arguments.words or ["help"]
    if group_of(name):
        return _run_group(name, rest, arguments)
    if name == "help":
        return _run_help(rest, arguments)
    foreign = find_command(argv, foreign_commands())
    if foreign is not None:
        return _run_command(*foreign)
    from qmd.cli.suggestions import is_question, unknown_command

    if is_question(name, rest, lambda: arrange(argv, build_command("query").declared).words):
        if not {"-q", "--quiet"} & {*argv}:
            from shlex import join

            say(f"running: qmd query {join(argv)}")
        return _run(["query", *argv])
    raise unknown_command(name, rest)


def _run_help(words: Sequence[str], arguments: Arguments) -> int:
    """Run `qmd help`, with a command, a group or a topic."""
    from qmd.cli.topics import TOPICS

    if words in ([], ["help"], ["all"]):
        return _print_help(arguments)
    if words[0] in TOPICS:
        return _show_help(TOPICS[words[0]], arguments)
    if group_of(words[0]) or find_command(words, NAMES) or find_command(words, foreign_commands()):
        return _run([*words, "--help", *(f"{name}={value}" for name, value in arguments.settings.items())])
    from qmd.cli.suggestions import unknown_command

    raise unknown_command(words[0], ())


def _print_help(arguments: Arguments) -> int:
    from qmd.cli.invocation import working_folder
    from qmd.config.paths import locate

    index = next((value for option, value in pairwise(arguments.options) if option == "--index"), None)
    locations = locate(index, working_folder(), os.environ)
    if arguments.words or "--help" in arguments.flags:
        from qmd.cli.commands import all_commands
        from qmd.cli.help import general_help

        text = general_help(all_commands(), locations.place, is_complete="all" in arguments.words)
        return _show_help(text, arguments)
    from qmd.cli.help import first_page

    _show_help(first_page(locations, os.environ), arguments)
    # Programs that probe for qmd without arguments expect a failure.
    return EXIT_FAILURE


def _show_help(text: str, arguments: Arguments) -> int:
    screen = find_screen(os.environ, arguments.settings.get("--color", "auto"), stdout_is_terminal())
    if screen is None:
        out(text)
        return EXIT_OK
    from qmd.cli.help import paint
    from qmd.cli.pager import page

    page(paint(text, screen), None if "--no-pager" in arguments.settings else screen, os.environ)
    return EXIT_OK


def _run_group(name: str, words: Sequence[str], arguments: Arguments) -> int:
    """Run `qmd collection` or `qmd context` without a known sub-command."""
    wants_help = "--help" in arguments.flags or words[:1] == ["help"]
    known = [spec.name.partition(" ")[2] for spec in group_of(name)]
    if words and not wants_help:
        near = nearest_name(words[0], known)
        meant = f"did you mean 'qmd {name} {near}'? " if near else ""
        hint = f"{meant}Available: {', '.join(known)}; run 'qmd {name} help' for usage"
        raise UsageError(f"Unknown subcommand: {words[0]}", hint)
    from qmd.cli.help import group_help

    # Programs read the list of `qmd collection` on stdout; `qmd context` is an error because its text is missing.
    is_error = name == "context" and not wants_help
    text = group_help(name, group_of(name))
    if is_error:
        say("error: no subcommand given", *text.splitlines())
        return EXIT_USAGE
    return _show_help(text, arguments)
