"""A line that names no command: a question to be asked, or a word from another program and what is called so here."""

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

_ELSEWHERE: Mapping[str, tuple[tuple[str, ...], str]] = {
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
"""Words of other programs: what does that here, and what stands for the words that belong behind it."""

_A_SLIP = 0.75
"""How much of a command's name a word must hold to be that name mistyped, where it may as well begin a question."""

_QUESTION_WORDS = "how|what|why|when|where|who|which|whose|is|are|was|do|does|did"


def is_question(first: str, rest: Sequence[str], words: Callable[[], Sequence[str]]) -> bool:
    """Whether a line that names no command is what the user looks for: several words, or a question mark.

    A line whose first word is nearly a command, or is one of another program, is a mistake and no question.

    Args:
        first: The first word of the line.
        rest: What follows it, options among it.
        words: Returns the words without the options.
    """
    if len(first.split()) > 1 or first.endswith("?"):
        return True
    if not re.fullmatch(_QUESTION_WORDS, first.casefold()) and (
        first.casefold() in _ELSEWHERE or nearest_name(first, NAMES, _A_SLIP)
    ):
        return False
    return bool(rest) and len(words()) > 1


def unknown_command(first: str, rest: Sequence[str]) -> UsageError:
    """The error for a word that is no command; the hint has the commands that it may stand for."""
    if first.casefold() in _ELSEWHERE:
        templates, nothing = _ELSEWHERE[first.casefold()]
        rest = list(takewhile(lambda word: not is_option(word), rest))
        hint = f"did you mean {' or '.join(repr(one.format(' '.join(rest) or nothing).strip()) for one in templates)}?"
    elif near := nearest_name(first, NAMES):
        hint = f"did you mean 'qmd {near}'?"
    else:
        hint = f"""to search for it: qmd query "{first}"; Run 'qmd --help' for usage."""
    return UsageError(f"Unknown command: {first}", hint)
