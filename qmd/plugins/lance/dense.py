"""The read side of dense retrieval: the best chunk of each document by cosine.

LanceDB ranks vectors and knows no chunks, so its ranking is read until enough documents in scope were found. A narrow
scope's vectors are fetched and compared here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from qmd.batching import batches
from qmd.errors import StoreError
from qmd.plugins.lance.documents import Documents
from qmd.plugins.lance.scope import scope_condition
from qmd.plugins.lance.state import Model
from qmd.plugins.lance.tables import Row, Tables, both, is_in
from qmd.records import Candidate, Scope, StoredDocument
from qmd.store.records import sort_candidates

NARROW = 500
"""Documents of a scope up to which their vectors are fetched: it takes as long as a few searches."""

_CHUNKS_PER_DOCUMENT = 4
"""Chunks first requested per wanted document, and the factor of each retry when they were too few. An index chooses
them, and each is compared exactly, for which it is read by itself."""

PROBES = 50
"""Partitions of a vector index that are searched."""

_VECTORS_AT_A_TIME = 4_096

_SPAN = ("hash", "start", "end", "key")


class Dense(Documents):
    """Read methods for dense search."""

    def search_dense(self, vector: npt.NDArray[np.float32], k: int, scope: Scope, fingerprint: str) -> list[Candidate]:
        tables = self._tables
        model = known_model(tables, vector, fingerprint)
        if model is None or k <= 0 or scope.collections == ():
            return []
        where = scope_condition(tables, scope)
        if where and tables.count("documents", where) <= NARROW:
            inside = [row["id"] for row in tables.select("documents", ("id",), where)]
            return sort_candidates(self.dense_scores(vector, inside, fingerprint).values())[:k]
        total = tables.count(model.table)
        wanted = min(total, _CHUNKS_PER_DOCUMENT * k)
        while wanted:
            cosines = _find_nearest(tables, model, vector, wanted, is_all=wanted == total)
            chunks = list(tables.select_in("chunks", _SPAN, "key", list(cosines), f"model = {model.id}"))
            hashes = list({row["hash"] for row in chunks})
            documents = list(tables.select_in("documents", ("id", "hash"), "hash", hashes, where))
            found = _best_chunks(documents, chunks, cosines)
            # Exact: a document's best chunk comes before its other chunks, so the first `k` found are the first `k`.
            if len(found) >= k or wanted == total:
                return sort_candidates(found.values())[:k]
            wanted = min(total, wanted * _CHUNKS_PER_DOCUMENT)
        return []

    def dense_scores(
        self, vector: npt.NDArray[np.float32], document_ids: Sequence[int], fingerprint: str
    ) -> dict[int, Candidate]:
        tables = self._tables
        model = known_model(tables, vector, fingerprint)
        if model is None:
            return {}
        documents = list(tables.select_in("documents", ("id", "hash"), "id", list(dict.fromkeys(document_ids))))
        chunks = _read_chunks(tables, model, {row["hash"] for row in documents})
        keys, matrix = fetch_vectors(tables, model, list({row["key"] for row in chunks}))
        cosines = dict(zip(keys, (matrix @ _normalise(vector)).tolist(), strict=True))
        return _best_chunks(documents, chunks, cosines)

    def search_like(self, document: StoredDocument, k: int, scope: Scope) -> list[Candidate]:
        tables = self._tables
        model = tables.state.model(self.vector_model(document.collection))
        if model is None:
            return []
        keys = [row["key"] for row in _read_chunks(tables, model, {document.hash})]
        known, matrix = fetch_vectors(tables, model, list(set(keys)))
        row_of = {key: row for row, key in enumerate(known)}
        mean = matrix[[row_of[key] for key in keys if key in row_of]].sum(axis=0)
        length = float(np.linalg.norm(mean))
        return self.search_dense(mean / length, k, scope, model.fingerprint) if length else []

    def vectors(self, fingerprint: str, keys: Sequence[bytes]) -> dict[bytes, npt.NDArray[np.float32]]:
        model = self._tables.state.model(fingerprint)
        if model is None or not keys:
            return {}
        found, matrix = fetch_vectors(self._tables, model, keys)
        return dict(zip(found, matrix, strict=True))

    def all_vectors(self, fingerprint: str) -> Iterator[Mapping[bytes, npt.NDArray[np.float32]]]:
        tables = self._tables
        model = tables.state.model(fingerprint)
        if model is None:
            return
        for part in batches([row["key"] for row in tables.select(model.table, ("key",))], _VECTORS_AT_A_TIME):
            yield self.vectors(fingerprint, part)


def known_model(tables: Tables, vector: npt.NDArray[np.float32], fingerprint: str) -> Model | None:
    """Return the model of a fingerprint, None if nothing of it is stored.

    Raises:
        StoreError: `vector` has another dimension than the stored ones.
    """
    model = tables.state.model(fingerprint)
    if model is not None and vector.shape != (model.dim,):
        raise StoreError(f"query vector has shape {vector.shape}, the index has {model.dim} dimensions")
    return model


def _find_nearest(
    tables: Tables, model: Model, vector: npt.NDArray[np.float32], wanted: int, *, is_all: bool
) -> dict[bytes, float]:
    """Return the cosines of the nearest vectors, by key."""
    tables.check()
    if (table := tables.table(model.table)) is None:
        return {}
    with tables.connection.failing():
        query = table.search(_normalise(vector), vector_column_name="vector").distance_type("cosine")
        # An index searches a part of them and so cannot return all.
        query = query.bypass_vector_index() if is_all else query.nprobes(PROBES).refine_factor(1)
        found = query.limit(wanted).select(["key", "_distance"]).to_arrow()
    distances = found["_distance"].to_pylist()
    return {key: 1.0 - distance for key, distance in zip(found["key"].to_pylist(), distances, strict=True)}


def _read_chunks(tables: Tables, model: Model, hashes: set[str]) -> list[Row]:
    where = both(f"model = {model.id}", "seq >= 0")
    return list(tables.select_in("chunks", _SPAN, "hash", list(hashes), where))


def fetch_vectors(tables: Tables, model: Model, keys: Sequence[bytes]) -> tuple[list[bytes], npt.NDArray[np.float32]]:
    """Return the existing keys and their vectors, of length 1; shape (n, dim)."""
    found, parts = [], [np.zeros((0, model.dim), dtype=np.float32)]
    for some in batches(keys, 1_000):
        part = tables.arrow(model.table, ("key", "vector"), is_in("key", some))
        if part is not None and part.num_rows:
            found += part["key"].to_pylist()
            flat = part["vector"].combine_chunks().flatten().to_numpy()
            parts.append(flat.reshape(-1, model.dim).astype(np.float32))
    matrix = np.concatenate(parts)
    return found, matrix / np.maximum(np.linalg.norm(matrix, axis=1, keepdims=True), 1e-12)


def _normalise(vector: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    return np.asarray(vector / max(float(np.linalg.norm(vector)), 1e-12), dtype=np.float32)


def _best_chunks(
    documents: Iterable[Row], chunks: Iterable[Row], cosines: Mapping[bytes, float]
) -> dict[int, Candidate]:
    """Return the best chunk of each document, of equal ones the first."""
    by_hash: defaultdict[str, list[Row]] = defaultdict(list)
    for row in chunks:
        if row["key"] in cosines:
            by_hash[row["hash"]].append(row)
    best: dict[int, Candidate] = {}
    for document in documents:
        if own := by_hash.get(document["hash"]):
            row = min(own, key=lambda row: (-cosines[row["key"]], row["start"]))
            best[document["id"]] = Candidate(document["id"], cosines[row["key"]], row["start"], row["end"])
    return best
