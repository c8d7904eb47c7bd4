"""Help: what each command takes, as pages for people, the reference and the man page; and `qmd --help`.

Through a pipe the text is plain and at most 80 columns wide; on a terminal the same text has colours.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, Any, NamedTuple

from qmd.cli.commands import ALIASES, IDLE_OPTIONS, CommandSpec

if TYPE_CHECKING:
    from qmd.render.drawing import Screen

WIDTH = 80
_LEFT = 26
"""Widest first column; what is longer has a line of its own."""

GROUPS = {
    "Search": ("query", "search", "vsearch", "browse", "serve", "related", "links"),
    "Read": ("get", "multi-get", "open", "ls"),
    "Index": ("index", "update", "embed", "watch", "status", "doctor", "cleanup", "bench"),
    "Collections and contexts": ("collection", "context"),
    "Projects": ("init", "trust"),
    "Agents and editors": ("mcp", "skill", "skills"),
    "Models": ("models", "pull"),
}
"""What belongs together in `qmd --help`, by the first words of commands; the rest is called `_REST`."""

_REST = "More"

_SYNTAX = """\
Queries of 'qmd query' are plain text, or lines with a type:
  lex: words       full text: "a phrase", -without, +must
  vec: question    meaning
  hyde: passage    what an answer could look like
  intent: purpose  what you need the answer for: helps the ranking
Filters may appear among the words: tag:ops  path:daily/  title:runbook
  after:2026-01  before:2026-03  on:yesterday  since:"last week"
  sort:date (newest first)  sort:-date
