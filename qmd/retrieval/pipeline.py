"""The whole read path: expand, rank lexically and by vectors, fuse, rerank, calibrate, show."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from qmd.errors import UsageError
from qmd.inference.base import Engines
from qmd.quick_dataclasses import dataclass, field
from qmd.records import Hit, Query, Ranking, SearchResponse, StoredDocument, SubQuery
from qmd.retrieval import calibration, dense, lexical
from qmd.retrieval.calibration import Evidence
from qmd.retrieval.dense import DenseRanking
from qmd.retrieval.expansion import skip_reason
from qmd.retrieval.fusion import Fused, fuse_zscores
from qmd.retrieval.hits import Ordered, Yardstick, build_hits
from qmd.retrieval.lexical import LexicalQuery
from qmd.retrieval.listening import Listener
from qmd.retrieval.marks import read_marks
from qmd.retrieval.matching import coverage, find_occurrences, fold
from qmd.retrieval.options import SearchOptions
from qmd.retrieval.query_parser import check_size
from qmd.retrieval.reranking import rerank
from qmd.retrieval.snippets import best_passage
from qmd.retrieval.trace import Trace
from qmd.store.base import Reader

DEPTH = 100
"""Candidates per ranking: the depth that the z-scores are taken over."""

DENSE_WEIGHT = 0.5
"""Weight of the dense leg for a text that the model fully understands, in [0, 1]; stable over ten collections."""

EXPANSION_WEIGHT = 0.5
"""Weight of a proposed sub-query against the user's own words, which count 1 (the original's ratio)."""

EXPAND_ESTIMATE_MS = 1500.0
"""One expansion with the full tier's model on two CPU threads."""


@dataclass(slots=True)
class _Legs:
    """Rankings so far, with what they were made from."""

    queries: list[LexicalQuery] = field(default_factory=list)
    lexical: list[Ranking] = field(default_factory=list)
    dense: list[DenseRanking] = field(default_factory=list)


def search(
    reader: Reader,
    engines: Engines,
    query: Query,
    options: SearchOptions,
    listener: Listener = Listener(),
    judge: Callable[[Evidence], float] = calibration.relevance,
) -> SearchResponse:
    """Answer a query. `listener` hears of the stages in which a model works.

    Stages that cannot run (no model, no vectors, no time) are left out, and a warning says so; the answer then comes
    from the others. `judge` turns the evidence for a document into its relevance; only fitting replaces it.

    Raises:
        CancelledSearch: The listener has gone; no run of a model begins after that.
        UsageError: The query is empty or too long.
        ModelError: A model failed, and the search is strict.
        StoreError: The index cannot be read.
    """
    check_size(query)
    trace = Trace(options.budget_ms, listener, strict=options.strict)
    if not query.text.strip() and not query.subqueries:
        return _list_by_date(reader, query, options)
    for failure in engines.failures if options.mode != "lexical" else ():
        trace.warn(failure)
    legs = _Legs()
    with trace.stage("lexical"):
        _search_lexical(reader, query, options, legs, trace)
    proposed, dropped = _expand(reader, engines, query, options, legs, trace)
    _search_dense(reader, engines, query, proposed, options, legs, trace)
    fused = _fuse(reader, query, legs)
    chunks = dense.best_chunks(legs.dense)
    keep = max(options.candidate_limit, options.limit)
    terms = [term for entry in legs.queries[:1] for term in entry.weighted]
    ordered = [Ordered(f, n, None, f.score, chunks.get(f.document_id)) for n, f in enumerate(fused[:keep], start=1)]
    if options.rerank and options.mode != "lexical" and len(ordered) > 1:
        with trace.stage("rerank"):
            ordered = rerank(reader, engines.reranker, engines.embedder, query, ordered, terms, options, trace)
    with trace.stage("passages"):
        yardstick = Yardstick(terms, reader.count_documents(query.scope), _background(legs.dense), judge)
        hits, relevances = build_hits(reader, ordered, yardstick, options)
    _explain_emptiness(reader, query, hits, relevances, trace)
    return SearchResponse(
        query=query,
        hits=hits,
        verdict=calibration.verdict(relevances),
        warnings=tuple(trace.warnings),
        expansions=tuple(proposed),
        dropped_expansions=tuple(dropped),
        timings=tuple(trace.timings),
        models=tuple(trace.models),
    )


# --- legs -----------------------------------------------------------------------------------------


