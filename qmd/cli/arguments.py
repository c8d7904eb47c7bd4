"""The argument list before the option parser sees it: which command it names, and which sloppy spellings it means.

Programs that drive qmd put options anywhere, some pass options that never had an effect, and queries may start with a
dash. What is harmless gets a warning; what is unknown gets an error that names the nearest option.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from qmd.errors import UsageError, nearest_name
from qmd.quick_dataclasses import dataclass

VALUE_OPTIONS = frozenset(
    [
        "--index",
        "-c",
        "--collection",
        "-n",
        "--n",
        "-l",
        "--l",
        "--from",
        "--format",
        "--min-score",
        "--name",
        "--mask",
        "--glob",
        "--pattern",
        "--path",
        "--intent",
        "--candidate-limit",
        "-C",
        "--chunk-strategy",
        "--budget",
        "--max-bytes",
        "--max-docs-per-batch",
        "--max-batch-mb",
        "--timeout",
        "--port",
        "--host",
        "--context",
        "-k",
        "--top-k",
        "--limit",
        "--k",
        "--backends",
        "--compare",
        "--file-format",
        "--form",
        "--interval",
        "--print-config",
        "--qrels",
        "--queries",
        "--save-run",
        "--token-file",
    ]
)
"""Every option of any command that takes a value: needed to tell values from words before the command is known."""

FLAGS = frozenset(
    [
        "--help",
        "-h",
        "--version",
        "-v",
        "--skill",
        "--global",
        "--yes",
        "--all",
        "--full",
        "--csv",
        "--md",
        "--xml",
        "--files",
        "--json",
        "--explain",
        "--force",
        "-f",
        "--pull",
        "--refresh",
        "--progress",
        "--dry-run",
        "--line-numbers",
        "--no-line-numbers",
        "--full-path",
        "--no-rerank",
        "--rerank",
        "--no-gpu",
        "--http",
        "--daemon",
        "--expand",
        "--no-expand",
        "--auto",
        "--embed",
        "--no-embed",
        "--verify",
        "--watch",
    ]
)

_RENAMED: Mapping[str, str] = {"-k": "-n", "--k": "-n", "--top-k": "-n", "--limit": "-n", "--pattern": "--mask"}
"""Options that other search tools have, and what they mean here."""

_QUERY_COMMANDS = frozenset({"search", "vsearch", "query"})


@dataclass(frozen=True, slots=True)
class Arguments:
    """Options with their values first, then the words, in the order given."""

    options: tuple[str, ...]
    words: tuple[str, ...]
    warnings: tuple[str, ...] = ()

    @property
    def argv(self) -> list[str]:
        """As an option parser takes them; words can then never be mistaken for options."""
        return [*self.options, "--", *self.words]


def find_command(argv: Sequence[str], names: Collection[str]) -> tuple[str | None, list[str]]:
    """The longest command name that the first words spell, and the arguments without it.

    Args:
        argv: Without the program's name.
        names: Known commands, `search` or `collection add`.

    Returns:
        None when there is no word at all; the first word when it begins no known name.
    """
    places = _word_places(argv, 2)
    for length in range(len(places), 0, -1):
        name = " ".join(argv[place] for place in places[:length])
        if name in names or length == 1:
            used = set(places[:length])
            return name, [argument for place, argument in enumerate(argv) if place not in used]
    return None, list(argv)


def _word_places(argv: Sequence[str], limit: int) -> list[int]:
    places: list[int] = []
    skip = False
    for place, argument in enumerate(argv):
        if skip:
            skip = False
        elif argument == "--" or len(places) == limit:
            break
        elif not is_option(argument):
            places.append(place)
        else:
            skip = argument in VALUE_OPTIONS
    return places


def is_option(argument: str) -> bool:
    """Whether an argument can be an option: a lone dash and a phrase with spaces are words."""
    if len(argument) < 2 or not argument.startswith("-"):
        return False
    name = argument.partition("=")[0]
    return not any(character.isspace() for character in name)


def sort_arguments(args: Sequence[str], known: Mapping[str, bool], command: str) -> Arguments:
    """Separate a command's options from its words, and settle what it does not declare.

    Args:
        args: What follows the command's name.
        known: Each spelling of an option that the command declares → whether it takes a value.
        command: Its name, for messages.

    Raises:
        UsageError: An option that no command knows, or one without its value.
    """
    options: list[str] = []
    words: list[str] = []
    warnings: list[str] = []
    rest = list(args)
    while rest:
        argument = rest.pop(0)
        if argument == "--":
            words += rest
            break
        if not is_option(argument):
            words.append(argument)
            continue
        name, value = _split(argument, known)
        if name not in known and command == "collection update-cmd" and words:
            # `update-cmd notes git pull --rebase`: what follows the collection is a command with options of its own.
            words.append(argument)
            continue
        if name not in known:
            name = _settle(name, known, command, warnings)
        takes_value = known.get(name, name in VALUE_OPTIONS)
        if takes_value and value is None:
            if not rest:
                raise UsageError(f"option '{name}' needs a value")
            value = rest.pop(0)
        if name == "--path" and command == "collection add":
            words.append(value or "")
        elif name in known:
            # `--json=anything` sets the flag, as it always did.
            options += [name, value] if takes_value and value is not None else [name]
    return Arguments(tuple(options), tuple(words), tuple(warnings))


def _split(argument: str, known: Mapping[str, bool]) -> tuple[str, str | None]:
    """An option's name and the value attached to it: `--name=value`, `-n5`."""
    if argument.startswith("--"):
        name, equals, value = argument.partition("=")
        return name, value if equals else None
    if len(argument) > 2:
        short = argument[:2]
        attached = argument[2:].removeprefix("=")
        # A letter glued to a short option is another word's start (`-note`) unless the value is a number.
        if known.get(short, short in VALUE_OPTIONS) and (short in ("-c",) or attached.lstrip("-").isdigit()):
            return short, attached
    return argument, None


def _settle(name: str, known: Mapping[str, bool], command: str, warnings: list[str]) -> str:
    """The name to go on with for an option that the command does not declare."""
    meant = _RENAMED.get(name, "")
    if meant in known:
        warnings.append(f"option '{name}' is read as '{meant}'")
        return meant
    if name == "--path" and command == "collection add":
        warnings.append("option '--path' is read as the path to add")
        return name
    if name in VALUE_OPTIONS or name in FLAGS:
        warnings.append(f"option '{name}' has no effect on 'qmd {command}'")
        return name
    raise _unknown_option(name, known, command)


def _unknown_option(name: str, known: Mapping[str, bool], command: str) -> UsageError:
    near = nearest_name(name, known) if name.startswith("--") else None
    manual = f"see: qmd {command} --help" if command else "see: qmd --help"
    if near:
        hint = f"did you mean '{near}'? {manual}"
    elif name.startswith("--") or command not in _QUERY_COMMANDS:
        hint = manual
    else:
        hint = f"for a word that starts with '-' quote the whole query or put '--' before it; {manual}"
    return UsageError(f"unknown option '{name}'", hint)
