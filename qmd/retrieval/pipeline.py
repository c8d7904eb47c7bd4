"""The whole read path: expand, rank lexically and by vectors, fuse, rerank, calibrate, show."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence, Set
from itertools import islice
from typing import Literal

from msgspec.structs import replace

from qmd.errors import UsageError
from qmd.inference.base import Embedder, Engines, Expansion
from qmd.records import Hit, Query, Ranking, Scope, SearchResponse, Sort, SubQuery
from qmd.retrieval import calibration, dating, dense, lexical, naming
from qmd.retrieval.calibration import Evidence
from qmd.retrieval.copies import fold_copies
from qmd.retrieval.dense import DenseRanking
from qmd.retrieval.expansion import should_expand
from qmd.retrieval.fusion import Fused, fuse_zscores
from qmd.retrieval.hits import RankedCandidate, Scale, build_hits
from qmd.retrieval.lexical import LexicalQuery
from qmd.retrieval.listening import Listener
from qmd.retrieval.matching import coverage, find_occurrences, fold
from qmd.retrieval.operators import lex_operators
from qmd.retrieval.options import SearchOptions
from qmd.retrieval.query_parser import check_size
from qmd.retrieval.reranking import rerank
from qmd.retrieval.snippets import best_passage
from qmd.retrieval.supply import ChunkSource, Supplied, supply_vectors
from qmd.retrieval.trace import Trace
from qmd.store.base import IndexReader

DEPTH = 100
"""Candidates per ranking: the depth that the z-scores are taken over."""

DENSE_WEIGHT = 0.5
"""Weight of the dense rankings of a text that the model fully understands, in [0, 1]; stable over ten collections."""

KNOWN_DEPTH = 5
"""Best candidates by words that vectors should know: their weight falls with the square root of the share they know.
Without it an index that has a tenth of its vectors, and no time to compute more, answers worse than words alone (mean
nDCG@10 of five sets .554, with it .567, words .565); with a quarter of them .559 and .568."""

EXPANSION_WEIGHT = 0.5
"""Weight of a proposed sub-query against the user's own words, which count 1 (the original's ratio)."""

EXPAND_ESTIMATE_MS = 1500.0
"""One expansion with the full tier's model on two CPU threads."""


def search(
    reader: IndexReader,
    engines: Engines,
    query: Query,
    options: SearchOptions,
    listener: Listener = Listener(),
    *,
    open_source: Callable[[Embedder], ChunkSource] | None = None,
    judge: Callable[[Evidence], float] = calibration.relevance,
) -> SearchResponse:
    """Answer a query.

    Stages that cannot run (no model, no vectors, no time) are left out, and a warning says so; the answer then comes
    from the others.

    Args:
        reader: The index.
        engines: The models that are there.
        query: What is asked, and of which documents.
        options: The caller's choices.
        listener: Hears of the stages in which a model works.
        open_source: Lets the best candidates that have no vectors yet get some, of that embedder; None answers with
            what the index holds.
        judge: Turns the evidence for a document into its relevance; only fitting replaces it.

    Raises:
        CancelledSearch: The listener has gone; no run of a model begins after that.
        UsageError: The query is empty or too long.
        ModelError: A model failed, and the search is strict.
        StoreError: The index cannot be read.
    """
    check_size(query)
    if not query.text.strip() and not query.subqueries:
        return _list_by_date(reader, query, options)
    texts = [subquery.text for subquery in query.subqueries] or [query.text]
    if not any(map(str.isalnum, "".join(texts))):
        return SearchResponse(query, (), "none", ("no words to search for: the query has no letter or digit",))
    trace = Trace(options.budget_ms, listener, strict=options.strict)
    return _Search(reader, engines, query, options, trace, open_source).run(judge)


