"""Records of requests and answers of an index, apart from `qmd.records` and `qmd.indexing`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypedDict

from msgspec import Struct

from qmd.records import Link, StoredDocument

if TYPE_CHECKING:
    from qmd.inference.base import EngineDescription

DEFAULT_MAX_BYTES = 65_536
"""Default size limit, in bytes, of a document that is shown as one of several."""

LEAST_TOKENS = 50
"""Smallest token budget: the address of a result and a cursor fit."""


def as_names(collections: str | Sequence[str] | None) -> tuple[str, ...] | None:
    """Return one name or several as a tuple; None stays None."""
    return (collections,) if isinstance(collections, str) else None if collections is None else tuple(collections)


class DocumentText(Struct, frozen=True):
    """Document with its text, or with the requested lines."""

    document: StoredDocument
    context: str | None
    """Contexts of its path."""
    text: str
    first_line: int = 1
    """Number of the first line of `text` in the file."""
    is_whole: bool = True
    """Whether `text` is the whole text with its last line break; requested lines end without one."""
    warnings: tuple[str, ...] = ()
    """Other documents with the same text that match the reference as well."""
    mark: str = ""
    """End of `text` that is not the note's: qmd's line about the missing ones."""
    written_context: str | None = None
    """See `Hit`."""


class SkippedDocument(Struct, frozen=True):
    """Document that matches a pattern, but whose text was skipped."""

    document: StoredDocument
    context: str | None
    reason: str
    written_context: str | None = None


class DocumentTexts(Struct, frozen=True):
    """Documents that match a pattern, in order."""

    entries: tuple[DocumentText | SkippedDocument, ...]
    problems: tuple[str, ...] = ()
    """One line for each part of the pattern that matches nothing, or too much."""
    is_glob: bool = False
    """Whether the pattern was a glob, not a list of names."""

    @property
    def documents(self) -> tuple[DocumentText, ...]:
        """Entries with their texts."""
        return tuple(entry for entry in self.entries if isinstance(entry, DocumentText))

    @property
    def skipped(self) -> tuple[SkippedDocument, ...]:
        """Entries without their texts."""
        return tuple(entry for entry in self.entries if isinstance(entry, SkippedDocument))


class Listing(Struct, frozen=True):
    """Documents of a collection below a path, in order."""

    collection: str
    prefix: str
    documents: tuple[StoredDocument, ...]


class NoteLink(Struct, frozen=True):
    """Link as written, and the note at its other end; None where there is no such note."""

    link: Link
    document: StoredDocument | None


class NoteLinks(Struct, frozen=True):
    """Links from a note, by line, and to it, by path and line."""

    document: StoredDocument
    outgoing: tuple[NoteLink, ...]
    incoming: tuple[NoteLink, ...]
    unresolved: tuple[NoteLink, ...]
    """Links from the note that lead to no note of its collection."""
    warnings: tuple[str, ...] = ()


class RelatedNote(Struct, frozen=True):
    """Note that is similar to another."""

    document: StoredDocument
    score: float
    """In [0, 1]; see `qmd.app.linking`."""
    similarity: float | None
    """Cosine of its nearest chunk; None without vectors, or where it is far from the nearest notes."""
    links_to: bool
    """Whether it links to the other note."""
    linked_from: bool
    shared_links: float
    """Degree to which both link to the same notes, >= 0."""
    also_in: tuple[str, ...] = ()
    """Addresses of its copies."""


class RelatedNotes(Struct, frozen=True):
    """Notes related to one, best first."""

    document: StoredDocument
    notes: tuple[RelatedNote, ...]
    warnings: tuple[str, ...] = ()


class ContextNote(Struct, frozen=True):
    """Context of the documents below a path; collection and prefix are empty for the global context."""

    collection: str
    prefix: str
    text: str


class IndexHealth(Struct, frozen=True):
    """Work that the index needs."""

    documents: int
    pending_documents: int
    """Texts without vectors of the model that was used last; `Index.embed` computes them."""
    days_since_update: int | None
    """Whole days since the last completed update; None before the first."""


class Overview(Struct, frozen=True):
    """Summary of an index: number of documents, trusted global context, collections searched by default."""

    documents: int
    global_context: str | None
    default_collections: tuple[str, ...]


class Part(Struct, frozen=True):
    """Collection, or the part `below` one of its folders or files."""

    collection: str
    below: str = ""


class EmbedRequest(Struct, frozen=True):
    """Request to compute vectors: texts and time limit."""

    collections: tuple[str, ...] | None = None
    """Only texts of these; None = all."""
    force: bool = False
    """Re-embed these texts; the present vectors are used until that is done."""
    timeout_s: float | None = None
    """Stop after this time; computed vectors are kept."""
    cut_declarations: bool = True
    """Cut source files at their declarations; False cuts them as plain text."""
    resumes: bool = False
    """Whether the same index continues shortly after `timeout_s`: other processes see one run."""


class EmbedOptions(TypedDict, total=False):
    """Fields of `EmbedRequest` that may be given by name."""

    force: bool
    timeout_s: float | None
    cut_declarations: bool
    resumes: bool


class EmbeddingStart(Struct, frozen=True):
    """State at the start of an embedding run."""

    model: EngineDescription
    pending: int
    """Texts without vectors of that model."""
