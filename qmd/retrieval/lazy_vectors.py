"""Lazy vectors: embed the best candidates that have no vectors yet, while the search waits.

Words are searchable within seconds, vectors may take an hour. The source stores computed vectors where it can.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Container, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from qmd.inference.base import Embedder
from qmd.records import Candidate
from qmd.retrieval.matching import WeightedTerm, match_text
from qmd.retrieval.trace import Trace
from qmd.store.base import IndexReader
from qmd.store.records import ChunkRecord, PendingContent

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Vectors = Mapping[bytes, npt.NDArray[np.float32]]

DEPTH = 20
"""Candidates without vectors to embed. Mean nDCG@10 of five sets without vectors: words .565, 5 candidates .579, 10
.593, 20 .608, 40 .615, every text .627."""

CHUNKS = 3
"""Chunks of each, those with most of the query. With 1, 2, 3 and all of them: .706, .716, .715, .717 on a vault of long
notes, .843, .839, .841, .845 on one of short ones."""

MAX_TIME_S = 2.0
"""Time limit for all of them; two slow cores (AVX2, no VNNI) embed fifty chunks in it."""

BUDGET_SHARE = 0.5
"""The same as a share of the remaining budget; dense search, reranking and passages need the rest."""

CUTTING_SHARE = 0.5
"""Largest share of that time for splitting texts, which tokenizes them: one of 100,000 characters takes 0.1 s."""

MAX_CHARS = 200_000
"""Length above which a text gets no vectors during a search."""

_FIRST_BATCH = 2
"""Chunks of the first batch; later batches fill the remaining time."""

_MAX_BATCH = 64


class ChunkSource(Protocol):
    """Chunker of texts, with exactly the chunks that the index embeds, and receiver of their vectors."""

    def cut(self, content: PendingContent) -> Sequence[tuple[ChunkRecord, str]]:
        """Return the chunks of a text, each with the text that the model reads."""

    def keep(self, content: PendingContent, chunks: Sequence[ChunkRecord], vectors: Vectors) -> None:
        """Store vectors, by key, of chunks of a text: not of all chunks, and also some that the index has."""


class LazyVectors(Struct, frozen=True):
    """Vectors of candidates whose texts have none in the index."""

    pending: frozenset[int] = frozenset()
    """These candidates, by document id."""
    chunks: Mapping[int, Sequence[ChunkRecord]] = {}
    """Their chunks with a vector, stored or computed."""
    vectors: Vectors = {}

    def score(self, vector: npt.NDArray[np.float32]) -> list[Candidate]:
        """Return the cosine of the best of these chunks, for each document with chunks."""
        scored = []
        for document_id, chunks in self.chunks.items():
            cosines = [float(self.vectors[chunk.key] @ vector) for chunk in chunks]
            best = max(range(len(chunks)), key=cosines.__getitem__)
            scored.append(Candidate(document_id, cosines[best], chunks[best].start, chunks[best].end))
        return scored


class _CutText(Struct, frozen=True):
    content: PendingContent
    pieces: Sequence[tuple[ChunkRecord, str]]

    @property
    def chunks(self) -> list[ChunkRecord]:
        return [chunk for chunk, _ in self.pieces]


def embed_candidates(
    reader: IndexReader,
    embedder: Embedder,
    source: ChunkSource | None,
    ids: Sequence[int],
    terms: Sequence[WeightedTerm],
    trace: Trace,
) -> LazyVectors:
    """Embed the first `DEPTH` candidates without vectors: first one chunk of each, then the next ones.

    Args:
        source: Splits the texts; None computes nothing.
        ids: Candidates, the best first.
        terms: Terms of the query; chunks that contain them are embedded first.
        trace: Limits the time, and gets a warning about computed vectors.
    """
    hashes, paths = _find_pending(reader, embedder, ids)
    if source is None or not hashes:
        return LazyVectors(frozenset(hashes))
    trace.listener.begin("embedding")
    remaining_ms = trace.remaining_ms()
    time_s = MAX_TIME_S if remaining_ms is None else min(MAX_TIME_S, BUDGET_SHARE * remaining_ms / 1000)
    end = time.monotonic() + time_s
    best = list(dict.fromkeys(hashes.values()))[:DEPTH]
    cut = _cut_texts(reader, source, {name: paths[name] for name in best}, end - (1 - CUTTING_SHARE) * time_s)
    stored = reader.vectors(embedder.fingerprint, [chunk.key for one in cut for chunk in one.chunks])
    selected = _select_chunks(cut, terms, stored)
    computed = _embed_chunks(embedder, selected, end, trace)
    vectors = {**stored, **computed}
    n_new = _store_vectors(source, cut, computed.keys(), vectors)
    if n_new:
        trace.record_model(embedder.description)
        is_all = len(computed) == len(selected) and len(cut) == len(best)
        late = "" if is_all else ", within the time limit"
        trace.warn(f"vectors of {n_new} of the best notes were missing and computed now{late}")
    known = {one.content.hash: [chunk for chunk in one.chunks if chunk.key in vectors] for one in cut}
    chunks = {number: known[name] for number, name in hashes.items() if known.get(name)}
    return LazyVectors(frozenset(hashes), chunks, vectors)


def _find_pending(
    reader: IndexReader, embedder: Embedder, ids: Sequence[int]
) -> tuple[Mapping[int, str], Mapping[str, str]]:
    """Return candidates whose texts have no vectors, in order, with their text's hash; and a path of each such text."""
    documents = reader.documents(ids)
    paths = reader.without_vectors(embedder.fingerprint, list({one.hash for one in documents.values()}))
    found = (documents[number] for number in ids if number in documents)
    return {one.id: one.hash for one in found if one.hash in paths}, paths


