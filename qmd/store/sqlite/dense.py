"""The read side of dense retrieval: the best chunk of each document by cosine.

Exact up to `vectors.SIGNS_FROM` vectors; beyond, sign bits choose candidates that are then scored exactly.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from qmd.errors import StoreError
from qmd.records import Candidate, Scope
from qmd.store.records import sort_candidates
from qmd.store.sqlite.connection import DamagedIndexError, Database
from qmd.store.sqlite.documents import SqlCondition, scope_condition
from qmd.store.sqlite.quantisation import Floats, as_words, dequantise, hamming, pack_signs, score_rows, sign_products
from qmd.store.sqlite.scoped_ranking import count_all
from qmd.store.sqlite.vec0 import Slots, signs_of, vectors_of

NEAR_PER_HIT = 120
LEAST_NEAR = 12_000
"""Nearest rows by differing sign bits: per requested document, and at least."""

CANDIDATES_PER_HIT = 30
LEAST_CANDIDATES = 4_000
"""Rows of these that are scored exactly, unless the margin is thin. Of 183 questions on 35,000 passages recall@10 is
.9995, of a million mixed vectors .980, with a limit of .982 by 8 bits alone and .970 with 2,000 rows."""

_SURE_HITS = 10
"""Number of best rows that must be found for certain, as far as `_MARGIN` allows."""

_MARGIN = 3.0
"""Deviations from the cosine that the sign bits predict."""

NARROW_SHARE = 0.25
"""Up to this share of all documents a scope's chunks are listed first; above, scoring everything is quicker."""

MAX_MATRIX_BYTES = 512 * 1024 * 1024
"""Rows of one model cached between queries (1.3 million of 384 dimensions); of larger models single rows are read
from the file."""

_READS_ROWS = 8
"""Searches on the sign-bit path that read single rows before all are read: the second costs as much as thirty of
them, which only pays in a long-running process."""

_SELECT = "SELECT chunks.slot, documents.id, chunks.start, chunks.end FROM"
# Without the hint SQLite walks all chunks of the model (45 ms for 180,000 of them, against 1 ms).
_BY_SLOT = (
    f"{_SELECT} chunks INDEXED BY chunks_by_slot CROSS JOIN content ON content.id = chunks.content "
    "CROSS JOIN documents ON documents.hash = content.hash WHERE chunks.model = ?"
)
_CHUNKS_OF_DOCUMENTS = (
    "documents CROSS JOIN content ON content.hash = documents.hash "
    "CROSS JOIN chunks ON chunks.content = content.id WHERE chunks.model = ?"
)
_BY_DOCUMENT = f"{_SELECT} {_CHUNKS_OF_DOCUMENTS}"


class _Model(Struct, frozen=True):
    id: int
    dim: int
    n_vectors: int
    generation: int
    centre: bytes | None


class _Rows(Struct):
    """All vectors of a model: slots, ascending, shape (n,), rows, shape (n, dim), and once known their scales, (n,)."""

    slots: Slots
    rows: npt.NDArray[np.int8]
    scales: Floats | None = None


