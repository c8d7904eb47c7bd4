"""Output of `search`, `vsearch` and `query` on a terminal and for programs."""

import json
import re
import sys
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

import pytest

from tests.cli.terminal_runs import Shown, run_all
from tests.program import Qmd, write_notes

if sys.platform == "win32":
    pytest.skip("needs pseudo-terminals", allow_module_level=True)

LINK = re.compile(r"\x1b\]8;;([^\x07]+)\x07")
SEQUENCE = re.compile(r"\x1b\[[0-9;]*m|\x1b\]8;;[^\x07]*\x07")


def on_terminal(*argv: str, **env: str) -> Shown:
    (shown,) = run_all(
        [{"argv": argv, "streams": ("empty", "tty", "pipe"), "env": {"COLUMNS": "80", "QMD_PAGER": "", **env}}]
    )
    return shown


def through_pipe(*argv: str) -> Shown:
    (shown,) = run_all([{"argv": argv, "streams": ("empty", "pipe", "pipe"), "env": {}}])
    return shown


def test_a_person_sees_names_and_a_program_the_lines_that_it_parses(indexed: Qmd) -> None:
    drawn = SEQUENCE.sub("", on_terminal("search", "rate limiters").out)
    assert re.fullmatch(
        r"1  Sunday +▰+▱* \w+ *\n   notes/daily/sunday\.md:3  #\w{6}\n   Talked about the rate limiter\.\n.*",
        drawn,
        re.DOTALL,
    )
    piped = through_pipe("search", "rate limiters").out
    assert piped.startswith("qmd://notes/daily/sunday.md")
    assert "\nScore: " in piped
    assert "@@" not in piped


def test_a_misspelt_word_is_marked_as_it_was_corrected(indexed: Qmd) -> None:
    assert "\x1b[1;35mtomatoes\x1b[0m" in on_terminal("search", "tomatoez gardening").out


def test_other_formats_are_on_a_terminal_what_they_are_through_a_pipe(indexed: Qmd) -> None:
    formats = ("--json", "--csv", "--md", "--xml", "--files")
    drawn, plain = (
        run_all([{"argv": ("search", "pricing", one), "streams": ("empty", stdout, "pipe")} for one in formats])
        for stdout in ("tty", "pipe")
    )
    assert [one.out for one in drawn] == [one.out for one in plain]
    assert all(one.out for one in drawn)


@pytest.mark.parametrize("settings", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_a_terminal_that_wants_no_sequence_gets_the_same_lines_without(indexed: Qmd, settings: dict[str, str]) -> None:
    plain = on_terminal("search", "pricing", **settings).out
    assert "\x1b" not in plain
    assert plain == SEQUENCE.sub("", on_terminal("search", "pricing").out)


def test_a_click_opens_the_file(indexed: Qmd, notes: Path) -> None:
    (link,) = LINK.findall(on_terminal("search", "pricing").out)
    assert link == (notes / "pricing.md").resolve().as_uri()
    assert link.startswith("file:///")


def test_in_a_vault_a_click_opens_obsidian(indexed: Qmd, notes: Path) -> None:
    (notes / ".obsidian").mkdir()
    (link,) = LINK.findall(on_terminal("search", "tomatoes").out)
    path = (notes / "we ird" / "c & d.md").resolve()
    assert link.startswith("obsidian://open?path=%2F")
    assert "&" not in link
    assert unquote(urlsplit(link).query.removeprefix("path=")) == str(path)


def test_a_chosen_editor_opens_at_the_line(indexed: Qmd, notes: Path) -> None:
    (notes / ".obsidian").mkdir()
    (link,) = LINK.findall(on_terminal("search", "limiter", QMD_EDITOR_URI="edit://{path}?{line}").out)
    assert link == f"edit://{quote(str((notes / 'daily' / 'sunday.md').resolve()))}?3"


def test_a_click_runs_nothing_that_was_found(qmd: Qmd, home: Path) -> None:
    write_notes(home / "p", {"install.command": "zebra\n", "note.md": "# Note\n\n[[install.command]]\n"})
    assert qmd("index", str(home / "p"), "--glob", "**/*.{md,command}", "--no-embed").status == 0
    for argv in (("search", "zebra"), ("ls", "p"), ("links", "note.md"), ("get", "note.md")):
        links = LINK.findall(on_terminal(*argv).out)
        assert [link for link in links if link.endswith("command")] == []
    (link,) = LINK.findall(on_terminal("search", "zebra", QMD_EDITOR_URI="zed://file{path}").out)
    assert unquote(link) == f"zed://file{home / 'p/install.command'}"


@pytest.mark.parametrize("folder", [None, ".obsidian"])
def test_the_link_of_a_hostile_name_is_that_file_and_nothing_else(qmd: Qmd, home: Path, folder: str | None) -> None:
    place = home / "n\x07\x1b]8;;evil\x1b\\ #?&%41"
    place.mkdir()
    if folder:
        (place / folder).mkdir()
    (place / "ze'\"bra\u202e?&x=1#y%2F.md").write_text("zebra\n", "utf-8")
    assert qmd("collection", "add", str(place), "--name", "strange").status == 0
    (link,) = LINK.findall(on_terminal("search", "zebra").out)
    assert re.fullmatch(r"[!-~]+", link)
    parts = urlsplit(link)
    shown = parts.query.removeprefix("path=") if folder else parts.path
    assert unquote(shown) == str(next(place.glob("*.md")).resolve())
    assert (parts.scheme, parts.fragment) == ("obsidian" if folder else "file", "")


def test_where_nothing_matches_well_the_next_command_is_named(indexed: Qmd) -> None:
    drawn = on_terminal("search", "zygote's ova egg pricing", NO_COLOR="1")
    assert drawn.out.startswith("No good match found.")
    assert """\nNext: qmd query 'zygote'"'"'s ova egg pricing'  search by meaning as well\n""" in drawn.out
    assert "no good match" not in drawn.err
    assert "no good match found" in through_pipe("search", "zygote's ova egg pricing").err


def test_an_explanation_is_one_sentence_below_each_hit_and_its_figures_are_another_option(indexed: Qmd) -> None:
    reason = r"\n +│ first because the query is its file name and the word is in its title"
    drawn = on_terminal("search", "pricing", "--explain", NO_COLOR="1")
    assert re.search(reason, drawn.out) and "│ words " not in drawn.out and "time:" not in drawn.err
    piped = through_pipe("search", "pricing", "--explain")
    assert re.search(reason.replace(" +", ""), piped.out) and piped.err == ""
    full = through_pipe("search", "pricing", "--explain-full")
    assert "\n│ words " in full.out and full.err.startswith("time: lexical ")
    asked = [through_pipe("search", "pricing", "--json", one).out for one in ("--explain", "--explain-full")]
    assert asked[0] == asked[1] and '"explain"' in asked[0]


def test_a_forced_screen_through_a_pipe_is_drawn(indexed: Qmd) -> None:
    (row,) = json.loads(through_pipe("search", "tomatoes", "--json").out)
    assert f"{row['docid']}" in SEQUENCE.sub("", through_pipe("search", "tomatoes", "--color", "always").out)


def test_filters_that_no_note_passes_are_not_sent_to_a_search_by_meaning(indexed: Qmd) -> None:
    drawn = on_terminal("search", "tag:nowhere", NO_COLOR="1").out
    assert "qmd query" not in drawn
    assert "qmd status  show the state of the index" in drawn
