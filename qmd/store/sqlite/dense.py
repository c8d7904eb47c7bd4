"""The read side of dense retrieval: the best chunk of each document by cosine.

Exact up to `vectors.SIGNS_FROM_SLOTS` vectors; beyond, sign bits choose candidates that are then scored exactly.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from qmd.errors import StoreError
from qmd.records import Candidate, Scope
from qmd.store.sqlite.blocks import (
    SCALE_BYTES,
    hamming,
    pack_signs,
    read_all,
    read_signs,
    read_slots,
    score_rows,
    unpack_rows,
)
from qmd.store.sqlite.connection import Database
from qmd.store.sqlite.scope import Condition, scope_condition
from qmd.store.sqlite.scoped_ranking import count_all

CANDIDATES_PER_HIT = 60
"""Rows scored exactly per document asked for, on the sign-bit path; between 50 and 100 recall@10 is flat at 0.99."""

MIN_CANDIDATES = 1_500

NARROW_SHARE = 0.25
"""Up to this share of all documents a scope's chunks are listed first; above, scoring everything is quicker."""

MAX_MATRIX_BYTES = 512 * 1024 * 1024
"""Rows of one model kept in memory between queries (1.3 million of 384 dimensions); of larger models, and for the first
query of a process on the sign-bit path, single rows are read from the file."""

_SELECT = "SELECT chunks.slot, documents.id, chunks.start, chunks.end FROM"
# Without the hint SQLite walks all chunks of the model (45 ms for 180,000 of them, against 1 ms).
_BY_SLOT = (
    f"{_SELECT} chunks INDEXED BY chunks_by_slot CROSS JOIN content ON content.id = chunks.content "
    "CROSS JOIN documents ON documents.hash = content.hash WHERE chunks.model = ?"
)
_BY_DOCUMENT = (
    f"{_SELECT} documents CROSS JOIN content ON content.hash = documents.hash "
    "CROSS JOIN chunks ON chunks.content = content.id WHERE chunks.model = ?"
)


class _Model(Struct, frozen=True):
    id: int
    dim: int
    n_slots: int
    generation: int
    centre: bytes | None


