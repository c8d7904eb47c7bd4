"""Terminal safety: no file, name, note or argument can control the terminal."""

import ast
import json
import os
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from qmd.escapes import one_line
from tests.cli.terminal_runs import Shown, run_all
from tests.program import Qmd

if sys.platform == "win32":
    pytest.skip("needs pseudo-terminals", allow_module_level=True)

ROOT = Path(__file__).parents[2]
FORMATS = ("--json", "--csv", "--md", "--xml", "--files")

HOSTILE = (
    "\x1b]52;c;aGk=\x07\x1b]8;;http:evil\x1b\\link\x1b]8;;\x1b\\\x1b]0;title\x07\x1b[2J\x1b[31mred\x1b[1;33m"
    "\x9b31m\x9d0;t\x9c\x90\x85\x7f\x08\r\x0b\x0c\x1a\x1bc\u202egnp\u2066x\u2069"
)
"""Clipboard, links, title, erasing, colours, C1 forms, delete, backspace, return, reset, reordered text."""

NAME = f"a{HOSTILE}.md"

EDITOR = "vscode://file/{path}:{line}\x07\x1b]52;c;aGk=\x07"

LABEL = re.compile(r"\x1b\[3[136]m(?:error|warning|hint): \x1b\[0m|\r\x1b\[K")
"""Labels of messages, and the start of a progress line."""
OURS = re.compile(r"\x1b\]8;;(?:vscode://file/[!-~]*)?\x07|\x1b\[(?!31m|1;33m)[0-9;]*m")
"""Sequences that qmd sends with a result; `HOSTILE` contains none of them."""
PROGRESS = "\r\x1b[K"


Terminal = Callable[..., list[Shown]]


@pytest.fixture
def terminal(home: Path) -> Terminal:
    """Return a function that runs command lines, each on its own streams."""

    def run(
        commands: Iterable[tuple[str, ...]], streams: tuple[str, str, str] = ("empty", "tty", "tty"), **env: str
    ) -> list[Shown]:
        return run_all([{"argv": argv, "streams": streams, "env": env} for argv in commands])

    return run


def steering(text: str) -> set[str]:
    """Return the characters of `text` that control a terminal."""
    return {
        character
        for character in text
        if (unicodedata.category(character) in ("Cc", "Cs") and character not in "\t\n")
        or unicodedata.bidirectional(character) in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
    }


@pytest.fixture
def hostile(qmd: Qmd, home: Path) -> Path:
    """Create an index in which all foreign text contains control characters."""
    notes = home / "notes"
    notes.mkdir()
    (notes / NAME).write_text(
        f"# Zebra {HOSTILE}\n\nzebra {HOSTILE} stripes\tand more\n\nlast line {HOSTILE}\n", "utf-8"
    )
    (notes / f"fm{HOSTILE}.md").write_text(f'---\ntitle: "{_yaml(HOSTILE)}"\ntags: ["{_yaml(HOSTILE)}"]\n---\nzebra\n')
    (notes / f"bad{HOSTILE}.md").write_bytes(b"\xff\xfe\x00zebra\x9b31m")
    name, text = _yaml(f"n{HOSTILE}"), _yaml(HOSTILE)
    config = Path(os.environ["XDG_CONFIG_HOME"]) / "qmd" / "index.yml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(
        f'global_context: "{text}"\neditor_uri: "{_yaml(EDITOR)}"\ncollections:\n'
        f'  "{name}":\n    path: "{notes}"\n    pattern: "**/*.md"\n    ignore: ["{text}"]\n'
        f"    update: \"printf '%b' 'out \\\\\\\\033[2J\\\\\\\\a \\\\\\\\302\\\\\\\\233'\"\n"
        f'    context:\n      "/": "{text}"\n      "{text}": "{text}"\n'
        f'  plain:\n    path: "{notes}"\n    pattern: "fm*.md"\n',
        "utf-8",
    )
    assert qmd("index", "--no-embed").status == 0
    return notes


def _yaml(text: str) -> str:
    """Return `text` for a double-quoted scalar."""
    return "".join(f"\\u{ord(character):04x}" for character in text)


