"""Command lines without a command: questions, and command names of other programs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile

from qmd.cli.commands import NAMES
from qmd.cli.parser import is_option
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
    **dict.fromkeys(("config", "settings", "check", "diagnose"), (("qmd doctor",), "")),
    **dict.fromkeys(("info", "stats"), (("qmd status",), "")),
    **dict.fromkeys(("install", "download", "model"), (("qmd models pull {}",), "")),
    **dict.fromkeys(("start", "daemon", "server"), (("qmd mcp --http --daemon",), "")),
    **dict.fromkeys(("similar", "backlinks"), (("qmd related {}", "qmd links {}"), "NOTE")),
    **dict.fromkeys(("notes", "files"), (("qmd ls",), "")),
    **dict.fromkeys(("usage", "man", "manual"), (("qmd --help", "qmd help COMMAND"), "")),
    **dict.fromkeys(("vacuum", "prune", "gc", "clean", "purge"), (("qmd cleanup --dry-run",), "")),
}
"""Command of another program → the commands for it here, and a placeholder for missing words."""

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
        rest = list(takewhile(lambda word: not is_option(word), rest))
        hint = f"did you mean {' or '.join(repr(one.format(' '.join(rest) or nothing).strip()) for one in templates)}?"
    elif near := nearest_name(first, NAMES):
        hint = f"did you mean 'qmd {near}'?"
    else:
        hint = f"""to search for it: qmd query "{first}"; Run 'qmd --help' for usage."""
    return UsageError(f"Unknown command: {first}", hint)
