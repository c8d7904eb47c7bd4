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
    ("search rate -n many", 2, "-n 'many' is not a whole number of at least 1\nUsage: qmd search"),
    ("search rate -n 5 6", 0, "'6' is part of the query: -n takes one number"),
    ("search rate -n", 2, "option '-n' needs a value"),
    ("search rate --budget 5", 0, "option '--budget' has no effect on 'qmd search'"),
    ("search rate -c note", 3, "Collection not found: note\nhint: did you mean 'notes'? see: qmd collection list"),
    ("update notes", 2, "unexpected argument 'notes'\nUsage: qmd update [-c <collection>]\nhint: did you mean 'qmd"),
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
    ("completion tcsh", 2, "shell 'tcsh' is not one of bash, zsh, fish, powershell\n"),
    ("completion", 2, "Usage: qmd completion bash|zsh|fish|powershell\n"),
    ("context", 2, "context add"),
    ("context add /usr system", 1, "Path is not in any indexed collection: /usr"),
    ("collection frobnicate", 2, "Unknown subcommand: frobnicate\nhint: Available: add, list, show, set, rename,"),
    ("search", 2, 'no question given\nUsage: qmd search [options] <query>\nhint: qmd search "rate limiter"'),
    ("pack", 2, "no question given\nUsage: qmd pack"),
    ("links", 2, "no note given\nUsage: qmd links <note> [--json]\nhint: qmd links pricing.md"),
    ("related", 2, "no note given\nUsage: qmd related"),
    ("multi-get", 2, "no pattern given\nUsage: qmd multi-get"),
    ("install", 2, "no client given\nUsage: qmd install <client>"),
    ("bench", 2, "no fixture given\nUsage: qmd bench"),
    ("collection add", 2, "no path given\nUsage: qmd collection add <path>"),
    ("collection remove", 2, "no name given\nUsage: qmd collection remove <name>\nhint: qmd collection remove notes"),
    ("collection update-cmd", 2, "no name given"),
    ("context add", 2, "no words given\nUsage: qmd context add"),
    ("context rm", 2, "no path given"),
    ("store copy index", 2, "no target given\nUsage: qmd store copy <from> <to>"),
    ("models path", 2, "no name given\nUsage: qmd models path <name>"),
    ("models import", 2, "no source given\nUsage: qmd models import"),
    ("save prices", 2, "no query given\nUsage: qmd save"),
    ("trust frobnicate", 2, "action 'frobnicate' is not one of list, revoke\nUsage: qmd trust"),
    ("mcp frobnicate", 2, "action 'frobnicate' is not one of stop, status\nUsage: qmd mcp"),
    ("search -n rate", 2, "-n has taken 'rate', which is not a whole number of at least 1\nUsage: qmd search"),
    ("search rate -c", 2, "option '-c' needs a value\nhint: qmd search pricing -c notes"),
    ("search rate -n 0", 2, "-n '0' is not a whole number of at least 1"),
    ("search rate --tokens 1", 2, "--tokens '1' is not a whole number of at least 50"),
    ("search rate --min-score abc", 2, "--min-score 'abc' is not a number\n"),
    ("search rate --sort size", 2, "unknown order 'sort:size'\nhint: sort:date (newest first)"),
    ("search rate --filter status==", 2, "'status==' is no filter\nhint: for example: status:draft"),
    ("search rate --cursor x", 2, "cursor 'x' is not one of qmd\nhint: take it from the last line"),
    ("search 'rate after:yesterdya'", 2, "'after:yesterdya' is not a date\nhint: after:2026"),
    ("query rate --budget 0", 2, "--budget '0' is not a whole number of at least 1"),
    ("query rate -C x", 2, "-C 'x' is not a whole number of at least 1"),
    ("serve --port 99999", 2, "--port '99999' is not a whole number from 0 to 65535\nUsage: qmd serve"),
    ("mcp --http --port abc", 2, "--port 'abc' is not a whole number from 0 to 65535"),
    ("watch --interval abc", 2, "--interval 'abc' is not a number of at least 0.2"),
    ("embed --timeout -1", 2, "--timeout '-1' is not a number of at least 0\n"),
    ("index notes --chunk-strategy foo", 2, "--chunk-strategy 'foo' is not one of auto, regex"),
    ("get pricing.md -l abc", 2, "-l 'abc' is not a whole number of at least 1"),
    ("get pricing.md#Nope", 3, "has no heading 'Nope'\nhint: its headings: 'Pricing decision', 'Why'"),
    ("multi-get *.md --max-bytes abc", 2, "--max-bytes 'abc' is not a whole number of at least 1"),
    ("status -x", 2, "unknown option '-x'\nhint: see: qmd status --help"),
    ("config", 2, "index.yml'; to check them: qmd doctor"),
    ("settings", 2, "Unknown command: settings\nhint: the settings are in '"),
    ("index daily --name notes", 3, "path 'daily' does not exist"),
    ("index notes/daily --name notes", 2, "Collection already exists: notes\nhint: choose another"),
    ("collection add notes --name notes", 1, "Collection already exists: notes\nhint: Use a different name"),
    ("install emacsx", 2, "unknown client 'emacsx'\nhint: choose one of: claude"),
    ("models pull nope", 3, "model 'nope' is not known\nhint: see: qmd models list"),
    ("search -l rate", 2, "unknown option '-l'\nhint: for one line per file: --files"),
    ("search --count rate", 2, "unknown option '--count'\nhint: for one line per file: --files; for fewer: -n N"),
    ("search --count 3 rate", 0, "option '--count' is read as '-n'"),
    ("search -A 3 rate", 2, "unknown option '-A'\nhint: for more of the text: --full, or qmd get PATH:LINE"),
    ("search -C 3 rate", 0, "option '-C' has no effect on 'qmd search'; for more of the text: --full"),
    ("search -t md rate", 2, "unknown option '-t'\nhint: for a folder or a file: qmd search 'oven path:daily/'"),
    ("search -i rate", 1, "'qmd search -i' needs a terminal with a keyboard\nhint: letter case never matters"),
    ("search -v rate", 0, "hint: -v prints the version; to exclude a word: qmd search 'oven -bread'"),
    *((f"search {one} rate", 2, f"unknown option '{one}'\nhint: whole words are") for one in ("-e", "-w", "-F")),
    ("search --web rate", 2, "unknown option '--web'\nhint: for a page in the browser: qmd serve --open"),
    ("search rate ~/notes/daily", 2, "is a folder or file, and the query has only words\nhint: qmd search rate -c"),
    ("search /ra.e/", 0, "'/ra.e/' is read as plain words: there are no patterns"),
    ("search '(rate OR price)'", 0, "'(rate OR price)' is read as plain words"),
    ("search '*ate'", 0, "'*ate' is read as plain words: '*' ends the beginning of a word: ov*"),
    ("search @nosuch", 0, "nothing is saved as '@nosuch'; saved: nothing yet"),
)  # fmt: skip


