"""What is handed to an index and comes out of it, beside the records that all of qmd knows."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from qmd.records import IndexTerms, Link, NameKind

COLLECTION_FACTS = ("updated_at", "made_by:analysis", "anchored")
"""Facts of the index that belong to a collection, whose name follows after a colon."""


class NewDocument(Struct, frozen=True):
    """A document to be written."""

    path: str
    title: str
    hash: str
    n_chars: int
    """Length of the text in code points."""
    doc: bytes
    """The text as the index keeps it (`pack_text`)."""
    terms: IndexTerms
    metadata_json: str
    """Compact JSON object of the front matter, `{}` when none."""
    size_bytes: int
    mtime_ns: int
    created_at: str
    modified_at: str
    heading: str | None = None
    """The title where it is a heading of the text, which other notes may share."""
    names: Mapping[str, NameKind] = field(default_factory=dict)
    """What the note is called, as keys of `qmd.analysis.note_names`."""
    date: str | None = None
    """The day (`2024-02-02`) or month (`2024-02`) that the note is about."""
    links: PackedLinks | None = None


class KnownFile(Struct, frozen=True, gc=False):
    """What the index remembers of a file: enough to skip it unread."""

    document_id: int
    hash: str
    size_bytes: int
    mtime_ns: int


class StoredFile(Struct, frozen=True):
    """The file that a document was read from, as it was then."""

    collection: str
    path: str
    hash: str
    size_bytes: int
    mtime_ns: int
    created_at: str
    modified_at: str


ANEW = "anew:"
"""What stands before a model's fingerprint while its vectors are computed beside those that searches use."""


class StoredModel(Struct, frozen=True):
    """A model that an index holds vectors of."""

    fingerprint: str
    dim: int


class PackedLinks(Struct, frozen=True):
    """The links of a document as the index keeps them, in one piece: ten of them take less room than one alone."""

    packed: bytes
    counts: Mapping[int, int]
    """How many there are of each name, as `packing.hash_key` writes it."""


class ResolvedLink(Struct, frozen=True):
    """A link, the document that holds it, and the one that it means; None where there is no such note."""

    source: int
    target: int | None
    link: Link


class PendingContent(Struct, frozen=True):
    """A distinct text whose vectors are missing for a fingerprint."""

    hash: str
    path: str
    """Path of one document that holds it (alphabetically first)."""
    text: str


class ChunkRecord(Struct, frozen=True):
    """One chunk of a content. `key` is 16 bytes over the embedded text; equal keys share one vector."""

    seq: int
    start: int
    end: int
    key: bytes


class VectorCoverage(Struct, frozen=True):
    """How far an index has the vectors of one model."""

    pending: int
    """Distinct texts without a complete chunk set."""
    has_vectors: bool


class NamedDocument(Struct, frozen=True):
    """A document that has a name, and what the name is there."""

    document_id: int
    kind: NameKind
