"""Positions and spellings of options, as parsed for all commands."""

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qmd.cli.commands import COMMANDS, NAMES
from qmd.cli.parser import Arguments, BuiltCommand, all_options, arrange, build_command, find_command
from qmd.errors import UsageError
from qmd.plugins import Command
from tests.program import Qmd


def read(*argv: str) -> tuple[BuiltCommand, Arguments]:
    """Return the command of a line, and its sorted arguments."""
    found = find_command(argv, NAMES)
    assert found is not None, argv
    command, args = found
    return command, arrange(args, command.declared)


def parsed(*argv: str) -> tuple[str, dict[str, object]]:
    """Return the name of the command, and the values that are not defaults."""
    command, arguments = read(*argv)
    values = command.read(arguments)
    defaults = {one.name: one.default for one in command.typer.params}
    return command.spec.name, {name: value for name, value in values.items() if value != defaults[name]}


def warnings(*argv: str) -> tuple[str, ...]:
    return tuple(read(*argv)[1].warnings)


@pytest.mark.parametrize(
    ("argv", "name", "values"),
    [
        (
            ["--backends", "bm25", "bench", "--json", "3"],
            "bench",
            {"backends": "bm25", "json": True, "fixture": "3"},
        ),
        (["-n", "5", "search", "get"], "search", {"n": 5, "query": ["get"]}),
        (["--limit=5", "search", "get"], "search", {"n": 5, "query": ["get"]}),
        (["--index", "search", "-n", "5", "search", "x"], "search", {"index": "search", "n": 5, "query": ["x"]}),
        (["--index", "work", "collection", "list"], "collection list", {"index": "work"}),
        (["collection", "--index", "list", "list"], "collection list", {"index": "list"}),
        (["--print-config", "claude", "mcp"], "mcp", {"print_config": "claude"}),
        (["collection", "mv", "a", "b"], "collection rename", {"old": "a", "new": "b"}),
        (["--max-bytes", "9", "search", "x"], "search", {"query": ["x"]}),
        (["--intent", "--", "search", "x"], "search", {"intent": "--", "query": ["x"]}),
        (["--json", "search", "search"], "search", {"json": True, "query": ["search"]}),
    ],
)
def test_a_command_is_found_behind_its_options_and_their_values(argv: list[str], name: str, values: object) -> None:
    assert parsed(*argv) == (name, values)


@pytest.mark.parametrize(
    "argv", [["serach", "get"], ["-n", "5", "serach", "get"], ["--", "search", "x"], ["--index", "search"], ["--help"]]
)
def test_a_word_behind_another_word_or_two_dashes_is_no_command(argv: list[str]) -> None:
    assert find_command(argv, NAMES) is None


_NAMES = st.sampled_from(["get", "search", "list", "add", "collection", "a b", "-5", "--json", "--", "ä/ö.md", "x"])
_WORDS = st.sampled_from(["list", "get", "collection", "docs/b.md", "7", "ä ö", "-a phrase", "-", ""])


@st.composite
def _command_lines(draw: st.DrawFn) -> tuple[Command, list[list[str]], list[str]]:
    """Generate a command, options with values, and words."""
    spec = draw(st.sampled_from(COMMANDS))
    command = build_command(spec.name)
    flags = [(spelling, takes_value) for spelling, takes_value in command.options() if spelling != "--help"]
    kinds = {spelling: one.type for one in command.typer.params for spelling in one.opts}
    options = []
    for spelling, takes_value in draw(st.lists(st.sampled_from(flags), max_size=4)) if flags else []:
        names = (
            st.sampled_from(getattr(kinds[spelling], "choices", ()))
            if takes_value and hasattr(kinds[spelling], "choices")
            else _NAMES
        )
        is_number = "int" in kinds[spelling].name or "float" in kinds[spelling].name if takes_value else False
        value = draw(st.sampled_from(["60", "70"]) if is_number else names) if takes_value else None
        options.append([spelling] if value is None else [spelling, value])
    slots = [one for one in command.typer.params if one.param_type_name == "argument"]
    least = sum(1 for one in slots if one.required)
    most = 3 if any(one.nargs == -1 for one in slots) else len(slots)
    words = _WORDS
    for slot in slots:
        words = st.sampled_from(slot.type.choices) if hasattr(slot.type, "choices") else words
    return spec, options, draw(st.lists(words, min_size=least, max_size=most))


@given(_command_lines(), st.randoms(use_true_random=False))
def test_options_mean_the_same_wherever_they_stand(
    line: tuple[Command, list[list[str]], list[str]], order: random.Random
) -> None:
    spec, options, words = line
    words = [*spec.name.split(), *words]
    places = sorted(order.randrange(len(words) + 1) for _ in options)
    mixed: list[str] = []
    for place in range(len(words) + 1):
        mixed += [part for at, option in zip(places, options, strict=True) if at == place for part in option]
        mixed += words[place : place + 1]
    plain = [*words, *(part for option in options for part in option)]
    assert parsed(*mixed) == parsed(*plain)
    assert parsed(*mixed)[0] == spec.name


