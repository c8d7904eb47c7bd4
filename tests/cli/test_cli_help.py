"""Help: `qmd`, `qmd --help`, the page of each command, and working examples."""

import re
import shlex
from pathlib import Path

import pytest

from qmd.cli.commands import ALIASES, COMMANDS, IDLE_OPTIONS, find_spec
from qmd.cli.help import EXAMPLES, FIRST_EXAMPLES, GROUPS
from qmd.cli.topics import TOPICS
from qmd.plugins import Command
from qmd.plugins.doctor.variables import VARIABLES
from tests.program import Qmd, write_notes

PARSED_ONLY = {
    "browse": "needs a terminal",
    "watch": "stays until it is interrupted",
    "serve": "stays until it is interrupted",
    "mcp": "leaves a server behind",
    "hook prompt": "ends the process after 0.8 s",
    "hook session": "ends the process after 0.8 s",
    "pull": "downloads",
    "models pull": "downloads",
    "models prepare": "needs a downloaded model",
    "models remove": "needs a downloaded model",
    "models import": "needs what 'models export' wrote",
}
"""Commands whose examples are only parsed, and why."""

CHANGING = (
    "collection set",
    "collection rename",
    "collection remove",
    "collection update-cmd",
    "context rm",
    "cleanup",
    "init",
    "add",
    "skill install",
    "install",
    "store copy",
    "index",
    "collection add",
)
"""Commands whose examples each need their own notes, because they change them."""

VAULT = {
    "pricing.md": "# Pricing decision\n\nWe chose per-seat pricing, see [[ideas]].\n",
    "ideas.md": "# Ideas\n\nA rate limiter.\n\n## How requests are counted\n\n"
    + "By the minute, for each caller. " * 12
    + "\n",
    "daily/2026-03-01.md": "# Sunday\n\none\n\ntwo\n\nthree\n",
    "more.txt": "text\n",
}


@pytest.fixture
def vault(qmd: Qmd, home: Path, monkeypatch: pytest.MonkeyPatch) -> Qmd:
    """Create the folder of the examples."""
    write_notes(home / "notes", VAULT)
    (home / "fixture.json").write_text('{"queries": [{"query": "pricing", "expected_files": ["pricing.md"]}]}')
    assert qmd("index", "notes", "--no-embed").status == 0
    qmd("context", "add", "/", "all of it")
    qmd("context", "add", "qmd://notes/daily", "day by day")
    monkeypatch.setenv("EDITOR", "true")
    return qmd


def commands_in(line: str) -> list[list[str]]:
    """Return the arguments of each `qmd` in a shell command."""
    found = re.findall(r"""(?<![\w/.])qmd((?: (?:[^&|>)"' ]|"[^"]*"|'[^']*')+)*)""", line)
    return [
        [str(Path(word).expanduser()) if word.startswith("~") else word for word in shlex.split(one)] for one in found
    ]


def examples_of(spec: Command) -> tuple[str, ...]:
    return spec.examples or EXAMPLES[spec.name]


def run_example(vault: Qmd, line: str) -> None:
    for argv in commands_in(line):
        run = vault(*argv)
        assert (run.status, "Traceback" in run.err) == (0, False), (line, run.err)


def test_the_examples_of_commands_that_change_nothing_work(vault: Qmd) -> None:
    for spec in COMMANDS:
        for line in examples_of(spec) if spec.name not in {*PARSED_ONLY, *CHANGING} else ():
            run_example(vault, line)


@pytest.mark.parametrize(("name", "line"), [(name, line) for name in CHANGING for line in examples_of(find_spec(name))])
def test_an_example_of_a_command_that_changes_something_works(
    vault: Qmd, home: Path, monkeypatch: pytest.MonkeyPatch, name: str, line: str
) -> None:
    if name == "init":
        (home / "projects" / "site").mkdir(parents=True)
        (home / "projects" / "readme.md").write_text("# Site\n")
        monkeypatch.chdir(home / "projects")
    run_example(vault, line)


