"""The argument list before typer parses it: which command it names, and what its sloppy spellings mean.

Programs that drive qmd put options anywhere, some pass options that never had an effect, and queries may start with a
dash. What is harmless gets a warning; what is unknown gets an error that names the nearest option. What the options are
comes from the declarations of the commands: `Options` says of each spelling whether it takes a value.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from qmd.errors import UsageError, nearest_name

Options = Mapping[str, bool]

_EVERYWHERE: Mapping[str, str] = {
    **{name: name for name in ("--help", "--version", "--skill")},
    "-h": "--help",
    "-v": "--version",
}
"""Flags that are understood with any command and without one, and what they are called."""

_SETTINGS: Options = {"--color": True, "--no-pager": False}
"""Options of the program, not of a command, and whether they take a value."""

_RENAMED: Mapping[str, str] = {"-k": "-n", "--k": "-n", "--top-k": "-n", "--limit": "-n", "--pattern": "--mask"}
"""Options that other search tools have, and what they mean here."""

_FOREIGN: Options = {**dict.fromkeys(_RENAMED, True), "--path": True, "--context": True}
"""Options of other tools that no command here declares; all take a value."""

_COUNTS = ("-n", "-C", "--min-score")
_WISHES: Mapping[str, str] = {
    "--model": "choose a model by 'models:' in index.yml, or by QMD_EMBED_MODEL; see: qmd models list",
    "--mode": "each mode is a command: qmd search (words), qmd vsearch (meaning), qmd query (both)",
    "--query": 'the query needs no option: qmd query "…"',
    "--no-color": "write: --color never",
    "--no-colour": "write: --color never",
    "--colour": "write: --color auto, always or never",
}
"""Options that people look for, and where what they want is."""

_QUERY_COMMANDS = frozenset({"search", "vsearch", "query"})
_WITH_COMMAND = "collection update-cmd"
"""`update-cmd notes git pull --rebase`: what follows the collection is a command with options of its own."""


class Arguments(NamedTuple):
    """Options with their values first, then the words, in the order given."""

    options: tuple[str, ...]
    words: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()
    """Which of `--help`, `--version` and `--skill` are among the options."""
    settings: Mapping[str, str] = {}
    """What the options of the program were set to; one that takes no value is there, and empty."""

    @property
    def argv(self) -> list[str]:
        """As typer takes them; words can then never be mistaken for options."""
        return [*self.options, "--", *self.words]


class Declared:
    """What one command declares, or nothing; of other options it only asks whether they exist, and how."""

    def __init__(self, command: str, options: Iterable[tuple[str, bool]], elsewhere: Callable[[], Options]) -> None:
        """Take the options of `command`; `elsewhere`, which imports every command, is called where it must be."""
        self.command = command
        self.own: Options = {**dict.fromkeys(_EVERYWHERE, False), **_SETTINGS, **dict(options)}
        self._elsewhere = elsewhere

    def takes_value(self, name: str) -> bool | None:
        """Whether an option takes a value; None where no command has it."""
        known = self.own.get(name, _FOREIGN.get(name))
        return self._elsewhere().get(name) if known is None else known


def find_command(
    argv: Sequence[str], names: Collection[str], declared: Callable[[str], Declared]
) -> tuple[str | None, list[str]]:
    """The command that an argument list names, and the list without it.

    An option before the name belongs to the command, so that only the command can say whether it takes the next
    argument: the first word wins whose own command does not read it as a value.

    Args:
        argv: Without the program's name.
        names: Known commands, `search` or `collection add`.
        declared: What the command of a name declares.

    Returns:
        None when no known command is named.
    """
    for place, word in enumerate(argv):
        followed = [name for name in names if name.startswith(f"{word} ") and name.partition(" ")[2] in argv[place:]]
        candidates = sorted(followed, key=lambda name: argv.index(name.partition(" ")[2], place))
        if word in names:
            candidates.append(word)
        for name in candidates:
            parts = name.split()
            places = [0] if place == 0 and parts == [word] else _first_words(argv, declared(name), len(parts))
            if places[:1] == [place] and [argv[one] for one in places] == parts:
                return name, [argument for one, argument in enumerate(argv) if one not in places]
        if place == 0 and not is_option(word):
            break
    return None, list(argv)


def _first_words(argv: Sequence[str], declared: Declared, count: int) -> list[int]:
    """The places of the first words that are no option's value."""
    places: list[int] = []
    for span, name, _ in _pieces(argv, declared):
        if name == "--" or len(places) == count:
            break
        if name is None:
            places.append(span.start)
    return places