class _Search:
    """One search under way: what was asked, the rankings so far, and what they were made from."""

    def __init__(
        self,
        reader: IndexReader,
        engines: Engines,
        query: Query,
        options: SearchOptions,
        trace: Trace,
        open_source: Callable[[Embedder], ChunkSource] | None,
    ) -> None:
        self._reader = reader
        self._engines = engines
        self._query = query
        self._options = options
        self._trace = trace
        self._open_source = open_source
        self._depth = max(DEPTH, options.limit, options.candidate_limit)
        self._lexical_queries: list[LexicalQuery] = []
        self._lexical: list[Ranking] = []
        self._dense: list[DenseRanking] = []
        self._by_words: list[int] = []
        self._supplied = Supplied()
        self._dated = dating.Dated({}, query.text)

    def run(self, judge: Callable[[Evidence], float]) -> SearchResponse:
        """Every stage in its order."""
        query, options, trace = self._query, self._options, self._trace
        # Another model, or another form of it, than the one that was asked for is worth a line as well as none.
        for note in self._engines.notes if options.mode != "lexical" else ():
            if note not in self._engines.standing:
                trace.warn(note)
        with trace.stage("lexical"):
            self._search_lexical()
        expansion = self._expand()
        self._search_dense(expansion.subqueries)
        chunks = dense.best_chunks(self._dense)
        unknown = self._supplied.waiting - chunks.keys()
        keep = max(options.candidate_limit, options.limit)
        terms = self._lexical_queries[0].weighted
        entries = {fused.document_id: fused for fused in self._fuse(unknown)}
        # Before any cut, so that copies take no place that another text could have.
        documents = self._reader.documents(list(entries))
        found = [documents[id_] for id_ in entries if id_ in documents]
        copies = fold_copies(found) if options.folds_copies else {document.id: () for document in found}
        ranked = [
            RankedCandidate(documents[id_], entries[id_], rank, None, entries[id_].score, chunks.get(id_), also_in)
            for rank, (id_, also_in) in enumerate(islice(copies.items(), keep), start=1)
        ]
        if options.rerank and options.mode != "lexical" and len(ranked) > 1:
            with trace.stage("rerank"):
                ranked = rerank(self._reader, self._engines, query, ranked, terms, options, trace)
        with trace.stage("passages"):
            n_documents = self._reader.count_documents(query.scope)
            scale = Scale(terms, n_documents, judge, self._dated.words)
            hits, relevances = build_hits(self._reader, ranked, scale, options)
        if not hits:
            self._explain_emptiness(relevances)
        return SearchResponse(
            query=query,
            hits=_in_order(hits, query.sort),
            verdict=calibration.verdict(relevances),
            warnings=tuple(trace.warnings),
            expansions=expansion.subqueries,
            dropped_expansions=expansion.dropped,
            timings=tuple(trace.timings),
            models=tuple(trace.models),
            terms=tuple({term: None for one in self._lexical_queries for term in one.terms if not term.excluded}),
        )

    def _search_lexical(self) -> None:
        """BM25 of the user's own words; for a query document without `lex` lines, terms for passages only."""
        query = self._query
        # In mode `dense` terms only measure and show; what the index lacks is no news to someone who did not search by
        # words.
        trace = Trace(None) if self._options.mode == "dense" else self._trace
        typed = [subquery for subquery in query.subqueries if subquery.kind == "lex"]
        if typed:
            self._lexical_queries = [self._lexical_query(one.text, trace, lex_syntax=True) for one in typed]
        elif query.subqueries:
            self._lexical_queries = [self._lexical_query(query.text, Trace(None), lex_syntax=False)]
            return
        else:
            self._dated = dating.find_dated(self._reader, query.text, query.scope)
            text = self._dated.rest
            with_operators = lex_operators(text, trace)
            plain = self._lexical_query(with_operators or text, trace, lex_syntax=with_operators is not None)
            plain = dating.complete_query(plain, self._dated, query.text)
            self._lexical_queries = [replace(plain, text=query.text)]
        if self._options.mode != "dense":
            kind: Literal["lex", "original"] = "lex" if typed else "original"
            self._lexical = [self._lexical_ranking(one, kind, self._depth) for one in self._lexical_queries]
            self._lexical[0] = dating.complete_ranking(
                self._reader, self._lexical_queries[0], self._lexical[0], self._dated, query.scope
            )

    def _lexical_query(self, text: str, trace: Trace, *, lex_syntax: bool) -> LexicalQuery:
        return lexical.lexical_query(self._reader, text, self._query.scope, trace, lex_syntax=lex_syntax)

    def _lexical_ranking(self, query: LexicalQuery, kind: Literal["lex", "original"], k: int) -> Ranking:
        return lexical.lexical_ranking(self._reader, query, kind, k, self._query.scope, self._trace)

    def _expand(self) -> Expansion:
        """Sub-queries proposed by the expander, the lexical ones ranked."""
        query, options, trace = self._query, self._options, self._trace
        expander = self._engines.expander
        if options.mode == "lexical" or query.subqueries:
            return Expansion(())
        if expander is None:
            if options.expand:
                trace.warn("not expanded: no expansion model; run 'qmd models pull'")
            return Expansion(())
        first = self._lexical[0] if self._lexical else Ranking("bm25", "original", query.text, ())
        if not should_expand(query, options, self._engines.embedder, first, self._title_coverage(first)):
            return Expansion(())
        if not trace.has_time(EXPAND_ESTIMATE_MS, "expansion"):
            return Expansion(())
        with trace.stage("expand"):
            listener = trace.listener
            listener.begin("expanding")
            expansion = expander.expand(
                query.text, intent=query.intent, deadline_s=trace.deadline_s(), is_cancelled=lambda: listener.is_gone
            )
            listener.check()
            trace.used(expander.description)
            for subquery in expansion.subqueries:
                if subquery.kind == "lex" and options.mode == "hybrid":
                    # A misspelt or invented word of the model is not the user's: nothing to warn about.
                    proposed = self._lexical_query(subquery.text, Trace(None), lex_syntax=False)
                    self._lexical.append(self._lexical_ranking(proposed, "lex", DEPTH))
            return expansion
        return Expansion(())

    def _search_dense(self, proposed: Sequence[SubQuery]) -> None:
        """Cosine rankings; in mode `dense` a lexical one where there can be none."""
        query = self._query
        if self._options.mode == "lexical":
            return
        own: Sequence[SubQuery | str] = query.subqueries or (query.text,)
        texts = [text for text in (*own, *proposed) if isinstance(text, str) or text.kind != "lex"]
        if texts:
            with self._trace.stage("dense"):
                self._rank_dense(texts)
        if not self._dense and not self._lexical:
            self._lexical = [self._lexical_ranking(self._lexical_queries[0], "original", DEPTH)]

    def _rank_dense(self, texts: Sequence[SubQuery | str]) -> None:
        reader, trace, scope = self._reader, self._trace, self._query.scope
        embedder = self._engines.embedder
        if embedder is None:
            # A model that fails is one all the same, and its failure has been told.
            failed = bool(self._engines.failures)
            trace.warn("searched by words only" if failed else "no embedding model: searched by words only")
            return
        coverage = dense.vector_coverage(reader, embedder, trace)
        if not (coverage.has_vectors or self._open_source) or not trace.has_time(dense.EMBED_ESTIMATE_MS, "vectors"):
            return
        if coverage.pending and dense.is_understood(embedder, texts):
            self._supply_vectors(embedder)
        if not (coverage.has_vectors or self._supplied.vectors):
            return
        also = {candidate.document_id for ranking in self._lexical for candidate in ranking.candidates}
        also.update(self._dated.documents)
        self._dense = dense.dense_rankings(
            reader, embedder, texts, sorted(also), self._depth, scope, self._supplied, trace
        )
        if not self._dense:
            dense.explain_absence(reader, embedder, texts, scope, trace)

    def _supply_vectors(self, embedder: Embedder) -> None:
        """Vectors for the best candidates by words that have none, also where words do not rank."""
        rankings = self._lexical or [self._lexical_ranking(self._lexical_queries[0], "original", DEPTH)]
        self._by_words = [one.document_id for one in fuse_zscores(rankings, [1.0] * len(rankings))]
        terms = self._lexical_queries[0].weighted
        with self._trace.stage("embed"):
            source = self._open_source(embedder) if self._open_source is not None else None
            self._supplied = supply_vectors(self._reader, embedder, source, self._by_words, terms, self._trace)

    def _fuse(self, unknown: Set[int]) -> Sequence[Fused]:
        """One ranking of everything; what the user required or excluded holds for documents found by vectors, too."""
        rankings = [*self._lexical, *(entry.ranking for entry in self._dense)]
        fused: Sequence[Fused] = fuse_zscores(rankings, self._weights(unknown), unknown)
        if not self._query.subqueries:
            named = naming.find_named(self._reader, self._query.text, self._query.scope)
            fused = naming.put_first(dating.put_first(fused, self._dated), named, self._query.text)
        if not any(term.required or term.excluded for one in self._lexical_queries for term in one.terms):
            return fused
        is_admitted = lexical.term_filter(self._reader, self._lexical_queries, self._query.scope)
        return [entry for entry in fused if is_admitted(entry.document_id)]

    def _weights(self, unknown: Set[int]) -> list[float]:
        """Weights of the rankings, lexical first, that sum to 1.

        Dense rankings get their share times the model's trust in the texts, less where the best candidates by words are
        unknown to them; what they do not get goes to the lexical ones. Among either the user's own words count 1 and
        proposed sub-queries `EXPANSION_WEIGHT`.
        """
        is_typed = bool(self._query.subqueries)
        words = [1.0 if is_typed or ranking.kind == "original" else EXPANSION_WEIGHT for ranking in self._lexical]
        meanings = [1.0 if is_typed or e.ranking.kind == "original" else EXPANSION_WEIGHT for e in self._dense]
        has_words = any(ranking.candidates for ranking in self._lexical)
        share = 0.0
        if meanings:
            trust = sum(w * entry.trust for w, entry in zip(meanings, self._dense, strict=True)) / sum(meanings)
            best = self._by_words[:KNOWN_DEPTH]
            known = 1.0 - sum(number in unknown for number in best) / max(len(best), 1)
            share = DENSE_WEIGHT * trust * math.sqrt(known) if has_words else 1.0
        return [(1 - share) * w / sum(words) for w in words] + [share * w / sum(meanings) for w in meanings]

    def _title_coverage(self, ranking: Ranking) -> float:
        """Weighted share of the query's terms in title and path of a ranking's first document, in [0, 1]."""
        if not ranking.candidates:
            return 0.0
        first = ranking.candidates[0].document_id
        document = self._reader.documents([first]).get(first)
        if document is None:
            return 0.0
        terms = self._lexical_queries[0].weighted
        return coverage(find_occurrences(fold(f"{document.title}\n{document.path}"), terms), terms)

    def _explain_emptiness(self, relevances: Sequence[float]) -> None:
        """An empty list always says why."""
        scope, trace = self._query.scope, self._trace
        if relevances:
            trace.warn(
                f"all {len(relevances)} results score less than the minimum; the best scores {relevances[0]:.2f}"
            )
        elif not self._reader.count_documents():
            trace.warn(f"the index is empty: run 'qmd index{'' if self._reader.collections() else ' .'}'")
        elif scope.collections == ():
            trace.warn("no collection is searched")
        elif not trace.warnings:
            trace.warn("no note matches" + (" these words and filters" if scope.filters else ""))


