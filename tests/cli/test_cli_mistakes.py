"""Mistakes on the command line: each answer names the input and the next step."""

import shlex
from pathlib import Path

import pytest

from tests.program import Qmd

MISTAKES: tuple[tuple[str, int, str], ...] = (
    ("find rate", 2, """Unknown command: find\nhint: did you mean 'qmd query "rate"' or 'qmd search "rate"'?"""),
    ("scan .", 2, "Unknown command: scan\nhint: did you mean 'qmd index .' or 'qmd collection add .'?"),
    ("scan", 2, "hint: did you mean 'qmd index ~/notes'"),
    ("add .", 2, "'.' is a file or folder\nhint: did you mean 'qmd index .', or 'qmd add - < FILE'?"),
    ("add", 2, "Usage: qmd add <text|->"),
    ("remove notes", 2, "Unknown command: remove\nhint: did you mean 'qmd collection remove notes'?"),
    ("delete notes", 2, "hint: did you mean 'qmd collection remove notes'?"),
    ("show pricing.md", 2, "hint: did you mean 'qmd get pricing.md' or 'qmd open pricing.md'?"),
    ("reindex", 2, "hint: did you mean 'qmd update' or 'qmd index'?"),
    ("download", 2, "hint: did you mean 'qmd models pull'?"),
    ("serach x", 2, "Unknown command: serach\nhint: did you mean 'qmd search'?"),
    ("stauts", 2, "hint: did you mean 'qmd status'?"),
    ("frobnicate", 2, """Unknown command: frobnicate\nhint: to search for it: qmd query "frobnicate";"""),
    ("help serach", 2, "hint: did you mean 'qmd search'?"),
    ("collection remov notes", 2, "Unknown subcommand: remov\nhint: did you mean 'qmd collection remove'?"),
    ("search rate --jsn", 2, "unknown option '--jsn'\nhint: did you mean '--json'? see: qmd search --help"),
    ("embed --model x", 2, "unknown option '--model'\nhint: choose a model by 'models:' in index.yml"),
    ("search rate --mode deepest", 2, "unknown --mode 'deepest'\nhint: each mode is a command: qmd search (words)"),
    ("search rate --mode semantic", 0, "option '--mode semantic' is read as 'qmd vsearch'"),
    ("search --query rate", 0, "option '--query' is read as the query"),
    ("search rate --max-results 3", 0, "option '--max-results' is read as '-n'"),
    ("search rate --collections notes", 0, "option '--collections' is read as '-c'"),
    ("search rate --threshold .1", 0, "option '--threshold' is read as '--min-score'"),
    ("search rate --verbose", 0, "option '--verbose' has no effect on 'qmd search'"),
    ("status --query rate", 0, "option '--query' has no effect on 'qmd status'"),
    ("search rate --color blue", 2, "unknown --color 'blue'\nhint: Valid: auto, always, never"),
    ("search rate --min-score 50", 0, "--min-score '50' is above 1, the best possible score; 50 % is 0.5"),
    ("search rate --format yaml", 2, "Unknown --format value: yaml\nhint: Valid: cli, json, csv, md, xml, files"),
    ("search rate --json --csv", 0, "one format at a time: using csv, --json has no effect"),
    ("search rate -n many", 0, "-n 'many' is not a positive whole number; using 5"),
    ("search rate -n 5 6", 0, "'6' is part of the query: -n takes one number"),
    ("search rate -n", 2, "option '-n' needs a value"),
    ("search rate --budget 5", 0, "option '--budget' has no effect on 'qmd search'"),
    ("search rate -c note", 3, "Collection not found: note\nhint: did you mean 'notes'? see: qmd collection list"),
    ("update notes", 2, "did you mean 'qmd update -c notes'? usage: qmd update"),
    ("search '\"rate limiter'", 0, "a quote is not closed: the text after it is one phrase"),
    ("search tag:gardning", 0, "no note has the tag 'gardning'; did you mean 'tag:gardening'?"),
    ("search 'tag:work rate'", 0, "no note has the tag 'work'; there are: gardening, trees"),
    ("collection remove nots", 1, "Collection not found: nots\nhint: did you mean 'notes'?"),
    ("get nope.md", 3, "Document not found: nope.md"),
    ("get pricing.md nope.md", 3, "Document not found: nope.md"),
    ("get *.txt", 3, "Document not found: *.txt\nhint: for several documents: qmd multi-get '*.txt'"),
    ("get pricing.md:999", 0, "line 999 does not exist: the last line of 'qmd://notes/pricing.md' is 7"),
    ("multi-get *.txt", 3, "No files matched pattern: *.txt"),
    ("open", 2, "Usage: qmd open <note"),
    ("get ''", 2, "Usage: qmd get <filepath>"),
    ("collection show ''", 2, "Usage: qmd collection show <name>\n"),
    ("collection rename notes", 2, "Usage: qmd collection rename <old> <new>\n"),
    ("open 3", 3, """no hit 3: there was no search on a terminal yet\nhint: search first: qmd query "…\""""),
    ("ls nots", 3, "Collection not found: nots\nhint: Run 'qmd ls' to see available collections."),
    ("ls notes/dayly", 0, "did you mean: qmd ls notes/daily"),
    ("ls notes/xyz", 0, "its folders: daily, we ird; see: qmd ls notes"),
    ("index nowhere", 3, "path 'nowhere' does not exist\nhint: name an existing folder or file: qmd index ~/notes"),
    ("context rm nowhere", 1, "Path is not in any indexed collection: nowhere"),
    ("completion tcsh", 2, "unknown shell 'tcsh'\nhint: known: bash, zsh, fish, powershell"),
    ("completion", 2, "Usage: qmd completion bash|zsh|fish|powershell\n"),
    ("context", 2, "context add"),
    ("context add /usr system", 1, "Path is not in any indexed collection: /usr"),
    ("collection frobnicate", 2, "Unknown subcommand: frobnicate\nhint: Available: add, list, show, set, rename,"),
)  # fmt: skip


