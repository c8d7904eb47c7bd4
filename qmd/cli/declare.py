"""What a command's function declares in its signature, and the values of a command line for it.

A parameter is declared as `Annotated[type, Option(…)]` or `Annotated[type, Argument(…)]`. Typer makes commands, help
and error messages of that (`typer_command`), but importing it takes longer than a search. A command line that is
plainly right is therefore bound here (`bind_arguments`); for every other one the caller asks typer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from qmd.cli.arguments import Arguments
from qmd.errors import UsageError
from qmd.quick_dataclasses import dataclass

CommandFunction = Callable[..., int]
"""Takes the session, then what it declares by name; returns the exit status."""

_REQUIRED = object()

LARGEST_NUMBER = 1_000_000_000
"""More results, lines, milliseconds or minutes than anyone can mean; SQLite and clocks have limits of their own."""


class Option:
    """An option's spellings (`--rerank/--no-rerank` for a switch with two ends) and what help says of it."""

    def __init__(self, *spellings: str, **settings: Any) -> None:
        self.spellings = spellings
        self.settings = settings


class Argument:
    """A word of the command line, or all of them for a list."""

    def __init__(self, **settings: Any) -> None:
        self.settings = settings


@dataclass(frozen=True, slots=True)
class Parameter:
    """A declared parameter: `kind` is the type of one value."""

    name: str
    hint: Any
    kind: Callable[[str], object]
    is_list: bool
    default: object
    declaration: Option | Argument

    @property
    def is_flag(self) -> bool:
        """Whether the option stands alone, without a value."""
        return self.kind is bool

    def spellings(self) -> Iterator[tuple[str, bool]]:
        """Each spelling of an option, and whether it means yes."""
        if isinstance(self.declaration, Option):
            for spelling in self.declaration.spellings:
                yes, _, no = spelling.partition("/")
                yield yes, True
                if no:
                    yield no, False


def declared_parameters(function: CommandFunction) -> list[Parameter]:
    """The parameters that `function` declares, in order; its session is none of them."""
    hints = get_type_hints(function, include_extras=True)
    code = function.__code__
    names = code.co_varnames[: code.co_argcount]
    defaults = function.__defaults__ or ()
    values = dict(zip(names[len(names) - len(defaults) :], defaults, strict=True))
    parameters = []
    for name in names:
        metadata = getattr(hints[name], "__metadata__", None)
        if metadata:
            hint = hints[name].__origin__
            options = get_args(hint) if isinstance(hint, UnionType) else (hint,)
            kind, is_list = options[0], get_origin(options[0]) is list
            kind = get_args(kind)[0] if is_list else kind
            parameters.append(Parameter(name, hint, kind, is_list, values.get(name, _REQUIRED), metadata[0]))
    return parameters


def declared_options(parameters: Sequence[Parameter]) -> dict[str, bool]:
    """Spelling → whether it takes a value, for every option of a command."""
    declared = {"--help": False, "-h": False}
    for parameter in parameters:
        for spelling, _ in parameter.spellings():
            declared[spelling] = not parameter.is_flag
    return declared


def bind_arguments(parameters: Sequence[Parameter], arguments: Arguments) -> dict[str, object] | None:
    """Parameter → value; None when help is wanted, a word is missing or too many, or a value has the wrong form."""
    try:
        given = _bind_options(parameters, arguments.options)
        given |= _bind_words([one for one in parameters if isinstance(one.declaration, Argument)], arguments.words)
    except ValueError:
        return None
    values = {parameter.name: given.get(parameter.name, parameter.default) for parameter in parameters}
    return None if _REQUIRED in values.values() else values


def _bind_options(parameters: Sequence[Parameter], options: Sequence[str]) -> dict[str, object]:
    spelled = {spelling: (one, yes) for one in parameters for spelling, yes in one.spellings()}
    given: dict[str, Any] = {}
    rest = iter(options)
    for spelling in rest:
        if spelling not in spelled:
            raise ValueError(spelling)
        parameter, yes = spelled[spelling]
        if parameter.is_flag:
            given[parameter.name] = yes
        elif parameter.is_list:
            given.setdefault(parameter.name, []).append(_convert(parameter, next(rest)))
        else:
            given[parameter.name] = _convert(parameter, next(rest))
    return given


def _bind_words(parameters: Sequence[Parameter], words: Sequence[str]) -> dict[str, object]:
    given: dict[str, object] = {}
    rest = list(words)
    for parameter in parameters:
        if parameter.is_list and rest:
            given[parameter.name], rest = [_convert(parameter, word) for word in rest], []
        elif rest:
            given[parameter.name] = _convert(parameter, rest.pop(0))
    if rest:
        raise ValueError(rest[0])
    return given


def _convert(parameter: Parameter, text: str) -> object:
    """The value that `text` stands for.

    Raises:
        ValueError: It is no number where one is due, or out of range.
    """
    value: Any = parameter.kind(text)
    least, most = parameter.declaration.settings.get("min"), parameter.declaration.settings.get("max")
    if (least is not None and value < least) or (most is not None and value > most):
        raise ValueError(text)
    return value


def check_numbers(parameters: Sequence[Parameter], values: Mapping[str, object]) -> None:
    """Refuse numbers that nothing can count: `nan`, `inf`, beyond `LARGEST_NUMBER`.

    Raises:
        UsageError: A value is one of those.
    """
    for parameter in parameters:
        value = values[parameter.name]
        if isinstance(value, int | float) and not -LARGEST_NUMBER <= value <= LARGEST_NUMBER:
            spelling, _ = next(parameter.spellings())
            raise UsageError(f"{spelling} '{value}' is not a number from -{LARGEST_NUMBER} to {LARGEST_NUMBER}")


def typer_command(function: CommandFunction, name: str, help: str) -> Any:
    """The command that typer makes of a declared function; when invoked it returns the values of its parameters."""
    from inspect import Parameter as Slot
    from inspect import Signature
    from typing import Annotated

    import typer

    def collect(**values: object) -> dict[str, object]:
        return values

    slots = []
    for one in declared_parameters(function):
        declaration = one.declaration
        made = (
            typer.Option(*declaration.spellings, **declaration.settings)
            if isinstance(declaration, Option)
            else typer.Argument(**declaration.settings)
        )
        default = Slot.empty if one.default is _REQUIRED else one.default
        slots.append(Slot(one.name, Slot.KEYWORD_ONLY, default=default, annotation=Annotated[one.hint, made]))
    collect.__signature__ = Signature(slots)  # type: ignore[attr-defined]
    collect.__annotations__ = {slot.name: slot.annotation for slot in slots}
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    settings = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
    app.command(name=name, help=help, context_settings=settings)(collect)
    return typer.main.get_command(app)