def _search_lexical(reader: Reader, query: Query, options: SearchOptions, legs: _Legs, trace: Trace) -> None:
    """BM25 of the user's own words; for a query document without `lex` lines, terms for passages only."""
    typed = [subquery for subquery in query.subqueries if subquery.kind == "lex"]
    if options.mode == "dense":
        # Here terms only measure and show; what the index lacks is no news to someone who did not search by words.
        trace = Trace(None)
    if not query.subqueries:
        marked = read_marks(query.text, trace)
        legs.queries.append(
            lexical.lexical_query(reader, marked or query.text, query.scope, trace, lex_syntax=marked is not None)
        )
    for subquery in typed:
        legs.queries.append(lexical.lexical_query(reader, subquery.text, query.scope, trace, lex_syntax=True))
    if not legs.queries:
        legs.queries.append(lexical.lexical_query(reader, query.text, query.scope, Trace(None), lex_syntax=False))
        return
    if options.mode == "dense":
        return
    depth = max(DEPTH, options.limit, options.candidate_limit)
    texts: Sequence[SubQuery | None] = typed or [None]
    for subquery_, entry in zip(texts, legs.queries, strict=True):
        text = query.text if subquery_ is None else subquery_.text
        legs.lexical.append(lexical.lexical_ranking(reader, entry, subquery_, text, depth, query.scope, trace))


def _expand(
    reader: Reader, engines: Engines, query: Query, options: SearchOptions, legs: _Legs, trace: Trace
) -> tuple[Sequence[SubQuery], Sequence[tuple[str, str]]]:
    """Sub-queries proposed by the expander, their lexical rankings added to the legs."""
    if options.mode == "lexical" or query.subqueries:
        return (), ()
    if engines.expander is None:
        if options.expand:
            trace.warn("not expanded: no expansion model; run 'qmd models pull'")
        return (), ()
    listener = trace.listener
    first = legs.lexical[0] if legs.lexical else Ranking("bm25", "original", query.text, ())
    if skip_reason(query, options, engines.embedder, first, _title_coverage(reader, first, legs.queries[0])):
        return (), ()
    if not trace.has_time(EXPAND_ESTIMATE_MS, "expansion"):
        return (), ()
    with trace.stage("expand"):
        listener.begin("expanding")
        expansion = engines.expander.expand(
            query.text, intent=query.intent, deadline_s=trace.deadline_s(), is_cancelled=lambda: listener.is_gone
        )
        listener.check()
        trace.used(engines.expander.description)
        for subquery in expansion.subqueries:
            if subquery.kind == "lex" and options.mode == "hybrid":
                # A misspelt or invented word of the model is not the user's: nothing to warn about.
                entry = lexical.lexical_query(reader, subquery.text, query.scope, Trace(None), lex_syntax=False)
                ranking = lexical.lexical_ranking(reader, entry, subquery, subquery.text, DEPTH, query.scope, trace)
                legs.lexical.append(ranking)
        return expansion.subqueries, expansion.dropped
    return (), ()


def _search_dense(
    reader: Reader,
    engines: Engines,
    query: Query,
    proposed: Sequence[SubQuery],
    options: SearchOptions,
    legs: _Legs,
    trace: Trace,
) -> None:
    """Cosine rankings; in mode `dense` a leg that cannot run is replaced by the lexical one."""
    if options.mode == "lexical":
        return
    own: list[SubQuery | str] = [s for s in query.subqueries if s.kind != "lex"] if query.subqueries else [query.text]
    texts = own + [subquery for subquery in proposed if subquery.kind != "lex"]
    if texts:
        with trace.stage("dense"):
            _rank_dense(reader, engines, texts, query, options, legs, trace)
    if not legs.dense and not legs.lexical:
        entry = legs.queries[0]
        legs.lexical.append(lexical.lexical_ranking(reader, entry, None, query.text, DEPTH, query.scope, trace))


def _rank_dense(
    reader: Reader,
    engines: Engines,
    texts: Sequence[SubQuery | str],
    query: Query,
    options: SearchOptions,
    legs: _Legs,
    trace: Trace,
) -> None:
    embedder = engines.embedder
    if embedder is None:
        trace.warn("no embedding model: searched by words alone")
        for note in engines.notes:
            trace.warn(note)
        return
    if not dense.has_vectors(reader, embedder, trace):
        return
    if not trace.has_time(dense.EMBED_ESTIMATE_MS, "vectors"):
        return
    also = sorted({candidate.document_id for ranking in legs.lexical for candidate in ranking.candidates})
    depth = max(DEPTH, options.limit, options.candidate_limit)
    legs.dense = dense.dense_rankings(reader, embedder, texts, also, depth, query.scope, trace)
    if not legs.dense:
        dense.explain_absence(reader, embedder, texts, query.scope, trace)