def test_an_example_that_is_not_run_is_a_line_of_its_command(vault: Qmd) -> None:
    for spec in COMMANDS:
        if spec.name in PARSED_ONLY:
            for argv in (argv for line in examples_of(spec) for argv in commands_in(line)):
                assert argv[: len(spec.name.split())] == spec.name.split()
                assert vault(*argv, "--help").status == 0


def test_every_command_has_two_examples_that_name_it() -> None:
    for spec in COMMANDS:
        examples = examples_of(spec)
        names = [spec.name, *(alias for alias, meant in ALIASES.items() if meant == spec.name), "--skill"]
        assert len(examples) == 2
        assert all(any(one in line for one in names) and len(line) <= 78 for line in examples), examples


def test_a_help_page_fits_80_columns_and_ends_with_its_examples(qmd: Qmd) -> None:
    for spec in COMMANDS:
        run = qmd(*spec.name.split(), "--help")
        assert (run.status, run.err, run.out.startswith(f"Usage: qmd {spec.name}")) == (0, "", True)
        assert max(len(line) for line in run.out.splitlines()) <= 80
        assert run.out.endswith("\n\nExamples:\n  " + "\n  ".join(examples_of(spec)) + "\n")
        assert qmd("help", *spec.name.split()).out == run.out
        assert "\x1b" not in run.out


def test_help_of_another_name_is_the_help_of_the_command(qmd: Qmd) -> None:
    for alias, name in ALIASES.items():
        assert qmd("help", *alias.split()).out == qmd(*name.split(), "--help").out


@pytest.mark.parametrize("group", ["collection", "context", "models", "skill", "skills"])
def test_help_of_a_group_lists_its_commands(qmd: Qmd, group: str) -> None:
    run = qmd("help", group)
    assert (run.status, run.err) == (0, "")
    assert run.out == qmd(group, "--help").out == qmd(group, "help").out
    assert all(f"qmd {spec.name}" in run.out for spec in COMMANDS if spec.name.startswith(f"{group} "))
    assert max(len(line) for line in run.out.splitlines()) <= 80


def test_defaults_are_shown(qmd: Qmd) -> None:
    page = qmd("search", "--help").out
    assert re.search(r"-n N +Show [^-]*\[default: 5; 20 for json, files, grep\]", page)
    assert re.search(r"--min-score X +Show only [^-]*\[default: 0\]", page)
    assert "near ties" in qmd("query", "--help").out


def test_options_that_change_nothing_are_not_shown_and_still_taken_with_a_warning(vault: Qmd) -> None:
    page = vault("search", "--help").out
    for option in IDLE_OPTIONS["search"]:
        assert f"{option} " not in page
    assert "--rerank" in vault("query", "--help").out
    run = vault("search", "pricing", "--no-rerank", "-C", "9", "--json")
    assert (run.status, "pricing.md" in run.out) == (0, True)
    assert "warning: option '--no-rerank' has no effect on 'qmd search'\n" in run.err


def test_the_general_help_describes_the_commands_of_every_day_on_one_screen(qmd: Qmd) -> None:
    page = qmd("--help").out
    assert len(page.splitlines()) < 24
    assert max(len(line) for line in page.splitlines() if not line.startswith("Index: ")) <= 80
    assert re.findall(r"(?m)^  ([a-z]+)  ", page) == [*GROUPS["Daily"]]
    assert len(GROUPS["Daily"]) == 12
    rest = {spec.name.partition(" ")[0] for spec in COMMANDS} - {*GROUPS["Daily"], *GROUPS["Also"], "pull", "skills"}
    assert f"\nAlso: update, embed, context. {len(rest)} more: qmd help all\n" in page


def test_programs_find_that_a_search_takes_several_collections(qmd: Qmd) -> None:
    # CLIENTS.md: without these words in `qmd --help`, OpenClaw starts a process for each collection.
    assert re.search(r"one or more collections|collection\(s\)|multiple -c flags", qmd("--help").out)


