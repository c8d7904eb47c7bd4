"""The texts of `qmd --help` and of a group of commands such as `qmd collection`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from qmd.cli.commands import CommandSpec

_SYNTAX = """\
Queries of 'qmd query' are plain text, or lines with a type:
  lex: words      full text: "a phrase", -without, +must
  vec: question   meaning
  hyde: passage   what an answer could look like
  intent: purpose what you need the answer for; helps the ranking, is not searched for
Filters may appear among the words: tag:ops  path:daily/  title:runbook  after:2026-01  before:2026-03  on:yesterday
  since:"last week"  and sort:date (newest first), sort:-date. A date in the question finds the notes of that day.
"""


def general_help(commands: Sequence[CommandSpec], database: Path) -> str:
    """What `qmd --help` prints; `database` is the index that a command would use here."""
    return "\n".join(
        [
            "Usage: qmd <command> [options]",
            "",
            "Search your own markdown files, on this machine.",
            "",
            "Commands:",
            *command_lines(spec for spec in commands if " " not in spec.name),
            "",
            "Collections and contexts:",
            *command_lines(spec for spec in commands if " " in spec.name),
            "",
            "Start with:",
            "  qmd index ~/notes                 make a folder searchable",
            '  qmd query "how do I roll back"    ask it',
            "",
            _SYNTAX,
            "Options may appear anywhere; '--' ends them. Every command takes --index NAME for a separate index, and",
            "--help. On a terminal, paths are links into the editor of QMD_EDITOR_URI.",
            "",
            f"Index: {database}",
            "",
        ]
    )


def group_help(name: str, commands: Sequence[CommandSpec]) -> str:
    """What `qmd collection` prints: the sub-commands with their arguments."""
    rows = [(spec.usage, spec.help) for spec in commands]
    width = max(len(usage) for usage, _ in rows)
    lines = [f"  qmd {usage:<{width}}  {text}" for usage, text in rows]
    return "\n".join([f"Usage: qmd {name} <subcommand> [options]", "", *lines, ""])


def command_lines(commands: Iterable[CommandSpec]) -> list[str]:
    """Name and purpose of each command, in two columns."""
    rows = [(spec.name, spec.help) for spec in commands]
    width = max(len(name) for name, _ in rows)
    return [f"  {name:<{width}}  {text}" for name, text in rows]
