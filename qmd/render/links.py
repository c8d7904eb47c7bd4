"""Links and related notes of a note: as text, as objects, and drawn for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from qmd.app.records import NoteLink, NoteLinks, RelatedNote, RelatedNotes
from qmd.escapes import address_line, one_line
from qmd.records import Link, StoredDocument
from qmd.render.columns import ElidedText, count, heading, indented, shown, tabulate
from qmd.render.drawing import Screen, draw
from qmd.render.terminal import Styled
from qmd.render.text import round_half_up

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

NameOf = Callable[[StoredDocument], str]
"""Function that names a document for the reader of the answer."""


def render_links(found: NoteLinks, name_of: NameOf) -> str:
    """Render `links`: the line of each link, the note at its other end, and the text of the link."""
    outgoing = [f"  {one.link.line}: {_named(one, name_of)}{_shown(one.link, one.document)}" for one in found.outgoing]
    incoming = [f"  {_named(one, name_of)}:{one.link.line}{_shown(one.link, found.document)}" for one in found.incoming]
    unresolved = [f"  {one.link.line}: {_named(one, name_of)}{_shown(one.link, None)}" for one in found.unresolved]
    lines = [_head(found.document, name_of)]
    for title, entries in (("Links to", outgoing), ("Linked from", incoming), ("Broken links", unresolved)):
        if entries:
            lines += ["", f"{title} ({len(entries)})", *entries]
    if len(lines) == 1:
        lines += ["", "No links."]
    return "\n".join(lines) + "\n"


def links_object(found: NoteLinks, name_of: NameOf) -> dict[str, object]:
    """Return the note with three lists of links; `line` is in the note that contains the link."""
    return {
        **_note(found.document, name_of),
        "outgoing": [_link(one, name_of) for one in found.outgoing],
        "incoming": [_link(one, name_of) for one in found.incoming],
        "unresolved": [_link(one, name_of) for one in found.unresolved],
    }


def render_related(found: RelatedNotes, name_of: NameOf) -> str:
    """Render `related`: score, note, title and kind of connection."""
    if not found.notes:
        return "No related notes.\n"
    return "".join(
        f"{int(note.score * 100 + 0.5):>3}%  {_head(note.document, name_of)}  {one_line(note.document.title)}"
        f"{f'  ({how})' if (how := connection(note)) else ''}\n"
        for note in found.notes
    )


def related_rows(notes: Sequence[RelatedNote], name_of: NameOf) -> list[dict[str, object]]:
    """Return one object per note, best first; `similarity` only if it is known."""
    rows = []
    for note in notes:
        row: dict[str, object] = {**_note(note.document, name_of), "score": round_half_up(note.score)}
        if note.similarity is not None:
            row["similarity"] = round_half_up(note.similarity)
        row |= {"linksTo": note.links_to, "linkedFrom": note.linked_from}
        row |= {"also_in": list(note.also_in)} if note.also_in else {}
        rows.append(row | {"sharedLinks": round_half_up(note.shared_links), "uri": note.document.uri})
    return rows


def _note(document: StoredDocument, name_of: NameOf) -> dict[str, object]:
    return {"docid": document.docid, "file": name_of(document), "title": document.title}


def _link(one: NoteLink, name_of: NameOf) -> dict[str, object]:
    link = one.link
    row = _note(one.document, name_of) if one.document is not None else {}
    row |= {"line": link.line, "target": link.target}
    optional = {"fragment": link.fragment, "text": link.text, "embed": link.is_embed}
    return row | {key: value for key, value in optional.items() if value}


def _head(document: StoredDocument, name_of: NameOf) -> str:
    return f"{address_line(name_of(document))}  {document.docid}"


def _named(one: NoteLink, name_of: NameOf) -> str:
    return address_line(name_of(one.document)) if one.document is not None else one_line(written_target(one.link))


def written_target(link: Link) -> str:
    """Return the target of a link as the note writes it."""
    return f"{link.target}#{link.fragment}" if link.fragment else link.target


def shown_words(link: Link, target: StoredDocument | None) -> str:
    """Return the text of a link; empty if it is only the name."""
    name = target.path.rpartition("/")[2].removesuffix(".md") if target is not None else link.target
    return link.text if link.text != name else ""


def _shown(link: Link, target: StoredDocument | None) -> str:
    words = shown_words(link, target)
    return f'  "{one_line(words)}"' if words else ""


def connection(note: RelatedNote) -> str:
    """Return the kind of connection between a note and a related one, and its copies; empty without either."""
    how = "shared links" if note.shared_links else ""
    if note.links_to or note.linked_from:
        how = "linked from here" if not note.links_to else "linked both ways" if note.linked_from else "links here"
    return ", ".join(filter(None, (how, *(f"also in {address_line(uri)}" for uri in note.also_in))))


_WIDE = 100
"""Minimum columns for titles next to the paths."""

Targets = Mapping[str, str]
"""Address of a document → target of a click; without deleted files."""


def draw_links(screen: Screen, found: NoteLinks, targets: Targets) -> Styled:
    """Draw `links`: links from a note, links to it, and broken links."""
    ends = [(one, one.document) for one in found.outgoing if one.document is not None]
    starts = [(one, one.document) for one in found.incoming if one.document is not None]
    is_one = _is_one_collection(found.document, [document for _, document in (*ends, *starts)])
    outgoing = [(f"{one.link.line}", _drawn_name(note, targets, is_one), _words(one, note)) for one, note in ends]
    incoming = [
        (f"{one.link.line}", _drawn_name(note, targets, is_one), _words(one, found.document)) for one, note in starts
    ]
    unresolved = [(f"{one.link.line}", shown(written_target(one.link)), _words(one, None)) for one in found.unresolved]
    parts: list[RenderableType] = [_drawn_head(found.document, targets)]
    for title, rows in (("Links to", outgoing), ("Linked from", incoming), ("Broken links", unresolved)):
        if rows:
            drawn = tabulate(("Line", "Note", "Shown as"), rows, right=("Line",), fold=("Note", "Shown as"))
            parts += ["", heading(title, count(len(rows), "link")), indented(drawn)]
    if len(parts) == 1:
        parts += ["", shown("No links.", "faint")]
    return draw(screen, *parts)


def draw_related(screen: Screen, found: RelatedNotes, targets: Targets) -> Styled:
    """Draw `related`: score, name and kind of connection of each note."""
    head = _drawn_head(found.document, targets)
    if not found.notes:
        return draw(screen, head, "", shown("No related notes.", "faint"))
    is_one = _is_one_collection(found.document, [one.document for one in found.notes])
    rows = [
        (
            f"{int(one.score * 100 + 0.5)}%",
            _drawn_name(one.document, targets, is_one),
            _title(one.document) if screen.width >= _WIDE else "",
            shown(connection(one), "faint") if connection(one) else "",
        )
        for one in found.notes
    ]
    drawn = tabulate(("Score", "Note", "Title", "Linked"), rows, right=("Score",), fold=("Note", "Title"))
    return draw(screen, head, "", drawn)


def _drawn_head(document: StoredDocument, targets: Targets) -> Table:
    cells = (_drawn_name(document, targets, False, "title"), shown(document.docid, "faint"))
    return tabulate(("", " "), [cells], fold=("",))


def _is_one_collection(document: StoredDocument, others: Sequence[StoredDocument]) -> bool:
    """Return whether all documents are in one collection, so that its name is not repeated."""
    return all(one.collection == document.collection for one in others)


def _drawn_name(document: StoredDocument, targets: Targets, is_one_collection: bool, style: str = "") -> ElidedText:
    name = document.path if is_one_collection else f"{document.collection}/{document.path}"
    return ElidedText(name, targets.get(document.uri), style)


def _title(document: StoredDocument) -> RenderableType:
    """Return the title; empty if it only repeats the file's name."""
    name = document.path.rpartition("/")[2].rpartition(".")[0]
    return shown(document.title) if _plain(document.title) != _plain(name) else ""


def _plain(name: str) -> str:
    return name.casefold().replace("-", " ").replace("_", " ").strip()


def _words(one: NoteLink, target: StoredDocument | None) -> RenderableType:
    words = shown_words(one.link, target)
    return shown(words, "faint") if words else ""
