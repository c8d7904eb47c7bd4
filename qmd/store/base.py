"""What the rest of qmd knows of an index: the protocols of its two sides, whichever engine keeps it.

An engine subclasses both. What has a body here is the same for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Collection as Names
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from qmd.addresses import is_below
from qmd.errors import UsageError
from qmd.records import Candidate, Collection, LexicalTerm, Scope, StoredDocument
from qmd.store.records import COLLECTION_FACTS
from qmd.times import time_text, utc_now

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from qmd.status import EmbeddingRun, IndexStatus, SkippedFile
    from qmd.store.linking import LinkTables
    from qmd.store.records import (
        ChunkRecord,
        KnownFile,
        NamedDocument,
        NewDocument,
        PendingContent,
        ResolvedLink,
        StoredFile,
        StoredModel,
        VectorCoverage,
    )


class IndexReader(Protocol):
    """The read side: opened read-only, any number at a time, never changes what is stored.

    Usable as a context manager; not to be shared between threads.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def path(self) -> Path:
        """The file that is open."""

    def running_embedding(self) -> EmbeddingRun | None:
        """The run that computes vectors of this index now, in whatever process."""
        from qmd.store.runs import lock_holder

        run = lock_holder(self.path)
        return run if run is not None and run.task.computes else None

    def close(self) -> None:
        """Release the file."""

    def snapshot(self) -> AbstractContextManager[None]:
        """Several reads of one state, whatever a writer commits meanwhile."""

    def stop_when(self, is_over: Callable[[], bool] | None) -> None:
        """End what reads from here with a `StoreError` once `is_over`; None lets it run."""

    def collections(self) -> Sequence[Collection]:
        """The collections as last mirrored from the configuration."""

    def facts(self) -> Mapping[str, str]:
        """What is known of the index by name, as the writer's methods here have set it."""

    def global_context(self) -> str | None:
        """The user's note on everything."""
        return self.facts().get("global_context")

    def config_hash(self) -> str | None:
        """Hash of the configuration that was mirrored last."""
        return self.facts().get("config_hash")

    def version_stamp(self, part: str) -> str | None:
        """Which version of the program made a part of the index: `analysis:COLLECTION` or `chunks:FINGERPRINT`."""
        return self.facts().get(f"made_by:{part}")

    def updated_at(self) -> str | None:
        """When a collection was updated last, cheaper than `status`; None before the first update."""
        return max((value for key, value in self.facts().items() if key.startswith("updated_at:")), default=None)

    def recorded_files(self, collection: str) -> Iterator[Sequence[tuple[str, int, int]]]:
        """(path, size in bytes, mtime in ns) of a collection's files as they were read, some thousand at a time."""

    def recorded_folders(self, collection: str) -> Mapping[str, int]:
        """Path → mtime in ns of every folder of a collection as the last update found it; empty before the first."""

    def left_out(self, collection: str) -> Sequence[SkippedFile]:
        """Files that the last update of a collection could not take."""

    def documents(self, ids: Sequence[int]) -> Mapping[int, StoredDocument]:
        """Documents by id; unknown ids are absent."""

    def texts(self, hashes: Sequence[str]) -> Mapping[str, str]:
        """Full texts by content hash; unknown hashes are absent."""

    def find_path(self, collection: str, path: str) -> StoredDocument | None:
        """The document at exactly this place."""

    def find_named(self, name: str, scope: Scope = Scope(), limit: int = 50) -> Sequence[NamedDocument]:
        """Documents in scope whose file, title or alias is `name` as `note_names.name_key` writes it, by id."""

    def find_by_date(
        self, days: Sequence[tuple[str, str]], scope: Scope, limit: int, *, by_file_time: bool = False
    ) -> Sequence[int]:
        """Ids of documents in scope whose own date lies in one of the spans (first and last day, ISO), by id.

        With `by_file_time` those instead that have no date of their own and whose files were written then.
        """

    def links(self) -> LinkTables:
        """What is stored of links and names."""

    def links_from(self, document: StoredDocument) -> Sequence[ResolvedLink]:
        """The links in a document, in its order; what they mean is looked up now."""
        from qmd.store.linking import links_from

        with self.snapshot():
            return links_from(self.links(), document)

    def links_to(self, document: StoredDocument, limit: int | None = None) -> Sequence[ResolvedLink]:
        """The links of other documents of its collection that mean this one, by path and place.

        With a limit, those among so many links with one of its names.
        """
        from qmd.store.linking import links_to

        with self.snapshot():
            return links_to(self.links(), document.id, document.collection, limit)

    def count_shared_links(self, document: StoredDocument) -> Mapping[int, float]:
        """Documents that link to what this one links to, by id: the sum of one by all links to each shared note."""
        from qmd.store.linking import count_shared_links

        with self.snapshot():
            return count_shared_links(self.links(), document)

    def find_docid(self, prefix: str) -> Sequence[StoredDocument]:
        """The first ten documents whose hash starts with `prefix` (hex), by collection and path; none for `""`."""

    def iter_documents(self, scope: Scope = Scope()) -> Iterator[StoredDocument]:
        """Documents in scope, by collection and path."""

    def field_names(self) -> frozenset[str]:
        """Every key of front matter that a document has."""
        return frozenset(name for one in self.iter_documents() for name in one.metadata)

    def count_documents(self, scope: Scope = Scope()) -> int:
        """Number of documents in the scope's collections; the rest of a scope does not count here."""

    def search_lexical(
        self,
        terms: Sequence[LexicalTerm],
        k: int,
        scope: Scope,
        *,
        within: Sequence[int] | None = None,
        anchors: bool = False,
    ) -> Sequence[Candidate]:
        """The top k by BM25: OR of optional terms, AND required, NOT excluded; best first, the scope applied first.

        Where the scope names collections, frequencies and lengths are those of these collections alone. Very common
        terms are left out when rarer ones exist. A `score` is positive, larger is better. `within` leaves only these
        documents. With `anchors` what others call a document in their links counts, too.
        """

    def document_frequencies(self, terms: Sequence[LexicalTerm], scope: Scope = Scope()) -> Sequence[int]:
        """Number of documents that match each term, in the scope's collections; its other parts do not count."""

    def similar_terms(self, term: str, limit: int = 5, scope: Scope = Scope()) -> Sequence[str]:
        """Words of documents in the scope's collections that are spelled most like `term`, most frequent first."""

    def terms_from(self, start: str, limit: int) -> Sequence[str]:
        """Terms of documents that begin so, as they are kept; the most frequent of so many, or the shortest ones."""

    def main_language(self, scope: Scope = Scope()) -> str | None:
        """The language other than English that most documents in the scope's collections are in."""
        from qmd.analysis.stopwords import LANGUAGE_MARK, LANGUAGES

        found = [mark for mark in self.terms_from(LANGUAGE_MARK, 50) if mark[len(LANGUAGE_MARK) : -1] in LANGUAGES]
        counts = self.document_frequencies([LexicalTerm(mark, f'"{mark}"') for mark in found], scope)
        most, mark = max(zip(counts, found, strict=True), default=(0, ""))
        return mark[len(LANGUAGE_MARK) : -1] if 2 * most > self.count_documents(scope) else None

    def search_dense(
        self, vector: npt.NDArray[np.float32], k: int, scope: Scope, fingerprint: str
    ) -> Sequence[Candidate]:
        """The top k documents by the cosine of their best chunk, which the span names; scope applied before the cut."""

    def dense_scores(
        self, vector: npt.NDArray[np.float32], document_ids: Sequence[int], fingerprint: str
    ) -> Mapping[int, Candidate]:
        """Cosine of the best chunk of each given document; documents without vectors are absent."""

    def search_like(self, document: StoredDocument, k: int, scope: Scope) -> Sequence[Candidate]:
        """The top k documents by the cosine of their best chunk with the mean of this one's, itself among them.

        By the vectors of the model used last; empty when the document has none of it.
        """

    def vector_coverage(self, fingerprint: str) -> VectorCoverage:
        """How many texts lack vectors of a model, and whether there are any."""

    def without_vectors(self, fingerprint: str, hashes: Sequence[str]) -> Mapping[str, str]:
        """Those contents that have no complete chunk set: hash → the path that `pending` gives them."""

    def vectors(self, fingerprint: str, keys: Sequence[bytes]) -> Mapping[bytes, npt.NDArray[np.float32]]:
        """The stored vectors of chunks by key, nearly as they were put; keys without one are absent."""

    def status(self, fingerprint: str | None) -> IndexStatus:
        """Counts of what the index holds; vectors of the model of that fingerprint, None for the last used."""

    def stored_files(self) -> Iterator[Sequence[StoredFile]]:
        """What is known of every document's file, some hundred at a time, in the order in which they were stored."""

    def models(self) -> Sequence[StoredModel]:
        """The models that vectors are of, the one used last at the end; without what is only computed `ANEW`."""

    def chunk_sets(self, fingerprint: str) -> Iterator[Mapping[str, Sequence[ChunkRecord]]]:
        """The complete chunk sets of a model by content hash, some hundred at a time; empty where nothing is embedded.

        As `put_chunks` takes them. To be read inside of a `snapshot`, like `vectors`.
        """

    def all_vectors(self, fingerprint: str) -> Iterator[Mapping[bytes, npt.NDArray[np.float32]]]:
        """Every vector of a model by key, of unit length, some thousand at a time; as `put_vectors` takes them.

        Those that no chunk refers to yet are among them. The order is that in which they were stored.
        """

    def check(self, *, thorough: bool = True) -> Sequence[str]:
        """Everything found wrong with the file, one line each; empty when it is sound. Reads the whole file."""