class VectorCache:
    """Dense search on one connection; keeps a model's rows and sign bits between queries while they are current."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._key: tuple[int, int] | None = None
        self._rows: npt.NDArray[np.uint8] | None = None
        self._signs: npt.NDArray[np.uint64] | None = None
        self._searches = 0

    def search(self, vector: npt.NDArray[np.float32], k: int, scope: Scope, fingerprint: str) -> list[Candidate]:
        """The top `k` documents in scope, best first, ties by id; empty without vectors of this model.

        Raises:
            StoreError: `vector` has another dimension than the stored ones.
        """
        model = self._model(fingerprint, vector)
        if model is None or model.n_slots == 0 or k <= 0 or scope.collections == ():
            return []
        condition = scope_condition(scope)
        slots = self._narrow_slots(model, condition)
        if slots is None and model.centre is not None and hasattr(np, "bitwise_count"):
            self._searches += 1
            wanted = min(model.n_slots, max(MIN_CANDIDATES, CANDIDATES_PER_HIT * k))
            nearest = self._nearest_by_signs(model, vector, wanted)
            found = self._documents(model, nearest, self._score(model, vector, nearest), k, condition)
            # Scope and shared texts can use up the candidates; then only the full scan is right.
            if len(found) >= k or wanted == model.n_slots:
                return found
        scored = np.arange(model.n_slots) if slots is None else slots
        return self._documents(model, scored, self._score(model, vector, slots), k, condition)

    def search_like(self, document_id: int, k: int, scope: Scope) -> list[Candidate]:
        """The top `k` by the mean of a document's chunks, of the model used last; empty when it has none of that."""
        found = self._database.row("SELECT id, fingerprint, dim FROM models ORDER BY id DESC LIMIT 1")
        if found is None:
            return []
        model, fingerprint, dim = found
        chunks = self._database.rows(f"{_BY_DOCUMENT} AND documents.id = ?", (model, document_id))
        slots = np.array([chunk[0] for chunk in chunks], dtype=np.int64)
        mean = unpack_rows(read_slots(self._database, model, slots, dim)).sum(axis=0)
        length = float(np.linalg.norm(mean))
        return self.search(mean / length, k, scope, fingerprint) if length else []

    def score(
        self, vector: npt.NDArray[np.float32], document_ids: Sequence[int], fingerprint: str
    ) -> dict[int, Candidate]:
        """Best chunk of each given document; documents without vectors are absent."""
        model = self._model(fingerprint, vector)
        if model is None:
            return {}
        sql = f"{_BY_DOCUMENT} AND documents.id IN ({{}})"
        chunks = list(self._database.select_in(sql, list(dict.fromkeys(document_ids)), (model.id,)))
        slots = np.array([chunk[0] for chunk in chunks], dtype=np.int64)
        scores = self._score(model, vector, slots).tolist()
        best: dict[int, Candidate] = {}
        for (_, document_id, start, end), score in zip(chunks, scores, strict=True):
            _keep_better(best, Candidate(document_id, score, start, end))
        return best

    def _model(self, fingerprint: str, vector: npt.NDArray[np.float32]) -> _Model | None:
        """The model's row; forgets what is held of an older state."""
        sql = "SELECT id, dim, n_slots, generation, centre FROM models WHERE fingerprint = ?"
        row = self._database.row(sql, (fingerprint,))
        if row is None:
            return None
        model = _Model(*row)
        if vector.shape != (model.dim,):
            raise StoreError(f"query vector has shape {vector.shape}, the index holds {model.dim} dimensions")
        if self._key != (model.id, model.generation):
            self._key = (model.id, model.generation)
            self._rows = self._signs = None
        return model

    def _narrow_slots(self, model: _Model, condition: Condition) -> npt.NDArray[np.int64] | None:
        """Slots of the documents in scope, ascending; None when the scope is wide."""
        if not condition.sql:
            return None
        within = self._database.value(f"SELECT count(*) FROM documents WHERE {condition.sql}", condition.bindings)
        if within > count_all(self._database) * NARROW_SHARE:
            return None
        rows = self._database.rows(f"{_BY_DOCUMENT} AND {condition.sql}", (model.id, *condition.bindings))
        return np.unique(np.array([row[0] for row in rows], dtype=np.int64))

    def _score(
        self, model: _Model, vector: npt.NDArray[np.float32], slots: npt.NDArray[np.int64] | None
    ) -> npt.NDArray[np.float32]:
        """Cosine of the given slots, or of all."""
        rows = self._rows
        if rows is None and slots is not None:
            exceeds = model.n_slots * (SCALE_BYTES + model.dim) > MAX_MATRIX_BYTES
            # Else all of them are read, which later queries share.
            if exceeds or (len(slots) < model.n_slots // 8 and self._searches <= 1):
                return score_rows(read_slots(self._database, model.id, slots, model.dim), vector)
        if rows is None:
            rows = read_all(self._database, model.id, model.n_slots, model.dim)
            self._rows = rows if rows.nbytes <= MAX_MATRIX_BYTES else None
        return score_rows(rows if slots is None else rows[slots], vector)

    def _nearest_by_signs(self, model: _Model, vector: npt.NDArray[np.float32], wanted: int) -> npt.NDArray[np.int64]:
        if self._signs is None:
            self._signs = read_signs(self._database, model.id, model.n_slots, model.dim)
        centre = np.frombuffer(model.centre or b"", dtype=np.float32)
        distances = hamming(self._signs, pack_signs(vector[None, :], centre)[:, 0])
        return np.argpartition(distances, wanted - 1)[:wanted]

    def _documents(
        self,
        model: _Model,
        slots: npt.NDArray[np.int64],
        scores: npt.NDArray[np.float32],
        k: int,
        condition: Condition,
    ) -> list[Candidate]:
        """Documents of the best slots; looks further down until there are `k` of them or no slots are left.

        Exact: a document's best chunk comes before its other chunks, so the first `k` found are the first `k`.
        """
        best: dict[int, Candidate] = {}
        sql = f"{_BY_SLOT} {'AND ' + condition.sql if condition.sql else ''} AND chunks.slot IN ({{}})"
        done, take = 0, min(len(slots), 4 * k)
        order = _descending(scores, take)
        while True:
            score_of = dict(zip(slots[order[done:]].tolist(), scores[order[done:]].tolist(), strict=True))
            found = self._database.select_in(sql, list(score_of), (model.id, *condition.bindings))
            for slot, document_id, start, end in found:
                _keep_better(best, Candidate(document_id, score_of[slot], start, end))
            if len(best) >= k or take >= len(slots):
                break
            done, take = take, min(len(slots), 4 * take)
            order = _descending(scores, take)
        ranked = sorted(best.values(), key=lambda candidate: (-candidate.score, candidate.document_id))
        return ranked[:k]


def _descending(scores: npt.NDArray[np.float32], take: int) -> npt.NDArray[np.int64]:
    """Positions of the `take` largest scores, best first, ties by position: a longer list extends a shorter one."""
    if take >= len(scores):
        return np.argsort(-scores, kind="stable")
    threshold = -np.partition(-scores, take - 1)[take - 1]
    above = np.flatnonzero(scores > threshold)
    level = np.flatnonzero(scores == threshold)[: take - len(above)]
    chosen = np.concatenate([above, level])
    return chosen[np.argsort(-scores[chosen], kind="stable")]


def _keep_better(best: dict[int, Candidate], candidate: Candidate) -> None:
    """Keep a document's best chunk, of equal ones the first."""
    kept = best.get(candidate.document_id)
    if kept is None or (-candidate.score, candidate.chunk_start or 0) < (-kept.score, kept.chunk_start or 0):
        best[candidate.document_id] = candidate
