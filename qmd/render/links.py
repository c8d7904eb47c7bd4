"""What a note is connected with: its links and the notes related to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from qmd.app.records import NoteLink, NoteLinks, RelatedNote, RelatedNotes
from qmd.records import Link, StoredDocument
from qmd.render.text import json_text, round_half_up

NameOf = Callable[[StoredDocument], str]
"""What a document is called where the answer goes."""


def render_links(found: NoteLinks, name_of: NameOf) -> str:
    """`links`: the line of each link, the note at its other end, and what the link shows."""
    outgoing = [f"  {one.link.line}: {_named(one, name_of)}{_shown(one.link, one.document)}" for one in found.outgoing]
    incoming = [f"  {_named(one, name_of)}:{one.link.line}{_shown(one.link, found.document)}" for one in found.incoming]
    unresolved = [f"  {one.link.line}: {written_target(one.link)}{_shown(one.link, None)}" for one in found.unresolved]
    lines = [_head(found.document, name_of)]
    for title, entries in (("Links to", outgoing), ("Linked from", incoming), ("Broken links", unresolved)):
        if entries:
            lines += ["", f"{title} ({len(entries)})", *entries]
    if len(lines) == 1:
        lines += ["", "No links."]
    return "\n".join(lines) + "\n"


def links_json(found: NoteLinks, name_of: NameOf) -> str:
    """`links --json`."""
    return json_text(links_object(found, name_of))


def links_object(found: NoteLinks, name_of: NameOf) -> dict[str, object]:
    """The note with three lists of links; `line` is that of the note that holds the link."""
    return {
        **_note(found.document, name_of),
        "outgoing": [_link(one, name_of) for one in found.outgoing],
        "incoming": [_link(one, name_of) for one in found.incoming],
        "unresolved": [_link(one, name_of) for one in found.unresolved],
    }


def render_related(found: RelatedNotes, name_of: NameOf) -> str:
    """`related`: score, note, title, and how the two are linked."""
    if not found.notes:
        return "No related notes.\n"
    return "".join(
        f"{int(note.score * 100 + 0.5):>3}%  {_head(note.document, name_of)}  {note.document.title}{_linked(note)}\n"
        for note in found.notes
    )


def related_json(found: RelatedNotes, name_of: NameOf) -> str:
    """`related --json`: a list of notes."""
    return json_text(related_rows(found.notes, name_of))


def related_rows(notes: Sequence[RelatedNote], name_of: NameOf) -> list[dict[str, object]]:
    """One object per note, best first; `similarity` only where it is known."""
    rows = []
    for note in notes:
        row: dict[str, object] = {**_note(note.document, name_of), "score": round_half_up(note.score)}
        if note.similarity is not None:
            row["similarity"] = round_half_up(note.similarity)
        row |= {"linksTo": note.links_to, "linkedFrom": note.linked_from}
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
    return f"{name_of(document)}  {document.docid}"


def _named(one: NoteLink, name_of: NameOf) -> str:
    return name_of(one.document) if one.document is not None else written_target(one.link)


def written_target(link: Link) -> str:
    """Where a link leads, as the note writes it."""
    return f"{link.target}#{link.fragment}" if link.fragment else link.target


def shown_words(link: Link, target: StoredDocument | None) -> str:
    """What the link shows, where that is more than the name; empty otherwise."""
    name = target.path.rpartition("/")[2].removesuffix(".md") if target is not None else link.target
    return link.text if link.text != name else ""


def _shown(link: Link, target: StoredDocument | None) -> str:
    words = shown_words(link, target)
    return f'  "{words}"' if words else ""


def _linked(note: RelatedNote) -> str:
    return f"  ({linked_how(note)})" if linked_how(note) else ""


def linked_how(note: RelatedNote) -> str:
    """How a related note and the one it was asked of are linked; empty where they are not."""
    if note.links_to and note.linked_from:
        return "linked both ways"
    if note.links_to or note.linked_from:
        return "links here" if note.links_to else "linked from here"
    return "shared links" if note.shared_links else ""