class IndexWriter(IndexReader, Protocol):
    """The write side: one at a time per index (waits for the other, then `BusyError`)."""

    def transaction(self) -> AbstractContextManager[None]:
        """All or nothing; nested use joins the outer transaction."""

    def put_collections(self, collections: Sequence[Collection]) -> None:
        """Make these the collections, in their order; documents stay."""

    def mirror_config(self, collections: Sequence[Collection], global_context: str | None, config_hash: str) -> None:
        """Make the index's copy of the configuration equal to it."""
        with self.transaction():
            self.put_collections(collections)
            self.set_facts({"global_context": global_context, "config_hash": config_hash})

    def known_files(self, collection: str, below: str = "") -> Mapping[str, KnownFile]:
        """What the index remembers of a collection's files, or of those of a folder or path in it, by path."""

    def put_skipped(self, collection: str, files: Iterable[SkippedFile]) -> None:
        """Remember exactly these files of a collection as left out."""

    def put_folders(self, collection: str, changed: Mapping[str, int], gone: Names[str]) -> None:
        """Remember these folders of a collection, and forget those that are gone."""

    def record_folders(self, collection: str, folders: Mapping[str, int], below: str = "") -> None:
        """Remember the folders of a collection, or of the part of it that lies `below` a path, as a scan found them."""
        known = self.recorded_folders(collection).items()
        before = {path: mtime_ns for path, mtime_ns in known if is_below(path, below)}
        changed = {path: mtime_ns for path, mtime_ns in folders.items() if before.get(path) != mtime_ns}
        gone = before.keys() - folders.keys()
        if changed or gone:
            self.put_folders(collection, changed, gone)

    def set_facts(self, facts: Mapping[str, str | None]) -> None:
        """Set facts of the index, or with None drop them."""

    def mark_updated(self, collection: str, moment: str | None = None) -> None:
        """Remember that a collection's update was completed now, or at another moment."""
        self.set_facts({f"updated_at:{collection}": moment or time_text(utc_now())})

    def set_version_stamp(self, part: str, stamp: str) -> None:
        """Remember which version of the program made a part of the index, so that a later one can make it anew."""
        if self.version_stamp(part) != stamp:
            self.set_facts({f"made_by:{part}": stamp})

    def put_documents(self, collection: str, new_documents: Iterable[NewDocument]) -> None:
        """Insert or replace by (collection, path); content is stored once per hash."""

    def settle(self, collection: str) -> None:
        """Let titles tell notes apart and links find them; to be called when a collection's documents are complete."""
        fact = f"anchored:{collection}"
        with self.transaction():
            since = int(self.facts().get(fact) or 0)
            newest = self.settle_since(collection, since)
            if newest != since:
                self.set_facts({fact: str(newest)})

    def settle_since(self, collection: str, since: int) -> int:
        """Bring titles and what links call the documents of a collection up to date; the largest id that was counted.

        A heading that many notes of the collection have gives way to the file's name as their title. `since` is what
        the last call returned, 0 for the first: documents with larger ids are new.
        """

    def touch(self, document_id: int, size_bytes: int, mtime_ns: int, modified_at: str) -> None:
        """Remember new file times of a document whose text did not change."""

    def remove_documents(self, collection: str, paths: Iterable[str]) -> int:
        """Delete documents; the number deleted."""

    def collections_with_documents(self) -> Sequence[str]:
        """Names under which documents are stored, those of unknown collections among them; in order."""

    def remove_collection(self, name: str) -> int:
        """Delete a collection; the number of documents deleted. What other collections share stays."""
        with self.transaction():
            self.set_facts({f"{fact}:{name}": None for fact in COLLECTION_FACTS})
            return self.drop_collection(name)

    def rename_collection(self, old: str, new: str) -> None:
        """Give a collection another name; nothing is read or embedded again.

        Raises:
            UsageError: `new` already holds documents.
        """
        with self.transaction():
            if self.count_documents(Scope(collections=(new,))):
                raise UsageError(f"collection '{new}' already exists", "choose another name, see: qmd collection list")
            facts = self.facts()
            self.set_facts({f"{fact}:{new}": facts.get(f"{fact}:{old}") for fact in COLLECTION_FACTS})
            self.set_facts({f"{fact}:{old}": None for fact in COLLECTION_FACTS})
            self.move_collection(old, new)

    def drop_collection(self, name: str) -> int:
        """Delete a collection with its documents, whose number is returned, and all else but facts."""

    def move_collection(self, old: str, new: str) -> None:
        """Give all that belongs to a collection, except facts, to a name that has no documents."""

    def pending(self, fingerprint: str, collections: Sequence[str] | None = None) -> Iterator[PendingContent]:
        """Contents without a complete chunk set for `fingerprint`, the newest first; safe while the caller writes."""

    def count_pending(self, fingerprint: str, collections: Sequence[str] | None = None) -> tuple[int, int]:
        """(contents, characters) that `pending` would yield."""

    def existing_keys(self, fingerprint: str, keys: Sequence[bytes]) -> frozenset[bytes]:
        """Those keys that already have a vector."""

    def put_chunks(
        self,
        fingerprint: str,
        dim: int,
        contents: Mapping[str, Sequence[ChunkRecord]],
        *,
        is_complete: bool = True,
    ) -> None:
        """Store chunk sets by content hash, whose vectors are there; one call is all or nothing.

        Complete ones mark a content as done, an empty one with nothing to embed. Others are searched, and the content
        waits for the rest.
        """

    def forget_chunks(self, fingerprint: str, suffixes: Sequence[str] | None = None) -> None:
        """Make contents pending again: all, or those of paths with one of these endings (lower case).

        Their chunks are searched until new ones take their place, and vectors stay for texts that come out the same.
        """

    def prepare_vectors(self) -> None:
        """Make sure that vectors can be kept, before any is computed.

        Raises:
            ModelError: They cannot on this platform.
        """

    def put_vectors(self, fingerprint: str, dim: int, new_vectors: Mapping[bytes, npt.NDArray[np.float32]]) -> None:
        """Store vectors ahead of the chunks that will refer to them, so that a long text can be resumed half-way."""

    def keep_models(self, names: Mapping[str, str]) -> None:
        """Forget all vectors but those of these fingerprints, which get the names that are given for them."""

    def cleanup(self, *, dry_run: bool = False) -> Mapping[str, int]:
        """Drop what nothing refers to, optimise, vacuum; counts per kind of thing removed."""