READING = [
    *[("search", "zebra", *more) for more in ((), ("--full",), ("--explain",), ("--full-path",), ("--line-numbers",))],
    *[("search", "zebra", format, *more) for format in FORMATS for more in ((), ("--full", "--explain"))],
    ("query", "zebra", "--explain"),
    ("vsearch", "zebra", "--json"),
    ("search", "nothing-like-it", "--min-score", "0.99"),
    ("get", f"qmd://plain/fm{HOSTILE}.md"),
    ("get", f"qmd://plain/fm{HOSTILE}.md", "--full-path", "--no-line-numbers"),
    ("multi-get", "*.md"),
    *[("multi-get", "*.md", format) for format in FORMATS],
    ("multi-get", "*.md", "--max-bytes", "3", "--full-path"),
    ("ls",),
    ("ls", f"n{HOSTILE}"),
    ("ls", "plain"),
    ("status",),
    ("status", "--json"),
    ("doctor",),
    ("doctor", "--json"),
    ("collection", "list"),
    ("collection", "list", "--json"),
    ("collection", "show", f"n{HOSTILE}"),
    ("context", "list"),
    ("context", "check"),
    ("models", "list"),
    ("models", "list", "--json"),
    ("models", "path", HOSTILE),
    ("models", "verify"),
    ("skills", "list"),
    ("skills", "get", HOSTILE),
    ("skills", "get", HOSTILE, "--json"),
    ("skill", "show"),
    ("trust",),
    ("trust", "list"),
    ("mcp", "stop"),
    ("mcp", "--print-config", "claude", "--index", HOSTILE),
    ("mcp", "--print-config", HOSTILE),
    ("--help",),
    ("--help", "--index", HOSTILE),
    ("search", "--help"),
    ("collection", HOSTILE),
    (HOSTILE,),
    (f"--{HOSTILE.replace(' ', '')}",),
    ("search", "zebra", f"--{HOSTILE}"),
    ("search", "zebra", "-n", HOSTILE),
    ("search", "zebra", "--min-score", HOSTILE),
    ("search", "zebra", "--format", HOSTILE),
    ("search", "zebra", "-c", HOSTILE),
    ("search", f"lex: zebra\n{HOSTILE}: x"),
    ("get", HOSTILE),
    ("multi-get", HOSTILE),
    ("ls", HOSTILE),
    ("bench", HOSTILE),
    ("bench", f"{HOSTILE}.json"),
    ("context", "rm", HOSTILE),
    ("collection", "add", HOSTILE),
    ("collection", "add", ".", "--name", HOSTILE),
    ("index", HOSTILE),
    ("models", "import", HOSTILE),
]
"""Commands that read the index."""


def test_no_command_lets_a_stranger_steer_the_terminal(hostile: Path, terminal: Terminal) -> None:
    for argv, shown in zip(READING, terminal(READING, NO_COLOR="1"), strict=True):
        assert (argv, steering(shown.out), steering(LABEL.sub("", shown.err))) == (argv, set(), set())
        assert (argv, "Traceback" in shown.err, "unexpected" in shown.err) == (argv, False, False)


def test_with_colours_the_only_sequences_are_our_own(hostile: Path, terminal: Terminal) -> None:
    seen = 0
    searches = [argv for argv in READING if argv[0] in ("search", "query")]
    for argv, shown in zip(searches, terminal(searches), strict=True):
        seen += len(OURS.findall(shown.out))
        assert (argv, steering(OURS.sub("", shown.out)), steering(LABEL.sub("", shown.err))) == (argv, set(), set())
    assert seen > 10


def test_in_what_is_drawn_the_only_sequences_are_colours_and_links(hostile: Path, terminal: Terminal) -> None:
    drawn = [argv for argv in READING if argv[0] not in ("search", "query", "vsearch", HOSTILE)]
    ours = re.compile(r"\x1b\[[0-9;]*m|\x1b\]8;;(?:(?:file|obsidian|https?|vscode):[!-~]*)?\x07")
    for argv, shown in zip(drawn, terminal(drawn), strict=True):
        assert (argv, steering(ours.sub("", shown.out)), steering(LABEL.sub("", shown.err))) == (argv, set(), set())