# --- fusion ---------------------------------------------------------------------------------------


def _fuse(reader: Reader, query: Query, legs: _Legs) -> Sequence[Fused]:
    """One ranking of everything; what the user required or excluded holds for documents found by vectors, too."""
    rankings = [*legs.lexical, *(entry.ranking for entry in legs.dense)]
    fused = fuse_zscores(rankings, _weights(legs, is_typed=bool(query.subqueries)))
    if not any(term.required or term.excluded for entry in legs.queries for term in entry.terms):
        return fused
    demands = lexical.read_demands(reader, legs.queries, query.scope)
    return [entry for entry in fused if demands.admits(entry.document_id)]


def _weights(legs: _Legs, *, is_typed: bool) -> list[float]:
    """Weights of the rankings, lexical first, that sum to 1.

    The dense leg gets its share times the model's trust in the texts; what it does not get goes to the lexical leg.
    Inside a leg the user's own words count 1 and proposed sub-queries `EXPANSION_WEIGHT`.
    """
    words = [1.0 if is_typed or ranking.kind == "original" else EXPANSION_WEIGHT for ranking in legs.lexical]
    meanings = [1.0 if is_typed or e.ranking.kind == "original" else EXPANSION_WEIGHT for e in legs.dense]
    has_words = any(ranking.candidates for ranking in legs.lexical)
    share = 0.0
    if meanings:
        trust = sum(w * entry.trust for w, entry in zip(meanings, legs.dense, strict=True)) / sum(meanings)
        share = DENSE_WEIGHT * trust if has_words else 1.0
    return [(1 - share) * w / sum(words) for w in words] + [share * w / sum(meanings) for w in meanings]


def _background(rankings: Sequence[DenseRanking]) -> float | None:
    if not rankings:
        return None
    return calibration.background_cosine([c.score for c in rankings[0].ranking.candidates])


# --- the rest -------------------------------------------------------------------------------------


def _title_coverage(reader: Reader, ranking: Ranking, query: LexicalQuery) -> float:
    if not ranking.candidates:
        return 0.0
    first = ranking.candidates[0].document_id
    document = reader.documents([first]).get(first)
    if document is None:
        return 0.0
    folded = fold(f"{document.title}\n{document.path}")
    return coverage(find_occurrences(folded, query.weighted), query.weighted)


def _list_by_date(reader: Reader, query: Query, options: SearchOptions) -> SearchResponse:
    """Documents that pass the filters of a query without words, newest first."""
    if not (query.scope.filters or query.scope.collections is not None or query.scope.path_prefix):
        raise UsageError("the query is empty", hint="qmd query 'how do I …', or qmd --help")
    documents = sorted(reader.iter_documents(query.scope), key=lambda d: (d.collection, d.path))
    documents.sort(key=lambda document: document.modified_at, reverse=True)
    shown = documents[: options.limit]
    texts = reader.texts([document.hash for document in shown])
    hits = tuple(_listed(document, texts.get(document.hash, ""), options) for document in shown)
    warnings = () if hits else ("no document passes the filters",)
    return SearchResponse(query, hits, "good" if hits else "none", warnings)


def _listed(document: StoredDocument, text: str, options: SearchOptions) -> Hit:
    passage = best_passage(text, (), max_chars=options.snippet_chars)
    return Hit(document, 1.0, passage, None, text if options.full_body else None)


def _explain_emptiness(
    reader: Reader, query: Query, hits: Sequence[Hit], relevances: Sequence[float], trace: Trace
) -> None:
    """An empty list always says why."""
    if hits:
        return
    if relevances:
        trace.warn(f"all {len(relevances)} results fall below the minimum score; the best has {relevances[0]:.2f}")
    elif not reader.count_documents():
        trace.warn("the index is empty: run 'qmd update'")
    elif query.scope.collections == ():
        trace.warn("no collection is in scope")
    elif not trace.warnings:
        trace.warn("no document matches" + (" inside the filters" if query.scope.filters else ""))
