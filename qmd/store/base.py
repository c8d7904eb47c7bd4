"""Protocols of an index, one for reading and one for writing, independent of its engine.

An engine subclasses both. Methods with a body here are common to all engines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Collection as Names
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from qmd.addresses import is_below
from qmd.batching import batches
from qmd.errors import UsageError
from qmd.records import Candidate, Collection, LexicalTerm, Scope, StoredDocument
from qmd.status import CollectionStatus, EmbeddingRun, IndexStatus, SkippedFile
from qmd.store.records import COLLECTION_FACTS, PendingContent, Terms, model_of, models_in_use
from qmd.times import time_text, utc_now

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from qmd.store.linking import LinkTables
    from qmd.store.records import (
        ChunkRecord,
        KnownFile,
        NamedDocument,
        NewDocument,
        ResolvedLink,
        StoredFile,
        StoredModel,
        VectorCoverage,
    )


class IndexReader(Protocol):
    """The read side: opened read-only, any number at a time, never changes stored content.

    Usable as a context manager; not to be shared between threads.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def path(self) -> Path:
        """The open file."""

    def running_embedding(self) -> EmbeddingRun | None:
        """Return the run that computes vectors of this index now, in any process."""
        from qmd.store.runs import lock_holder

        return run if (run := lock_holder(self.path)) is not None and run.task.computes else None

    def close(self) -> None:
        """Release the file."""

    def snapshot(self) -> AbstractContextManager[None]:
        """Read one state in several calls, whatever a writer commits meanwhile."""

    def stop_when(self, is_over: Callable[[], bool] | None) -> None:
        """Abort reads from here on with a `StoreError` once `is_over`; None lets them run."""

    def collections(self) -> Sequence[Collection]:
        """Return the collections as last mirrored from the configuration."""

    def facts(self) -> Mapping[str, str]:
        """Return the facts of the index by name, as set by the writer's methods here."""

    def global_context(self) -> str | None:
        """Return the user's note on everything."""
        return self.facts().get("global_context")

    def config_hash(self) -> str | None:
        """Return the hash of the configuration that was mirrored last."""
        return self.facts().get("config_hash")

    def version_stamp(self, part: str) -> str | None:
        """Return the program version that made a part of the index: `analysis:COLLECTION` or `chunks:FINGERPRINT`."""
        return self.facts().get(f"made_by:{part}")

    def updated_at(self) -> str | None:
        """Return the time of the last update of a collection, cheaper than `status`; None before the first."""
        return max((value for key, value in self.facts().items() if key.startswith("updated_at:")), default=None)

    def recorded_files(self, collection: str) -> Iterator[Sequence[tuple[str, int, int]]]:
        """Yield (path, size in bytes, mtime in ns) of a collection's files as last read, some thousand at a time."""

    def recorded_folders(self, collection: str) -> Mapping[str, int]:
        """Return path → mtime in ns of every folder of a collection at its last update; empty before the first."""

    def left_out(self, collection: str | None) -> Sequence[SkippedFile]:
        """Return the files that the last update of a collection skipped."""

    def documents(self, ids: Sequence[int]) -> Mapping[int, StoredDocument]:
        """Return documents by id; unknown ids are absent."""

    def texts(self, hashes: Sequence[str]) -> Mapping[str, str]:
        """Return full texts by content hash; unknown hashes are absent."""

    def find_path(self, collection: str, path: str) -> StoredDocument | None:
        """Return the document at exactly this path."""

    def find_named(self, name: str, scope: Scope = Scope(), limit: int = 50) -> Sequence[NamedDocument]:
        """Return the documents in scope with file name, title or alias `name`, a `note_names.name_key`, by id."""

    def find_by_date(
        self, days: Sequence[tuple[str, str]], scope: Scope, limit: int, *, by_file_time: bool = False
    ) -> Sequence[int]:
        """Return the ids of documents in scope whose own date lies in one of the spans (first and last ISO day), by id.

        With `by_file_time` instead those without a date of their own whose files were written then.
        """

    def links(self) -> LinkTables:
        """Return the tables of links and names."""

    def links_from(self, document: StoredDocument) -> Sequence[ResolvedLink]:
        """Return the links in a document, in its order, resolved with the current notes."""
        from qmd.store.linking import links_from

        with self.snapshot():
            return links_from(self.links(), document)

    def links_to(self, document: StoredDocument, limit: int | None = None) -> Sequence[ResolvedLink]:
        """Return the links of other documents of its collection that mean this one, by path and place.

        With a limit, only check that many links with one of its names.
        """
        from qmd.store.linking import links_to

        with self.snapshot():
            return links_to(self.links(), document.id, document.collection, limit)

    def count_shared_links(self, document: StoredDocument) -> Mapping[int, float]:
        """Return the ids of documents that share link targets with this one → the sum of 1/links over these."""
        from qmd.store.linking import count_shared_links

        with self.snapshot():
            return count_shared_links(self.links(), document)

    def find_docid(self, prefix: str) -> Sequence[StoredDocument]:
        """Return ten documents whose hash starts with `prefix` (hex), by collection and path; none for `""`."""

    def iter_documents(self, scope: Scope = Scope()) -> Iterator[StoredDocument]:
        """Yield the documents in scope, by collection and path."""

    def field_names(self) -> frozenset[str]:
        """Return every front matter key of the documents."""
        return frozenset(name for one in self.iter_documents() for name in one.metadata)

    def count_documents(self, scope: Scope = Scope()) -> int:
        """Count the documents in the scope's collections, regardless of its other conditions."""

    def search_lexical(
        self, terms: Terms, k: int, scope: Scope, *, within: Sequence[int] | None = None, anchors: bool = False
    ) -> Sequence[Candidate]:
        """Return the top k by BM25: OR of optional terms, AND required, NOT excluded; scope applied before the cut.

        If the scope names collections, frequencies and lengths are those of these collections alone. Very common terms
        are skipped if rarer ones exist. A `score` is positive, larger is better. `within` restricts the search to these
        documents. With `anchors` the texts of links to a document count, too.
        """

    def document_frequencies(self, terms: Terms, scope: Scope = Scope()) -> Sequence[int]:
        """Count the documents that match each term, in the scope's collections regardless of its other conditions."""

    def similar_terms(self, term: str, limit: int = 5, scope: Scope = Scope()) -> Sequence[str]:
        """Return words of documents in the scope's collections spelled like `term`, most frequent first."""

    def terms_from(self, start: str, limit: int) -> Sequence[str]:
        """Return stored terms with a prefix, at most `limit`: the most frequent or the shortest ones."""

    def main_language(self, scope: Scope = Scope()) -> str | None:
        """Return the language other than English of most documents in the scope's collections."""
        from qmd.analysis.stopwords import LANGUAGE_MARK, LANGUAGES

        found = [mark for mark in self.terms_from(LANGUAGE_MARK, 50) if mark[len(LANGUAGE_MARK) : -1] in LANGUAGES]
        counts = self.document_frequencies([LexicalTerm(mark, f'"{mark}"') for mark in found], scope)
        most, mark = max(zip(counts, found, strict=True), default=(0, ""))
        return mark[len(LANGUAGE_MARK) : -1] if 2 * most > self.count_documents(scope) else None

    def search_dense(
        self, vector: npt.NDArray[np.float32], k: int, scope: Scope, fingerprint: str
    ) -> Sequence[Candidate]:
        """Return the top k documents by the cosine of their best chunk, with its span; scope applied before the cut."""

    def dense_scores(
        self, vector: npt.NDArray[np.float32], document_ids: Sequence[int], fingerprint: str
    ) -> Mapping[int, Candidate]:
        """Return the best chunk's cosine of each given document; documents without vectors are absent."""

    def search_like(self, document: StoredDocument, k: int, scope: Scope) -> Sequence[Candidate]:
        """Return the top k documents, this one included, by the cosine of their best chunk with the mean of this one's.

        Uses the vectors of its collection's model; empty if the document has none of it.
        """

    def vector_models(self) -> Mapping[str, Sequence[str] | None]:
        """Return fingerprint → collections of the models in use, None for all: chosen ones, for others the last."""
        return models_in_use(self.facts(), [one.name for one in self.collections()], self.models())

    def vector_model(self, collection: str) -> str:
        """Return the fingerprint of a collection's model, empty without vectors."""
        return next((one for one, names in self.vector_models().items() if names is None or collection in names), "")

    def vector_coverage(self, fingerprint: str, collections: Sequence[str] | None = None) -> VectorCoverage:
        """Return how many texts, of some collections, lack vectors of a model, and whether it has any."""

    def count_pending(self, fingerprint: str, collections: Sequence[str] | None = None) -> tuple[int, int]:
        """Count the contents without a complete chunk set, and their characters."""

    def without_vectors(self, fingerprint: str, hashes: Sequence[str]) -> Mapping[str, str]:
        """Return the contents without a complete chunk set: hash → the path that `pending` gives them."""

    def vectors(self, fingerprint: str, keys: Sequence[bytes]) -> Mapping[bytes, npt.NDArray[np.float32]]:
        """Return the stored vectors of chunks by key, nearly as they were put; keys without one are absent."""

    def status(self, fingerprint: str | None) -> IndexStatus:
        """Return counts of the stored content; vectors of the model of that fingerprint, None for the last used."""

    def collection_statuses(self, counts: Mapping[str, int]) -> tuple[CollectionStatus, ...]:
        """Return the status of each collection, given its number of documents."""
        facts, found = self.facts(), []
        for one in self.collections():
            known = (one.name, one.path, one.pattern, counts.get(one.name, 0), facts.get(f"updated_at:{one.name}"))
            language, (model, _) = self.main_language(Scope((one.name,))), model_of(facts, one.name)
            found.append(CollectionStatus(*known, one.include_by_default, language, model or None))
        return tuple(found)

    def stored_files(self) -> Iterator[Sequence[StoredFile]]:
        """Yield every document's file record, some hundred at a time, in the order of storing."""

    def models(self) -> Sequence[StoredModel]:
        """Return the models with stored vectors, the one used last at the end; without those being re-embedded."""

    def chunk_sets(self, fingerprint: str) -> Iterator[Mapping[str, Sequence[ChunkRecord]]]:
        """Yield the complete chunk sets of a model by content hash, some hundred at a time; none without vectors.

        As `put_chunks` takes them. Read them inside a `snapshot`, like `vectors`.
        """

    def all_vectors(self, fingerprint: str) -> Iterator[Mapping[bytes, npt.NDArray[np.float32]]]:
        """Yield every vector of a model by key, of unit length, some thousand at a time; as `put_vectors` takes them.

        They include vectors that no chunk refers to yet, in the order of storing.
        """

    def check(self, *, thorough: bool = True) -> Sequence[str]:
        """Return every defect of the file, one line each; empty if it is sound. Reads the whole file."""


