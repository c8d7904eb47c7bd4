"""`qmd open`: open a note for editing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from qmd.app.recent_hits import recall_hit
from qmd.cli import completion
from qmd.cli.invocation import Invocation
from qmd.cli.options import Index
from qmd.cli.output import out, say
from qmd.errors import NotFoundError
from qmd.ingest.outline import UNKNOWN, kind_of
from qmd.plugins.editor.launching import Launch, NoDesktop, launch, plan_launch, plan_viewing

if TYPE_CHECKING:
    from qmd.app.index import Index as OpenIndex
    from qmd.records import StoredDocument

_MOST_DIGITS = 4
"""Most digits of a hit's number; a docid has six, and a longer number is the name of a note."""

_Target = Annotated[
    list[str],
    Argument(
        metavar="<note>",
        help="Name, path, link or #docid, or the number of a hit; :LINE or #HEADING goes there.",
        autocompletion=completion.documents,
    ),
]
_Print = Annotated[bool, Option("--print", help="Print the command that would run instead.")]


def open_note(invocation: Invocation, note: _Target, print_only: _Print = False, index: Index = None) -> int:
    """Open a note in an editor."""
    reference = " ".join(note)
    locations = invocation.locate(index)
    line = None
    if reference.isascii() and reference.isdigit() and len(reference) <= _MOST_DIGITS:
        reference, line = recall_hit(locations, int(reference))
    with invocation.open(locations) as opened:
        found = opened.get(reference, max_lines=1, folder=invocation.cwd)
        plan = _plan_document(invocation, opened, found.document, line or found.first_line)
    invocation.warn_each(locations, found.warnings)
    if print_only:
        out(f"{plan}\n")
        return 0
    try:
        launch(plan)
    except NoDesktop as error:
        if invocation.screen is None:
            raise
        from qmd.cli.documents import get

        # An address may already contain a line, and no second one may follow.
        first = line or found.first_line
        get(invocation, [found.document.uri], from_line=first if first > 1 else None, index=index)
        say(f"shown here: {error.message}")
    return 0


def _plan_document(invocation: Invocation, index: OpenIndex, document: StoredDocument, line: int) -> Launch:
    """Choose the program that opens a document at a line.

    Raises:
        NotFoundError: Its file does not exist.
        QmdError: The variable of an editor is not a command, or no program is known for the file.
    """
    path = index.disk_paths([document]).get(document.uri)
    if path is None:
        raise NotFoundError(f"the file of '{document.uri}' is missing", "refresh the index: qmd update")
    kind = kind_of(document.path)
    if kind.needs or kind.is_name:
        pages = re.findall(r"(?m)^### p(\d+)$", index.get(document.uri, max_lines=line).text)
        return plan_viewing(Path(path), int(pages[-1]) if kind.place == "p" and pages else 1)
    # Lines of extracted text are not lines of the file.
    line = line if kind.decode == UNKNOWN.decode else 1
    return plan_launch(Path(path), line, invocation.environ, index.editor_uri())


def open_found(invocation: Invocation, index: OpenIndex, document: StoredDocument, line: int) -> None:
    """Open a document at a line, and wait for the program.

    Raises:
        NotFoundError: Its file does not exist.
        QmdError: No program is known for the file, or it fails.
    """
    launch(_plan_document(invocation, index, document, line))
