"""From a list of arguments to what a command is called with: its name, its options and its words.

Programs that drive qmd put options anywhere, some pass options that never had an effect, and queries may start with a
dash. What is harmless gets a warning; what is unknown gets an error that names the nearest option. So the list is put
in order here, options first, and typer reads their values. What the options are, the functions of the commands declare.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, cast, get_type_hints

from qmd.cli.commands import COMMANDS, find_spec, usage_of
from qmd.errors import UsageError, nearest_name
from qmd.plugins import Command, load

if TYPE_CHECKING:
    from inspect import Parameter

Options = Mapping[str, bool]
"""Each spelling of an option, and whether it takes a value."""

LARGEST_NUMBER = 1_000_000_000
"""More results, lines, milliseconds or minutes than anyone can mean; SQLite and clocks have limits of their own."""

_FLAGS = ("--help", "--version", "--skill")
_EVERYWHERE: Mapping[str, str] = {**dict(zip(_FLAGS, _FLAGS, strict=True)), "-h": "--help", "-v": "--version"}
"""Flags that are understood with any command and without one, and what they are called."""

_NO_COLOUR = ("--no-color", "--no-colour")
_SETTINGS: Options = {"--color": True, "--no-pager": False, **dict.fromkeys(_NO_COLOUR, False)}
"""Options of the program, not of a command, and whether they take a value."""

_RENAMED: Mapping[str, str] = {
    **dict.fromkeys(("-k", "--k", "--top-k", "--limit", "--max-results", "--max", "--num", "--count"), "-n"),
    "--collections": "-c",
    "--threshold": "--min-score",
    "--pattern": "--mask",
    "--colour": "--color",
    "-j": "--json",
}
"""Options that other search tools have, and what they mean here."""

_FOREIGN: Options = {
    **dict.fromkeys((*_RENAMED, "--path", "--query", "--context"), True),
    **dict.fromkeys(("-j", "--background", "--verbose", "--quiet", "--pretty"), False),
}
"""Options of other tools and of earlier versions that no command declares, and whether they take a value."""

_COUNTS = ("-n", "-C", "--min-score")
_WITH_COMMAND = "collection update-cmd"
"""`update-cmd notes git pull --rebase`: what follows the collection is a command with options of its own."""


class Arguments(NamedTuple):
    """A list of arguments, taken apart."""

    options: list[str]
    """With their values."""
    words: list[str]
    warnings: list[str]
    asked: list[str]
    """Which of `--help`, `--version` and `--skill` are among the options."""
    settings: dict[str, str]
    """What the options of the program were set to; one that takes no value is there, and empty."""

    @property
    def argv(self) -> list[str]:
        """As typer takes them; words can then never be mistaken for options."""
        return [*self.options, "--", *self.words]


class DeclaredOptions:
    """The options of one command, or of the program alone; of others it only asks whether they exist, and how."""

    def __init__(self, command: str = "", options: Options | None = None) -> None:
        self.command = command
        self.own: Options = {**dict.fromkeys(_EVERYWHERE, False), **_SETTINGS, **(options or {})}

    def takes_value(self, name: str) -> bool | None:
        """Whether an option takes a value; None where no command has it."""
        known = self.own.get(name, _FOREIGN.get(name))
        return all_options().get(name) if known is None else known

    def reads_as_word(self, name: str) -> str:
        """What the value of an option of another tool is to the command, which takes it as a word; else empty."""
        if name == "--path" and self.command == "collection add":
            return "the path to add"
        return "the query" if name == "--query" and self.is_search else ""

    @property
    def is_search(self) -> bool:
        """Whether the words are a query, which may hold anything."""
        return self.command in ("search", "vsearch", "query")


# --- which command --------------------------------------------------------------------------------


def find_command(argv: Sequence[str], names: Collection[str]) -> tuple[BuiltCommand, list[str]] | None:
    """The command that an argument list names, and the list without its name; None where it names none.

    An option before the name belongs to the command, so that only the command can say whether it takes the next
    argument: the first word wins whose own command does not read it as a value.

    Args:
        argv: Without the program's name.
        names: Known commands, `search` or `collection add`.
    """
    for place, name in _candidates(argv, names):
        command, parts = build_command(name), name.split()
        is_plain = place == 0 and len(parts) == 1
        places = [0] if is_plain else _first_words(argv, command.declared, len(parts))
        if places[:1] == [place] and [argv[one] for one in places] == parts:
            return command, [argument for one, argument in enumerate(argv) if one not in places]
    return None


def _candidates(argv: Sequence[str], names: Collection[str]) -> Iterator[tuple[int, str]]:
    """(place of its first word, name) of each command that may be meant, at one place the names of two words first."""
    for place, word in enumerate(argv):
        later = argv[place:]
        of_two = [name for name in names if name.startswith(f"{word} ") and name.partition(" ")[2] in later]
        for name in sorted(of_two, key=lambda name: later.index(name.partition(" ")[2])):
            yield place, name
        if word in names:
            yield place, word
        if place == 0 and not is_option(word):
            return


def _first_words(argv: Sequence[str], declared: DeclaredOptions, count: int) -> list[int]:
    """The places of the first words that are no option's value."""
    places: list[int] = []
    for piece in _pieces(argv, declared):
        if piece.name == "--" or len(places) == count:
            break
        if piece.name is None:
            places.append(piece.start)
    return places


