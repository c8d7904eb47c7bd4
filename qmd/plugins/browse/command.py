"""Commands `browse` and `save`, and the picker of `query -i` and `search -i`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from qmd.app.disk_paths import linker
from qmd.cli.invocation import Invocation
from qmd.cli.options import SCREEN_LIMIT, Collections, Index, NoGpu, QueryWords
from qmd.cli.output import has_no_keys, out, say, stderr_is_terminal
from qmd.config.saved import named_query, save_search, saved_searches
from qmd.errors import EXIT_FAILURE, EXIT_OK, NotFoundError, QmdError
from qmd.escapes import LONG_CHARS, one_line
from qmd.plugins import hooks
from qmd.retrieval.query import read_query
from qmd.retrieval.query_filters import filter_text
from qmd.retrieval.request import SearchRequest

if TYPE_CHECKING:
    from qmd.app.index import Index as OpenIndex
    from qmd.plugins.browse.rows import Note


def browse(
    invocation: Invocation,
    query: QueryWords = None,
    collection: Collections = None,
    no_gpu: NoGpu = False,
    index: Index = None,
) -> int:
    """Search as you type, read the notes."""
    request = SearchRequest(
        " ".join(query or ()), mode="hybrid", collections=tuple(collection or ()), limit=SCREEN_LIMIT
    )
    with invocation.open(invocation.locate(index), allow_gpu=not no_gpu) as opened:
        _run(invocation, opened, request, is_picker=False)
    return EXIT_OK


def save(
    invocation: Invocation,
    name: Annotated[str | None, Argument(help="A name; without one, list saved searches.")] = None,
    query: Annotated[list[str] | None, Argument(help="The query, filters included.")] = None,
    collection: Collections = None,
    remove: Annotated[bool, Option("--remove", help="Remove the saved search.")] = False,
) -> int:
    """Save a search under a name: `qmd query @name`, here, in agents and on the page."""
    folder = invocation.locate(None).config_dir
    text = " ".join((*(filter_text("collection", one) for one in collection or ()), *(query or ())))
    if name is None:
        saved = saved_searches(folder)
        out("".join(f"@{one}  {one_line(kept, LONG_CHARS)}\n" for one, kept in saved.items()))
        if not saved:
            say("Nothing is saved yet. Save a search: qmd save NAME QUERY")
        return EXIT_OK
    if remove == bool(text):
        raise invocation.missing("query")
    text = named_query(text, folder)
    if not remove:
        read_query(SearchRequest(text))  # reports errors in it now
    before = save_search(folder, name, None if remove else text)
    if remove and before is None:
        raise NotFoundError(f"no search is saved as '{name}'", "see: qmd save")
    was = f"; it was: {before}" if before not in (None, text) else ""
    say(f"{'Removed' if remove else 'Saved'} @{name.removeprefix('@')}{f': {text}' if text else ''}{was}")
    return EXIT_OK


def pick_note(invocation: Invocation, opened: OpenIndex, request: SearchRequest, *, full_path: bool) -> int:
    """Let the user choose a note, and print its address or path; fail without output if none is chosen."""
    note = _run(invocation, opened, request, is_picker=True)
    if note is None:
        return EXIT_FAILURE
    uri = note.document.uri
    shown = opened.disk_paths([note.document]).get(uri, uri) if full_path else uri
    out(f"{shown}\n")
    return EXIT_OK


def _run(invocation: Invocation, opened: OpenIndex, request: SearchRequest, *, is_picker: bool) -> Note | None:
    """Show the screen until the user leaves it; return the chosen note."""
    if not (sys.stdin.isatty() and stderr_is_terminal()) or has_no_keys() or invocation.environ.get("TERM") == "dumb":
        name, case = (f"{invocation.command} -i", "letter case never matters; ") if is_picker else ("browse", "")
        raise QmdError(f"'qmd {name}' needs a terminal with a keyboard", f"{case}in a script: qmd query --json")
    from qmd.plugins.browse.app import BrowseApp, Picker
    from qmd.plugins.browse.background import is_light

    # This may ask for trust in a project's configuration, which the screen would hide.
    opened.engine_settings()

    def open_note(note: Note) -> None:
        hooks.open_found(invocation, opened, note.document, note.line)

    kind = Picker if is_picker else BrowseApp
    app = kind(
        opened,
        request,
        open_note=open_note,
        link=lambda note: _link(opened, note),
        saved=saved_searches(invocation.locate(None).config_dir),
        is_light=is_light(invocation.environ, sys.stdin.fileno(), sys.stderr.fileno()),
    )
    # Textual's own tracebacks do not help users.
    app.error_console.quiet = True
    with _redirect_stdout():
        note = app.run()
    if app._exception is not None:
        raise app._exception
    if not sys.stdin.isatty():
        raise QmdError("the terminal was closed", "in a script: qmd query --json")
    return note


@contextmanager
def _redirect_stdout() -> Iterator[None]:
    """Redirect stdout to stderr: Textual draws there, and asks stdout for the size of the terminal.

    So a command substitution gets only the choice, without the output of libraries.
    """
    sys.stdout.flush()
    kept = os.dup(1)
    try:
        os.dup2(2, 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def _link(opened: OpenIndex, note: Note) -> str:
    """Return a link that opens the note, or else its address in the index."""
    path = opened.disk_paths([note.document]).get(note.document.uri)
    return (linker(None)(path, 1) if path else "") or note.document.uri
