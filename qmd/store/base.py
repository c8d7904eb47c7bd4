"""`Reader` and `Writer`: all that the rest of qmd knows of the index."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from qmd.quick_dataclasses import dataclass
from qmd.records import Candidate, Collection, IndexStatus, IndexTerms, LeftOutFile, LexicalTerm, Scope, StoredDocument

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class NewDocument:
    """A document to be written."""

    path: str
    title: str
    hash: str
    n_chars: int
    """Length of the text in code points."""
    doc: bytes
    """The text as the index keeps it (`qmd.store.pack_text`)."""
    terms: IndexTerms
    metadata_json: str
    """Compact JSON object of the front matter, `{}` when none."""
    size_bytes: int
    mtime_ns: int
    created_at: str
    modified_at: str


@dataclass(frozen=True, slots=True)
class KnownFile:
    """What the index remembers of a file: enough to skip it unread."""

    document_id: int
    hash: str
    title: str
    size_bytes: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class PendingContent:
    """A distinct active text whose vectors are missing for a fingerprint."""

    hash: str
    path: str
    """Path of one document that holds it (alphabetically first)."""
    text: str


@dataclass(frozen=True, slots=True)
class ChunkRecord:
    """One chunk of a content. `key` is 16 bytes over the embedded text; equal keys share one vector."""

    seq: int
    start: int
    end: int
    key: bytes


class Reader(Protocol):
    """Read side; opened read-only, any number at a time, never runs DDL."""

    def close(self) -> None: ...
    def stop_when(self, is_over: Callable[[], bool] | None) -> None:
        """End what reads from here with a `StoreError` once `is_over`; None lets it run."""
        ...

    # documents
    def collections(self) -> Sequence[Collection]: ...
    def global_context(self) -> str | None: ...
    def documents(self, ids: Sequence[int]) -> Mapping[int, StoredDocument]:
        """Documents by id; inactive or unknown ids are absent."""
        ...

    def texts(self, hashes: Sequence[str]) -> Mapping[str, str]:
        """Full texts by content hash."""
        ...

    def find_path(self, collection: str, path: str) -> StoredDocument | None: ...
    def find_docid(self, prefix: str, limit: int = 10) -> Sequence[StoredDocument]:
        """Active documents whose hash starts with `prefix` (lower-case hex), by collection and path."""
        ...

    def iter_documents(self, scope: Scope = Scope()) -> Iterator[StoredDocument]:
        """Active documents in scope, by collection and path."""
        ...

    def count_documents(self, scope: Scope = Scope()) -> int:
        """Number of active documents in the scope's collections; the rest of a scope does not count here."""
        ...

    # retrieval
    def search_lexical(self, terms: Sequence[LexicalTerm], k: int, scope: Scope) -> Sequence[Candidate]:
        """Top k by BM25: OR of optional terms, AND required, NOT excluded; best first, scope applied before the cut.

        Where the scope names collections, frequencies and lengths are those of these collections alone.

        Very common terms are pruned by document frequency when rarer ones exist. `score` is positive, larger is better.
        """
        ...

    def document_frequencies(self, terms: Sequence[LexicalTerm], scope: Scope = Scope()) -> Sequence[int]:
        """Number of active documents that match each term, in the scope's collections; its other parts do not count."""
        ...

    def similar_terms(self, term: str, limit: int = 5) -> Sequence[str]:
        """Indexed terms within edit distance 2 of `term`, most frequent first (for spelling suggestions)."""
        ...

    def search_dense(
        self, vector: npt.NDArray[np.float32], k: int, scope: Scope, fingerprint: str
    ) -> Sequence[Candidate]:
        """Top k documents by the cosine of their best chunk, which the span names; scope applied before the cut."""
        ...

    def dense_scores(
        self, vector: npt.NDArray[np.float32], document_ids: Sequence[int], fingerprint: str
    ) -> Mapping[int, Candidate]:
        """Cosine of the best chunk of each given document; documents without vectors are absent."""
        ...

    # health, caches
    def status(self, fingerprint: str | None) -> IndexStatus:
        """Counts of what the index holds; vectors of the model of that fingerprint, None for the last used."""
        ...

    def cached(self, key: str) -> str | None: ...