def arrange(args: Sequence[str], declared: Declared) -> Arguments:
    """Separate a command's options from its words, and settle what it does not declare.

    Raises:
        UsageError: An option that no command knows, or one without its value.
    """
    options: list[str] = []
    words: list[str] = []
    warnings: list[str] = []
    asked: list[str] = []
    settings: dict[str, str] = {}
    counted = -1
    for span, name, value in _pieces(args, declared):
        if name == "--":
            words += args[span.stop :]
            break
        if name is None or (declared.command == _WITH_COMMAND and words and name not in declared.own):
            words += args[span.start : span.stop]
            if (
                declared.command in _QUERY_COMMANDS
                and len(words) > 1
                and counted == span.start
                and words[-1].isdecimal()
            ):
                warnings.append(f"'{words[-1]}' is searched for: {args[span.start - 2]} takes one number")
            continue
        if name in _EVERYWHERE:
            asked.append(_EVERYWHERE[name])
        meant = _settle(name, declared, warnings)
        if value is None and declared.takes_value(meant):
            raise UsageError(f"option '{meant}' needs a value")
        counted = span.stop if meant in _COUNTS else -1
        if meant in _SETTINGS:
            settings[meant] = value or ""
        elif meant == "--path" and declared.command == "collection add":
            words.append(value or "")
        elif meant in declared.own:
            options += [meant] if value is None else [meant, value]
    return Arguments(tuple(options), tuple(words), tuple(warnings), tuple(asked), settings)


def _pieces(args: Sequence[str], declared: Declared) -> Iterator[tuple[range, str | None, str | None]]:
    """(places, name, value) of each option and, without a name, of each word, up to and with `--`."""
    places = iter(range(len(args)))
    for place in places:
        name, value, end = None, None, place + 1
        if args[place] == "--":
            name = "--"
        elif is_option(args[place]):
            name, value = _split(args[place], declared)
            if not declared.takes_value(name):
                # `--json=anything` sets the flag, as it always did.
                value = None
            elif value is None and (following := next(places, None)) is not None:
                value, end = args[following], following + 1
        yield range(place, end), name, value
        if name == "--":
            return


def is_option(argument: str) -> bool:
    """Whether an argument can be an option: a lone dash and a phrase with spaces are words."""
    if len(argument) < 2 or not argument.startswith("-"):
        return False
    name = argument.partition("=")[0]
    return not any(character.isspace() for character in name)


def _split(argument: str, declared: Declared) -> tuple[str, str | None]:
    """An option's name and the value attached to it: `--name=value`, `-n5`."""
    if argument.startswith("--"):
        name, equals, value = argument.partition("=")
        return name, value if equals else None
    short, attached = argument[:2], argument[2:].removeprefix("=")
    # A letter glued to a short option is another word's start (`-note`) unless the value is a number.
    if len(argument) > 2 and (short == "-c" or attached.lstrip("-").isdigit()) and declared.takes_value(short):
        return short, attached
    return argument, None


def _settle(name: str, declared: Declared, warnings: list[str]) -> str:
    """The name to go on with for an option that the command may not declare."""
    if name in declared.own:
        return name
    meant = _RENAMED.get(name, "")
    if meant in declared.own:
        warnings.append(f"option '{name}' is read as '{meant}'")
        return meant
    if name == "--path" and declared.command == "collection add":
        warnings.append("option '--path' is read as the path to add")
    elif declared.takes_value(name) is None:
        raise _unknown_option(name, declared)
    else:
        warnings.append(f"option '{name}' has no effect on 'qmd {declared.command}'")
    return name


def _unknown_option(name: str, declared: Declared) -> UsageError:
    if name in _WISHES:
        return UsageError(f"unknown option '{name}'", _WISHES[name])
    near = nearest_name(name, declared.own) if name.startswith("--") else None
    manual = f"see: qmd {declared.command} --help" if declared.command else "see: qmd --help"
    if near:
        hint = f"did you mean '{near}'? {manual}"
    elif name.startswith("--") or declared.command not in _QUERY_COMMANDS:
        hint = manual
    else:
        hint = f"for a word that starts with '-' quote the whole query or put '--' before it; {manual}"
    return UsageError(f"unknown option '{name}'", hint)
