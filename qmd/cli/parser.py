"""Parser of the command line: find the command, its options and its words.

Programs put options anywhere, some pass options without effect, and queries may start with a dash. Harmless options get
a warning; unknown ones get an error that names the nearest option. This module sorts the arguments, options first, and
typer reads the values. The functions of the commands declare their options.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache, cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, cast, get_type_hints

from qmd.cli.commands import COMMANDS, IDLE_OPTIONS, find_spec, wrong_usage
from qmd.errors import UsageError
from qmd.plugins import Command, load

if TYPE_CHECKING:
    from inspect import Parameter

Options = Mapping[str, bool]
"""Each spelling of an option, and whether it takes a value."""

LARGEST_NUMBER = 1_000_000_000
"""Upper bound of all numbers; SQLite and clocks have limits of their own."""

_FLAGS = ("--help", "--version", "--skill")
_GLOBAL_FLAGS: Mapping[str, str] = {**dict(zip(_FLAGS, _FLAGS, strict=True)), "-h": "--help", "-v": "--version"}
"""Spelling of a flag that is valid everywhere → its full name."""

_NO_COLOUR = ("--no-color", "--no-colour")
_SETTINGS: Options = {"--color": True, **dict.fromkeys(("--no-pager", "-q", "--quiet", *_NO_COLOUR), False)}
"""Options of the program → whether they take a value."""

_RENAMED: Mapping[str, str] = {
    **dict.fromkeys(("-k", "--k", "--top-k", "--limit", "--max-results", "--max", "--num", "--count"), "-n"),
    "--collections": "-c",
    "--threshold": "--min-score",
    "--pattern": "--mask",
    "--colour": "--color",
    "-j": "--json",
}
"""Option of another search tool → the option with that meaning here."""

_OTHER_TOOLS: Options = {
    **dict.fromkeys((*_RENAMED, "--path", "--query", "--context"), True),
    **dict.fromkeys(("-j", "--background", "--verbose", "--pretty"), False),
}
"""Undeclared option of another tool or an earlier version → whether it takes a value."""

_COUNTS = ("-n", "-C", "--min-score")
_WITH_COMMAND = "collection update-cmd"
"""Command whose words contain another command and its options: `update-cmd notes git pull --rebase`."""


class Arguments(NamedTuple):
    """Sorted arguments of one call."""

    options: list[str]
    """With their values."""
    words: list[str]
    warnings: list[str]
    flags: list[str]
    """Those of `--help`, `--version` and `--skill` that are among the options."""
    settings: dict[str, str]
    """Options of the program and their values; empty for an option without a value."""

    @property
    def argv(self) -> list[str]:
        """Arguments for typer, with words after `--` so that none looks like an option."""
        return [*self.options, "--", *self.words]


class DeclaredOptions:
    """Options of one command, or of the program."""

    def __init__(self, command: str = "", options: Options | None = None) -> None:
        self.command = command
        self.own: Options = {**dict.fromkeys(_GLOBAL_FLAGS, False), **_SETTINGS, **(options or {})}

    def takes_value(self, name: str) -> bool | None:
        """Return whether an option takes a value; None if no command has it."""
        known = self.own.get(name, _OTHER_TOOLS.get(name))
        return all_options().get(name) if known is None else known

    def word_meaning(self, name: str) -> str:
        """Return the meaning of another tool's option whose value the command reads as a word; else empty."""
        if name == "--path" and self.command == "collection add":
            return "the path to add"
        return "the query" if name == "--query" and self.is_search else ""

    @property
    def is_search(self) -> bool:
        """Whether the words are a query, in which any text is allowed."""
        return self.command in ("search", "vsearch", "query")


