"""Dense retrieval: cosine rankings of the query's texts, and warnings about missing vectors."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence, Set
from statistics import fmean
from typing import TYPE_CHECKING

from msgspec.structs import replace

from qmd.analysis.stopwords import LANGUAGES, language_of
from qmd.inference.base import Embedder
from qmd.inference.models.builtin import MULTILINGUAL
from qmd.inference.records import CosineScale
from qmd.records import Ranking, SubQuery
from qmd.retrieval.fusion import SCORE_DEPTH, DenseCandidates, DenseRanking, fuse_zscores
from qmd.retrieval.lexical import LexicalCandidates, lexical_ranking
from qmd.retrieval.trace import Run
from qmd.store.base import IndexReader
from qmd.store.records import VectorCoverage, model_of, sort_candidates

if TYPE_CHECKING:
    from qmd.retrieval.lazy_vectors import ChunkSource, LazyVectors

EMBED_ESTIMATE_MS = 30.0
"""Time of one query text with the built-in model, with tokenising (1.7 ms) and a margin for slow machines."""

MANY_PENDING = 0.1
"""Share of documents without vectors from which the notice is more than a tip (10 % in tobi/qmd)."""

TRUSTED_DEPTH = 10
"""Best candidates whose models' trust is that of a ranking of several models."""


def search_dense(
    run: Run,
    texts: Sequence[SubQuery | str],
    words: LexicalCandidates,
    also_score: Set[int],
    k: int,
    open_source: Callable[[Embedder], ChunkSource] | None,
) -> DenseCandidates:
    """Return cosine rankings of several texts; without any, a warning gives the reason.

    Each model searches the collections that it reads; rankings of one text meet on the scale of the built-in model.

    Args:
        words: The lexical search, whose best candidates get vectors first.
        also_score: Documents that every ranking contains in addition to its best.
        k: Length of a ranking.
        open_source: Splits the texts of candidates without vectors; None computes no vectors.
    """
    from qmd.retrieval.lazy_vectors import LazyVectors, embed_candidates

    if len(parts := _split_by_model(run)) > 1:
        return _merge([search_dense(part, texts, words, also_score, k, open_source) for part in parts])
    run = parts[0]
    reader, trace, embedder = run.reader, run.trace, run.engines.embedder
    if embedder is None:
        # The failure of a model that does not load has its own warning.
        failed = bool(run.engines.failures)
        trace.warn("searched by words only" if failed else "no embedding model: searched by words only")
        return DenseCandidates()
    coverage = _vector_coverage(run, embedder)
    if not (coverage.has_vectors or open_source) or not trace.has_time(EMBED_ESTIMATE_MS, "vectors"):
        return DenseCandidates()
    by_words: tuple[int, ...] = ()
    embedded = LazyVectors()
    if coverage.pending and _can_read_any(embedder, texts):
        by_words = _order_by_words(run, words)
        with trace.stage("embed"):
            source = open_source(embedder) if open_source is not None else None
            embedded = embed_candidates(reader, embedder, source, _inside(run, by_words), words.terms, trace)
    if not (coverage.has_vectors or embedded.vectors):
        return DenseCandidates()
    found = _rank_texts(run, embedder, texts, sorted(_inside(run, also_score)), k, embedded)
    if not _suggest_model(run, embedder, " ".join(map(_text, texts))) and not found:
        _explain_no_ranking(run, embedder, texts)
    return DenseCandidates(found, embedded.pending, by_words)


def _order_by_words(run: Run, words: LexicalCandidates) -> tuple[int, ...]:
    """Return the lexical candidates, which are needed in mode `dense` as well."""
    rankings = words.rankings or (lexical_ranking(run, words.queries[0], "original", SCORE_DEPTH),)
    return tuple(one.document_id for one in fuse_zscores(rankings, [1.0] * len(rankings)))


def _split_by_model(run: Run) -> list[Run]:
    """Return a run for each model that reads some of the searched collections, with these as its scope."""
    engines, scope, reader = run.engines, run.query.scope, run.reader
    if not engines.embedders:
        return [run]
    facts, searched = reader.facts(), scope.collections
    names = [one.name for one in reader.collections()] if searched is None else searched
    parts = []
    for name, embedder in engines.embedders.items():
        if own := tuple(one for one in names if model_of(facts, one)[0] == name):
            query = replace(run.query, scope=replace(scope, collections=own))
            parts.append(replace(run, engines=replace(engines, embedder=embedder), query=query))
    return parts or [replace(run, engines=replace(engines, embedder=None))]


def _merge(parts: Sequence[DenseCandidates]) -> DenseCandidates:
    """Return one ranking per text of those of several models, with the mean trust of its best candidates."""
    texts: dict[tuple[str, str], list[DenseRanking]] = {}
    for entry in (entry for part in parts for entry in part.rankings):
        texts.setdefault((entry.ranking.kind, entry.ranking.query), []).append(entry)
    merged = []
    for entries in texts.values():
        trusts = {one: entry.trust for entry in entries for one in entry.ranking.candidates}
        best = tuple(sort_candidates(trusts))
        trust = fmean(trusts[one] for one in best[:TRUSTED_DEPTH])
        merged.append(DenseRanking(replace(entries[0].ranking, candidates=best), trust))
    by_words = max((part.by_words for part in parts), key=len)
    return DenseCandidates(tuple(merged), frozenset().union(*(part.pending for part in parts)), by_words)