def test_no_two_commands_disagree_on_whether_an_option_takes_a_value() -> None:
    for spec in COMMANDS:
        for spelling, takes_value in build_command(spec.name).options():
            assert all_options()[spelling] == takes_value, (spec.name, spelling)


@pytest.mark.parametrize(
    ("options", "values"),
    [
        *((options, {"n": 5}) for options in (["-n5"], ["-n", "5"], ["-n=5"], ["--n", "5"], ["--n=5"])),
        (["-cnotes", "--collection=daily"], {"collection": ["notes", "daily"]}),
        *((["--intent", value], {"intent": value}) for value in ("-5", "--json", "--")),
        (["--json=true"], {"json": True}),
    ],
)
def test_values_may_be_glued_or_start_with_a_dash(options: list[str], values: dict[str, object]) -> None:
    assert parsed("search", "x", *options) == ("search", {"query": ["x"], **values})


def test_everything_behind_two_dashes_is_words() -> None:
    assert parsed("search", "--json", "--", "--full", "-x") == ("search", {"json": True, "query": ["--full", "-x"]})


@pytest.mark.parametrize("word", ["-sports perf", "-", "-- "])
def test_a_dash_alone_or_a_phrase_that_starts_with_one_is_a_word(word: str) -> None:
    assert parsed("search", word)[1] == {"query": [word]}


@given(st.lists(st.text(st.characters(exclude_characters="\0"), max_size=6), min_size=1, max_size=6))
def test_words_behind_two_dashes_come_through_untouched(words: list[str]) -> None:
    assert parsed("search", "--", *words)[1] == {"query": words}


def test_the_words_of_an_update_command_keep_their_options() -> None:
    line = "collection update-cmd notes git --index w pull --rebase -n 5"
    words = ["git", "pull", "--rebase", "-n", "5"]
    assert parsed(*line.split()) == ("collection update-cmd", {"name": "notes", "words": words, "index": "w"})


@pytest.mark.parametrize("name", ["-k", "--k", "--top-k", "--limit"])
def test_other_tools_names_for_the_count_are_read_as_it_with_a_warning(name: str) -> None:
    assert parsed("search", name, "3", "x") == ("search", {"n": 3, "query": ["x"]})
    assert warnings("search", name, "3", "x") == (f"option '{name}' is read as '-n'",)


def test_an_option_of_another_command_is_dropped_with_its_value_and_a_warning() -> None:
    argv = ["search", "x", "--max-bytes", "9", "--pull", "--context", "y"]
    assert parsed(*argv) == ("search", {"query": ["x"]})
    assert warnings(*argv) == tuple(
        f"option '{name}' has no effect on 'qmd search'" for name in ("--max-bytes", "--pull", "--context")
    )


def test_the_path_of_a_new_collection_may_be_an_option() -> None:
    argv = ["collection", "add", "--path", "/a", "--pattern", "*.txt"]
    assert parsed(*argv) == ("collection add", {"path": "/a", "mask": "*.txt"})
    assert warnings(*argv) == ("option '--path' is read as the path to add", "option '--pattern' is read as '--mask'")


@pytest.mark.parametrize(
    ("argv", "message", "hint"),
    [
        (["search", "--jsn"], "unknown option '--jsn'", "did you mean '--json'? see: qmd search --help"),
        (["--jsn", "search"], "unknown option '--jsn'", "did you mean '--json'? see: qmd search --help"),
        (["search", "perf", "-sports"], "unknown option '-sports'", "quote the whole query or put '--' before it"),
        (["search", "-note"], "unknown option '-note'", "quote the whole query or put '--' before it"),
        (["ls", "-x"], "unknown option '-x'", "see: qmd ls --help"),
        (["search", "x", "-n"], "option '-n' needs a value", ""),
        (["search", "x", "--limit"], "option '--limit' needs a value", ""),
        (["search", "x", "--min-score", "much"], "--min-score 'much' is not a number\nusage: qmd {}", ""),
        (["search", "x", "--budget", "0"], "--budget '0' is not a whole number of at least 1\nusage: qmd {}", ""),
        (["search", "x", "--min-score", "nan"], "--min-score 'nan' is not a number from -1000000000 to 1000000000", ""),
        (["init", "x"], "unexpected argument 'x'\nusage: qmd init", ""),
        (["models", "path"], "no name given\nusage: qmd models path <name>", ""),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_what_to_do(argv: list[str], message: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        parsed(*argv)
    assert caught.value.message.casefold() == message.format("search [options] <query>")
    assert hint in (caught.value.hint or "")


@pytest.mark.parametrize("argv", [["--json"], ["--jsn"], ["-x"], ["--index", "x"]])
def test_options_without_a_command_fail(qmd: Qmd, argv: list[str], home: Path) -> None:
    run = qmd(*argv)
    assert run.status in (1, 2)
    assert "Usage: qmd" in run.out or run.err.startswith("error: unknown option")


def test_a_version_that_is_a_value_is_none(qmd: Qmd) -> None:
    assert qmd("search", "x", "--intent", "--version").out != qmd("--version").out