@pytest.mark.parametrize(("line", "status", "fragment"), MISTAKES, ids=[line for line, _, _ in MISTAKES])
def test_a_mistake_is_answered_with_what_was_typed_and_what_to_do(
    tagged: Qmd, line: str, status: int, fragment: str
) -> None:
    run = tagged(*shlex.split(line))
    assert run.status == status
    assert fragment in run.err
    assert status != 2 or run.out == ""


@pytest.fixture
def tagged(indexed: Qmd) -> Qmd:
    """Index the notes, one of them with tags."""
    Path("notes/garden.md").write_text("---\ntags: [gardening, trees/old]\n---\n# Garden\n\nTomatoes at any rate.\n")
    indexed("update")
    return indexed


@pytest.mark.parametrize(
    "argv",
    [
        ["what limits the rate"],
        ["rate limiter?"],
        ["rate?"],
        ["what", "limits", "the", "rate"],
        ["state", "of", "the", "rate"],
    ],
)
def test_a_question_without_a_command_is_asked(indexed: Qmd, argv: list[str]) -> None:
    run = indexed(*argv, "--files", "-n", "1")
    assert run.status == 0
    assert run.out.count("\n") == 1
    assert run.err.startswith("running: qmd query ")


def test_a_question_may_follow_its_options(indexed: Qmd) -> None:
    run = indexed("--json", "-n", "1", "what limits the rate")
    assert (run.status, run.out[0]) == (0, "[")


@pytest.mark.parametrize(
    ("argv", "same"),
    [
        (["collections"], ["collection", "list"]),
        (["list", "notes"], ["ls", "notes"]),
        (["contexts"], ["context", "list"]),
        (["version"], ["--version"]),
    ],
)
def test_a_harmless_command_has_the_names_that_people_try(indexed: Qmd, argv: list[str], same: list[str]) -> None:
    assert indexed(*argv).out == indexed(*same).out


def test_a_context_for_a_collection_by_its_name_is_the_collections(
    indexed: Qmd, notes: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("notes")
    assert indexed("context", "add", "notes", "what I know").out.startswith("✓ Added context for: qmd://notes/ (coll")