@pytest.mark.parametrize(("command", "word"), [("query zebra", "Searching"), ("doctor", "Checking")])
def test_a_command_that_opens_models_first_says_what_it_does(
    hostile: Path, terminal: Terminal, command: str, word: str
) -> None:
    (shown,) = terminal([tuple(command.split())])
    assert shown.err.startswith(f"{PROGRESS}{word} …{PROGRESS}")


def test_commands_that_write_the_index_let_no_stranger_steer_the_terminal(hostile: Path, terminal: Terminal) -> None:
    writing = [
        ("index", "--no-embed", "--verify"),
        ("update", "--verify"),
        ("embed", "-c", "plain"),
        ("cleanup", "--dry-run"),
        ("cleanup",),
        ("context", "add", f"qmd://plain/{HOSTILE}", f"note {HOSTILE}"),
        ("context", "rm", f"qmd://plain/{HOSTILE}"),
        ("collection", "update-cmd", "plain", HOSTILE),
        ("collection", "exclude", f"n{HOSTILE}"),
        ("collection", "rename", f"n{HOSTILE}", "new\x9b31m\x7f\u202e"),
        ("collection", "remove", "new\x9b31m\x7f\u202e"),
        ("search", "zebra", "--index", HOSTILE.replace("\\", "")),
    ]
    for argv, shown in zip(writing, terminal(writing, NO_COLOR="1"), strict=True):
        assert (argv, steering(shown.out), steering(shown.err.replace(PROGRESS, ""))) == (argv, set(), set())
        assert (argv, "Traceback" in shown.err, "unexpected" in shown.err) == (argv, False, False)


def test_a_strange_projects_settings_are_shown_harmless_before_they_are_trusted(home: Path, terminal: Terminal) -> None:
    project = home / ".qmd"
    project.mkdir()
    (project / "index.yml").write_text(
        f'collections:\n  "c\\u009b31m":\n    path: "/{_yaml(HOSTILE)}"\n    update: "{_yaml(HOSTILE)}"\n'
        f'models:\n  embed: "{_yaml(HOSTILE)}"\n',
        "utf-8",
    )
    commands = [("update",), ("index",), ("query", "x"), ("trust",)]
    for shown in terminal(commands, NO_COLOR="1"):
        assert (steering(shown.out), steering(shown.err.replace(PROGRESS, ""))) == (set(), set())
        assert "\\x1b" in shown.out + shown.err or "nothing is indexed" in shown.err or "no index" in shown.err


def test_control_characters_are_spelled_out(hostile: Path, terminal: Terminal) -> None:
    (shown,) = terminal([("get", f"qmd://n{HOSTILE}/{NAME}", "--plain")], NO_COLOR="1")
    assert "1: # Zebra \\x1b]52;c;aGk=\\x07\\x1b]8;;http:evil\\x1b\\link" in shown.out
    assert (
        "\\u009b31m\\u009d0;t\\u009c\\u0090\\u0085\\u007f\\x08\\x0d\\x0b\\x0c\\x1a\\x1bc\\u202egnp\\u2066x" in shown.out
    )
    assert "stripes\tand more\n" in shown.out


def test_a_carriage_return_that_ends_a_line_is_no_control_character(qmd: Qmd, notes: Path, terminal: Terminal) -> None:
    (notes / "windows.md").write_bytes(b"# Windows\r\n\r\nfirst\rsecond\r\n")
    qmd("index", str(notes), "--no-embed")
    plain, drawn = terminal([("get", "windows.md", "--no-line-numbers", *more) for more in (("--plain",), ())])
    assert plain.out.endswith("# Windows\r\n\r\nfirst\\x0dsecond\r\n")
    assert drawn.out.endswith("\n\nfirst\\x0dsecond\n")


def test_what_an_update_command_prints_is_spelled_out(indexed: Qmd, terminal: Terminal) -> None:
    indexed("collection", "update-cmd", "notes", r"printf 'a\033[2J\a\302\233b'")
    (shown,) = terminal([("update",)], QMD_HOOK_TIMEOUT="1e12")
    assert (shown.status, "    a\\x1b[2J\\x07\\u009bb\n" in shown.out) == (0, True)


