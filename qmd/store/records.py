"""Records that an index takes and returns, next to those that all of qmd knows.

Callers pack texts and links before the transaction, which should not wait for it.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Self

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from qmd.records import Candidate, IndexTerms, LexicalTerm, Link, MetadataValue, NameKind
from qmd.status import SkippedFile

MODEL_FACTS = ("made_by:chunks", "scale")
"""Facts of the index that belong to a model, whose fingerprint follows a colon."""

COLLECTION_FACTS = ("updated_at", "made_by:analysis", "anchored", "other_kinds", "kinds_told", "folder", "model")
"""Facts of the index that belong to a collection, whose name follows a colon."""

Terms = Sequence[LexicalTerm]

ANCHOR_WEIGHT = 2.0
"""Weight of the texts of links to a document, next to its own words. MRR of `search` with 0 and 2 on 275 written
questions: two vaults .769 and .772, .690 and .690, meeting notes .500 and .529; queries equal to the text of a link
that is not a note's name, .69 and .97, .58 and .94, .41 and .65."""

ANCHOR_CANDIDATES = 50
"""Most documents found by their anchors alone."""


class OtherFiles(Struct, frozen=True):
    """Files in the folder of a collection that it does not select, by suffix."""

    counts: Mapping[str, int]
    reported: Set[str]
    """Suffixes that were reported to the user."""

    @classmethod
    def of(cls, facts: Mapping[str, str], collection: str) -> Self:
        """Decode the facts of a collection; ignore any other content, as the index may be untrusted."""
        counted = re.findall(r"(\.[a-zA-Z0-9]+)=([0-9]{1,12})", facts.get(f"other_kinds:{collection}", ""))
        counts = {suffix: int(n_files) for suffix, n_files in counted}
        return cls(counts, frozenset(facts.get(f"kinds_told:{collection}", "").split()))

    def as_facts(self, collection: str) -> dict[str, str | None]:
        """Encode the facts that `of` decodes: `.pdf=3 .png=212` and `.pdf .png`."""
        counts = [f"{suffix}={n_files}" for suffix, n_files in sorted(self.counts.items())]
        reported = " ".join(sorted(self.reported))
        return {f"other_kinds:{collection}": " ".join(counts) or None, f"kinds_told:{collection}": reported or None}


def model_of(facts: Mapping[str, str], collection: str) -> tuple[str, str]:
    """Return (name, fingerprint) of the model of a collection, empty for the default one.

    Any other content than `embed` records is ignored, as the index may be untrusted.
    """
    found = re.fullmatch(r"([a-z0-9-]{1,40}) ([0-9a-f]{16})", facts.get(f"model:{collection}", ""))
    return (found[1], found[2]) if found else ("", "")


def pack_skipped(file: SkippedFile) -> SkippedFile:
    """Return the stored form of a skipped file: the message ends with ` (line 4)`."""
    return replace(file, message=file.reason, line=None)


def unpack_skipped(file: SkippedFile) -> SkippedFile:
    """Return the skipped file that `pack_skipped` was given."""
    found = re.fullmatch(r"(.*) \(line ([0-9]{1,9})\)", file.message, re.DOTALL) if file.is_indexed else None
    return replace(file, message=found[1], line=int(found[2])) if found is not None else file


class NewDocument(Struct, frozen=True):
    """A document to be written."""

    path: str
    title: str
    hash: str
    n_chars: int
    """Length of the text in code points."""
    doc: bytes
    """The text in stored form (`pack_text`)."""
    terms: IndexTerms
    metadata_json: str
    """Compact JSON object of the front matter, `{}` when none."""
    size_bytes: int
    mtime_ns: int
    created_at: str
    modified_at: str
    heading: str | None = None
    """The title if it is a heading of the text, which other notes may share."""
    names: Mapping[str, NameKind] = field(default_factory=dict)
    """Names of the note, as keys of `qmd.analysis.note_names`."""
    date: str | None = None
    """The day (`2024-02-02`) or month (`2024-02`) that the note is about."""
    links: PackedLinks | None = None


class KnownFile(Struct, frozen=True, gc=False):
    """The stored state of a file: enough to skip it unread."""

    document_id: int
    hash: str
    size_bytes: int
    mtime_ns: int