@pytest.mark.parametrize(("line", "status", "fragment"), MISTAKES, ids=[line for line, _, _ in MISTAKES])
def test_a_mistake_is_answered_with_what_was_typed_and_what_to_do(
    tagged: Qmd, line: str, status: int, fragment: str
) -> None:
    run = tagged(*shlex.split(line.replace("~", str(Path.cwd()))))
    assert run.status == status
    assert fragment in run.err
    assert status != 2 or (run.out == "" and (line == "context" or "\nhint: " in run.err))
    assert "Traceback" not in run.err


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


WORK = ("update", "index", "embed", "cleanup", "collection exclude notes", "context add / words")


@pytest.mark.parametrize("line", WORK)
def test_quiet_work_that_succeeds_prints_nothing(indexed: Qmd, notes: Path, line: str) -> None:
    (notes / "broken.md").write_bytes(bytes(range(256)) * 64)  # a warning for each update
    for argv in ((*line.split(), "-q"), ("--quiet", *line.split())):
        run = indexed(*argv)
        assert (run.status, run.out, run.err) == (0, "", "")


def test_quiet_work_that_fails_says_why(indexed: Qmd, notes: Path) -> None:
    notes.rename(notes.with_name("away"))
    run = indexed("update", "-q")
    assert (run.status, run.out) == (3, "")
    assert "cannot be read" in run.err or "does not exist" in run.err
    run = indexed("update", "-q", "-c", "nope")
    assert (run.status, run.out, run.err.splitlines()[0]) == (3, "", "error: Collection not found: nope")


def test_quiet_answers_are_the_answers_alone(indexed: Qmd) -> None:
    for argv in (("search", "rate", "--verbose"), ("get", "pricing.md"), ("status",), ("collection", "list")):
        run = indexed(*argv, "-q")
        assert (run.status, run.out, run.err) == (0, indexed(*argv).out, "")
    assert indexed("what limits the rate", "-q").err == ""
    assert indexed("get", "-q", "pricing.md", "nope.md").err.startswith("error: Document not found: nope.md")