def find_command(argv: Sequence[str], names: Collection[str]) -> tuple[BuiltCommand, list[str]] | None:
    """Return the command that the arguments name and the other arguments; None without a command.

    An option before the name belongs to the command, and only the command knows whether it takes the next argument: the
    first word wins that its own command does not read as a value.

    Args:
        argv: Without the program's name.
        names: Known commands, `search` or `collection add`.
    """
    for position, name in _candidates(argv, names):
        command, parts = build_command(name), name.split()
        is_plain = position == 0 and len(parts) == 1
        positions = [0] if is_plain else _first_words(argv, command.declared, len(parts))
        if positions[:1] == [position] and [argv[one] for one in positions] == parts:
            return command, [argument for one, argument in enumerate(argv) if one not in positions]
    return None


def _candidates(argv: Sequence[str], names: Collection[str]) -> Iterator[tuple[int, str]]:
    """Yield (position of its first word, name) of each possible command; at one position names of two words first."""
    for position, word in enumerate(argv):
        later = argv[position:]
        of_two = [name for name in names if name.startswith(f"{word} ") and name.partition(" ")[2] in later]
        for name in sorted(of_two, key=lambda name: later.index(name.partition(" ")[2])):
            yield position, name
        if word in names:
            yield position, word
        if position == 0 and not is_option(word):
            return


def _first_words(argv: Sequence[str], declared: DeclaredOptions, count: int) -> list[int]:
    """Return the positions of the first words that are not the value of an option."""
    positions: list[int] = []
    for part in _parts(argv, declared):
        if part.name == "--" or len(positions) == count:
            break
        if part.name is None:
            positions.append(part.start)
    return positions


def arrange(args: Sequence[str], declared: DeclaredOptions) -> Arguments:
    """Separate a command's options from its words, and resolve undeclared options.

    Raises:
        UsageError: An option is unknown, or lacks its value.
    """
    found = Arguments([], [], [], [], {})
    count_option = None
    for part in _parts(args, declared):
        typed = args[part.start : part.end]
        is_others = declared.command == _WITH_COMMAND and bool(found.words) and part.name not in declared.own
        if part.name == "--":
            found.words.extend(args[part.end :])
        elif part.name is not None and not is_others:
            count_option = _add_option(part.name, part.value, declared, found)
            continue
        else:
            found.words.extend(typed)
            if count_option and declared.is_search and len(found.words) > 1 and typed[-1].isdecimal():
                found.warnings.append(f"'{typed[-1]}' is part of the query: {count_option} takes one number")
        count_option = None
    return found


def _add_option(name: str, value: str | None, declared: DeclaredOptions, found: Arguments) -> str | None:
    """Add an option to the arguments; return its name if it takes a count."""
    if name in _GLOBAL_FLAGS:
        found.flags.append(_GLOBAL_FLAGS[name])
    meant = _resolve_name(name, value, declared, found.warnings)
    if value is None and declared.takes_value(meant):
        raise UsageError(f"option '{name}' needs a value")
    if meant in _NO_COLOUR:
        found.settings["--color"] = "never"
    elif meant in _SETTINGS:
        found.settings["--quiet" if meant == "-q" else meant] = value or ""
    elif declared.word_meaning(meant):
        found.words.append(value or "")
    elif meant in declared.own:
        found.options.extend([meant] if value is None else [meant, value])
    return name if meant in _COUNTS else None


class _ArgumentPart(NamedTuple):
    """An option with its value, a word (without a name) or `--`, with its positions in the arguments."""

    start: int
    end: int
    name: str | None = None
    value: str | None = None


def _parts(args: Sequence[str], declared: DeclaredOptions) -> Iterator[_ArgumentPart]:
    """Yield the parts of the arguments, up to and including `--`."""
    positions = iter(range(len(args)))
    for position in positions:
        if args[position] == "--":
            yield _ArgumentPart(position, position + 1, "--")
            return
        if not is_option(args[position]):
            yield _ArgumentPart(position, position + 1)
            continue
        name, value = _split(args[position], declared)
        end = position + 1
        if name == "--hook" and value is None and args[end : end + 1] not in (["prompt"], ["session"]):
            value = "prompt"  # the one option whose value may be missing
        if not declared.takes_value(name):
            # `--json=anything` sets the flag.
            value = None
        elif value is None and (following := next(positions, None)) is not None:
            value, end = args[following], following + 1
        yield _ArgumentPart(position, end, name, value)


