"""Options that several commands share."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from msgspec import Struct
from typer import Argument, Option

from qmd.app.records import LEAST_TOKENS
from qmd.cli import completion
from qmd.cli.output import warn
from qmd.cli.parser import LARGEST_NUMBER
from qmd.errors import UsageError
from qmd.plugins import STORES
from qmd.render.formats import FORMATS

SCREEN_LIMIT = 30
"""Hits on a full screen, few enough to draw after every key."""

RareOption = partial(Option, rich_help_panel="More")
"""Option that the help of a command lists last."""

Index = Annotated[
    str | None,
    Option(
        "--index",
        metavar="NAME",
        help=f"Use a separate index: a name, {' or '.join(one.form for one in STORES.values())}.",
        autocompletion=completion.indexes,
    ),
]
Collections = Annotated[
    list[str] | None,
    Option(
        "-c",
        "--collection",
        metavar="NAME",
        help="Only this collection; may be repeated.",
        autocompletion=completion.collections,
    ),
]
Json = Annotated[bool, Option("--json", help="JSON.")]
# Accepted for programs; `--format` is listed.
Csv = Annotated[bool, Option("--csv", hidden=True)]
Markdown = Annotated[bool, Option("--md", hidden=True)]
Xml = Annotated[bool, Option("--xml", hidden=True)]
Files = Annotated[bool, Option("--files", hidden=True)]
FormatName = Annotated[
    str | None,
    RareOption(
        "--format",
        metavar="NAME",
        help=f"{', '.join([*FORMATS][:-1])} or {[*FORMATS][-1]}.",
        show_default=False,
        autocompletion=completion.one_of(*FORMATS),
    ),
]
FullPath = Annotated[bool, Option("--full-path", help="Show paths on disk instead of qmd:// addresses.")]
NoLineNumbers = Annotated[bool, RareOption("--no-line-numbers", help="Show no line numbers.")]
NoIgnore = Annotated[bool, RareOption("--no-ignore", help="Also index files that .gitignore excludes.")]
NoGpu = Annotated[bool, RareOption("--no-gpu", help="Run models on the CPU.")]
ChunkStrategy = Annotated[
    str | None,
    RareOption(
        "--chunk-strategy",
        metavar="NAME",
        help="auto splits source code at declarations, regex splits it as plain text.",
        autocompletion=completion.one_of("auto", "regex"),
    ),
]

QueryWords = Annotated[
    list[str] | None, Argument(help="Words, a question, or typed lines (lex:, vec:, hyde:, intent:).")
]
Limit = Annotated[
    str | None, Option("-n", "--n", metavar="N", help="Show at most N results [default: 5; 20 for json and files]")
]
Full = Annotated[bool, Option("--full", help="Whole documents instead of passages.")]
LineNumbers = Annotated[bool, RareOption("--line-numbers", help="Show line numbers as in the file.")]
Intent = Annotated[str | None, RareOption("--intent", metavar="TEXT", help="Your purpose; helps the ranking.")]

Tokens = Annotated[
    int | None,
    Option("--tokens", metavar="N", min=LEAST_TOKENS, help="Print at most N tokens (o200k), and how to continue."),
]


class Output(Struct, frozen=True):
    """Options that choose a format."""

    format: FormatName = None
    json: Json = False
    csv: Csv = False
    md: Markdown = False
    xml: Xml = False
    files: Files = False

    def chosen(self) -> str:
        """Return `--format`, else the first option that names a format, JSON last, else `cli`.

        Raises:
            UsageError: The name is unknown.
        """
        flags = [name for name in FORMATS if getattr(self, name, False)]
        asked = sorted(flags, key="json".__eq__)
        wanted = (self.format or "").strip().lower()
        if wanted and wanted not in FORMATS:
            raise UsageError(f"Unknown --format value: {self.format}", f"Valid: {', '.join(FORMATS)}")
        chosen = wanted or (asked[0] if asked else "cli")
        if ignored := [f"--{name}" for name in asked if name != chosen]:
            warn(f"one format at a time: using {chosen}, {' and '.join(ignored)} has no effect")
        return chosen


def positive_number(text: str | None, option: str, default: int) -> int:
    """Return the value of a count option, at most `LARGEST_NUMBER`; warn and return the default if it is not valid."""
    if text is None:
        return default
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        warn(f"{option} '{text}' is not a positive whole number; using {default}")
        return default
    return min(number, LARGEST_NUMBER)


def cuts_declarations(chunk_strategy: str | None) -> bool:
    """Return whether source code is split at declarations (`auto`, the default), not as plain text (`regex`).

    Raises:
        UsageError: The strategy is unknown.
    """
    if chunk_strategy not in (None, "auto", "regex"):
        raise UsageError(f"unknown --chunk-strategy '{chunk_strategy}'", "Valid: auto, regex")
    return chunk_strategy != "regex"
