"""Help pages: `qmd`, `qmd --help`, and the arguments, options and examples of each command.

In a pipe the text is plain and at most 80 columns wide; on a terminal it also has colours.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import filterfalse
from operator import attrgetter
from textwrap import shorten, wrap
from typing import TYPE_CHECKING, Any, NamedTuple

import qmd
from qmd.cli.commands import ALIASES, IDLE_OPTIONS, usage_of
from qmd.cli.topics import TOPICS
from qmd.errors import QmdError
from qmd.plugins import Command

if TYPE_CHECKING:
    from qmd.cli.parser import BuiltCommand
    from qmd.config.paths import Locations
    from qmd.render.drawing import Screen

WIDTH = 80
_LEFT = 26
"""Maximum width of the first column; longer names have a line of their own."""
_NAME = 12
"""Columns of a command in `qmd --help`."""

GROUPS = {
    "Daily": (
        *("index", "query", "search", "get", "open", "browse"),
        *("serve", "status", "collection", "install", "models", "help"),
    ),
    "Also": ("update", "embed", "context"),
    "Search": ("pack", "vsearch", "save", "related", "links"),
    "Read": ("multi-get", "ls"),
    "Index": ("watch", "doctor", "cleanup", "bench"),
    "Folders": ("init", "trust"),
    "Agents": ("mcp", "skill", "skills", "hook"),
}
"""Title in `qmd help all` → first words of its commands; `_REST` has the others. `qmd --help` has the first two."""

_REST = "More"

_GROUP_HELP = {
    "collection": "Folders to search",
    "context": "Descriptions of folders",
    "models": "Model files",
    "skill": "Instructions for agents",
}
"""First word of several commands → their row in `qmd --help`."""

_UNLISTED = ("pull", "skills")
"""Commands without a row in `qmd --help`, because another command does the same."""

_HELP = Command("help", "", "", "Explain a command or a topic.")


class Row(NamedTuple):
    """An argument, option or command with its spellings, the name of its value, and its meaning."""

    names: tuple[str, ...]
    text: str
    value: str = ""

    @property
    def spelling(self) -> str:
        return f"{', '.join(self.names)} {self.value}".rstrip()


class CommandPage(NamedTuple):
    """Help of a command."""

    spec: Command
    aliases: Sequence[str]
    arguments: Sequence[Row]
    options: Sequence[Row]
    """Its own; `everywhere` has the others."""
    more: Sequence[Row]
    """Its own that few people need."""
    everywhere: Sequence[str]
    examples: Sequence[str]


def describe(command: BuiltCommand) -> CommandPage:
    spec = command.spec
    shown = [one for one in command.typer.params if not one.hidden]
    options = {one.name: one for one in shown if one.param_type_name == "option"}
    index = ["--index NAME"] if options.pop("index", None) else []
    is_rare = attrgetter("rich_help_panel")
    own = [one for one in options.values() if one.opts[0] not in IDLE_OPTIONS.get(spec.name, ())]
    return CommandPage(
        spec,
        sorted(alias for alias, name in ALIASES.items() if name == spec.name),
        [Row((_argument(one),), one.help) for one in shown if one.param_type_name == "argument" and one.help],
        list(map(_option, filterfalse(is_rare, own))),
        list(map(_option, filter(is_rare, own))),
        [*index, "--color WHEN", "--no-pager", "-q, --quiet", "-h, --help"],
        spec.examples or EXAMPLES.get(spec.name, ()),
    )


def _argument(argument: Any) -> str:
    if argument.metavar:
        return str(argument.metavar)
    return f"<{argument.name}>{'…' if argument.nargs == -1 else ''}"


def _option(option: Any) -> Row:
    # Two dashes before one letter, and a second long name, are accepted for old scripts and not listed.
    long = [name for name in option.opts if len(name) > 3]
    spellings = (*(name for name in option.opts if len(name) == 2), *long[:1], *option.secondary_opts)
    return Row(spellings, _option_text(option), "" if option.is_flag else option.metavar or "")


def _option_text(option: Any) -> str:
    default = option.default
    if option.is_flag:
        default = option.opts[0] if default and option.secondary_opts else None
    elif isinstance(default, float):
        default = f"{default:g}"
    text = str(option.help or "")
    return text if default is None or "[default" in text else f"{text} [default: {default}]"


def command_help(page: CommandPage) -> str:
    """Return the text of `qmd COMMAND --help`."""
    usage = wrap(f"Usage: qmd {usage_of(page.spec)}", WIDTH, subsequent_indent=" " * 11, break_on_hyphens=False)
    lines = [*usage, "", page.spec.help]
    if page.aliases:
        lines += wrap(f"Also: {', '.join(f'qmd {alias}' for alias in page.aliases)}", WIDTH, break_on_hyphens=False)
    groups = {"Arguments:": page.arguments, "Options:": page.options, "More:": page.more}
    left = min(max((len(row.spelling) for rows in groups.values() for row in rows), default=0), _LEFT)
    for title, rows in groups.items():
        lines += ["", title, *_columns(rows, left)] if rows else []
    lines += ["", f"Everywhere: {'  '.join(page.everywhere)}"]
    if page.examples:
        lines += ["", "Examples:", *(f"  {example}" for example in page.examples)]
    return "\n".join([*lines, ""])


def general_help(commands: Sequence[Command], place: str, *, is_complete: bool) -> str:
    """Return the text of `qmd help all`, or of `qmd --help`; `place` is the index that commands use here."""
    lines = ["Usage: qmd <command> [options]", "Search your own notes, on this machine.", ""]
    groups = _overview([*commands, _HELP])
    shown = groups if is_complete else {"": groups["Daily"]}
    titles = max(map(len, shown)) + 2
    for title, rows in shown.items():
        lines += [
            f"{'' if number else title:<{titles}}{name:<{_NAME}}{_shorten_row(text, WIDTH - titles - _NAME)}"
            for number, (name, text) in enumerate(rows.items())
        ]
    if not is_complete:
        n_more = sum(map(len, groups.values())) - len(groups["Daily"]) - len(groups["Also"])
        lines.append(f"Also: {', '.join(groups['Also'])}. {n_more} more: qmd help all")
    return "\n".join(
        [
            *lines,
            "",
            # Programs look for "one or more collections" before they pass several.
            "Options can appear anywhere. -c NAME searches one or more collections.",
            'Start with: qmd index ~/notes    and then: qmd query "how do I roll back"',
            f"Details: qmd help COMMAND, or one of: {', '.join(TOPICS)}",
            f"Index: {place}",
            "",
        ]
    )


def _overview(commands: Sequence[Command]) -> dict[str, dict[str, str]]:
    """Return title → first word of its commands → their help, or the sub-commands."""
    titles = {first: title for title, names in GROUPS.items() for first in names}
    members: dict[str, list[Command]] = {first: [] for first in titles}
    for spec in commands:
        members.setdefault(spec.name.partition(" ")[0], []).append(spec)
    rows: dict[str, dict[str, str]] = {title: {} for title in (*GROUPS, _REST)}
    for name, specs in members.items():
        below = ", ".join(one.name.partition(" ")[2] for one in specs)
        text = specs[0].help if len(specs) == 1 else f"{_GROUP_HELP.get(name, name.capitalize())}: {below}"
        rows[titles.get(name, _REST)] |= {name: text} if name not in _UNLISTED else {}
    return rows


def _shorten_row(text: str, width: int) -> str:
    """Shorten a row to one line: a long sentence to its first clause, a list to the items that fit."""
    sentence = text.removesuffix(".")
    if sentence != text and len(sentence) > width:
        sentence = re.split("[;,:]", sentence)[0]
    return shorten(sentence, width, placeholder=" …").replace(", …", " …")


def group_help(name: str, commands: Sequence[Command]) -> str:
    """Return the text of `qmd collection`: the sub-commands with their arguments."""
    rows = [Row((f"qmd {usage_of(spec)}",), spec.help) for spec in commands]
    examples = [f"  {one}" for spec in commands[:2] for one in (spec.examples or EXAMPLES[spec.name])[:1]]
    lines = [f"Usage: qmd {name} <subcommand> [options]", "", *_columns(rows, 36), "", "Examples:", *examples]
    return "\n".join([*lines, ""])


def _columns(rows: Sequence[Row], left: int) -> list[str]:
    """Lay out rows in two columns: the first `left` wide, the second wrapped."""
    lines: list[str] = []
    for row in rows:
        # textwrap breaks at ASCII blanks only, so a default stays on one line.
        text = re.sub(r"\[default[^\]]*\]", lambda match: match[0].replace(" ", "\N{NO-BREAK SPACE}"), row.text)
        texts = [one.replace("\N{NO-BREAK SPACE}", " ") for one in wrap(text, WIDTH - left - 4, break_on_hyphens=False)]
        if len(row.spelling) > left:
            lines.append(f"  {row.spelling}")
            lines += [f"{'':<{left + 4}}{text}" for text in texts]
            continue
        lines.append(f"  {row.spelling:<{left}}  {texts[0] if texts else ''}".rstrip())
        lines += [f"{'':<{left + 4}}{text}" for text in texts[1:]]
    return lines


FIRST_EXAMPLES = ('qmd query "why did we choose per-seat pricing"', 'qmd search "rate limiter" -n 10')
"""Examples on the page of `qmd` without arguments."""

EXAMPLES: Mapping[str, tuple[str, ...]] = {
    "index": ("qmd index ~/notes", "qmd index ~/notes --glob '**/*.{md,txt}'"),
    "search": ('qmd search "rate limiter"', "qmd search pricing -c notes -n 10 --sort date"),
    "vsearch": ('qmd vsearch "how customers pay"', 'qmd vsearch "saving money" -c notes --json'),
    "query": (FIRST_EXAMPLES[0], 'qmd query "what did we decide last week" -c notes --explain'),
    "get": ("qmd get pricing.md", "qmd get notes/daily/2026-03-01.md:5-9"),
    "multi-get": ("qmd multi-get 'daily/*.md'", "qmd multi-get pricing.md ideas.md --format json"),
    "links": ("qmd links pricing.md", 'qmd links "ideas" --json'),
    "related": ("qmd related pricing.md", "qmd related ideas -n 3 -c notes"),
    "ls": ("qmd ls", "qmd ls notes/daily"),
    "status": ("qmd status", "qmd status --json"),
    "collection add": ("qmd collection add ~/notes --name txt --glob '**/*.txt'", "qmd collection add . --name here"),
    "collection list": ("qmd collection list", "qmd collection list --json"),
    "collection show": ("qmd collection show notes", "qmd collection info notes"),
    "collection metadata": ("qmd collection metadata", "qmd collection metadata notes --json"),
    "collection set": ("qmd collection set notes --path ~/notes", "qmd collection set notes --glob '**/*.txt'"),
    "collection rename": ("qmd collection rename notes vault", "qmd collection mv notes vault"),
    "collection remove": ("qmd collection remove notes", "qmd collection remove notes && qmd cleanup"),
    "collection include": ("qmd collection include notes", "qmd collection include notes && qmd collection list"),
    "collection exclude": ("qmd collection exclude notes", "qmd collection exclude notes && qmd collection list"),
    "collection update-cmd": ("qmd collection update-cmd notes git pull", "qmd collection update-cmd notes"),
    "context add": ('qmd context add qmd://notes/daily "day by day"', 'qmd context add / "Written since 2019"'),
    "context list": ("qmd context list", "qmd context list | head"),
    "context rm": ("qmd context rm qmd://notes/daily", "qmd context rm /"),
    "context check": ("qmd context check", "qmd context check | head"),
    "update": ("qmd update", "qmd update -c notes --pull"),
    "embed": ("qmd embed", "qmd embed -c notes --timeout 5"),
    "cleanup": ("qmd cleanup --dry-run", "qmd cleanup"),
    "store copy": ("qmd store copy index spare", "qmd store copy index notes.sqlite"),
    "init": ("cd ~/projects/site && qmd init", "qmd init && qmd index ."),
    "trust": ("qmd trust", "qmd trust list"),
    "completion": ("source <(qmd completion bash)", "qmd completion fish > ~/.config/fish/completions/qmd.fish"),
}
"""Two examples of each command, of at most 80 columns. A test runs them in the collection `notes`, a folder with the
files `pricing.md`, `ideas.md` and `daily/2026-03-01.md`."""


def example(command: Command, typed: Sequence[str]) -> str:
    """Return an example of a command, if possible with one of the options in `typed`."""
    examples = command.examples or EXAMPLES.get(command.name, (f"qmd {command.name} --help",))
    return next((one for one in examples if any(f" {word} " in one for word in typed if word[:1] == "-")), examples[0])


_PAGE = """\
qmd {version}: search your own notes, on this machine