def _inside(run: Run, ids: Collection[int]) -> list[int]:
    """Return the documents that the model reads among these, in order."""
    if not run.engines.embedders:
        return list(ids)
    documents, names = run.reader.documents(list(ids)), run.query.scope.collections or ()
    return [number for number in ids if number in documents and documents[number].collection in names]


def _rank_texts(
    run: Run,
    embedder: Embedder,
    texts: Sequence[SubQuery | str],
    also_score: Sequence[int],
    k: int,
    embedded: LazyVectors,
) -> tuple[DenseRanking, ...]:
    """Return one ranking per text: the top `k`, every document in `also_score` and those with computed vectors.

    Texts that the model does not understand at all are skipped. Raises what the embedder raises.
    """
    known = [(item, trust) for item in texts if (trust := embedder.query_trust(_text(item))) > 0]
    if not known:
        return ()
    run.trace.listener.begin("embedding")
    vectors = embedder.embed_queries([_text(item) for item, _ in known])
    run.trace.record_model(embedder.description)
    rankings = []
    scale = embedder.scale or CosineScale.of(run.reader.facts(), embedder.fingerprint)
    for (item, trust), vector in zip(known, vectors, strict=True):
        found = run.reader.search_dense(vector, k, run.query.scope, embedder.fingerprint)
        # Computed vectors include those that the index already has of these texts.
        best = {candidate.document_id: candidate for candidate in (*found, *embedded.score(vector))}
        if not best:
            continue
        rest = [number for number in also_score if number not in best]
        if rest:
            best |= run.reader.dense_scores(vector, rest, embedder.fingerprint)
        mapped = [replace(one, score=scale.mapped(one.score)) for one in best.values()]
        kind = "original" if isinstance(item, str) else item.kind
        rankings.append(DenseRanking(Ranking("dense", kind, _text(item), tuple(sort_candidates(mapped))), trust))
    return tuple(rankings)


def _can_read_any(embedder: Embedder, texts: Sequence[SubQuery | str]) -> bool:
    """Return whether the model understands one of the texts."""
    return any(embedder.query_trust(_text(item)) > 0 for item in texts)


def _vector_coverage(run: Run, embedder: Embedder) -> VectorCoverage:
    """Return the coverage of what a model reads with its vectors; warn about documents without any."""
    reader, trace = run.reader, run.trace
    coverage = reader.vector_coverage(
        embedder.fingerprint, run.query.scope.collections if run.engines.embedders else None
    )
    pending, total = coverage.pending, reader.count_documents()
    if pending > 0 and pending >= MANY_PENDING * total:
        percent = round(100 * pending / max(total, 1))
        trace.warn(f"{pending} documents ({percent}%) need embeddings{_advice(reader, 'for better results')}")
    elif pending > 0:
        trace.warn(f"{pending} documents need embeddings{_advice(reader, 'to index them')}")
    return coverage


def _advice(reader: IndexReader, aim: str) -> str:
    """Return the next step for missing vectors: wait where they are being computed."""
    run = reader.running_embedding()
    return (
        f". Run 'qmd embed' {aim}." if run is None else f": they are being computed ({run.state}), search again later"
    )


def _explain_no_ranking(run: Run, embedder: Embedder, texts: Sequence[SubQuery | str]) -> None:
    """Warn why no text gave a ranking: none is understood, or no document in scope has a vector."""
    reader, scope, trace, model = run.reader, run.query.scope, run.trace, embedder.description.model
    if not _can_read_any(embedder, texts):
        # Of two models the other one may read it.
        if not run.engines.embedders:
            trace.warn(f"{model} cannot read the query's script: searched by words only")
    elif next(iter(reader.iter_documents(scope)), None) is not None:
        hint = f" of {model}"
        if reader.vector_coverage(embedder.fingerprint).pending:
            hint = ": run 'qmd embed'" if reader.running_embedding() is None else " yet"
        trace.warn(f"searched by words only: none of these notes has vectors{hint}")


def _suggest_model(run: Run, embedder: Embedder, text: str) -> bool:
    """Name a model for a language of the query, or of most notes, that the built-in one does not read, if any."""
    model = embedder.description
    if model.tier != "built-in" or model.model == MULTILINGUAL.name or run.engines.embedders:
        return False
    language, is_unread = language_of(text, 2), embedder.query_trust(text) == 0
    of_notes = run.reader.main_language(run.query.scope)
    letters = "".join(one for one in text if one.isalpha() and not one.isascii())
    # The Japanese character set has no simplified characters.
    if language == "zh" != of_notes and letters.encode("shift_jis", "ignore").decode("shift_jis") == letters:
        language = "ja" if of_notes == "ja" else "zh-ja"
    elif language not in LANGUAGES:
        language = of_notes if not is_unread else "" if letters else None
    if language is None:
        return False
    from qmd.inference.models.catalogue import advice_on

    run.trace.warn(advice_on(language, is_unread=is_unread))
    return True


def _text(item: SubQuery | str) -> str:
    return item if isinstance(item, str) else item.text