class StoredFile(Struct, frozen=True):
    """The file of a document, as it was when read."""

    collection: str
    path: str
    hash: str
    size_bytes: int
    mtime_ns: int
    created_at: str
    modified_at: str


STAGING = "anew:"
"""Prefix of a model's fingerprint while its vectors are computed next to those that searches use."""


class StoredModel(Struct, frozen=True):
    """A model with stored vectors."""

    fingerprint: str
    dim: int


def models_in_use(
    facts: Mapping[str, str], collections: Iterable[str], models: Sequence[StoredModel]
) -> dict[str, list[str] | None]:
    """Return the fingerprint of each model in use with its collections, None for all; see `IndexReader`."""
    read: dict[str, list[str] | None] = {}
    for name in collections:
        own = model_of(facts, name)[1]
        read[own] = [*(read.get(own) or ()), name]
    others = read.pop("", None)
    last = sorted((one.fingerprint for one in models), key=lambda one: one == facts.get("embedded_by"))
    default = next((one for one in reversed(last) if one not in read), "")
    return {**read, default: others or []} if read else {default: None}


class PackedLinks(Struct, frozen=True):
    """The stored links of a document, in one piece: ten of them take less space than one alone."""

    packed: bytes
    counts: Mapping[int, int]
    """Number of links per name, in the form of `hash_key`."""


class ResolvedLink(Struct, frozen=True, gc=False):
    """A link, its source document, and its target; None if there is no such note."""

    source: int
    target: int | None
    link: Link


class PendingContent(Struct, frozen=True):
    """A distinct text whose vectors are missing for a fingerprint."""

    hash: str
    path: str
    """Path of one of its documents (alphabetically first)."""
    text: str


class ChunkRecord(Struct, frozen=True):
    """One chunk of a content. `key` is 16 bytes over the embedded text; equal keys share one vector."""

    seq: int
    start: int
    end: int
    key: bytes


class VectorCoverage(Struct, frozen=True):
    """Coverage of an index by the vectors of one model."""

    pending: int
    """Distinct texts without a complete chunk set."""
    has_vectors: bool


class NamedDocument(Struct, frozen=True):
    """A document with a name, and the kind of that name."""

    document_id: int
    kind: NameKind


_DECODER = msgspec.json.Decoder(list[Link])


def sort_candidates(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return the candidates best first; ties by id."""
    return sorted(candidates, key=lambda candidate: (-candidate.score, candidate.document_id))


def decode_metadata(stored: str) -> dict[str, MetadataValue]:
    """Decode front matter; raises `ValueError` or `AttributeError` for anything else."""
    found = msgspec.json.decode(stored).items()
    return {key: tuple(value) if isinstance(value, list) else value for key, value in found}


def pack_text(text: str) -> bytes:
    return _compress(text.encode("utf-8", "surrogatepass"))


def unpack_text(packed: bytes) -> str:
    """Return the text given to `pack_text`; raises `zlib.error` or `ValueError` for anything else."""
    return zlib.decompress(packed).decode("utf-8", "surrogatepass")


def pack_links(links: Sequence[Link]) -> PackedLinks:
    from qmd.analysis.note_names import link_key

    counts: dict[int, int] = {}
    for key in filter(None, [link_key(link.target) for link in links]):
        counts[hash_key(key)] = counts.get(hash_key(key), 0) + 1
    return PackedLinks(_compress(msgspec.json.encode(links)), counts)


def unpack_links(packed: bytes) -> list[Link]:
    """Return the links given to `pack_links`; raises `zlib.error` or `ValueError` for anything else."""
    return _DECODER.decode(zlib.decompress(packed))


def hash_key(key: str) -> int:
    """Return the stored form of a link's key: 31 bits, the most that SQLite stores in four bytes.

    Keys may collide: a match must be compared by name.
    """
    return zlib.crc32(key.encode()) >> 1


def _compress(raw: bytes) -> bytes:
    # Imported here, as a search compresses nothing.
    try:
        from isal import isal_zlib
    except ImportError:
        # There is no wheel of ISA-L: zlib writes the same format more slowly.
        return zlib.compress(raw, 5)
    # Its second of four levels takes a quarter of the time of zlib's level 5, for a twelfth more space.
    return isal_zlib.compress(raw, 1)