# --- options and words ----------------------------------------------------------------------------


def arrange(args: Sequence[str], declared: DeclaredOptions) -> Arguments:
    """Separate a command's options from its words, and settle what it does not declare.

    Raises:
        UsageError: An option that no command knows, or one without its value.
    """
    found = Arguments([], [], [], [], {})
    count_option = None
    for piece in _pieces(args, declared):
        typed = args[piece.start : piece.end]
        is_others = declared.command == _WITH_COMMAND and bool(found.words) and piece.name not in declared.own
        if piece.name == "--":
            found.words.extend(args[piece.end :])
        elif piece.name is not None and not is_others:
            count_option = _take_option(piece.name, piece.value, declared, found)
            continue
        else:
            found.words.extend(typed)
            if count_option and declared.is_search and len(found.words) > 1 and typed[-1].isdecimal():
                found.warnings.append(f"'{typed[-1]}' is searched for: {count_option} takes one number")
        count_option = None
    return found


def _take_option(name: str, value: str | None, declared: DeclaredOptions, found: Arguments) -> str | None:
    """Add an option to what was found; its name, if it takes a count."""
    if name in _EVERYWHERE:
        found.asked.append(_EVERYWHERE[name])
    meant = _settle(name, declared, found.warnings)
    if value is None and declared.takes_value(meant):
        raise UsageError(f"option '{meant}' needs a value")
    if meant in _NO_COLOUR:
        found.settings["--color"] = "never"
    elif meant in _SETTINGS:
        found.settings[meant] = value or ""
    elif declared.reads_as_word(meant):
        found.words.append(value or "")
    elif meant in declared.own:
        found.options.extend([meant] if value is None else [meant, value])
    return name if meant in _COUNTS else None


class _ArgumentPart(NamedTuple):
    """An option with its value, a word (without a name) or `--`, and the places that it takes among the arguments."""

    start: int
    end: int
    name: str | None = None
    value: str | None = None


def _pieces(args: Sequence[str], declared: DeclaredOptions) -> Iterator[_ArgumentPart]:
    """The pieces of a list of arguments up to and with `--`."""
    places = iter(range(len(args)))
    for place in places:
        if args[place] == "--":
            yield _ArgumentPart(place, place + 1, "--")
            return
        if not is_option(args[place]):
            yield _ArgumentPart(place, place + 1)
            continue
        name, value = _split(args[place], declared)
        end = place + 1
        if not declared.takes_value(name):
            # `--json=anything` sets the flag, as it always did.
            value = None
        elif value is None and (following := next(places, None)) is not None:
            value, end = args[following], following + 1
        yield _ArgumentPart(place, end, name, value)


def is_option(argument: str) -> bool:
    """Whether an argument can be an option: a lone dash and a phrase with spaces are words."""
    if len(argument) < 2 or not argument.startswith("-"):
        return False
    name = argument.partition("=")[0]
    return not any(character.isspace() for character in name)


def _split(argument: str, declared: DeclaredOptions) -> tuple[str, str | None]:
    """An option's name and the value attached to it: `--name=value`, `-n5`."""
    if argument.startswith("--"):
        name, equals, value = argument.partition("=")
        return name, value if equals else None
    short, attached = argument[:2], argument[2:].removeprefix("=")
    # A letter glued to a short option is another word's start (`-note`) unless the value is a number.
    if len(argument) > 2 and (short == "-c" or attached.lstrip("-").isdigit()) and declared.takes_value(short):
        return short, attached
    return argument, None


def _settle(name: str, declared: DeclaredOptions, warnings: list[str]) -> str:
    """The name to go on with for an option that the command may not declare."""
    if name in declared.own:
        return name
    meant = _RENAMED.get(name, "")
    if meant in declared.own:
        warnings.append(f"option '{name}' is read as '{meant}'")
        return meant
    if word := declared.reads_as_word(name):
        warnings.append(f"option '{name}' is read as {word}")
    elif declared.takes_value(name) is None:
        raise _unknown_option(name, declared)
    else:
        warnings.append(f"option '{name}' has no effect on 'qmd {declared.command}'")
    return name


def _unknown_option(name: str, declared: DeclaredOptions) -> UsageError:
    near = nearest_name(name, declared.own) if name.startswith("--") else None
    manual = f"see: qmd {declared.command} --help" if declared.command else "see: qmd --help"
    if name == "--model":
        hint = "choose a model by 'models:' in index.yml, or by QMD_EMBED_MODEL; see: qmd models list"
    elif near:
        hint = f"did you mean '{near}'? {manual}"
    elif name.startswith("--") or not declared.is_search:
        hint = manual
    else:
        hint = f"for a word that starts with '-' quote the whole query or put '--' before it; {manual}"
    return UsageError(f"unknown option '{name}'", hint)


