"""Dense retrieval: vectors of the query's texts, cosine rankings over every candidate, and what is missing of them."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from qmd.inference.base import Embedder
from qmd.records import Candidate, Ranking, Scope, SubQuery
from qmd.retrieval.supply import Supplied
from qmd.retrieval.trace import Trace
from qmd.store.base import IndexReader
from qmd.store.records import VectorCoverage

EMBED_ESTIMATE_MS = 30.0
"""One query text with the built-in model, tokenising included (1.7 ms) with room for a slow machine."""

MANY_PENDING = 0.1
"""Share of documents without vectors from which the notice is more than a tip (the original's 10 %)."""


class DenseRanking(Struct, frozen=True):
    """A dense ranking with how far the model understood its text, in [0, 1]."""

    ranking: Ranking
    trust: float


def dense_rankings(
    reader: IndexReader,
    embedder: Embedder,
    texts: Sequence[SubQuery | str],
    also_score: Sequence[int],
    k: int,
    scope: Scope,
    supplied: Supplied,
    trace: Trace,
) -> list[DenseRanking]:
    """One ranking per text: the top `k` and, beyond them, every document in `also_score` and in `supplied`.

    Texts that the model does not understand at all are left out. Raises what the embedder raises.
    """
    known = [(item, trust) for item in texts if (trust := embedder.query_trust(_text(item))) > 0]
    if not known:
        return []
    trace.listener.begin("embedding")
    vectors = embedder.embed_queries([_text(item) for item, _ in known])
    trace.used(embedder.description)
    rankings = []
    for (item, trust), vector in zip(known, vectors, strict=True):
        fresh = {candidate.document_id: candidate for candidate in supplied.score(vector)}
        found = reader.search_dense(vector, k, scope, embedder.fingerprint)
        if not found and not fresh:
            continue
        # What was supplied takes in what the index has of these texts.
        candidates = [*fresh.values(), *(candidate for candidate in found if candidate.document_id not in fresh)]
        held = {candidate.document_id for candidate in candidates}
        rest = [number for number in also_score if number not in held]
        candidates.extend(reader.dense_scores(vector, rest, embedder.fingerprint).values() if rest else ())
        candidates.sort(key=lambda candidate: (-candidate.score, candidate.document_id))
        kind = "original" if isinstance(item, str) else item.kind
        rankings.append(DenseRanking(Ranking("dense", kind, _text(item), tuple(candidates)), trust))
    return rankings


def is_understood(embedder: Embedder, texts: Sequence[SubQuery | str]) -> bool:
    """Whether the model can say anything about one of the texts."""
    return any(embedder.query_trust(_text(item)) > 0 for item in texts)


def vector_coverage(reader: IndexReader, embedder: Embedder, trace: Trace) -> VectorCoverage:
    """How far the index has the vectors of this model; warns about documents that have none."""
    coverage = reader.vector_coverage(embedder.fingerprint)
    pending, total = coverage.pending, reader.count_documents()
    if pending > 0 and pending >= MANY_PENDING * total:
        percent = round(100 * pending / max(total, 1))
        trace.warn(f"{pending} documents ({percent}%) need embeddings{_remedy(reader, 'for better results')}")
    elif pending > 0:
        trace.warn(f"{pending} documents need embeddings{_remedy(reader, 'to index them')}")
    return coverage


def _remedy(reader: IndexReader, aim: str) -> str:
    """What to do about missing vectors: wait where they are being computed."""
    run = reader.running_embedding()
    return (
        f". Run 'qmd embed' {aim}." if run is None else f": they are being computed ({run.state}), search again later"
    )


def explain_absence(
    reader: IndexReader, embedder: Embedder, texts: Sequence[SubQuery | str], scope: Scope, trace: Trace
) -> None:
    """Say why no text gave a ranking: none is understood, or no document in scope has a vector."""
    model = embedder.description.model
    if not is_understood(embedder, texts):
        trace.warn(f"{model} cannot read the query's script: searched by words only")
    elif next(iter(reader.iter_documents(scope)), None) is not None:
        hint = f" of {model}"
        if reader.vector_coverage(embedder.fingerprint).pending:
            hint = ": run 'qmd embed'" if reader.running_embedding() is None else " yet"
        trace.warn(f"searched by words only: none of these notes has vectors{hint}")


def best_chunks(rankings: Sequence[DenseRanking]) -> dict[int, Candidate]:
    """For each document the chunk with the highest cosine over all rankings."""
    best: dict[int, Candidate] = {}
    for entry in rankings:
        for candidate in entry.ranking.candidates:
            held = best.get(candidate.document_id)
            if held is None or candidate.score > held.score:
                best[candidate.document_id] = candidate
    return best


def _text(item: SubQuery | str) -> str:
    return item if isinstance(item, str) else item.text
