"""Reranking: a model that reads query and passage together scores the top of the fused ranking."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from qmd.inference.base import Reranker
from qmd.inference.models.builtin import MINILM
from qmd.records import LexicalTerm, Scope
from qmd.retrieval.fusion import INFLUENCES, blend_rerank
from qmd.retrieval.hits import RankedCandidate
from qmd.retrieval.matching import WeightedTerm, best_span, inverse_frequency, match_text
from qmd.retrieval.trace import Run
from qmd.store.base import IndexReader

PASSAGE_CHARS = 1200
"""Passage of a document without a matching chunk, in code points: about the 240 tokens of a built-in chunk."""

BUILT_IN_DEPTH = 10
"""Candidates that the built-in reranker reads. Mean nDCG@10 of cranfield, cacm and nlcmd (scores blended as weighted
means): .499 without reranking, with 10, 20 and 30 .505, .506 and .506; ten cost a third of the time of thirty."""

NEAR_TIE = 0.8
"""Distance of the first two fused scores, in deviations, below which the built-in reranker runs by default: for a
quarter of the questions on three vaults, with the same first notes at a fourth of the cost (seven eighths of a warm
query)."""

MODEL_DEPTH = 30
"""Candidates that a cross-encoder reads; it can lift those that the first stage ranked low."""

RERANK_ESTIMATE_MS = 60.0
"""Least time for a first passage; the engine itself stops at the deadline."""


def rerank(run: Run, ranked: Sequence[RankedCandidate], terms: Sequence[WeightedTerm]) -> list[RankedCandidate]:
    """Reorder the first candidates by fused and rerank score; the others follow in their order.

    Candidates that a deadline left unread keep the fused order, after those that were read.
    """
    reranker, trace = _choose_reranker(run), run.trace
    is_built_in = reranker is not None and reranker.description.tier == "built-in"
    lead = ranked[0].fused.score - ranked[1].fused.score
    is_sure = is_built_in and run.request.rerank is None and lead >= NEAR_TIE
    if reranker is None or is_sure or not trace.has_time(RERANK_ESTIMATE_MS, "reranking"):
        return list(ranked)
    head = list(ranked[: run.request.candidate_limit or (BUILT_IN_DEPTH if is_built_in else MODEL_DEPTH)])
    read = _score_passages(run, reranker, head, terms)
    if len(read) < 2:
        return list(ranked)
    trace.record_model(reranker.description)
    done = _blend_scores(read, INFLUENCES["built-in reranker" if is_built_in else "reranker"].value)
    kept = {entry.fused.document_id for entry in done}
    return done + [entry for entry in ranked if entry.fused.document_id not in kept]


def _blend_scores(read: Sequence[tuple[RankedCandidate, float]], weight: float) -> list[RankedCandidate]:
    """Return the candidates with their scores, best first by fused and rerank score."""
    blended = blend_rerank([entry.fused.score for entry, _ in read], [score for _, score in read], weight)
    done = [
        replace(entry, rerank_score=score, blended_score=value)
        for (entry, score), value in zip(read, blended, strict=True)
    ]
    return sorted(done, key=lambda entry: (-entry.blended_score, entry.fused.document_id))


def _choose_reranker(run: Run) -> Reranker | None:
    """Return the model that reads the query; the built-in one reads English only. None without a model warns."""
    reranker, trace = run.engines.reranker, run.trace
    if reranker is None:
        # Without an embedder too, another warning reports a search by words only.
        if run.engines.embedder is not None:
            trace.warn("not reranked: no reranking model")
        return None
    if reranker.description.tier != "built-in":
        return reranker
    from qmd.inference.engines.embedder import OTHER_LATIN_TRUST, trust_of

    # Chinese questions, a token for each character, took twenty times as long as English ones and did not improve (BM25
    # alone has .993 nDCG@10 on cmrc).
    return reranker if trust_of(MINILM, run.query.text) > OTHER_LATIN_TRUST else None


def _score_passages(
    run: Run, reranker: Reranker, head: Sequence[RankedCandidate], terms: Sequence[WeightedTerm]
) -> list[tuple[RankedCandidate, float]]:
    """Return the candidates that the model read in time, and their scores; warn about the others."""
    query, trace = run.query, run.trace
    passages = _select_passages(run.reader, head, terms)
    if reranker.description.tier == "built-in":
        from qmd.inference.engines.maxsim import MaxSimReranker

        if isinstance(reranker, MaxSimReranker):
            reranker = reranker.with_idf(lambda words: _word_weights(run.reader, words, query.scope))
    listener = trace.listener
    listener.begin("reranking")
    scores = reranker.score(
        query.text,
        passages,
        intent=query.intent,
        deadline_s=trace.deadline_s(),
        is_cancelled=lambda: listener.is_cancelled,
    )
    listener.check()
    read = [(entry, score) for entry, score in zip(head, scores, strict=True) if score is not None]
    if len(read) < len(head):
        limit = run.request.budget_ms
        cause = reranker.description.model if limit is None else f"budget of {limit} ms"
        trace.warn(f"{cause}: {len(read)} of {len(head)} passages reranked")
    return read


def _word_weights(reader: IndexReader, words: Sequence[str], scope: Scope) -> list[float]:
    """Return the inverse document frequency of each word in the scope's collections; 0 for words not in full text."""
    terms = [LexicalTerm(word, f'"{word}"') if word.isalnum() else None for word in words]
    known = [term for term in terms if term is not None]
    frequencies = dict(zip(known, reader.document_frequencies(known, scope), strict=True))
    total = reader.count_documents(scope)
    return [0.0 if term is None else inverse_frequency(frequencies[term], total) for term in terms]


def _select_passages(
    reader: IndexReader, ranked: Sequence[RankedCandidate], terms: Sequence[WeightedTerm]
) -> list[str]:
    """Return for each candidate its title and the chunk that matched, or else the span with most query terms."""
    texts = reader.texts([entry.document.hash for entry in ranked])
    passages = []
    for entry in ranked:
        text, title = texts.get(entry.document.hash, ""), entry.document.title
        # Folding may change lengths outside ASCII; a span that is slightly off does not matter here.
        start, end = entry.span or best_span(match_text(text, terms), terms, PASSAGE_CHARS)
        body = text[start:end].strip()
        passages.append(body if not title or body.startswith((title, f"# {title}")) else f"{title}\n{body}")
    return passages
