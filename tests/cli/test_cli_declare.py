"""The values bound without typer are those that typer finds; what cannot be bound is left to it."""

from pathlib import Path
from typing import Annotated

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qmd.cli.app import COMMANDS, CommandSpec, _load, build_command
from qmd.cli.arguments import Arguments
from qmd.cli.declare import (
    Argument,
    Option,
    bind_arguments,
    declared_options,
    declared_parameters,
    typer_command,
)


def every_kind(
    session: object,
    first: Annotated[str, Argument(help="One word.")],
    rest: Annotated[list[Path] | None, Argument(help="The others.")] = None,
    name: Annotated[str | None, Option("-n", "--name", metavar="NAME")] = None,
    tags: Annotated[list[str] | None, Option("-t", "--tag", metavar="TAG")] = None,
    count: Annotated[int, Option("--count", min=1, max=9)] = 3,
    share: Annotated[float | None, Option("--share", min=0.5)] = None,
    place: Annotated[Path | None, Option("--place")] = None,
    loud: Annotated[bool, Option("--loud")] = False,
    rerank: Annotated[bool | None, Option("--rerank/--no-rerank")] = None,
) -> int:
    return 0


PARAMETERS = declared_parameters(every_kind)
TYPER = typer_command(every_kind, "every-kind", "Take everything.")

WORDS = st.lists(st.sampled_from(["a", "docs/b.md", "", "7", "ä ö"]), max_size=3)
OPTIONS = st.lists(
    st.one_of(
        st.sampled_from([["--loud"], ["--rerank"], ["--no-rerank"]]),
        st.tuples(st.sampled_from(["-n", "--name", "-t", "--tag", "--place"]), st.sampled_from(["x", "", "a b"])),
        st.tuples(st.just("--count"), st.sampled_from(["1", "9", " 4 ", "0", "10", "x", "1.5", "1_0"])),
        st.tuples(st.just("--share"), st.sampled_from(["0.5", "1e3", "0.4", "nan", "much"])),
    ),
    max_size=5,
)


@settings(max_examples=300)
@given(OPTIONS, WORDS)
def test_what_is_bound_is_what_typer_finds(options: list[tuple[str, ...]], words: list[str]) -> None:
    arguments = Arguments(tuple(part for option in options for part in option), tuple(words))
    bound = bind_arguments(PARAMETERS, arguments)
    if bound is not None:
        with TYPER.make_context("qmd", arguments.argv) as context:
            assert repr(TYPER.invoke(context)) == repr(bound)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], []),
        (["--count", "0"], ["a"]),
        (["--count", "ten"], ["a"]),
        (["--share", "0.4"], ["a"]),
        (["--help"], ["a"]),
    ],
    ids=["word missing", "out of range", "no number", "below the least", "help"],
)
def test_help_and_mistakes_are_left_to_typer(options: list[str], words: list[str]) -> None:
    assert bind_arguments(PARAMETERS, Arguments(tuple(options), tuple(words))) is None


def test_a_word_too_many_is_left_to_typer() -> None:
    def one_word(session: object, word: Annotated[str | None, Argument()] = None) -> int:
        return 0

    assert bind_arguments(declared_parameters(one_word), Arguments((), ("a", "b"))) is None


@pytest.mark.parametrize("spec", COMMANDS, ids=lambda spec: spec.name)
def test_every_command_declares_the_options_that_typer_knows(spec: CommandSpec) -> None:
    known = {
        spelling: not parameter.is_flag
        for parameter in build_command(spec).params
        if parameter.param_type_name == "option"
        for spelling in (*parameter.opts, *parameter.secondary_opts)
    }
    assert declared_options(declared_parameters(_load(spec))) == {"--help": False, "-h": False} | known


@pytest.mark.parametrize("spec", COMMANDS, ids=lambda spec: spec.name)
@pytest.mark.parametrize("words", [[], ["word"], ["word", "other"]], ids=len)
def test_every_command_binds_its_words_as_typer_does(spec: CommandSpec, words: list[str]) -> None:
    bound = bind_arguments(declared_parameters(_load(spec)), Arguments((), tuple(words)))
    if bound is not None:
        command = build_command(spec)
        with command.make_context("qmd", ["--", *words]) as context:
            assert command.invoke(context) == bound
