"""The whole read path: expand, rank lexically and by vectors, fuse, rerank, calibrate, show."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence, Set
from itertools import islice
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from qmd.errors import UsageError, nearest_name
from qmd.records import Hit, Query, Scope, SearchResponse, Sort, SubQuery
from qmd.retrieval import calibration
from qmd.retrieval import date_matches as dating
from qmd.retrieval import literal_matches as literal
from qmd.retrieval import name_matches as naming
from qmd.retrieval.calibration import Evidence
from qmd.retrieval.fusion import INFLUENCES, SCORE_DEPTH, Dense, FusedCandidate, best_chunks, fuse_zscores, put_first
from qmd.retrieval.hits import RankedCandidate, RelevanceScale, build_hits, fold_copies
from qmd.retrieval.lexical import LexicalCandidates, lex_operators, lexical_query, lexical_ranking, term_filter
from qmd.retrieval.query import NOTHING_INDEXED, SearchOptions
from qmd.retrieval.snippets import filled_passages
from qmd.retrieval.trace import Listener, Run, Trace
from qmd.store.base import IndexReader

if TYPE_CHECKING:
    from qmd.inference.base import Embedder, Engines
    from qmd.retrieval.lazy_vectors import ChunkSource

KNOWN_DEPTH = 5
"""Best candidates by words that vectors should know: their weight falls with the square root of the share they know.
Without it an index that has a tenth of its vectors, and no time to compute more, answers worse than words alone (mean
nDCG@10 of five sets .554, with it .567, words .565); with a quarter of them .559 and .568."""

_TAGS_NAMED = 8


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

    Stages that cannot run (no model, no vectors, no time) are skipped, and a warning says so; the answer then comes
    from the others.

    Args:
        query: What is asked, and of which documents.
        listener: Hears of the stages in which a model works.
        open_source: Lets the best candidates that have no vectors yet get some, of that embedder; None answers with
            what the index holds.
        judge: Turns the evidence for a document into its relevance; only fitting replaces it.

    Raises:
        CancelledSearch: The listener has gone; no run of a model begins after that.
        UsageError: The query is empty.
        ModelError: A model failed, and the search is strict.
        StoreError: The index cannot be read.
    """
    texts = [subquery.text for subquery in query.subqueries] or [query.text]
    run = Run(reader, engines, query, options, Trace(options.budget_ms, listener, strict=options.strict))
    # Another model, or another form of it, than the one that was asked for is worth a line as well as none.
    for note in engines.notes if options.mode != "lexical" else ():
        if note not in engines.lasting_notes:
            run.trace.warn(note)
    if not reader.count_documents():
        # Whatever else might be said of the words would be true, and of no use.
        empty = f"{NOTHING_INDEXED}: run 'qmd index{'' if reader.collections() else ' FOLDER'}'"
        return SearchResponse(query, (), "none", (empty,))
    if not query.text.strip() and not query.subqueries:
        response = _list_by_date(run)
    elif any(map(str.isalnum, "".join(texts))):
        response = _answer(run, open_source, judge)
    else:
        nothing = "no words to search for: the query has no letter or digit"
        response = SearchResponse(query, (), "none", (nothing,))
    return replace(response, warnings=(*response.warnings, *_doubts_about(run, is_empty=not response.hits)))


def _answer(
    run: Run, open_source: Callable[[Embedder], ChunkSource] | None, judge: Callable[[Evidence], float]
) -> SearchResponse:
    """Every stage in its order."""
    reader, query, options, trace = run.reader, run.query, run.options, run.trace
    depth = max(SCORE_DEPTH, options.limit, options.candidate_limit)
    with trace.stage("lexical"):
        date_matches = dating.match_dates(reader, "" if query.subqueries else query.text, query.scope)
        words = _search_words(run, date_matches, depth)
    found = (
        _Candidates(words)
        if options.mode == "lexical"
        else _search_by_models(run, words, date_matches, depth, open_source)
    )
    words = found.words
    ranked = _candidates(run, words, found.meaning, date_matches)
    if options.rerank is not False and options.mode != "lexical" and len(ranked) > 1:
        from qmd.retrieval.reranking import rerank

        with trace.stage("rerank"):
            ranked = rerank(run, ranked, words.terms)
    with trace.stage("passages"):
        scale = RelevanceScale(words.terms, reader.count_documents(query.scope), judge, date_matches.words)
        hits, relevances = build_hits(reader, ranked, scale, options)
    if not hits:
        _explain_emptiness(run, relevances)
    return SearchResponse(
        query=query,
        hits=_in_order(hits, query.sort),
        verdict=calibration.verdict(relevances),
        warnings=tuple(trace.warnings),
        expansions=found.proposed,
        dropped_expansions=found.dropped,
        timings=tuple(trace.timings),
        models=tuple(trace.models),
        terms=words.searched,
    )


class _Candidates(Struct, frozen=True):
    """What was found by words and by vectors, with what a model proposed."""

    words: LexicalCandidates
    meaning: Dense = Dense()
    proposed: tuple[SubQuery, ...] = ()
    dropped: tuple[tuple[str, str], ...] = ()