def is_option(argument: str) -> bool:
    """Return whether an argument can be an option; a lone dash and a phrase with spaces are words."""
    if len(argument) < 2 or not argument.startswith("-"):
        return False
    name = argument.partition("=")[0]
    return not any(character.isspace() for character in name)


def _split(argument: str, declared: DeclaredOptions) -> tuple[str, str | None]:
    """Return the name of an option and the value attached to it: `--name=value`, `-n5`."""
    if argument.startswith("--"):
        name, equals, value = argument.partition("=")
        return name, value if equals else None
    short, attached = argument[:2], argument[2:].removeprefix("=")
    # Text after a short option starts another word (`-note`) unless it is a number.
    if len(argument) > 2 and (short == "-c" or attached.lstrip("-").isdigit()) and declared.takes_value(short):
        return short, attached
    return argument, None


def _resolve_name(name: str, value: str | None, declared: DeclaredOptions, warnings: list[str]) -> str:
    """Return the name that the command declares for an option, and add a warning where they differ."""
    if name in declared.own and name not in IDLE_OPTIONS.get(declared.command, ()):
        return name
    from qmd.cli.suggestions import HABITS, unknown_option

    # These take no value in rg, and a number in other programs.
    is_known = declared.takes_value(name) is not None and (name not in ("-l", "--count") or (value or "").isdecimal())
    meant = _RENAMED.get(name, "")
    if meant in declared.own and is_known:
        warnings.append(f"option '{name}' is read as '{meant}'")
        return meant
    if word := declared.word_meaning(name):
        warnings.append(f"option '{name}' is read as {word}")
    elif not is_known:
        raise unknown_option(name, declared.command, declared.own, is_search=declared.is_search)
    else:
        habit = f"; {HABITS[name]}" if declared.is_search and name in HABITS else ""
        warnings.append(f"option '{name}' has no effect on 'qmd {declared.command}'{habit}")
    return name


