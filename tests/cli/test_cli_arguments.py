from importlib import import_module

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qmd.cli.app import COMMANDS, CommandSpec
from qmd.cli.arguments import FLAGS, VALUE_OPTIONS, find_command, sort_arguments
from qmd.cli.declare import declared_options, declared_parameters
from qmd.errors import UsageError

NAMES = {"search", "get", "collection add", "collection list"}
SEARCH = {"--json": False, "-n": True, "-c": True, "--collection": True, "--format": True, "--full": False}


def test_a_command_is_found_behind_options_and_their_values() -> None:
    assert find_command(["--index", "search", "-n", "5", "search", "x"], NAMES) == (
        "search",
        ["--index", "search", "-n", "5", "x"],
    )


def test_two_words_name_a_sub_command_with_options_between() -> None:
    assert find_command(["collection", "--json", "list"], NAMES) == ("collection list", ["--json"])


def test_an_unknown_word_is_returned_as_the_command() -> None:
    assert find_command(["serach", "x"], NAMES) == ("serach", ["x"])


def test_no_word_is_no_command() -> None:
    assert find_command(["--help"], NAMES) == (None, ["--help"])


def test_options_may_stand_anywhere_and_keep_their_values() -> None:
    sorted_ = sort_arguments(["a", "--json", "b", "-n", "5", "-c", "x"], SEARCH, "search")
    assert sorted_.options == ("--json", "-n", "5", "-c", "x")
    assert sorted_.words == ("a", "b")


@pytest.mark.parametrize("spelling", [["-n5"], ["-n", "5"], ["-n=5"]])
def test_a_count_may_be_glued_to_its_option(spelling: list[str]) -> None:
    assert sort_arguments(spelling, SEARCH, "search").options == ("-n", "5")


def test_a_value_may_start_with_a_dash() -> None:
    assert sort_arguments(["-n", "-5"], SEARCH, "search").options == ("-n", "-5")


def test_everything_behind_two_dashes_is_words() -> None:
    assert sort_arguments(["--json", "--", "--full", "-x"], SEARCH, "search").words == ("--full", "-x")


def test_a_phrase_that_starts_with_a_dash_is_words() -> None:
    assert sort_arguments(["-sports perf"], SEARCH, "search").words == ("-sports perf",)


def test_a_flag_with_a_value_is_still_a_flag() -> None:
    assert sort_arguments(["--json=yes", "x"], SEARCH, "search").options == ("--json",)


@pytest.mark.parametrize("name", ["-k", "--top-k", "--limit"])
def test_other_tools_names_for_the_count_are_read_as_it_with_a_warning(name: str) -> None:
    sorted_ = sort_arguments([name, "3", "x"], SEARCH, "search")
    assert sorted_.options == ("-n", "3")
    assert len(sorted_.warnings) == 1


def test_an_option_of_another_command_is_dropped_with_its_value_and_a_warning() -> None:
    sorted_ = sort_arguments(["x", "--max-bytes", "9", "--pull"], SEARCH, "search")
    assert (sorted_.options, sorted_.words) == ((), ("x",))
    assert len(sorted_.warnings) == 2


def test_the_path_of_a_new_collection_may_be_an_option() -> None:
    sorted_ = sort_arguments(["--path", "/a", "--pattern", "*.txt"], {"--mask": True}, "collection add")
    assert (sorted_.words, sorted_.options) == (("/a",), ("--mask", "*.txt"))


def test_an_unknown_option_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="unknown option '--jsn'") as caught:
        sort_arguments(["--jsn"], SEARCH, "search")
    assert "--json" in (caught.value.hint or "")


def test_a_word_with_a_dash_outside_quotes_is_an_unknown_option() -> None:
    with pytest.raises(UsageError, match="unknown option '-sports'"):
        sort_arguments(["perf", "-sports"], SEARCH, "search")


def test_an_option_without_its_value_is_refused() -> None:
    with pytest.raises(UsageError, match="'-n' needs a value"):
        sort_arguments(["x", "-n"], SEARCH, "search")


@given(st.lists(st.text(max_size=6), max_size=6))
def test_words_behind_two_dashes_come_through_untouched(words: list[str]) -> None:
    assert list(sort_arguments(["--json", "--", *words], SEARCH, "search").words) == words


@pytest.mark.parametrize("spec", COMMANDS, ids=lambda spec: spec.name)
def test_every_option_that_a_command_declares_may_stand_before_its_name(spec: CommandSpec) -> None:
    declared = declared_options(declared_parameters(getattr(import_module(spec.module), spec.function)))
    for option, takes_value in declared.items():
        before = [option, "x"] if takes_value else [option]
        name, _ = find_command([*before, *spec.name.split()], {one.name for one in COMMANDS})
        assert name == spec.name, option
        assert option in (VALUE_OPTIONS if takes_value else FLAGS)
