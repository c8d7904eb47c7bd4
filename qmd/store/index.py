"""`IndexReader` and `IndexWriter`: all that the rest of qmd knows of the index.

What takes more than a statement of SQL is done by the modules beside this one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from qmd.addresses import is_below
from qmd.clock import time_text, utc_now
from qmd.errors import UsageError
from qmd.records import Candidate, Collection, LexicalTerm, Scope, StoredDocument
from qmd.status import IndexStatus, LeftOutFile
from qmd.store import chunks, documents, health, lexical, names
from qmd.store.connection import (
    Database,
)
from qmd.store.scope import scope_condition

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from qmd.status import EmbeddingRun
    from qmd.store.chunks import ChunkRecord, PendingContent, VectorCoverage
    from qmd.store.dense import VectorCache
    from qmd.store.documents import KnownFile, NewDocument
    from qmd.store.links import ResolvedLink
    from qmd.store.names import NamedDocument

_COLLECTION_FACTS = ("updated_at", "made_by:analysis", "anchored")
"""Entries of the key-value table that belong to a collection, its name after a colon."""

_TABLES_OF_COLLECTIONS = (
    ("qmd_collections", "name"),
    ("left_out", "collection"),
    ("touched", "collection"),
    ("folders", "collection"),
)
"""(table, column of the name), `documents` apart."""


class IndexReader:
    """The read side: opened read-only, any number at a time, never runs DDL.

    Usable as a context manager; not to be shared between threads.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def path(self) -> Path:
        """The file that is open."""
        return self._database.path

    def running_embedding(self) -> EmbeddingRun | None:
        """The run that computes vectors of this index now, in whatever process."""
        from qmd.store.runs import running_embedding

        return running_embedding(self.path)

    def close(self) -> None:
        """Release the file."""
        self._database.close()

    def stop_when(self, is_over: Callable[[], bool] | None) -> None:
        """End what reads from here with a `StoreError` once `is_over`; None lets it run."""
        self._database.stop_when(is_over)

    def collections(self) -> Sequence[Collection]:
        """The collections as last mirrored from the configuration."""
        return documents.read_collections(self._database)

    def global_context(self) -> str | None:
        """The user's note on everything."""
        return documents.read_meta(self._database, "global_context")

    def config_hash(self) -> str | None:
        """Hash of the configuration that was mirrored last."""
        return documents.read_meta(self._database, "config_hash")

    def updated_at(self) -> str | None:
        """When a collection was updated last, cheaper than `status`; None before the first update."""
        updated_at: str | None = self._database.value("SELECT max(value) FROM meta WHERE key GLOB 'updated_at:*'")
        return updated_at

    def recorded_files(self, collection: str) -> Iterator[Sequence[tuple[str, int, int]]]:
        """(path, size in bytes, mtime in ns) of a collection's files as they were read, some thousand at a time."""
        return documents.recorded_files(self._database, collection)

    def recorded_folders(self, collection: str) -> Mapping[str, int]:
        """Path → mtime in ns of every folder of a collection as the last update found it; empty before the first."""
        return documents.read_folders(self._database, collection)

    def left_out(self, collection: str) -> Sequence[LeftOutFile]:
        """Files that the last update of a collection could not take."""
        return documents.read_left_out(self._database, collection)

    def documents(self, ids: Sequence[int]) -> Mapping[int, StoredDocument]:
        """Documents by id; unknown ids are absent."""
        sql = f"SELECT {documents.COLUMNS} FROM documents WHERE id IN ({{}})"
        found = documents.stored_documents(self._database, self._database.select_in(sql, ids))
        return {document.id: document for document in found}

    def texts(self, hashes: Sequence[str]) -> Mapping[str, str]:
        """Full texts by content hash; unknown hashes are absent."""
        return documents.fetch_texts(self._database, hashes)

    def find_path(self, collection: str, path: str) -> StoredDocument | None:
        """The document at exactly this place."""
        sql = f"SELECT {documents.COLUMNS} FROM documents WHERE collection = ? AND path = ?"
        found = documents.stored_documents(self._database, self._database.rows(sql, (collection, path)))
        return found[0] if found else None

    def find_named(self, name: str, scope: Scope = Scope(), limit: int = 50) -> Sequence[NamedDocument]:
        """Documents in scope whose file, title or alias is `name` as `note_names.name_key` writes it, by id."""
        return names.find_named(self._database, name, scope, limit)

    def find_dated(
        self, days: Sequence[tuple[str, str]], scope: Scope, limit: int, *, by_file_time: bool = False
    ) -> Sequence[int]:
        """Ids of documents in scope whose own date lies in one of the spans (first and last day, ISO), by id.

        With `by_file_time` those instead that have no date of their own and whose files were written then.
        """
        return documents.find_dated(self._database, days, scope, limit, by_file_time=by_file_time)

    def links_from(self, document: StoredDocument) -> Sequence[ResolvedLink]:
        """The links in a document, in its order; what they mean is looked up now."""
        from qmd.store.links import links_from

        with self._database.snapshot():
            return links_from(self._database, document)

    def links_to(self, document: StoredDocument, limit: int | None = None) -> Sequence[ResolvedLink]:
        """The links of other documents of its collection that mean this one, by path and place.

        With a limit, those among so many links with one of its names.
        """
        from qmd.store.links import links_to

        with self._database.snapshot():
            return links_to(self._database, document, limit)

    def count_shared_links(self, document: StoredDocument) -> Mapping[int, float]:
        """Documents that link to what this one links to, by id: the sum of one by all links to each shared note."""
        from qmd.store.links import count_shared_links

        with self._database.snapshot():
            return count_shared_links(self._database, document)

    def find_docid(self, prefix: str) -> Sequence[StoredDocument]:
        """The first ten documents whose hash starts with `prefix` (hex), by collection and path; none for `""`."""
        if not prefix:
            return []
        # A range, because LIKE cannot use the index on hash. "g" follows every hex digit.
        where = "hash >= ?1 AND hash < ?1 || 'g'"
        sql = f"SELECT {documents.COLUMNS} FROM documents WHERE {where} ORDER BY collection, path LIMIT 10"
        return documents.stored_documents(self._database, self._database.rows(sql, (prefix.lower(),)))

    def iter_documents(self, scope: Scope = Scope()) -> Iterator[StoredDocument]:
        """Documents in scope, by collection and path."""
        condition = scope_condition(scope)
        sql = f"SELECT {documents.COLUMNS} FROM documents WHERE {condition.sql or 1} ORDER BY collection, path"
        for document in documents.stored_documents(self._database, self._database.rows(sql, condition.bindings)):
            self._database.check()
            yield document

    def count_documents(self, scope: Scope = Scope()) -> int:
        """Number of documents in the scope's collections; the rest of a scope does not count here."""
        return lexical.count_documents(self._database, scope)

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
        with self._database.snapshot():
            return lexical.search_lexical(self._database, terms, k, scope, within=within, anchors=anchors)

    def document_frequencies(self, terms: Sequence[LexicalTerm], scope: Scope = Scope()) -> Sequence[int]:
        """Number of documents that match each term, in the scope's collections; its other parts do not count."""
        return lexical.document_frequencies(self._database, terms, scope)

    def similar_terms(self, term: str, limit: int = 5, scope: Scope = Scope()) -> Sequence[str]:
        """Words of documents in the scope's collections that are spelled most like `term`, most frequent first."""
        from qmd.store import spelling

        return spelling.similar_terms(self._database, term, limit, scope)

    def search_dense(
        self, vector: npt.NDArray[np.float32], k: int, scope: Scope, fingerprint: str
    ) -> Sequence[Candidate]:
        """The top k documents by the cosine of their best chunk, which the span names; scope applied before the cut."""
        with self._database.snapshot():
            return self._vectors.search(vector, k, scope, fingerprint)

    def dense_scores(
        self, vector: npt.NDArray[np.float32], document_ids: Sequence[int], fingerprint: str
    ) -> Mapping[int, Candidate]:
        """Cosine of the best chunk of each given document; documents without vectors are absent."""
        with self._database.snapshot():
            return self._vectors.score(vector, document_ids, fingerprint)

    def search_like(self, document: StoredDocument, k: int, scope: Scope) -> Sequence[Candidate]:
        """The top k documents by the cosine of their best chunk with the mean of this one's, itself among them.

        By the vectors of the model used last; empty when the document has none of it.
        """
        with self._database.snapshot():
            return self._vectors.search_like(document.id, k, scope)

    def vector_coverage(self, fingerprint: str) -> VectorCoverage:
        """How many texts lack vectors of a model, and whether there are any."""
        with self._database.snapshot():
            return chunks.vector_coverage(self._database, fingerprint)

    def status(self, fingerprint: str | None) -> IndexStatus:
        """Counts of what the index holds; vectors of the model of that fingerprint, None for the last used."""
        with self._database.snapshot():
            return health.read_status(self._database, fingerprint)

    def check(self, *, thorough: bool = True) -> Sequence[str]:
        """Everything found wrong with the file, one line each; empty when it is sound. Reads the whole file."""
        return health.check(self._database, thorough=thorough)

    @cached_property
    def _vectors(self) -> VectorCache:
        from qmd.store.dense import VectorCache

        return VectorCache(self._database)


