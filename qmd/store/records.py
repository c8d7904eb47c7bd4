"""What is handed to an index and comes out of it, beside the records that all of qmd knows.

Texts and links are packed by who makes them, before the transaction, which should not wait for it.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec import Struct, field

from qmd.records import Candidate, IndexTerms, Link, NameKind

COLLECTION_FACTS = ("updated_at", "made_by:analysis", "anchored", "other_kinds", "kinds_told")
"""Facts of the index that belong to a collection, whose name follows after a colon."""

OTHER_KINDS = "other_kinds:"
"""With the name of a collection the fact that says which files its folder holds besides."""

REPORTED_FILE_TYPES = "kinds_told:"
"""The same with the endings that a person was told of."""


def kinds_as_fact(kinds: Mapping[str, int]) -> str:
    """Numbers of files by ending as a fact: `.pdf=3 .png=212`."""
    return " ".join(f"{ending}={n_files}" for ending, n_files in sorted(kinds.items()))


def kinds_of_fact(fact: str) -> dict[str, int]:
    """Ending → number of files; whatever else the fact of a stranger's index holds is passed over."""
    return {ending: int(n_files) for ending, n_files in re.findall(r"(\.[a-zA-Z0-9]+)=([0-9]{1,12})", fact)}


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


STAGING = "anew:"
"""What stands before a model's fingerprint while its vectors are computed beside those that searches use."""


class StoredModel(Struct, frozen=True):
    """A model that an index holds vectors of."""

    fingerprint: str
    dim: int


class PackedLinks(Struct, frozen=True):
    """The links of a document as the index keeps them, in one piece: ten of them take less room than one alone."""

    packed: bytes
    counts: Mapping[int, int]
    """How many there are of each name, as `hash_key` writes it."""


class ResolvedLink(Struct, frozen=True, gc=False):
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


_LEVEL = 1
"""Of ISA-L, which has four. A quarter of the time that zlib takes at its level 5, for a twelfth more room."""

_LEVEL_OF_ZLIB = 5
"""Where ISA-L has no wheel: the same format, made more slowly."""

_DECODER = msgspec.json.Decoder(list[Link])


def sort_candidates(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Best first; ties by id."""
    return sorted(candidates, key=lambda candidate: (-candidate.score, candidate.document_id))


def pack_text(text: str) -> bytes:
    """The stored form of a text."""
    return _compress(text.encode("utf-8", "surrogatepass"))


def unpack_text(packed: bytes) -> str:
    """The text that `pack_text` was given; raises `zlib.error` or `ValueError` for anything else."""
    return zlib.decompress(packed).decode("utf-8", "surrogatepass")


def pack_links(links: Sequence[Link]) -> PackedLinks:
    """The stored form of links."""
    from qmd.analysis.note_names import link_key

    counts: dict[int, int] = {}
    for key in filter(None, [link_key(link.target) for link in links]):
        counts[hash_key(key)] = counts.get(hash_key(key), 0) + 1
    return PackedLinks(_compress(msgspec.json.encode(links)), counts)


def unpack_links(packed: bytes) -> list[Link]:
    """The links that `pack_links` was given; raises `zlib.error` or `ValueError` for anything else."""
    return _DECODER.decode(zlib.decompress(packed))


def hash_key(key: str) -> int:
    """A link's key as the index keeps it: 31 bits, the most that SQLite holds in four bytes.

    Two keys may have the same: what is found by it has to be looked at.
    """
    return zlib.crc32(key.encode()) >> 1


def _compress(raw: bytes) -> bytes:
    # Imported here, as a search compresses nothing.
    try:
        from isal import isal_zlib
    except ImportError:
        return zlib.compress(raw, _LEVEL_OF_ZLIB)
    return isal_zlib.compress(raw, _LEVEL)
