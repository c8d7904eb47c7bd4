"""`qmd add`: save typed or piped text as a note."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Annotated

from msgspec.json import encode
from typer import Argument, Option

from qmd.cli.invocation import Invocation
from qmd.cli.options import Index, Json
from qmd.cli.output import out, warn
from qmd.config.paths import expand_home
from qmd.errors import QmdError, UsageError
from qmd.foreign import short
from qmd.plugins.adding.notes import MAX_BYTES, NewNote, add_note

_To = Annotated[str | None, Option(metavar="PLACE", help="COLLECTION, COLLECTION/FOLDER or COLLECTION/NOTE.md.")]


def add(
    invocation: Invocation,
    text: Annotated[list[str], Argument(metavar="<text|->", help="The text; - reads stdin.")],
    title: Annotated[str | None, Option(metavar="TEXT", help="Title; names the file.")] = None,
    tags: Annotated[str | None, Option(metavar="A,B", help="Tags.")] = None,
    to: _To = None,
    daily: Annotated[bool, Option("--daily", help="Append to the note of today.")] = False,
    source: Annotated[str | None, Option(metavar="TEXT", help="Who or what it is from.")] = None,
    force: Annotated[bool, Option("-f", "--force", help="Save even if a note has nearly the same text.")] = False,
    json: Json = False,
    index: Index = None,
) -> int:
    """Save text as a note."""
    words = " ".join(text)
    if os.path.lexists(invocation.cwd / expand_home(words)):
        raise UsageError(
            f"'{short(words)}' is a file or folder", f"did you mean 'qmd index {words}', or 'qmd add - < FILE'?"
        )
    if words == "-":
        words = sys.stdin.buffer.read(MAX_BYTES + 1).decode(errors="surrogateescape")
    note = NewNote(words, title or "", (tags or "").split(","), to or "", daily, source or "", force)
    with invocation.open(invocation.locate(index)) as opened:
        added = add_note(opened, note, opened.trusted_collections())
        with suppress(QmdError, OSError):  # lexical search needs no vectors
            opened.embed(timeout_s=5.0)
    for warning in added.warnings:
        warn(warning)
    out(f"{encode(added).decode()}\n" if json else f"{added.status} {added.file} {added.docid or ''}".rstrip() + "\n")
    return 0