class IndexWriter(IndexReader):
    """The write side: one at a time per index (waits for the lock, then `BusyError`)."""

    def transaction(self) -> AbstractContextManager[None]:
        """All or nothing; nested use joins the outer transaction."""
        return self._database.transaction()

    def mirror_config(self, collections: Sequence[Collection], global_context: str | None, config_hash: str) -> None:
        """Make the index's copy of the configuration equal to it."""
        with self.transaction():
            documents.mirror_collections(self._database, collections)
            documents.write_meta(self._database, "global_context", global_context)
            documents.write_meta(self._database, "config_hash", config_hash)

    def known_files(self, collection: str) -> Mapping[str, KnownFile]:
        """What the index remembers of a collection's files, by path."""
        sql = "SELECT path, id, hash, size_bytes, mtime_ns FROM documents WHERE collection = ?"
        return {path: documents.KnownFile(*facts) for path, *facts in self._database.rows(sql, (collection,))}

    def put_left_out(self, collection: str, files: Iterable[LeftOutFile]) -> None:
        """Remember exactly these files of a collection as left out."""
        with self.transaction():
            documents.replace_left_out(self._database, collection, files)

    def record_folders(self, collection: str, folders: Mapping[str, int], below: str = "") -> None:
        """Remember the folders of a collection, or of the part of it that lies `below` a path, as a scan found them."""
        with self.transaction():
            before = {
                path: mtime_ns for path, mtime_ns in self.recorded_folders(collection).items() if is_below(path, below)
            }
            changed = {path: mtime_ns for path, mtime_ns in folders.items() if before.get(path) != mtime_ns}
            documents.put_folders(self._database, collection, changed, before.keys() - folders.keys())

    def mark_updated(self, collection: str) -> None:
        """Remember that a collection's update was completed now."""
        with self.transaction():
            documents.write_meta(self._database, f"updated_at:{collection}", time_text(utc_now()))

    def version_stamp(self, part: str) -> str | None:
        """Which version of the program made a part of the index: `analysis:COLLECTION` or `chunks:FINGERPRINT`."""
        return documents.read_meta(self._database, f"made_by:{part}")

    def set_version_stamp(self, part: str, stamp: str) -> None:
        """Remember which version of the program made a part of the index, so that a later one can make it anew."""
        with self.transaction():
            documents.write_meta(self._database, f"made_by:{part}", stamp)

    def put_documents(self, collection: str, new_documents: Iterable[NewDocument]) -> None:
        """Insert or replace by (collection, path); content is stored once per hash."""
        with self.transaction():
            documents.put_documents(self._database, collection, new_documents)

    def settle_titles(self, collection: str) -> None:
        """Let the titles of a collection tell its notes apart; to be called when its documents are complete."""
        with self.transaction():
            names.settle_titles(self._database, collection)

    def settle_anchors(self, collection: str) -> None:
        """Let documents be found by what links call them; to be called when a collection's documents are complete."""
        from qmd.store.links import settle_anchors

        with self.transaction():
            since = int(documents.read_meta(self._database, f"anchored:{collection}") or 0)
            newest = settle_anchors(self._database, collection, since)
            if newest != since:
                documents.write_meta(self._database, f"anchored:{collection}", str(newest))

    def touch(self, document_id: int, size_bytes: int, mtime_ns: int, modified_at: str) -> None:
        """Remember new file times of a document whose text did not change."""
        sql = "UPDATE documents SET size_bytes = ?, mtime_ns = ?, modified_at = ? WHERE id = ?"
        self._database.run(sql, (size_bytes, mtime_ns, modified_at, document_id))

    def remove_documents(self, collection: str, paths: Iterable[str]) -> int:
        """Delete documents; the number deleted."""
        with self.transaction():
            return documents.remove_documents(self._database, collection, paths)

    def collections_with_documents(self) -> Sequence[str]:
        """Names under which documents are stored, those of unknown collections among them; in order."""
        # A step through the index for each name, not for each document.
        sql = (
            "WITH RECURSIVE found (name) AS (SELECT min(collection) FROM documents UNION ALL"
            " SELECT (SELECT min(collection) FROM documents WHERE collection > name) FROM found WHERE name IS NOT NULL)"
            " SELECT name FROM found WHERE name IS NOT NULL"
        )
        return [name for (name,) in self._database.rows(sql)]

    def remove_collection(self, name: str) -> int:
        """Delete a collection; the number of documents deleted. What other collections share stays."""
        with self.transaction():
            for fact in _COLLECTION_FACTS:
                documents.write_meta(self._database, f"{fact}:{name}", None)
            paths = self._database.rows("SELECT path FROM documents WHERE collection = ?", (name,))
            removed = documents.remove_documents(self._database, name, [path for (path,) in paths])
            for table, column in _TABLES_OF_COLLECTIONS:
                self._database.run(f"DELETE FROM {table} WHERE {column} = ?", (name,))
            return removed

    def rename_collection(self, old: str, new: str) -> None:
        """Give a collection another name; nothing is read or embedded again.

        Raises:
            UsageError: `new` already holds documents.
        """
        with self.transaction():
            if self._database.value("SELECT 1 FROM documents WHERE collection = ? LIMIT 1", (new,)):
                raise UsageError(f"collection '{new}' already exists", "choose another name, see: qmd collection list")
            self._database.run("DELETE FROM left_out WHERE collection = ?", (new,))
            for table, column in (("documents", "collection"), *_TABLES_OF_COLLECTIONS):
                self._database.run(f"UPDATE {table} SET {column} = ? WHERE {column} = ?", (new, old))
            for fact in _COLLECTION_FACTS:
                value = documents.read_meta(self._database, f"{fact}:{old}")
                documents.write_meta(self._database, f"{fact}:{new}", value)
                documents.write_meta(self._database, f"{fact}:{old}", None)

    def pending(self, fingerprint: str, collections: Sequence[str] | None = None) -> Iterator[PendingContent]:
        """Contents without a complete chunk set for `fingerprint`, the newest first; safe while the caller writes."""
        return chunks.pending(self._database, fingerprint, collections)

    def count_pending(self, fingerprint: str, collections: Sequence[str] | None = None) -> tuple[int, int]:
        """(contents, characters) that `pending` would yield."""
        return chunks.count_pending(self._database, fingerprint, collections)

    def existing_keys(self, fingerprint: str, keys: Sequence[bytes]) -> frozenset[bytes]:
        """Those keys that already have a vector."""
        return frozenset(chunks.slots_of(self._database, chunks.known_model(self._database, fingerprint), keys))

    def put_chunks(self, fingerprint: str, dim: int, contents: Mapping[str, Sequence[ChunkRecord]]) -> None:
        """Store complete chunk sets by content hash, whose vectors are there; one call is all or nothing.

        An empty sequence marks a content as done with nothing to embed.
        """
        with self.transaction():
            chunks.put_chunks(self._database, fingerprint, dim, contents)

    def forget_chunks(self, fingerprint: str, suffixes: Sequence[str] | None = None) -> None:
        """Make contents pending again: all, or those of paths with one of these endings (lower case).

        Their chunks are searched until new ones take their place, and vectors stay for texts that come out the same.
        """
        with self.transaction():
            chunks.forget_chunks(self._database, fingerprint, suffixes)

    def put_vectors(self, fingerprint: str, dim: int, new_vectors: Mapping[bytes, npt.NDArray[np.float32]]) -> None:
        """Store vectors ahead of the chunks that will refer to them, so that a long text can be resumed half-way."""
        from qmd.store import vectors

        with self.transaction():
            vectors.put_vectors(self._database, fingerprint, dim, new_vectors)

    def clear_vectors(self, collections: Sequence[str] | None = None) -> None:
        """Forget the chunks of some collections, or all vectors of all models."""
        from qmd.store import vectors

        with self.transaction():
            vectors.clear_vectors(self._database, collections)

    def cleanup(self, *, dry_run: bool = False) -> Mapping[str, int]:
        """Drop what nothing refers to, optimise, vacuum; counts per kind of thing removed."""
        return health.cleanup(self._database, dry_run=dry_run)