def _search_by_models(
    run: Run,
    words: LexicalCandidates,
    date_matches: dating.DateMatches,
    depth: int,
    open_source: Callable[[Embedder], ChunkSource] | None,
) -> _Candidates:
    """What the expander proposes is searched by words as well, and everything by vectors."""
    # A search by words alone has no use for what these import.
    from qmd.retrieval.dense import search_dense
    from qmd.retrieval.expansion import expand, is_expanded

    trace, meaning = run.trace, Dense()
    found = _Candidates(words)
    if is_expanded(run, words):
        with trace.stage("expand"):
            expansion = expand(run)
            words = _search_proposed(run, words, expansion.subqueries)
            found = _Candidates(words, meaning, expansion.subqueries, expansion.dropped)
    own: Sequence[SubQuery | str] = run.query.subqueries or (run.query.text,)
    texts = [text for text in (*own, *found.proposed) if isinstance(text, str) or text.kind != "lex"]
    if texts:
        with trace.stage("dense"):
            meaning = search_dense(run, texts, words, words.found | date_matches.documents.keys(), depth, open_source)
    if not words.rankings and not meaning.rankings:
        words = replace(words, rankings=(lexical_ranking(run, words.queries[0], "original", SCORE_DEPTH),))
    return replace(found, words=words, meaning=meaning)


def _search_words(run: Run, date_matches: dating.DateMatches, depth: int) -> LexicalCandidates:
    """BM25 of the user's own words; for a query document without `lex` lines, terms for passages only."""
    reader, query = run.reader, run.query
    # In mode `dense` terms only measure and show; what the index lacks is no news to someone who did not search by
    # words.
    is_dense = run.options.mode == "dense"
    trace = Trace(None) if is_dense else run.trace
    typed = [subquery.text for subquery in query.subqueries if subquery.kind == "lex"]
    if query.subqueries and not typed:
        return LexicalCandidates((lexical_query(reader, query.text, query.scope, Trace(None), lex_syntax=False),))
    if typed:
        queries = tuple(lexical_query(reader, text, query.scope, trace, lex_syntax=True) for text in typed)
        rankings = () if is_dense else tuple(lexical_ranking(run, one, "lex", depth) for one in queries)
        return LexicalCandidates(queries, rankings)
    marked = lex_operators(date_matches.rest, trace)
    plain = lexical_query(reader, marked or date_matches.rest, query.scope, trace, lex_syntax=marked is not None)
    plain = replace(dating.complete_query(plain, date_matches), text=query.text)
    if is_dense:
        return LexicalCandidates((plain,))
    ranking = lexical_ranking(run, plain, "original", depth)
    return LexicalCandidates((plain,), (dating.complete_ranking(reader, plain, ranking, date_matches, query.scope),))


def _search_proposed(run: Run, words: LexicalCandidates, proposed: Sequence[SubQuery]) -> LexicalCandidates:
    """The search by words with rankings of the sub-queries that a model proposed, in mode `hybrid`."""
    rankings = list(words.rankings)
    for subquery in proposed if run.options.mode == "hybrid" else ():
        if subquery.kind == "lex":
            # A misspelt or invented word of the model is not the user's: nothing to warn about.
            query = lexical_query(run.reader, subquery.text, run.query.scope, Trace(None), lex_syntax=False)
            rankings.append(lexical_ranking(run, query, "lex", SCORE_DEPTH))
    return replace(words, rankings=tuple(rankings))


def _candidates(
    run: Run, words: LexicalCandidates, meaning: Dense, date_matches: dating.DateMatches
) -> list[RankedCandidate]:
    """The best of everything that was found, each text once."""
    reader, options = run.reader, run.options
    chunks = best_chunks(meaning.rankings)
    fused = {
        entry.document_id: entry for entry in _fuse(run, words, meaning, meaning.waiting - chunks.keys(), date_matches)
    }
    # Before any cut, so that copies take no place that another text could have.
    documents = reader.documents(list(fused))
    found = [documents[number] for number in fused if number in documents]
    copies = fold_copies(found) if options.folds_copies else {document.id: () for document in found}
    kept = islice(copies.items(), max(options.candidate_limit, options.limit))
    return [
        RankedCandidate(documents[id_], fused[id_], rank, None, fused[id_].score, chunks.get(id_), also_in)
        for rank, (id_, also_in) in enumerate(kept, start=1)
    ]


