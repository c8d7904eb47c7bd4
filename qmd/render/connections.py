"""The links of a note and its related notes, drawn for a terminal; what programs read is in `qmd.render.links`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from qmd.app.records import NoteLink, NoteLinks, RelatedNotes
from qmd.records import StoredDocument
from qmd.render.columns import Elided, count, heading, indented, next_steps, shown, tabulate
from qmd.render.drawing import Screen, draw
from qmd.render.links import linked_how, shown_words, written_target
from qmd.render.terminal import Styled

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

_WIDE = 100
"""Columns from which titles stand beside the paths."""

Targets = Mapping[str, str]
"""Address of a document → what a click on it opens; without those whose file is gone."""


def draw_links(screen: Screen, found: NoteLinks, targets: Targets, index_name: str = "index") -> Styled:
    """`links`: what a note links to, what links to it, and which of its links lead nowhere."""
    ends = [(one, one.document) for one in found.outgoing if one.document is not None]
    starts = [(one, one.document) for one in found.incoming if one.document is not None]
    is_one = _is_one_collection(found.document, [document for _, document in (*ends, *starts)])
    outgoing = [(f"{one.link.line}", _name(note, targets, is_one), _words(one, note)) for one, note in ends]
    incoming = [(f"{one.link.line}", _name(note, targets, is_one), _words(one, found.document)) for one, note in starts]
    unresolved = [(f"{one.link.line}", shown(written_target(one.link)), _words(one, None)) for one in found.unresolved]
    parts: list[RenderableType] = [_head(found.document, targets)]
    for title, rows in (("Links to", outgoing), ("Linked from", incoming), ("Leads nowhere", unresolved)):
        if rows:
            drawn = tabulate(("Line", "Note", "Shown as"), rows, right=("Line",), fold=("Note", "Shown as"))
            parts += ["", heading(title, count(len(rows), "link")), indented(drawn)]
    if len(parts) == 1:
        parts += ["", shown("No links.", "faint")]
    step = (f"qmd related {_quoted(found.document)}", "notes on the same matter")
    return draw(screen, *parts, *next_steps([step], index_name))


def draw_related(screen: Screen, found: RelatedNotes, targets: Targets, index_name: str = "index") -> Styled:
    """`related`: how near each note is, what it is called, and how the two are linked."""
    head = _head(found.document, targets)
    if not found.notes:
        return draw(screen, head, "", shown("No related notes.", "faint"))
    is_one = _is_one_collection(found.document, [one.document for one in found.notes])
    rows = [
        (
            f"{int(one.score * 100 + 0.5)}%",
            _name(one.document, targets, is_one),
            _title(one.document) if screen.width >= _WIDE else "",
            shown(linked_how(one), "faint") if linked_how(one) else "",
        )
        for one in found.notes
    ]
    drawn = tabulate(("Near", "Note", "Title", "Linked"), rows, right=("Near",), fold=("Note", "Title"))
    step = (f"qmd get {_quoted(found.notes[0].document)}", "read the first of them")
    return draw(screen, head, "", drawn, *next_steps([step], index_name))


def _head(document: StoredDocument, targets: Targets) -> Table:
    cells = (_name(document, targets, False, "title"), shown(document.docid, "faint"))
    return tabulate(("", " "), [cells], fold=("",))


def _is_one_collection(document: StoredDocument, others: Sequence[StoredDocument]) -> bool:
    """Whether the name of the collection, said above, need not be said again."""
    return all(one.collection == document.collection for one in others)


def _name(document: StoredDocument, targets: Targets, is_one_collection: bool, style: str = "") -> Elided:
    name = document.path if is_one_collection else f"{document.collection}/{document.path}"
    return Elided(name, targets.get(document.uri), style)


def _title(document: StoredDocument) -> RenderableType:
    """The title, where it is more than another spelling of the file's name."""
    name = document.path.rpartition("/")[2].rpartition(".")[0]
    return shown(document.title) if _plain(document.title) != _plain(name) else ""


def _plain(name: str) -> str:
    return name.casefold().replace("-", " ").replace("_", " ").strip()


def _words(one: NoteLink, target: StoredDocument | None) -> RenderableType:
    words = shown_words(one.link, target)
    return shown(words, "faint") if words else ""


def _quoted(document: StoredDocument) -> str:
    """The docid as a shell takes it, for which `#` begins a comment."""
    return f"'{document.docid}'"