def _list_by_date(reader: IndexReader, query: Query, options: SearchOptions) -> SearchResponse:
    """Documents that pass the filters of a query without words, newest first unless it asks for the oldest."""
    if query.scope == Scope() and query.sort == "relevance":
        raise UsageError("the query is empty", hint="qmd query 'how do I …', or qmd --help")
    # Stable: of one time, by collection and path, as they come.
    is_newest_first = query.sort != "-date"
    documents = list(reader.iter_documents(query.scope))
    documents.sort(key=lambda document: (document.day, document.modified_at), reverse=is_newest_first)
    copies = fold_copies(documents)
    shown = [document for document in documents if document.id in copies][: options.limit]
    texts = reader.texts([document.hash for document in shown])
    hits = []
    for document in shown:
        text = texts.get(document.hash, "")
        passage = best_passage(text, (), path=document.path, title=document.title, max_chars=options.snippet_chars)
        hits.append(Hit(document, 1.0, passage, None, text if options.full_body else None, also_in=copies[document.id]))
    warnings = () if hits else ("no note matches these filters",)
    return SearchResponse(query, tuple(hits), "good" if hits else "none", warnings)


def _in_order(hits: tuple[Hit, ...], sort: Sort) -> tuple[Hit, ...]:
    """The same hits by relevance or by date, hits of one day by relevance.

    The order is not sought among more hits than are shown: the newest of all that hold a word is seldom an answer.
    """
    if sort == "relevance":
        return hits
    return tuple(sorted(hits, key=lambda hit: hit.document.day, reverse=sort == "date"))