def _fuse(
    run: Run, words: LexicalCandidates, meaning: Dense, unknown: Set[int], date_matches: dating.DateMatches
) -> Sequence[FusedCandidate]:
    """One ranking of everything; what the user required or excluded holds for documents found by vectors, too.

    Args:
        unknown: Documents whose texts have no vectors yet.
    """
    reader, query = run.reader, run.query
    rankings = [*words.rankings, *(entry.ranking for entry in meaning.rankings)]
    fused: Sequence[FusedCandidate] = fuse_zscores(rankings, _weights(query, words, meaning, unknown), unknown)
    if not query.subqueries:
        named = naming.find_named(reader, query.text, query.scope)
        fused = put_first(fused, date_matches.documents, "date", date_matches.date_text, date_matches.group)
        fused = put_first(fused, named, naming.NAME, query.text)
    # Of several lines each is one way to ask, and none is all that was typed.
    if words.rankings and len(query.subqueries) < 2:
        found = literal.match_literal(reader, words.queries[0], fused, query.scope, run.options.limit)
        # A note of a day need not say it as the query does, and goes before those that do.
        mentions = {
            one for one, kind in date_matches.documents.items() if (date_matches.group, kind) == ("date", "mention")
        }
        fused = put_first(fused, {one: found[one] for one in found.keys() - mentions}, literal.LITERAL, query.text)
    is_admitted = term_filter(reader, words.queries, query.scope)
    return fused if is_admitted is None else [entry for entry in fused if is_admitted(entry.document_id)]


def _weights(query: Query, words: LexicalCandidates, meaning: Dense, unknown: Set[int]) -> list[float]:
    """Weights of the rankings, lexical first, that sum to 1.

    Dense rankings get their share times the model's trust in the texts, less where the best candidates by words are
    unknown to them; what they do not get goes to the lexical ones. Among either the user's own words count 1 and
    proposed sub-queries less.
    """
    proposed = 1.0 if query.subqueries else INFLUENCES["expansion"].value
    lexical = [1.0 if ranking.kind == "original" else proposed for ranking in words.rankings]
    dense = [1.0 if entry.ranking.kind == "original" else proposed for entry in meaning.rankings]
    share = 0.0
    if dense:
        trust = sum(w * entry.trust for w, entry in zip(dense, meaning.rankings, strict=True)) / sum(dense)
        best = meaning.by_words[:KNOWN_DEPTH]
        known = 1.0 - sum(number in unknown for number in best) / max(len(best), 1)
        has_words = any(ranking.candidates for ranking in words.rankings)
        share = INFLUENCES["dense"].value * trust * math.sqrt(known) if has_words else 1.0
    return [(1 - share) * w / sum(lexical) for w in lexical] + [share * w / sum(dense) for w in dense]


def _explain_emptiness(run: Run, relevances: Sequence[float]) -> None:
    """An empty list always says why."""
    scope, trace = run.query.scope, run.trace
    if relevances:
        trace.warn(f"all {len(relevances)} results score less than the minimum; the best scores {relevances[0]:.2f}")
    elif scope.collections == ():
        trace.warn("no collection is searched")
    elif not trace.warnings:
        trace.warn("no note matches" + (" these words and filters" if scope.filters else ""))


def _doubts_about(run: Run, *, is_empty: bool) -> list[str]:
    """What a query may not mean as it is written: an open quote, and where nothing was found a tag that no note has."""
    query, doubts = run.query, []
    if not query.subqueries and query.text.count('"') % 2:
        doubts.append("a quote is not closed: all that follows it is read as one phrase")
    wanted = [one.value for one in query.scope.filters if one.field == "tag" and not one.is_negated] if is_empty else []
    if wanted:
        known = _tags(run.reader)
        doubts += [_unknown_tag(tag, known) for tag in wanted if tag.strip("#/").casefold() not in known]
    return doubts


def _tags(reader: IndexReader) -> Counter[str]:
    """Every tag of the index in small letters without `#`, and the tags around nested ones, with the notes of each."""
    found: Counter[str] = Counter()
    for document in reader.iter_documents():
        for tag in document.tags:
            parts = tag.casefold().split("/")
            found.update("/".join(parts[:count]) for count in range(1, len(parts) + 1))
    return found


def _unknown_tag(tag: str, known: Counter[str]) -> str:
    near = nearest_name(tag, known)
    if near:
        return f"no note has the tag '{tag}'; did you mean 'tag:{near}'?"
    if not known:
        return f"no note has the tag '{tag}', or any other in its front matter"
    more = ", …" if len(known) > _TAGS_NAMED else ""
    common = ", ".join(name for name, _ in known.most_common(_TAGS_NAMED))
    return f"no note has the tag '{tag}'; there are: {common}{more}"


def _list_by_date(run: Run) -> SearchResponse:
    """Documents that pass the filters of a query without words, newest first unless it asks for the oldest."""
    query, options = run.query, run.options
    if query.scope == Scope() and query.sort == "relevance":
        raise UsageError("the query is empty", hint="qmd query 'how do I …', or qmd --help")
    # Stable: of one time, by collection and path, as they come.
    documents = list(run.reader.iter_documents(query.scope))
    documents.sort(key=lambda document: (document.day, document.modified_at), reverse=query.sort != "-date")
    copies = fold_copies(documents)
    shown = [document for document in documents if document.id in copies][: options.limit]
    texts = run.reader.texts([document.hash for document in shown])
    hits = []
    for document in shown:
        text = texts.get(document.hash, "")
        passage, _ = filled_passages(
            text, (), path=document.path, title=document.title, max_chars=options.snippet_chars
        )
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