def _store_vectors(source: ChunkSource, cut: Sequence[_CutText], computed: Container[bytes], vectors: Vectors) -> int:
    """Pass the new vectors of each text to its source; return the number of these texts."""
    new = [one for one in cut if any(chunk.key in computed for chunk in one.chunks)]
    for one in new:
        source.keep(one.content, one.chunks, vectors)
    return len(new)


def _cut_texts(reader: IndexReader, source: ChunkSource, paths: Mapping[str, str], end: float) -> list[_CutText]:
    """Return texts, by hash and path, with their chunks, as many as fit until a `time.monotonic` value."""
    texts = reader.texts(list(paths))
    cut = []
    for content_hash, path in paths.items():
        text = texts.get(content_hash)
        if text is not None and len(text) <= MAX_CHARS and time.monotonic() < end:
            content = PendingContent(content_hash, path, text)
            cut.append(_CutText(content, source.cut(content)))
    return cut


def _select_chunks(cut: Sequence[_CutText], terms: Sequence[WeightedTerm], stored: Vectors) -> dict[bytes, str]:
    """Return the texts to embed, by key: the best chunk of each document, then the second ones, `CHUNKS` deep."""
    orders = [_sort_by_terms(one, terms) for one in cut]
    return {
        chunk.key: text
        for turn in range(CHUNKS)
        for chunk, text in (order[turn] for order in orders if len(order) > turn)
        if chunk.key not in stored
    }


def _sort_by_terms(cut: _CutText, terms: Sequence[WeightedTerm]) -> Sequence[tuple[ChunkRecord, str]]:
    """Return the chunks by the weight of their distinct terms, ties in document order."""
    if len(cut.pieces) <= 1:
        return cut.pieces
    # Folding may change lengths outside ASCII; a term at a border then counts for its neighbour.
    occurrences = match_text(cut.content.text, terms).occurrences
    offsets = [one.offset for one in occurrences]

    def weight(chunk: ChunkRecord) -> float:
        inside = occurrences[bisect_left(offsets, chunk.start) : bisect_left(offsets, chunk.end)]
        return round(sum(terms[number].weight for number in {one.term for one in inside}), 6)

    return sorted(cut.pieces, key=lambda piece: (-weight(piece[0]), piece[0].seq))


def _embed_chunks(
    embedder: Embedder, texts: Mapping[bytes, str], end: float, trace: Trace
) -> dict[bytes, npt.NDArray[np.float32]]:
    """Return vectors by key, in the order given, until a `time.monotonic` value."""
    keys = list(texts)
    computed: dict[bytes, npt.NDArray[np.float32]] = {}
    size = _FIRST_BATCH if time.monotonic() < end else 0
    while len(computed) < len(keys) and size:
        trace.listener.check()
        begun = time.monotonic()
        part = keys[len(computed) : len(computed) + size]
        computed.update(zip(part, embedder.embed_documents([texts[key] for key in part]), strict=True))
        now = time.monotonic()
        size = min(int(len(part) * (end - now) / max(now - begun, 1e-6)), 2 * size, _MAX_BATCH) if now < end else 0
    return computed
