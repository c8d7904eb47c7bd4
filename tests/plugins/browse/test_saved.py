"""Saved searches: storage, list, and use in all front ends."""

import json
from pathlib import Path

import pytest

from qmd.app.opening import open_index
from qmd.config.saved import named_query, save_search, saved_searches
from qmd.errors import ConfigError
from tests.program import Qmd, home, indexed, notes, qmd

__all__ = ["home", "indexed", "notes", "qmd"]


def test_a_saved_search_is_asked_for_by_its_name(indexed: Qmd, home: Path) -> None:
    run = indexed("save", "sundays", "-c", "notes", "path:daily/", "window")
    assert (run.status, run.out, run.err) == (0, "", "Saved @sundays: collection:notes path:daily/ window\n")
    asked, named = (indexed("search", text, "--json") for text in ("collection:notes path:daily/ window", "@sundays"))
    assert named.out == asked.out and len(json.loads(named.out)) == 1
    assert indexed("save").out == "@sundays  collection:notes path:daily/ window\n"


def test_a_name_is_replaced_and_removed_and_what_it_was_is_said(indexed: Qmd) -> None:
    indexed("save", "@one", "window")
    assert indexed("save", "two", "@one").err == "Saved @two: window\n"
    assert indexed("save", "one", "tea").err == "Saved @one: tea; it was: window\n"
    assert indexed("save", "one", "--remove").err == "Removed @one; it was: tea\n"
    run = indexed("save", "one", "--remove")
    assert (run.status, run.err) == (3, "error: no search is saved as 'one'\nhint: see: qmd save\n")
    assert indexed("save").out == "@two  window\n"


@pytest.mark.parametrize("argv", [("x",), ("x", "tea", "--remove"), ("a b", "tea"), ("../x", "tea"), ("-", "tea")])
def test_what_cannot_be_saved_is_refused(indexed: Qmd, argv: tuple[str, ...]) -> None:
    run = indexed("save", *argv)
    assert run.status == 2 and not run.out
    assert indexed("save").err.startswith("Nothing is saved yet. ")


def test_a_mistake_in_a_query_is_told_when_it_is_saved(indexed: Qmd) -> None:
    assert "is not a date" in indexed("save", "x", "after:nonsense").err
    assert indexed("save").out == ""


def test_an_index_of_a_program_knows_the_names_and_others_are_words(indexed: Qmd, home: Path) -> None:
    indexed("save", "sundays", "window path:daily/")
    with open_index() as index:
        asked = [index.search(text, mode="lexical").query for text in ("@sundays", "@saturdays", "@sundays or so")]
    queries = [(query.text, len(query.scope.filters)) for query in asked]
    assert queries == [("window", 1), ("@saturdays", 0), ("@sundays or so", 0)]


def test_a_project_has_no_say_in_what_a_name_means(indexed: Qmd, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "clone/.qmd").mkdir(parents=True)
    (home / "clone/.qmd/index.yml").write_text("collections: {}\nsearches: {evil: stolen}\n")
    (home / "clone/.qmd/searches.json").write_text('{"evil": "stolen"}')
    monkeypatch.chdir(home / "clone")
    indexed("save", "mine", "tea")
    assert indexed("save").out == "@mine  tea\n"
    assert (home / "clone/.qmd/searches.json").read_text() == '{"evil": "stolen"}'


@pytest.mark.parametrize("text", ["[1]", '{"a": 1}', "{" * 100_000, "\x00", '{"a": "b"'])
def test_a_damaged_file_is_one_line_and_not_replaced(tmp_path: Path, text: str) -> None:
    (tmp_path / "searches.json").write_text(text)
    with pytest.raises(ConfigError, match=r"cannot read '.*searches.json'"):
        named_query("@a", tmp_path)
    with pytest.raises(ConfigError, match=r"cannot read '.*searches.json'"):
        save_search(tmp_path, "a", "b")
    assert (tmp_path / "searches.json").read_text() == text
    assert named_query("words", tmp_path) == "words"


def test_the_file_is_the_users_alone(tmp_path: Path) -> None:
    save_search(tmp_path, "größe", "tea")
    assert (tmp_path / "searches.json").stat().st_mode & 0o077 == 0
    assert saved_searches(tmp_path) == {"größe": "tea"}
    assert named_query("@größe ", tmp_path) == "tea"