Usage: qmd <command> [options]

Index: {state}
       {database}

Commands:
  qmd index ~/notes        index a folder; run it again to update
  qmd query "how do I …"   search by words and meaning; or: qmd "how do I …"
  qmd browse               search as you type, on a full screen
  qmd open 1               open the first hit in your editor

Examples:
  {examples}

All commands: qmd --help    One command: qmd help query
"""


def first_page(locations: Locations, environ: Mapping[str, str]) -> str:
    """Return the page of `qmd` without arguments: at most 25 lines of 80 columns, except for a long path."""
    return _PAGE.format(
        version=qmd.__version__,
        state=_state(locations, environ),
        database=locations.place,
        examples="\n  ".join(FIRST_EXAMPLES),
    )


def _state(locations: Locations, environ: Mapping[str, str]) -> str:
    from qmd.app.configuration import FileConfiguration
    from qmd.app.index import Index
    from qmd.app.notices import Notices
    from qmd.render.text import relative_time
    from qmd.times import utc_now

    try:
        # `Notices` keeps this page free of warnings and questions.
        with Index(locations, FileConfiguration(locations, environ, Notices()), environ) as index:
            counts = index.status()
    except QmdError as error:
        return f"cannot be read, {error.message} (see: qmd doctor)"
    if not counts.documents:
        return "nothing indexed yet"
    noun = "document" if counts.documents == 1 else "documents"
    vectors = "all with vectors"
    if counts.embedding is not None:
        vectors = f"computing vectors ({counts.embedding.percent} %)"
    elif counts.pending_documents:
        vectors = f"{counts.pending_documents:,} without vectors (qmd embed)"
    return f"{counts.documents:,} {noun}, {vectors}, updated {relative_time(counts.updated_at, utc_now())}"


_COLOURS = (
    (r"\Aqmd [^\n]*", "title"),
    (r"(?m)^\S[^\n:]*:$", "title"),
    (r"(?m)^(?:Usage|Also|Everywhere|Index|Start with|Details):", "title"),
    (rf"(?m)^(?:{'|'.join((*GROUPS, _REST))})(?=  )", "title"),
    (rf"(?m)^(?:{'|'.join((*GROUPS, _REST))}|  )  +([a-z-]+)(?= )", "command"),
    (r"(?m)^  (?:-[^\n]*?|[\w<\[][^\n]*?)(?=  )", "command"),
    (r"(?m)^  (?:qmd|cd|source|ls) [^\n]*?(?=$|  )", "command"),
    (r"\[default[^\]]*\]", "faint"),
)
"""(pattern, style) pairs for a help text."""


def paint(text: str, screen: Screen | None) -> str:
    """Return a help text with the colours of `screen`; unchanged without colours."""
    if screen is None or screen.colours is None:
        return text
    from msgspec.structs import replace
    from rich.cells import cell_len
    from rich.text import Text

    from qmd.escapes import visible
    from qmd.render.drawing import draw

    shown = Text(visible(text.removesuffix("\n")))
    for pattern, style in _COLOURS:
        shown.highlight_regex(pattern, style)
    # Only the path of an index can be wider than the screen, and must not wrap.
    widest = max(map(cell_len, shown.plain.splitlines()))
    return draw(replace(screen, width=max(screen.width, widest)), shown)
