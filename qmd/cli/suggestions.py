"""Mistakes on the command line: what was meant, and a command that works."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import takewhile
from typing import Any

from qmd.cli.commands import NAMES
from qmd.errors import UsageError, nearest_name

_ASK = ('qmd query "{}"', 'qmd search "{}"')
_REMOVE = ("qmd collection remove {}",)
_READ = ("qmd get {}", "qmd open {}")

_OTHER_PROGRAMS: Mapping[str, tuple[tuple[str, ...], str]] = {
    **dict.fromkeys(("find", "ask", "grep", "lookup", "rg", "question"), (_ASK, "your question")),
    **dict.fromkeys(("remove", "delete", "rm", "del", "forget", "unindex"), (_REMOVE, "NAME")),
    **dict.fromkeys(("show", "cat", "read", "view", "print"), (_READ, "NOTE")),
    **dict.fromkeys(("edit", "launch"), (("qmd open {}",), "NOTE")),
    **dict.fromkeys(("scan", "import", "ingest"), (("qmd index {}", "qmd collection add {}"), "~/notes")),
    **dict.fromkeys(("reindex", "refresh", "sync", "reload"), (("qmd update", "qmd index"), "")),
    **dict.fromkeys(("rename", "mv"), (("qmd collection rename {}",), "OLD NEW")),
    **dict.fromkeys(("tree", "dir"), (("qmd ls {}",), "")),
    **dict.fromkeys(("check", "diagnose"), (("qmd doctor",), "")),
    **dict.fromkeys(("info", "stats"), (("qmd status",), "")),
    **dict.fromkeys(("install", "download", "model"), (("qmd models pull {}",), "")),
    **dict.fromkeys(("start", "daemon", "server"), (("qmd mcp --http --daemon",), "")),
    **dict.fromkeys(("similar", "backlinks"), (("qmd related {}", "qmd links {}"), "NOTE")),
    **dict.fromkeys(("notes", "files"), (("qmd ls",), "")),
    **dict.fromkeys(("usage", "man", "manual"), (("qmd --help", "qmd help COMMAND"), "")),
    **dict.fromkeys(("vacuum", "prune", "gc", "clean", "purge"), (("qmd cleanup --dry-run",), "")),
}
"""Command of another program → the commands for it here, and a placeholder for missing words."""

_PHRASE = """whole words are searched, no patterns; a phrase in quotes: qmd search '"hot oven"'"""

HABITS: Mapping[str, str] = {
    **dict.fromkeys(("-l", "--files-with-matches", "--count"), "for one line per file: --files; for fewer: -n N"),
    **dict.fromkeys(("-A", "-B", "-C"), "for more of the text: --full, or qmd get PATH:LINE"),
    **dict.fromkeys(("-t", "-g", "--type"), "for a folder or a file: qmd search 'oven path:daily/'"),
    **dict.fromkeys(("-e", "-E", "-P", "-F", "-w"), _PHRASE),
    "--web": "for a page in the browser: qmd serve --open",
}
"""Option of rg, grep, fzf or gh → what does that here."""

_MIN_SIMILARITY = 0.75
"""Minimum similarity of a mistyped command; words below it can begin a question."""

_QUESTION_WORDS = "how|what|why|when|where|who|which|whose|is|are|was|do|does|did"


def is_question(first: str, rest: Sequence[str], words: Callable[[], Sequence[str]]) -> bool:
    """Return whether a line without a command is a query: several words, or a question mark.

    A first word that resembles a command, or is a command of another program, makes the line a mistake.

    Args:
        first: The first word of the line.
        rest: The other arguments, with options.
        words: Returns the words without the options.
    """
    if len(first.split()) > 1 or first.endswith("?"):
        return True
    if not re.fullmatch(_QUESTION_WORDS, first.casefold()) and (
        first.casefold() in _OTHER_PROGRAMS or nearest_name(first, NAMES, _MIN_SIMILARITY)
    ):
        return False
    return bool(rest) and len(words()) > 1


def unknown_command(first: str, rest: Sequence[str]) -> UsageError:
    """Return the error for an unknown command; its hint names the likely commands."""
    if first.casefold() in _OTHER_PROGRAMS:
        templates, nothing = _OTHER_PROGRAMS[first.casefold()]
        rest = list(takewhile(lambda word: word[:1] != "-", rest))
        hint = f"did you mean {' or '.join(repr(one.format(' '.join(rest) or nothing).strip()) for one in templates)}?"
    elif first.casefold() in ("config", "settings"):
        from qmd.cli.invocation import working_folder
        from qmd.config.paths import locate

        hint = (
            f"the settings are in '{locate(None, working_folder(), os.environ).config_file}'; to check them: qmd doctor"
        )
    elif near := nearest_name(first, NAMES):
        hint = f"did you mean 'qmd {near}'?"
    else:
        hint = f"""to search for it: qmd query "{first}"; Run 'qmd --help' for usage."""
    return UsageError(f"Unknown command: {first}", hint)


def unknown_option(name: str, command: str, known: Collection[str], *, is_search: bool) -> UsageError:
    """Return the error for an unknown option; its hint names the nearest of ours."""
    near = nearest_name(name, known) if name.startswith("--") else None
    hint = f"see: qmd {command} --help" if command else "see: qmd --help"
    if name == "--model":
        hint = "choose a model by 'models:' in index.yml, or by QMD_EMBED_MODEL; see: qmd models list"
    elif is_search and name in HABITS:
        hint = HABITS[name]
    elif near:
        hint = f"did you mean '{near}'? {hint}"
    elif is_search and not name.startswith("--"):
        hint = f"for a word that starts with '-' quote the whole query or put '--' before it; {hint}"
    return UsageError(f"unknown option '{name}'", hint)


def describe_values(kind: Any) -> str:
    """Return the values that typer's type allows: `a number from 0 to 65535`."""
    if choices := getattr(kind, "choices", ()):
        return f"one of {', '.join(choices)}"
    least, most = getattr(kind, "min", None), getattr(kind, "max", None)
    limits = "" if least is None else f" of at least {least}" if most is None else f" from {least} to {most}"
    return f"a {'whole ' if 'int' in kind.name else ''}number{limits}"