class VectorCache:
    """Dense search on one connection; caches a model's rows and sign bits between queries while they are current."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._key: tuple[int, int] | None = None
        self._all: _Rows | None = None
        self._signs: tuple[Slots, list[npt.NDArray[np.uint64]]] | None = None
        self._narrowed: tuple[tuple[SqlCondition, tuple[int, int]], _Rows] | None = None
        self._searches = 0

    def search(self, vector: Floats, k: int, scope: Scope, fingerprint: str) -> list[Candidate]:
        """Return the top `k` documents in scope, best first, ties by id; empty without vectors of this model.

        Raises:
            StoreError: `vector` has another dimension than the stored ones.
        """
        model = self._model(fingerprint, vector)
        if model is None or model.n_vectors == 0 or k <= 0 or scope.collections == ():
            return []
        condition = scope_condition(self._database, scope)
        kept = self._scope_rows(model, condition)
        if kept is None and model.centre is not None and hasattr(np, "bitwise_count"):
            self._searches += 1
            nearest, scores = self._nearest_by_signs(model, vector, k)
            found = self._rank_documents(model, nearest, scores, k, condition)
            # Scope and shared texts can use up the candidates; then only the full scan is right.
            if len(found) >= k or len(nearest) == model.n_vectors:
                return found
        kept = self._read_all(model) if kept is None else kept
        scores, kept.scales = score_rows(kept.rows, vector, kept.scales)
        return self._rank_documents(model, kept.slots, scores, k, condition)

    def search_like(self, document_id: int, k: int, scope: Scope, fingerprint: str) -> list[Candidate]:
        """Return the top `k` by the mean of a document's chunks; empty without any of this model."""
        if (found := self._database.row("SELECT id, dim FROM models WHERE fingerprint = ?", (fingerprint,))) is None:
            return []
        model, dim = found
        chunks = self._database.rows(f"{_BY_DOCUMENT} AND documents.id = ?", (model, document_id))
        slots = np.array([chunk[0] for chunk in chunks], dtype=np.int64)
        mean = dequantise(self._read_slots(model, dim, slots)).sum(axis=0)
        length = float(np.linalg.norm(mean))
        return self.search(mean / length, k, scope, fingerprint) if length else []

    def score(self, vector: Floats, document_ids: Sequence[int], fingerprint: str) -> dict[int, Candidate]:
        """Return the best chunk of each given document; documents without vectors are absent."""
        model = self._model(fingerprint, vector)
        if model is None:
            return {}
        sql = f"{_BY_DOCUMENT} AND documents.id IN ({{}})"
        chunks = list(self._database.select_in(sql, list(dict.fromkeys(document_ids)), (model.id,)))
        scores = self._score(model, vector, np.array([chunk[0] for chunk in chunks], dtype=np.int64))
        best: dict[int, Candidate] = {}
        for (_, document_id, start, end), score in zip(chunks, scores.tolist(), strict=True):
            _keep_better(best, Candidate(document_id, score, start, end))
        return best

    def _model(self, fingerprint: str, vector: Floats) -> _Model | None:
        """Return the model's row; drop the cache of an older state."""
        sql = "SELECT id, dim, n_vectors, generation, centre FROM models WHERE fingerprint = ?"
        if (row := self._database.row(sql, (fingerprint,))) is None:
            return None
        model = _Model(*row)
        if vector.shape != (model.dim,):
            raise StoreError(f"query vector has shape {vector.shape}, the index has {model.dim} dimensions")
        if self._key != (model.id, model.generation):
            self._key = (model.id, model.generation)
            self._all = self._signs = self._narrowed = None
        return model

    def _scope_rows(self, model: _Model, condition: SqlCondition) -> _Rows | None:
        """Return the vectors of the documents in scope, cached until the scope changes; None for a wide one."""
        if not condition.sql:
            return None
        state = self._database.state()
        if self._narrowed is not None and self._narrowed[0] == (condition, state):
            return self._narrowed[1]
        within = self._database.value(f"SELECT count(*) FROM documents WHERE {condition.sql}", condition.bindings)
        if within > count_all(self._database) * NARROW_SHARE:
            return None
        sql = f"SELECT chunks.slot FROM {_CHUNKS_OF_DOCUMENTS} AND {condition.sql}"
        found = self._database.rows(sql, (model.id, *condition.bindings))
        slots = np.array(sorted({slot for (slot,) in found}), dtype=np.int64)
        kept = _Rows(slots, *self._get_rows(model, slots))
        self._narrowed = (condition, state), kept
        return kept

    def _score(self, model: _Model, vector: Floats, slots: Slots) -> Floats:
        rows, scales = self._get_rows(model, slots)
        return score_rows(rows, vector, scales)[0]

    def _get_rows(self, model: _Model, slots: Slots) -> tuple[npt.NDArray[np.int8], Floats | None]:
        """Return the rows of the given slots, and their scales if known."""
        exceeds = model.n_vectors * model.dim > MAX_MATRIX_BYTES
        # Read all of them if later queries will share them.
        if self._all is None and (exceeds or (len(slots) < model.n_vectors // 8 and self._searches <= _READS_ROWS)):
            return self._read_slots(model.id, model.dim, slots), None
        kept = self._read_all(model)
        places = np.searchsorted(kept.slots, slots)
        if not np.array_equal(kept.slots.take(places, mode="clip"), slots):
            raise DamagedIndexError(self._database.path)
        return kept.rows[places], None if kept.scales is None else kept.scales[places]

    def _read_all(self, model: _Model) -> _Rows:
        """Return all vectors of a model, cached unless they are too many."""
        if self._all is not None:
            return self._all
        slots, stored = vectors_of(self._database, model.id, model.dim).read_all()
        kept = _Rows(slots, stored.view(np.int8))
        self._all = kept if stored.nbytes <= MAX_MATRIX_BYTES else None
        return kept

    def _read_slots(self, model: int, dim: int, slots: Slots) -> npt.NDArray[np.int8]:
        return vectors_of(self._database, model, dim).read_slots(slots).view(np.int8)

    def _nearest_by_signs(self, model: _Model, vector: Floats, k: int) -> tuple[Slots, Floats]:
        """Return the slots of the nearest rows by sign bits, ascending, and their cosines.

        The bits of rows are about the rows' mean. Those of the query are about zero, but without its component in the
        direction of the mean: all rows share that, and in some models it is most of a vector. The nearest by differing
        bits are ordered by the query's own values, and scored in that order until the best ones are clear of the next
        one's expected score.
        """
        if self._signs is None:
            all_slots, chunks = signs_of(self._database, model.id, model.dim).read_chunks()
            words = [as_words(signs) for signs in chunks]
        else:
            # Laid out word by word only now: a process that searches once gains nothing from it.
            all_slots, words = self._signs[0], [np.ascontiguousarray(piece) for piece in self._signs[1]]
        self._signs = all_slots, words
        centre = np.frombuffer(model.centre or b"", dtype=np.float32)
        across = vector - float(vector @ centre) / (float(centre @ centre) or 1.0) * centre
        distances = hamming(words, as_words(pack_signs(across[None, :], np.zeros_like(across))))
        at_most = np.cumsum(np.bincount(distances))
        limit = int(np.searchsorted(at_most, min(max(LEAST_NEAR, NEAR_PER_HIT * k), model.n_vectors)))
        near = np.flatnonzero(distances <= limit)
        estimates = sign_products(words, near, across)
        order = np.argsort(-estimates, kind="stable")
        scores, wanted = np.empty(0, np.float32), max(LEAST_CANDIDATES, CANDIDATES_PER_HIT * k)
        while True:
            new = order[len(scores) : wanted]
            scores = np.concatenate([scores, self._score(model, vector, all_slots[near[new]])])
            if len(scores) == len(order) or _is_clear(estimates[order[: len(scores)]], scores, k):
                slots = all_slots[near[order[: len(scores)]]]
                ascending = np.argsort(slots)
                return slots[ascending], scores[ascending]
            wanted *= 2

    def _rank_documents(
        self, model: _Model, slots: Slots, scores: Floats, k: int, condition: SqlCondition
    ) -> list[Candidate]:
        """Return the documents of the best slots; continue until there are `k` of them or no slots are left.

        Exact: a document's best chunk comes before its other chunks, so the first `k` found are the first `k`.
        """
        best: dict[int, Candidate] = {}
        sql = f"{_BY_SLOT} {'AND ' + condition.sql if condition.sql else ''} AND chunks.slot IN ({{}})"
        done, take = 0, min(len(slots), 4 * k)
        order = _top_positions(scores, take)
        while True:
            score_of = dict(zip(slots[order[done:]].tolist(), scores[order[done:]].tolist(), strict=True))
            found = self._database.select_in(sql, list(score_of), (model.id, *condition.bindings))
            for slot, document_id, start, end in found:
                _keep_better(best, Candidate(document_id, score_of[slot], start, end))
            if len(best) >= k or take >= len(slots):
                break
            done, take = take, min(len(slots), 4 * take)
            order = _top_positions(scores, take)
        return sort_candidates(best.values())[:k]


def _is_clear(estimates: Floats, scores: Floats, k: int) -> bool:
    """Return whether rows of smaller estimates can hardly be among the best, by the line of scores over estimates."""
    sure = min(k, _SURE_HITS, len(scores))
    weakest = float(np.partition(scores, -sure)[-sure])
    away, off = estimates - estimates.mean(), scores - scores.mean()
    spread = float(away @ away)
    slope = float(away @ off) / spread if spread else 0.0
    return weakest >= float(scores.mean()) + slope * float(away.min()) + _MARGIN * float(np.std(off - slope * away))


def _top_positions(scores: Floats, take: int) -> Slots:
    """Return the positions of the `take` largest scores, ties by position: a longer list extends a shorter one."""
    if take >= len(scores):
        return np.argsort(-scores, kind="stable")
    threshold = -np.partition(-scores, take - 1)[take - 1]
    above = np.flatnonzero(scores > threshold)
    chosen = np.concatenate([above, np.flatnonzero(scores == threshold)[: take - len(above)]])
    return chosen[np.argsort(-scores[chosen], kind="stable")]


def _keep_better(best: dict[int, Candidate], candidate: Candidate) -> None:
    """Keep a document's best chunk, of equal ones the first."""
    kept = best.get(candidate.document_id)
    if kept is None or (-candidate.score, candidate.chunk_start or 0) < (-kept.score, kept.chunk_start or 0):
        best[candidate.document_id] = candidate
