"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Literal

from msgspec import Struct
from typer import Argument, Option

from qmd.app.records import LEAST_TOKENS
from qmd.cli import completion
from qmd.cli.output import warn
from qmd.errors import UsageError
from qmd.plugins import STORES
from qmd.render.formats import DOCUMENT_FORMATS, FORMATS

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
FormatName = Annotated[
    str | None,
    RareOption(
        "--format",
        metavar="NAME",
        help=f"{', '.join(DOCUMENT_FORMATS)}; a search also has grep.",
        autocompletion=completion.one_of(*FORMATS),
    ),
]
FullPath = Annotated[bool, Option("--full-path", help="Show paths on disk instead of qmd:// addresses.")]
NoLineNumbers = Annotated[bool, RareOption("--no-line-numbers", help="Show no line numbers.")]
NoIgnore = Annotated[bool, RareOption("--no-ignore", help="Also index files that .gitignore excludes.")]
NoGpu = Annotated[bool, RareOption("--no-gpu", help="Run models on the CPU.")]
ChunkStrategy = Annotated[
    Literal["auto", "regex"],
    RareOption(
        "--chunk-strategy",
        metavar="NAME",
        help="auto splits source code at declarations, regex splits it as plain text.",
    ),
]

QueryWords = Annotated[
    list[str] | None, Argument(help="Words, a question, or typed lines (lex:, vec:, hyde:, intent:).")
]
Limit = Annotated[
    int | None,
    Option("-n", "--n", metavar="N", min=1, help="Show at most N results [default: 5; 20 for json, files, grep]"),
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
    # Accepted for programs; `--format` is listed.
    csv: Annotated[bool, Option("--csv", hidden=True)] = False
    md: Annotated[bool, Option("--md", hidden=True)] = False
    xml: Annotated[bool, Option("--xml", hidden=True)] = False
    files: Annotated[bool, Option("--files", hidden=True)] = False
    grep: Annotated[bool, Option("--vimgrep", hidden=True)] = False

    def chosen(self, valid: Sequence[str] = DOCUMENT_FORMATS) -> str:
        """Return `--format`, else the first option that names a format, JSON last, else `cli`.

        Raises:
            UsageError: The name is not valid.
        """
        flags = [name for name in FORMATS if getattr(self, name, False)]
        asked = sorted(flags, key="json".__eq__)
        chosen = (self.format or "").strip().lower() or (asked[0] if asked else "cli")
        if chosen not in valid:
            raise UsageError(f"Unknown --format value: {self.format or chosen}", f"Valid: {', '.join(valid)}")
        if ignored := [f"--{name}" for name in asked if name != chosen]:
            warn(f"one format at a time: using {chosen}, {' and '.join(ignored)} has no effect")
        return chosen