A date in the question finds the notes of that day. Options may appear anywhere,
'--' ends them; -c NAME searches one or more collections.
"""


class Row(NamedTuple):
    """An argument, option or command: its spellings, the name of its value if it takes one, and what it means."""

    names: tuple[str, ...]
    text: str
    value: str = ""

    @property
    def typed(self) -> str:
        """As it stands on a command line."""
        return f"{', '.join(self.names)} {self.value}".rstrip()


class CommandPage(NamedTuple):
    """All there is to say of a command."""

    spec: CommandSpec
    aliases: Sequence[str]
    arguments: Sequence[Row]
    options: Sequence[Row]
    """Those of its own; `everywhere` are the others."""
    everywhere: Sequence[str]
    examples: Sequence[str]


def describe(spec: CommandSpec, command: Any) -> CommandPage:
    """The page of a command; `command` is what typer makes of it."""
    shown = [one for one in command.params if not one.hidden]
    options = [one for one in shown if one.param_type_name == "option"]
    idle = IDLE_OPTIONS.get(spec.name, ())
    own = [one for one in options if one.name != "index" and one.opts[0] not in idle]
    index = ["--index NAME"] if any(one.name == "index" for one in options) else []
    return CommandPage(
        spec,
        sorted(alias for alias, name in ALIASES.items() if name == spec.name),
        [Row((_argument(one),), one.help) for one in shown if one.param_type_name == "argument" and one.help],
        [Row(_spellings(one), _meaning(one), "" if one.is_flag else one.metavar or "") for one in own],
        [*index, "--color auto|always|never", "--no-pager", "-h, --help"],
        spec.examples,
    )


def _argument(argument: Any) -> str:
    if argument.metavar:
        return str(argument.metavar)
    return f"<{argument.name}>{'…' if argument.nargs == -1 else ''}"


def _spellings(option: Any) -> tuple[str, ...]:
    # Double dashes before one letter are accepted for old scripts and need no mention.
    return tuple(name for name in (*option.opts, *option.secondary_opts) if not (len(name) == 3 and name[:2] == "--"))


def _meaning(option: Any) -> str:
    default = option.default
    if option.is_flag:
        default = option.opts[0] if default and option.secondary_opts else None
    elif isinstance(default, float):
        default = f"{default:g}"
    text = str(option.help or "")
    return text if default is None or "[default" in text else f"{text} [default: {default}]"


# --- pages ----------------------------------------------------------------------------------------


def command_help(page: CommandPage) -> str:
    """What `qmd COMMAND --help` prints."""
    usage = wrap(f"Usage: qmd {page.spec.usage}", WIDTH, subsequent_indent=" " * 11, break_on_hyphens=False)
    lines = [*usage, "", page.spec.help]
    if page.aliases:
        lines += wrap(f"Also: {', '.join(f'qmd {alias}' for alias in page.aliases)}", WIDTH, break_on_hyphens=False)
    for title, rows in (("Arguments:", page.arguments), ("Options:", page.options)):
        if rows:
            lines += ["", title, *_columns(rows)]
    lines += ["", f"Everywhere: {'  '.join(page.everywhere)}"]
    if page.examples:
        lines += ["", "Examples:", *(f"  {example}" for example in page.examples)]
    return "\n".join([*lines, ""])


def general_help(commands: Sequence[CommandSpec], place: str) -> str:
    """What `qmd --help` prints; `place` is the index that a command would use here."""
    width = max(len(spec.name) for spec in commands)
    lines = ["Usage: qmd <command> [options]", "", "Search your own markdown files, on this machine."]
    for title, members in grouped(commands):
        lines += ["", f"{title}:", *_columns([Row((spec.name,), spec.help) for spec in members], width)]
    lines += [
        "",
        "Start with:",
        "  qmd index ~/notes                 make a folder searchable",
        '  qmd query "how do I roll back"    ask it',
        "",
        _SYNTAX,
        "One command: qmd help COMMAND. Every command takes --index NAME (a separate",
        "index), --color auto|always|never, --no-pager and --help; qmd --version.",
        "",
        f"Index: {place}",
    ]
    return "\n".join([*lines, ""])


def grouped(commands: Sequence[CommandSpec]) -> list[tuple[str, list[CommandSpec]]]:
    """The commands below their titles, in the order of `GROUPS`."""
    titles = {first: title for title, names in GROUPS.items() for first in names}
    order = [*titles]
    found: dict[str, list[CommandSpec]] = {title: [] for title in (*GROUPS, _REST)}
    for spec in commands:
        found[titles.get(spec.name.partition(" ")[0], _REST)].append(spec)
    for members in found.values():
        members.sort(key=lambda spec: order.index(first) if (first := spec.name.partition(" ")[0]) in order else 0)
    return [(title, members) for title, members in found.items() if members]


def group_help(name: str, commands: Sequence[CommandSpec]) -> str:
    """What `qmd collection` prints: the sub-commands with their arguments."""
    rows = [Row((f"qmd {spec.usage}",), spec.help) for spec in commands]
    examples = [f"  {spec.examples[0]}" for spec in commands[:2] if spec.examples]
    lines = [f"Usage: qmd {name} <subcommand> [options]", "", *_columns(rows, 36), "", "Examples:", *examples]
    return "\n".join([*lines, ""])


def _columns(rows: Sequence[Row], left: int | None = None) -> list[str]:
    """Two columns: the first as wide as it must be but at most `_LEFT`, or `left` wide, the second wrapped."""
    left = left or min(max(len(row.typed) for row in rows), _LEFT)
    lines: list[str] = []
    for row in rows:
        # A default is not torn apart: textwrap breaks at ASCII blanks alone.
        text = re.sub(r"\[default[^\]]*\]", lambda match: match[0].replace(" ", "\N{NO-BREAK SPACE}"), row.text)
        texts = [one.replace("\N{NO-BREAK SPACE}", " ") for one in wrap(text, WIDTH - left - 4, break_on_hyphens=False)]
        if len(row.typed) > left:
            lines.append(f"  {row.typed}")
            lines += [f"{'':<{left + 4}}{text}" for text in texts]
            continue
        lines.append(f"  {row.typed:<{left}}  {texts[0] if texts else ''}".rstrip())
        lines += [f"{'':<{left + 4}}{text}" for text in texts[1:]]
    return lines


# --- on a terminal --------------------------------------------------------------------------------

_COLOURS = (
    (r"\Aqmd [^\n]*", "title"),
    (r"(?m)^\S[^\n:]*:$", "title"),
    (r"(?m)^(?:Usage|Also|Everywhere|Index|One command):", "title"),
    (r"(?m)^  (?:-[^\n]*?|[\w<\[][^\n]*?)(?=  )", "command"),
    (r"(?m)^  (?:qmd|cd|source|ls) [^\n]*?(?=$|  )", "command"),
    (r"\[default[^\]]*\]", "faint"),
)
"""Patterns of a help text and the style of what they match."""


def paint(text: str, screen: Screen | None) -> str:
    """A text of this module as `screen` shows it; for a program it stays plain."""
    if screen is None or screen.colours is None:
        return text
    from msgspec.structs import replace
    from rich.cells import cell_len
    from rich.text import Text

    from qmd.render.drawing import draw
    from qmd.render.terminal import visible

    shown = Text(visible(text.removesuffix("\n")))
    for pattern, style in _COLOURS:
        shown.highlight_regex(pattern, style)
    # The lines are as they should be; only the path of an index is longer than a screen, and must stay whole.
    widest = max(map(cell_len, shown.plain.splitlines()))
    return draw(replace(screen, width=max(screen.width, widest)), shown)