@pytest.mark.parametrize("argv", [("search", "zebra", "--json", "--full"), ("multi-get", "*.md", "--json")])
def test_json_on_a_terminal_is_json_with_the_same_values(
    hostile: Path, terminal: Terminal, argv: tuple[str, ...]
) -> None:
    (on_terminal,) = terminal([argv])
    (piped,) = terminal([argv], ("empty", "pipe", "pipe"))
    assert json.loads(on_terminal.out) == json.loads(piped.out)


def test_through_a_pipe_every_byte_stays(hostile: Path, terminal: Terminal) -> None:
    (shown,) = terminal([("get", f"qmd://n{HOSTILE}/{NAME}", "--no-line-numbers")], ("empty", "pipe", "pipe"))
    assert shown.out.endswith((hostile / NAME).read_bytes().decode())
    (shown,) = terminal([("search", "zebra", "-n", HOSTILE)], ("empty", "pipe", "pipe"))
    assert f"-n '{one_line(HOSTILE)}' is not a whole number of at least 1" in shown.err


def test_each_stream_decides_for_itself(hostile: Path, terminal: Terminal) -> None:
    argv = ("search", "zebra", "-n", HOSTILE)
    (shown,) = terminal([argv], ("empty", "tty", "pipe"), NO_COLOR="1")
    assert (steering(shown.out), steering(shown.err)) == (set(), set())
    (shown,) = terminal([("get", f"qmd://n{HOSTILE}/{NAME}", "--no-line-numbers")], ("empty", "pipe", "tty"))
    assert (HOSTILE in shown.out, steering(LABEL.sub("", shown.err))) == (True, set())


def test_what_is_written_past_the_sink_is_made_visible_too(home: Path) -> None:
    program = (
        "import logging, sys\n"
        "from qmd.cli.output import prepare_streams\n"
        "prepare_streams(); prepare_streams()\n"
        "logging.basicConfig()\n"
        f"text = {HOSTILE + chr(0xDC9B) + chr(0xD800)!r}\n"
        "logging.warning(text); print(text); print(text, file=sys.stderr); sys.stdout.writelines([text])\n"
        "sys.stdout.flush()\n"
    )
    (shown,) = run_all([{"argv": [], "python": program, "streams": ("empty", "tty", "tty")}])
    assert (shown.status, steering(shown.out), steering(shown.err)) == (0, set(), set())
    assert shown.out.count("\\udc9b\\ud800") == 2


def test_no_lone_surrogate_stops_the_output(home: Path) -> None:
    program = (
        "import sys\n"
        "from qmd.cli.output import out, prepare_streams, say, flush_streams\n"
        "prepare_streams(); out('\\udcff \\ud800 \\udc00\\n'); say('\\udcff \\ud800'); flush_streams()\n"
    )
    (shown,) = run_all([{"argv": [], "python": program, "streams": ("empty", "pipe", "pipe")}])
    assert (shown.out, shown.err) == ("\udcff \\ud800 \\udc00\n", "\\udcff \\ud800\n")


def test_only_one_module_of_the_command_line_touches_the_streams() -> None:
    touching = set()
    for file in (*(ROOT / "qmd/cli").glob("*.py"), *(ROOT / "qmd/render").glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            names_stream = (
                isinstance(node, ast.Attribute)
                and node.attr in ("stdin", "stdout", "stderr", "__stdout__", "__stderr__")
                and isinstance(node.value, ast.Name)
                and node.value.id == "sys"
            )
            prints = (
                isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("print", "input")
            )
            if names_stream or prints:
                touching.add(file.name)
    assert touching == {"output.py"}


def test_only_one_module_makes_escape_sequences() -> None:
    # The others ask the terminal for its background, remove colours from outputs, and show escapes.
    files = [*(ROOT / "qmd").rglob("*.py")]
    making = {file.name for file in files if re.search(r"(?<!\\)\\x1b", file.read_text("utf-8"))}
    assert making == {"terminal.py", "background.py", "texts.py", "escapes.py"}