# --- typer ----------------------------------------------------------------------------------------


class BuiltCommand:
    """A command with what typer makes of its function.

    The function takes the invocation and then what its signature declares. A parameter that is a record stands for its
    fields: options that several commands share, or that go on together.
    """

    def __init__(self, spec: Command) -> None:
        from inspect import signature

        import qmd.cli.lazy_imports  # noqa: F401 - imports typer and msgspec

        self.spec = spec
        self.function = cast("Callable[..., int]", load(spec.place))  # test_hooks checks each row
        hints = get_type_hints(self.function, include_extras=True)
        # The invocation is no matter of the command line.
        declared = list(signature(self.function).parameters.values())[1:]
        self._hints = {one.name: hints[one.name] for one in declared}
        parameters = [leaf for one in declared for leaf in _leaves(one.name, self._hints[one.name], one.default)]
        self.typer = make_typer(spec.name, spec.help, parameters)

    @cached_property
    def declared(self) -> DeclaredOptions:
        """Its options."""
        return DeclaredOptions(self.spec.name, dict(self.options()))

    def options(self) -> Iterator[tuple[str, bool]]:
        """Each spelling of an option, and whether it takes a value."""
        for one in self.typer.params:
            if one.param_type_name == "option":
                for spelling in (*one.opts, *one.secondary_opts):
                    yield spelling, not one.is_flag

    def read(self, arguments: Arguments) -> dict[str, object]:
        """The values of all options and arguments.

        Raises:
            UsageError: The command line is wrong.
        """
        import typer

        # The base of every parser error, whichever copy of click this typer brings along.
        parser_error: type[Any] = typer.BadParameter.__mro__[1]
        try:
            # Not the command's main: that one swallows interrupts and closed pipes, each with a status of its own.
            with self.typer.make_context(f"qmd {self.spec.name}", arguments.argv) as context:
                values: dict[str, object] = self.typer.invoke(context)
        except parser_error as exc:
            if type(exc).__name__ == "MissingParameter":
                raise UsageError(f"Usage: qmd {usage_of(self.spec)}") from exc
            message = " ".join(exc.format_message().split())
            message = f"{message[:1].lower()}{message[1:].rstrip('.')}"
            raise UsageError(message, self._remedy(arguments)) from exc
        for one in self.typer.params:
            value = values.get(one.name)
            if isinstance(value, int | float) and not -LARGEST_NUMBER <= value <= LARGEST_NUMBER:
                raise UsageError(f"{one.opts[0]} '{value}' is not a number from -{LARGEST_NUMBER} to {LARGEST_NUMBER}")
        return values

    def bind(self, values: Mapping[str, object]) -> dict[str, object]:
        """Return the function's arguments without the invocation; a required one that is empty counts as missing."""
        if any(one.required and values[one.name] in ("", [""]) for one in self.typer.params):
            raise UsageError(f"Usage: qmd {usage_of(self.spec)}")
        return {name: _gathered(name, hint, values) for name, hint in self._hints.items()}

    def _remedy(self, arguments: Arguments) -> str:
        """What to do about a line that cannot be read: a word where none belongs is mostly the name of a collection."""
        usage = f"usage: qmd {usage_of(self.spec)}"
        takes_words = any(one.param_type_name == "argument" for one in self.typer.params)
        if arguments.words and "-c" in self.declared.own and not takes_words:
            return f"did you mean 'qmd {self.spec.name} -c {arguments.words[0]}'? {usage}"
        return usage


@cache
def build_command(name: str) -> BuiltCommand:
    """The command of a name, or of another name that it has; imports its module."""
    return BuiltCommand(find_spec(name))


@cache
def all_options() -> Options:
    """Every option of any command; imports the modules of all commands."""
    return dict(option for spec in COMMANDS for option in build_command(spec.name).options())


def make_typer(name: str, help: str, parameters: Sequence[Parameter]) -> Any:
    """Typer's command with these parameters; when invoked it returns their values by name."""
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


def _leaves(name: str, hint: Any, default: object) -> Iterator[Parameter]:
    """The parameter of that name, or those that the fields of its record stand for."""
    from inspect import Parameter

    if not _is_record(hint):
        yield Parameter(name, Parameter.KEYWORD_ONLY, annotation=hint, default=default)
        return
    defaults = dict(zip(reversed(hint.__struct_fields__), reversed(hint.__struct_defaults__), strict=False))
    for name, one in _fields(hint).items():
        yield from _leaves(name, one, defaults.get(name, Parameter.empty))


@cache
def _fields(record: Any) -> Mapping[str, Any]:
    """What each field of a record is declared as; to find out compiles every annotation."""
    return get_type_hints(record, include_extras=True)


def _gathered(name: str, hint: Any, values: Mapping[str, object]) -> object:
    """The value of a parameter; of a record, with the values of its fields."""
    if not _is_record(hint):
        return values[name]
    return hint(**{name: _gathered(name, one, values) for name, one in _fields(hint).items()})