class Writer(Reader, Protocol):
    """Write side; one at a time per index (waits for the lock, then `BusyError`)."""

    def transaction(self) -> AbstractContextManager[None]:
        """All or nothing; nested use joins the outer transaction."""
        ...

    def mirror_config(
        self, collections: Sequence[Collection], global_context: str | None, config_hash: str
    ) -> None: ...
    def known_files(self, collection: str) -> Mapping[str, KnownFile]:
        """Active documents of a collection by path."""
        ...

    def put_documents(self, collection: str, documents: Iterable[NewDocument]) -> None:
        """Insert or replace by (collection, path); content is stored once per hash."""
        ...

    def touch(self, document_id: int, size_bytes: int, mtime_ns: int, modified_at: str) -> None:
        """Remember new file times of a document whose text did not change."""
        ...

    def left_out(self, collection: str) -> Sequence[LeftOutFile]:
        """Files that the last update of a collection could not take."""
        ...

    def put_left_out(self, collection: str, files: Iterable[LeftOutFile]) -> None:
        """Remember exactly these files of a collection as left out."""
        ...

    def mark_updated(self, collection: str) -> None:
        """Remember that a collection's update was completed now."""
        ...

    def made_by(self, part: str) -> str | None:
        """What `set_made_by` was last told of a part of the index: `analysis:COLLECTION` or `chunks:FINGERPRINT`."""
        ...

    def set_made_by(self, part: str, maker: str) -> None:
        """Remember which version of the program made a part of the index, so that a later one can make it anew."""
        ...

    def remove_documents(self, collection: str, paths: Iterable[str]) -> int: ...
    def remove_collection(self, name: str) -> int: ...
    def rename_collection(self, old: str, new: str) -> None: ...

    # vectors
    def pending(self, fingerprint: str, collections: Sequence[str] | None = None) -> Iterator[PendingContent]:
        """Contents without a complete chunk set for `fingerprint`, by path."""
        ...

    def existing_keys(self, fingerprint: str, keys: Sequence[bytes]) -> frozenset[bytes]:
        """Those keys that already have a vector."""
        ...

    def count_pending(self, fingerprint: str, collections: Sequence[str] | None = None) -> tuple[int, int]:
        """(contents, characters) that `pending` would yield."""
        ...

    def put_vectors(self, fingerprint: str, dim: int, new_vectors: Mapping[bytes, npt.NDArray[np.float32]]) -> None:
        """Store vectors ahead of the chunks that will refer to them, so that a long text can be resumed half-way."""
        ...

    def put_chunks(
        self,
        fingerprint: str,
        dim: int,
        contents: Mapping[str, Sequence[ChunkRecord]],
        new_vectors: Mapping[bytes, npt.NDArray[np.float32]],
    ) -> None:
        """Store complete chunk sets by content hash with the vectors that are new; one call is all or nothing.

        An empty sequence marks a content as done with nothing to embed.
        """
        ...

    def forget_chunks(self, fingerprint: str, suffixes: Sequence[str] | None = None) -> None:
        """Make contents pending again: all, or those of paths with one of these endings (lower case).

        Their chunks are searched until new ones take their place, and vectors stay for texts that come out the same.
        """
        ...

    def clear_vectors(self, collections: Sequence[str] | None = None) -> None: ...
    def cache(self, key: str, value: str) -> None: ...
    def cleanup(self, on_step: Callable[[str], None] | None = None, *, dry_run: bool = False) -> Mapping[str, int]:
        """Drop what nothing refers to, optimise, vacuum; counts per kind of thing removed."""
        ...