class IndexWriter(IndexReader, Protocol):
    """The write side: one at a time per index (waits for the other, then `BusyError`)."""

    def transaction(self) -> AbstractContextManager[None]:
        """Commit all or nothing; nested use joins the outer transaction."""

    def put_collections(self, collections: Sequence[Collection]) -> None:
        """Replace the collections, in this order; documents stay."""

    def mirror_config(self, collections: Sequence[Collection], global_context: str | None, config_hash: str) -> None:
        with self.transaction():
            self.put_collections(collections)
            self.set_facts({"global_context": global_context, "config_hash": config_hash})

    def known_files(self, collection: str, below: str = "") -> Mapping[str, KnownFile]:
        """Return the file records of a collection, or of a folder or path in it, by path."""

    def put_skipped(self, collection: str, files: Iterable[SkippedFile]) -> None:
        """Replace the skipped files of a collection."""

    def put_folders(self, collection: str, changed: Mapping[str, int], gone: Names[str]) -> None:
        """Record these folders of a collection, and forget those in `gone`."""

    def record_folders(self, collection: str, folders: Mapping[str, int], below: str = "") -> None:
        """Record the folders of a collection, or of its part `below` a path, as a scan found them."""
        known = self.recorded_folders(collection).items()
        before = {path: mtime_ns for path, mtime_ns in known if is_below(path, below)}
        changed = {path: mtime_ns for path, mtime_ns in folders.items() if before.get(path) != mtime_ns}
        gone = before.keys() - folders.keys()
        if changed or gone:
            self.put_folders(collection, changed, gone)

    def set_facts(self, facts: Mapping[str, str | None]) -> None:
        """Set facts of the index; None removes one."""

    def mark_updated(self, collection: str, moment: str | None = None) -> None:
        """Record that a collection's update was completed now, or at another moment."""
        self.set_facts({f"updated_at:{collection}": moment or time_text(utc_now())})

    def set_version_stamp(self, part: str, stamp: str) -> None:
        """Record the program version that made a part of the index, so that a later one can rebuild it."""
        if self.version_stamp(part) != stamp:
            self.set_facts({f"made_by:{part}": stamp})

    def put_documents(self, collection: str, new_documents: Iterable[NewDocument]) -> None:
        """Insert or replace by (collection, path); content is stored once per hash."""

    def settle(self, collection: str) -> None:
        """Update titles and link texts; call it once a collection's documents are complete."""
        fact = f"anchored:{collection}"
        with self.transaction():
            since = int(self.facts().get(fact) or 0)
            if (newest := self.settle_since(collection, since)) != since:
                self.set_facts({fact: str(newest)})

    def settle_since(self, collection: str, since: int) -> int:
        """Update titles and link texts of a collection's documents; return the largest processed id.

        The file's name becomes the title if many notes of the collection share a heading. `since` is the result of the
        last call, 0 for the first: documents with larger ids are new.
        """

    def touch(self, document_id: int, size_bytes: int, mtime_ns: int, modified_at: str) -> None:
        """Record new file times of a document whose text did not change."""

    def remove_documents(self, collection: str, paths: Iterable[str]) -> int:
        """Delete documents; return their number."""

    def collections_with_documents(self) -> Sequence[str]:
        """Return the collection names of stored documents, unknown collections included, in order."""

    def remove_collection(self, name: str) -> int:
        """Delete a collection; return the number of deleted documents. Content shared with other collections stays."""
        with self.transaction():
            self.set_facts({f"{fact}:{name}": None for fact in COLLECTION_FACTS})
            return self.drop_collection(name)

    def rename_collection(self, old: str, new: str) -> None:
        """Rename a collection without reading or embedding anything again.

        Raises:
            UsageError: `new` already has documents.
        """
        with self.transaction():
            if self.count_documents(Scope(collections=(new,))):
                raise UsageError(f"Collection already exists: {new}", "choose another name, see: qmd collection list")
            facts = self.facts()
            moved = {f"{fact}:{new}": facts.get(f"{fact}:{old}") for fact in COLLECTION_FACTS}
            self.set_facts({**moved, **{f"{fact}:{old}": None for fact in COLLECTION_FACTS}})
            self.move_collection(old, new)

    def drop_collection(self, name: str) -> int:
        """Delete a collection with its documents and everything except facts; return the number of documents."""

    def move_collection(self, old: str, new: str) -> None:
        """Move everything of a collection, except facts, to a name that has no documents."""

    def pending(self, fingerprint: str, collections: Sequence[str] | None = None) -> Iterator[PendingContent]:
        """Yield contents without a complete chunk set, the newest first; safe while the caller writes."""
        for part in batches(self.pending_paths(fingerprint, collections), 64):
            texts = self.texts([content_hash for content_hash, _ in part])
            # A text can vanish between the list and here, when another process updates the index.
            yield from (PendingContent(*one, texts[one[0]]) for one in part if one[0] in texts)

    def pending_paths(self, fingerprint: str, collections: Sequence[str] | None) -> Sequence[tuple[str, str]]:
        """Return (content hash, path) of `pending`: by the note's own date or else its file's time, newest first."""

    def existing_keys(self, fingerprint: str, keys: Sequence[bytes]) -> frozenset[bytes]:
        """Return the keys that already have a vector."""

    def put_chunks(
        self, fingerprint: str, dim: int, contents: Mapping[str, Sequence[ChunkRecord]], *, is_complete: bool = True
    ) -> None:
        """Store chunk sets by content hash, whose vectors are stored; one call is all or nothing.

        Complete ones mark a content as done, an empty one with nothing to embed. Others are searched, and the content
        waits for the rest.
        """

    def forget_chunks(self, fingerprint: str, suffixes: Sequence[str] | None = None) -> None:
        """Make contents pending again: all, or those of paths with one of these suffixes (lower case).

        Their chunks are searched until new ones replace them, and vectors stay for unchanged chunk texts.
        """

    def prepare_vectors(self) -> None:
        """Check that vectors can be stored, before any is computed.

        Raises:
            ModelError: They cannot on this platform.
        """

    def put_vectors(self, fingerprint: str, dim: int, new_vectors: Mapping[bytes, npt.NDArray[np.float32]]) -> None:
        """Store vectors ahead of the chunks that will refer to them, so that a long text can be resumed half-way."""

    def keep_models(self, names: Mapping[str, str]) -> None:
        """Delete all vectors except those of these fingerprints, and rename these."""

    def cleanup(self, *, dry_run: bool = False) -> Mapping[str, int]:
        """Delete unused content, optimise, vacuum; return the number removed per kind."""
