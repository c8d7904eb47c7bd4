"""The read side of an index in LanceDB tables.

What takes more than a few calls is done by the modules beside this one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from qmd.plugins.lance import chunks, documents, health
from qmd.plugins.lance.documents import LanceLinks
from qmd.plugins.lance.scope import LanceScope, scope_condition
from qmd.plugins.lance.tables import Connection, Tables, both, is_in, literal
from qmd.records import Candidate, Collection, LexicalTerm, Scope, StoredDocument
from qmd.status import IndexStatus, LeftOutFile
from qmd.store.base import IndexReader
from qmd.store.records import (
    ChunkRecord,
    NamedDocument,
    StoredFile,
    StoredModel,
    VectorCoverage,
)

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


_FILES_AT_A_TIME = 2_000


class LanceReader(IndexReader):
    """The read side: sees the state that it was opened with; any number at a time, on any machine."""

    def __init__(self, connection: Connection, local_state: Path) -> None:
        self._connection = connection
        self._local_state = local_state
        self._pinned = Tables(connection, connection.read_state(connection.open_state()))

    @property
    def path(self) -> Path:
        return self._local_state

    @property
    def _tables(self) -> Tables:
        return self._pinned

    def close(self) -> None:
        self._pinned = Tables(self._connection, self._pinned.state)

    def snapshot(self) -> AbstractContextManager[None]:
        return nullcontext()

    def stop_when(self, is_over: Callable[[], bool] | None) -> None:
        self._tables.is_over = is_over

    def collections(self) -> Sequence[Collection]:
        return self._tables.state.collections

    def facts(self) -> Mapping[str, str]:
        return self._tables.state.meta

    def recorded_files(self, collection: str) -> Iterator[Sequence[tuple[str, int, int]]]:
        rows = self._tables.select("documents", ("path", "size_bytes", "mtime_ns"), of_collection(collection))
        files = sorted((row["path"], row["size_bytes"], row["mtime_ns"]) for row in rows)
        for first in range(0, len(files), _FILES_AT_A_TIME):
            yield files[first : first + _FILES_AT_A_TIME]

    def recorded_folders(self, collection: str) -> Mapping[str, int]:
        rows = self._tables.select("places", ("path", "value"), both("kind = 'folder'", of_collection(collection)))
        return {row["path"]: int(row["value"]) for row in rows}

    def left_out(self, collection: str) -> Sequence[LeftOutFile]:
        return health.read_left_out(self._tables, collection)

    def documents(self, ids: Sequence[int]) -> Mapping[int, StoredDocument]:
        found = documents.stored_documents(self._tables.select_in("documents", documents.COLUMNS, "id", ids))
        return {document.id: document for document in found}

    def texts(self, hashes: Sequence[str]) -> Mapping[str, str]:
        return documents.fetch_texts(self._tables, hashes)

    def find_path(self, collection: str, path: str) -> StoredDocument | None:
        found = self._stored(both(of_collection(collection), f"path = {literal(path)}"))
        return found[0] if found else None

    def find_named(self, name: str, scope: Scope = Scope(), limit: int = 50) -> Sequence[NamedDocument]:
        where = both(f"array_has_any(name_keys, [{literal(name)}])", scope_condition(self._tables, scope))
        rows = self._tables.select("documents", ("id", "name_keys", "name_kinds"), where)
        found = [NamedDocument(row["id"], kind) for row in rows for key, kind in documents.names_in(row) if key == name]
        return sorted(found, key=lambda one: one.document_id)[:limit]

    def find_dated(
        self, days: Sequence[tuple[str, str]], scope: Scope, limit: int, *, by_file_time: bool = False
    ) -> Sequence[int]:
        writer = LanceScope(self._tables)
        where = both(writer.dated(days, by_file_time=by_file_time), *writer.scope(scope))
        return sorted(row["id"] for row in self._tables.select("documents", ("id",), where))[:limit]

    def links(self) -> LanceLinks:
        return LanceLinks(self._tables)

    def find_docid(self, prefix: str) -> Sequence[StoredDocument]:
        return self._stored(f"starts_with(hash, {literal(prefix.lower())})")[:10] if prefix else []

    def iter_documents(self, scope: Scope = Scope()) -> Iterator[StoredDocument]:
        for document in self._stored(scope_condition(self._tables, scope)):
            self._tables.check()
            yield document

    def count_documents(self, scope: Scope = Scope()) -> int:
        where = "" if scope.collections is None else is_in("collection", scope.collections)
        return self._tables.count("documents", where)

    def search_lexical(
        self,
        terms: Sequence[LexicalTerm],
        k: int,
        scope: Scope,
        *,
        within: Sequence[int] | None = None,
        anchors: bool = False,
    ) -> Sequence[Candidate]:
        from qmd.plugins.lance import lexical

        return lexical.search_lexical(self._tables, terms, k, scope, within, anchors=anchors)

    def document_frequencies(self, terms: Sequence[LexicalTerm], scope: Scope = Scope()) -> Sequence[int]:
        from qmd.plugins.lance import lexical

        return lexical.document_frequencies(self._tables, terms, scope)

    def similar_terms(self, term: str, limit: int = 5, scope: Scope = Scope()) -> Sequence[str]:
        from qmd.plugins.lance import lexical

        return lexical.similar_terms(self._tables, term, limit, scope)

    def search_dense(
        self, vector: npt.NDArray[np.float32], k: int, scope: Scope, fingerprint: str
    ) -> Sequence[Candidate]:
        from qmd.plugins.lance import dense

        return dense.search(self._tables, vector, k, scope, fingerprint)

    def dense_scores(
        self, vector: npt.NDArray[np.float32], document_ids: Sequence[int], fingerprint: str
    ) -> Mapping[int, Candidate]:
        from qmd.plugins.lance import dense

        return dense.score(self._tables, vector, document_ids, fingerprint)

    def search_like(self, document: StoredDocument, k: int, scope: Scope) -> Sequence[Candidate]:
        from qmd.plugins.lance import dense

        return dense.search_like(self._tables, document.hash, k, scope)

    def vector_coverage(self, fingerprint: str) -> VectorCoverage:
        return chunks.vector_coverage(self._tables, fingerprint)

    def status(self, fingerprint: str | None) -> IndexStatus:
        return health.read_status(self._tables, self.path, fingerprint)

    def stored_files(self) -> Iterator[Sequence[StoredFile]]:
        return documents.stored_files(self._tables)

    def models(self) -> Sequence[StoredModel]:
        return [StoredModel(model.fingerprint, model.dim) for model in self._tables.state.searched]

    def chunk_sets(self, fingerprint: str) -> Iterator[Mapping[str, Sequence[ChunkRecord]]]:
        return chunks.chunk_sets(self._tables, fingerprint)

    def without_vectors(self, fingerprint: str, hashes: Sequence[str]) -> Mapping[str, str]:
        return chunks.without_vectors(self._tables, fingerprint, hashes)

    def vectors(self, fingerprint: str, keys: Sequence[bytes]) -> Mapping[bytes, npt.NDArray[np.float32]]:
        from qmd.plugins.lance import dense

        model = self._tables.state.model(fingerprint)
        return {} if model is None or not keys else dense.vectors(self._tables, model, keys)

    def all_vectors(self, fingerprint: str) -> Iterator[Mapping[bytes, npt.NDArray[np.float32]]]:
        from qmd.plugins.lance import dense

        return dense.all_vectors(self._tables, fingerprint)

    def check(self, *, thorough: bool = True) -> Sequence[str]:
        return health.check(self._tables)

    def _stored(self, where: str) -> list[StoredDocument]:
        """Documents by collection and path."""
        found = documents.stored_documents(self._tables.select("documents", documents.COLUMNS, where))
        return sorted(found, key=lambda one: (one.collection, one.path))


def of_collection(collection: str) -> str:
    """The condition that a row belongs to a collection."""
    return f"collection = {literal(collection)}"