def test_help_all_names_every_command_in_45_rows_of_80_columns(qmd: Qmd) -> None:
    page = qmd("help", "all").out
    assert len(page.splitlines()) <= 45
    assert max(len(line) for line in page.splitlines() if not line.startswith("Index: ")) <= 80
    assert all(f"\n{title} " in page for title in GROUPS)
    for first in {spec.name.partition(" ")[0] for spec in COMMANDS} - {"pull", "skills"}:
        assert re.search(rf"(?m)^(\w+)? +{first}  ", page), first
    assert "Folders to search: add, list, show" in page


def test_rare_options_come_last_and_second_names_are_only_accepted(vault: Qmd) -> None:
    everyday, more = vault("query", "--help").out.partition("\nOptions:")[2].split("\nMore:\n")
    assert "--explain " in everyday and "--explain-full " in more and "--budget " in more
    names = {"--csv": "query", "--md": "query", "--xml": "query", "--files": "query", "--mask": "collection add"}
    for option, command in names.items():
        assert f"{option} " not in vault(*command.split(), "--help").out
    assert vault("search", "pricing", "--files").out == vault("search", "pricing", "--format", "files").out != ""
    assert vault("collection", "add", "notes/daily", "--name", "days", "--mask", "**/*.md").status == 0


@pytest.mark.parametrize("topic", TOPICS)
def test_a_topic_is_one_screen_of_help(qmd: Qmd, topic: str) -> None:
    run = qmd("help", topic)
    assert (run.status, run.err, run.out) == (0, "", TOPICS[topic])
    lines = run.out.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    assert topic in qmd("--help").out


def test_the_help_on_variables_names_those_that_doctor_shows(qmd: Qmd) -> None:
    named = set(re.findall(r"\b[A-Z]+(?:_[A-Z]+)+\b|\bEDITOR|\bPAGER|\bVISUAL", TOPICS["environment"]))
    assert len(named) > 12
    assert named <= {one.name for one in VARIABLES}


def test_the_queries_of_a_topic_work(vault: Qmd) -> None:
    for line in re.findall(r"(?m)^  (qmd [^$\n]+)$", TOPICS["queries"] + TOPICS["filters"]):
        run_example(vault, line)


def test_a_terminal_gets_the_same_text_in_colours(qmd: Qmd) -> None:
    for argv in (["--help"], ["help", "all"], ["search", "--help"], ["collection", "--help"], ["help", "filters"], []):
        plain, drawn = qmd(*argv).out, qmd(*argv, "--color", "always").out
        assert "\x1b[" in drawn
        assert re.sub(r"\x1b\[[\d;]*m", "", drawn) == plain


def test_qmd_alone_says_what_it_is_and_how_to_go_on(qmd: Qmd) -> None:
    run = qmd()
    lines = run.out.splitlines()
    assert (run.status, run.err) == (1, "")
    assert len(lines) <= 25
    assert max(len(line) for line in lines if "index.sqlite" not in line) <= 80
    assert "Index: nothing indexed yet" in run.out
    assert all(example in run.out for example in FIRST_EXAMPLES)


def test_qmd_alone_tells_the_state_of_the_index(vault: Qmd) -> None:
    assert re.search(r"Index: 4 documents, 4 without vectors \(qmd embed\), updated \d+s ago", vault().out)
    assert "Index: nothing indexed yet" in vault("--index", "other").out


def test_qmd_alone_says_when_the_index_cannot_be_read(qmd: Qmd, tmp_path: Path) -> None:
    file = tmp_path / "cache" / "qmd" / "index.sqlite"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"no database" * 500)
    run = qmd()
    assert (run.status, run.err) == (1, "")
    assert "qmd doctor" in run.out


@pytest.mark.parametrize("asked", [["help", "search"], ["help", "collection"], ["help", "collection", "add"]])
def test_help_that_is_asked_by_word_keeps_the_settings_of_the_program(qmd: Qmd, asked: list[str]) -> None:
    drawn = qmd(*asked, "--color", "always").out
    assert "\x1b[" in drawn
    assert re.sub(r"\x1b\[[\d;]*m", "", drawn) == qmd(*asked).out


def test_help_of_help_is_the_general_help(qmd: Qmd) -> None:
    assert qmd("help", "help") == qmd("--help")