class BuiltCommand:
    """A command with its function and typer's parser.

    The function takes the invocation and other parameters. A record among them means its fields, which are options that
    several commands share.
    """

    def __init__(self, spec: Command) -> None:
        from inspect import signature

        import qmd.cli.lazy_imports  # noqa: F401 - imports typer and msgspec

        self.spec = spec
        self.function = cast("Callable[..., int]", load(spec.place))  # test_hooks checks each row
        hints = get_type_hints(self.function, include_extras=True)
        # The invocation is not an option.
        declared = list(signature(self.function).parameters.values())[1:]
        self._hints = {one.name: hints[one.name] for one in declared}
        parameters = [leaf for one in declared for leaf in _flatten(one.name, self._hints[one.name], one.default)]
        self.typer = make_typer(spec.name, spec.help, parameters)

    @cached_property
    def declared(self) -> DeclaredOptions:
        return DeclaredOptions(self.spec.name, dict(self.options()))

    def options(self) -> Iterator[tuple[str, bool]]:
        """Yield each spelling of an option, and whether it takes a value."""
        for one in self.typer.params:
            if one.param_type_name == "option":
                for spelling in (*one.opts, *one.secondary_opts):
                    yield spelling, not one.is_flag

    def read(self, arguments: Arguments) -> dict[str, object]:
        """Return the values of all options and arguments.

        Raises:
            UsageError: The command line is wrong.
        """
        import typer

        # The base class of parser errors in the copy of click that this typer has.
        parser_error: type[Any] = typer.BadParameter.__mro__[1]
        try:
            # The command's `main` would catch interrupts and closed pipes.
            with self.typer.make_context(f"qmd {self.spec.name}", arguments.argv) as context:
                values: dict[str, object] = self.typer.invoke(context)
        except parser_error as exc:
            raise self._explain(exc, arguments) from exc
        for one in self.typer.params:
            value = values.get(one.name)
            if isinstance(value, int):
                values[one.name] = max(-LARGEST_NUMBER, min(value, LARGEST_NUMBER))
            elif isinstance(value, float) and not -LARGEST_NUMBER <= value <= LARGEST_NUMBER:
                raise UsageError(f"{one.opts[0]} '{value}' is not a number from -{LARGEST_NUMBER} to {LARGEST_NUMBER}")
        return values

    def bind(self, values: Mapping[str, object]) -> dict[str, object]:
        """Return the function's arguments without the invocation; a required one that is empty counts as missing."""
        for one in self.typer.params:
            if one.required and values[one.name] in ("", [""]):
                raise self._missing(one)
        return {name: _build_value(name, hint, values) for name, hint in self._hints.items()}

    def _explain(self, error: Any, arguments: Arguments) -> UsageError:
        """Return an error of typer's parser in the words of qmd."""
        from qmd.cli.suggestions import describe_values

        wrong = getattr(error, "param", None)
        if type(error).__name__ == "MissingParameter":
            return self._missing(wrong)
        takes = [one.name for one in self.typer.params if one.param_type_name == "argument"]
        if wrong is None:
            # A word too many is usually the name of a collection.
            extra = arguments.words[len(takes)]
            meant = f"did you mean 'qmd {self.spec.name} -c {extra}'?" if "-c" in self.declared.own else None
            return wrong_usage(self.spec, f"unexpected argument '{extra}'", meant)
        values = [*zip(takes, arguments.words, strict=False), *pairwise(arguments.options)]
        name, value = next(one for one in reversed(values) if one[0] in wrong.opts)
        needs_words = self.declared.is_search or any(one.required for one in self.typer.params)
        is_value = f"has taken '{value}', which is" if needs_words and not arguments.words else f"'{value}' is"
        return wrong_usage(self.spec, f"{name} {is_value} not {describe_values(wrong.type)}")

    def _missing(self, parameter: Any) -> UsageError:
        return wrong_usage(self.spec, f"no {parameter.name.replace('_', ' ')} given")


@cache
def build_command(name: str) -> BuiltCommand:
    """Return the command with this name or alias; imports its module."""
    return BuiltCommand(find_spec(name))


@cache
def all_options() -> Options:
    """Return the options of all commands; imports their modules."""
    return dict(option for spec in COMMANDS for option in build_command(spec.name).options())


def make_typer(name: str, help: str, parameters: Sequence[Parameter]) -> Any:
    """Return typer's command with these parameters, which returns their values by name."""
    from inspect import Signature

    import typer

    def collect(**values: object) -> dict[str, object]:
        return values

    collect.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    settings = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
    app.command(name=name, help=help, context_settings=settings)(collect)
    return typer.main.get_command(app)


def _is_record(hint: object) -> bool:
    return hasattr(hint, "__struct_fields__")


def _flatten(name: str, hint: Any, default: object) -> Iterator[Parameter]:
    """Yield the parameter, or one for each field of its record."""
    from inspect import Parameter

    if not _is_record(hint):
        yield Parameter(name, Parameter.KEYWORD_ONLY, annotation=hint, default=default)
        return
    defaults = dict(zip(reversed(hint.__struct_fields__), reversed(hint.__struct_defaults__), strict=False))
    for name, one in _fields(hint).items():
        yield from _flatten(name, one, defaults.get(name, Parameter.empty))


@cache
def _fields(record: Any) -> Mapping[str, Any]:
    """Return the types of the fields of a record; cached because this compiles every annotation."""
    return get_type_hints(record, include_extras=True)


def _build_value(name: str, hint: Any, values: Mapping[str, object]) -> object:
    """Return the value of a parameter, or a record of the values of its fields."""
    if not _is_record(hint):
        return values[name]
    return hint(**{name: _build_value(name, one, values) for name, one in _fields(hint).items()})
