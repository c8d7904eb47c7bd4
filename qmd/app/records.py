"""What adapters ask an index and what it answers, where `qmd.records` and `qmd.indexing` have no record for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypedDict

from msgspec import Struct

from qmd.records import Link, StoredDocument

if TYPE_CHECKING:
    from qmd.inference.base import EngineDescription

DEFAULT_MAX_BYTES = 65_536
"""Longest document, in bytes, that is shown as one of several unless the request says otherwise."""

LEAST_TOKENS = 50
"""Of a budget: the address of a result, and how to go on, have room."""


def as_names(collections: str | Sequence[str] | None) -> tuple[str, ...] | None:
    """Names given one by one or together; None stays None."""
    return (collections,) if isinstance(collections, str) else None if collections is None else tuple(collections)


class DocumentText(Struct, frozen=True):
    """A document with its text, or the lines of it that were asked for."""

    document: StoredDocument
    context: str | None
    """The user's notes on its path."""
    text: str
    first_line: int = 1
    """Number of the first line of `text` in the file."""
    is_whole: bool = True
    """Whether `text` is all of it, its last line break included; lines that were asked for end without one."""
    warnings: tuple[str, ...] = ()
    """Where else the text lies, if the reference fits that as well."""


class SkippedDocument(Struct, frozen=True):
    """A document that a pattern names but whose text was left out."""

    document: StoredDocument
    context: str | None
    reason: str


class DocumentTexts(Struct, frozen=True):
    """What a pattern names, in order."""

    entries: tuple[DocumentText | SkippedDocument, ...]
    problems: tuple[str, ...] = ()
    """One line for each part of the pattern that names nothing, or too much."""
    is_glob: bool = False
    """Whether the pattern was one, not a list of names."""

    @property
    def documents(self) -> tuple[DocumentText, ...]:
        """Those with their texts."""
        return tuple(entry for entry in self.entries if isinstance(entry, DocumentText))

    @property
    def skipped(self) -> tuple[SkippedDocument, ...]:
        """Those without."""
        return tuple(entry for entry in self.entries if isinstance(entry, SkippedDocument))


class Listing(Struct, frozen=True):
    """The documents of a collection below a path, in order."""

    collection: str
    prefix: str
    documents: tuple[StoredDocument, ...]


class NoteLink(Struct, frozen=True):
    """A link as it is written, and the note at its other end; None where there is no such note."""

    link: Link
    document: StoredDocument | None


class NoteLinks(Struct, frozen=True):
    """The links in a note and to it, by line, and by path and line."""

    document: StoredDocument
    outgoing: tuple[NoteLink, ...]
    incoming: tuple[NoteLink, ...]
    unresolved: tuple[NoteLink, ...]
    """Links in the note that lead to no note of its collection."""
    warnings: tuple[str, ...] = ()


class RelatedNote(Struct, frozen=True):
    """A note on the same matter as another."""

    document: StoredDocument
    score: float
    """In [0, 1]; see `qmd.app.linking`."""
    similarity: float | None
    """Cosine of its nearest chunk; None without vectors, or where it is far from the nearest notes."""
    links_to: bool
    """Whether it links to the other note."""
    linked_from: bool
    shared_links: float
    """How much both link to the same notes, from 0 on."""


class RelatedNotes(Struct, frozen=True):
    """The notes related to one, best first."""

    document: StoredDocument
    notes: tuple[RelatedNote, ...]
    warnings: tuple[str, ...] = ()


class ContextNote(Struct, frozen=True):
    """A note on the documents below a path; collection and prefix are empty for the note on everything."""

    collection: str
    prefix: str
    text: str


class IndexHealth(Struct, frozen=True):
    """Whether the index needs work."""

    documents: int
    pending_documents: int
    """Texts without vectors of the model that was used last; `Index.embed` computes them."""
    days_since_update: int | None
    """Whole days since the last completed update; None before the first."""


class Overview(Struct, frozen=True):
    """An index in three facts: number of documents, the user's note on everything, collections searched by default."""

    documents: int
    global_context: str | None
    default_collections: tuple[str, ...]


class Part(Struct, frozen=True):
    """A collection, or what lies `below` one folder or file of it."""

    collection: str
    below: str = ""


class EmbedRequest(Struct, frozen=True):
    """Which texts get vectors, and for how long."""

    collections: tuple[str, ...] | None = None
    """Only texts of these; None = all."""
    force: bool = False
    """Compute the vectors of these texts anew; the present ones serve until that is done."""
    timeout_s: float | None = None
    """Stop after so long; what was computed is kept."""
    cut_declarations: bool = True
    """Cut source files at their declarations; False cuts them as plain text."""
    resumes: bool = False
    """After `timeout_s` the same index goes on in a moment: to others it is one run."""


class EmbedOptions(TypedDict, total=False):
    """The fields of `EmbedRequest` that may be given by name."""

    force: bool
    timeout_s: float | None
    cut_declarations: bool
    resumes: bool


class EmbeddingStart(Struct, frozen=True):
    """What is known when an embedding run begins."""

    model: EngineDescription
    pending: int
    """Texts without vectors of that model."""
