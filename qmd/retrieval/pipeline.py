"""Search pipeline: expand, rank by words and by vectors, fuse, rerank, calibrate, build hits."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence, Set
from itertools import islice
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from qmd.errors import UsageError, nearest_name
from qmd.records import Hit, Query, Scope, SearchResponse, Sort, SubQuery, TagFilter
from qmd.retrieval import calibration
from qmd.retrieval.calibration import Evidence
from qmd.retrieval.date_matches import DateMatches, complete_query, complete_ranking, match_dates
from qmd.retrieval.fusion import INFLUENCES, SCORE_DEPTH, DenseCandidates, FusedCandidate, add_influence, fuse_zscores
from qmd.retrieval.hits import RankedCandidate, RelevanceScale, build_hits, group_copies
from qmd.retrieval.lexical import LexicalCandidates, filter_by_terms, lexical_query, lexical_ranking, read_operators
from qmd.retrieval.literal_matches import LITERAL, match_literal
from qmd.retrieval.matching import WINDOW_CHARS, coverage, header_lines, inverse_frequency, match_text
from qmd.retrieval.name_matches import NAME, find_named
from qmd.retrieval.query import NOTHING_INDEXED
from qmd.retrieval.request import CANDIDATES, SearchRequest
from qmd.retrieval.snippets import choose_passages
from qmd.retrieval.trace import Listener, Run, Trace
from qmd.store.base import IndexReader

if TYPE_CHECKING:
    from qmd.inference.base import Embedder, Engines
    from qmd.retrieval.lazy_vectors import ChunkSource

KNOWN_DEPTH = 5
"""Best lexical candidates that should have vectors: the weight of dense rankings falls with the square root of their
share with vectors. Without it an index that has a tenth of its vectors, and no time to compute more, answers worse than
words alone (mean nDCG@10 of five sets .554, with it .567, words .565); with a quarter of them .559 and .568."""

FOUND_DEPTH, FOUND_SHARE, FOUND_WORDS = 3, 0.4, 1.5
"""Words count in full where a passage of one of so many best candidates has this share of the query's term weight, or
as much as so many words that no note contains; with less, by the square. English questions on German, Vietnamese, Thai
and Arabic notes: right first .80 instead of .66 (vectors .82). Without FOUND_WORDS the long requests of cacm, which
never meet in a passage, fall from .527 to .484 nDCG@10, with it to .525 (p = .7); cranfield .560, .559 (p = .09)."""

_MAX_TAGS = 8
_MISREAD = {
    r"(?<!\S)/\S*[.*+?\\^$|[]\S*/(?!\S)": "there are no patterns, only the beginning of a word: ov*",
    r"\([^()]*\b(?:OR|AND|NOT)\b[^()]*\)": "notes with more of the words come first; -word excludes one",
    r"(?<!\S)\*\w+": "'*' ends the beginning of a word: ov*",
}
"""Pattern of another program's query → what to type here."""


def search(
    reader: IndexReader,
    engines: Engines,
    query: Query,
    request: SearchRequest,
    listener: Listener = Listener(),
    *,
    open_source: Callable[[Embedder], ChunkSource] | None = None,
    judge: Callable[[Evidence], float] = calibration.relevance,
) -> SearchResponse:
    """Answer a query.

    Stages that cannot run (no model, no vectors, no time) are skipped with a warning.

    Args:
        query: Parsed query with its scope.
        listener: Receives the stages in which a model works.
        open_source: Splits texts to embed the best candidates without vectors; None uses only stored vectors.
        judge: Turns the evidence for a document into its relevance; only fitting replaces it.

    Raises:
        CancelledSearch: The listener has cancelled; no run of a model begins after that.
        UsageError: The query is empty.
        ModelError: A model failed, and the search is strict.
        StoreError: The index cannot be read.
    """
    texts = [subquery.text for subquery in query.subqueries] or [query.text]
    run = Run(reader, engines, query, request, Trace(request, listener))
    # A replaced model, or another form of it, gets a warning as a missing model does.
    for note in engines.notes if request.mode != "lexical" else ():
        if note not in engines.lasting_notes:
            run.trace.warn(note)
    if not reader.count_documents():
        # Any other warning about the words would be true but useless.
        empty = f"{NOTHING_INDEXED}: run 'qmd index{'' if reader.collections() else ' FOLDER'}'"
        return SearchResponse(query, (), "none", (empty,))
    if not query.text.strip() and not query.subqueries:
        response = _list_by_date(run)
    elif any(map(str.isalnum, "".join(texts))):
        response = _answer(run, open_source, judge)
    else:
        nothing = "no words to search for: the query has no letter or digit"
        response = SearchResponse(query, (), "none", (nothing,))
    return replace(response, warnings=(*response.warnings, *_find_query_mistakes(run, is_empty=not response.hits)))


def _answer(
    run: Run, open_source: Callable[[Embedder], ChunkSource] | None, judge: Callable[[Evidence], float]
) -> SearchResponse:
    """Run every stage in order."""
    reader, query, request, trace = run.reader, run.query, run.request, run.trace
    depth = max(SCORE_DEPTH, request.limit, request.candidate_limit or CANDIDATES)
    with trace.stage("lexical"):
        dates = match_dates(reader, "" if query.subqueries else query.text, query.scope)
        words = _search_words(run, dates, depth)
    found = (
        _RetrievalResult(words)
        if request.mode == "lexical"
        else _search_with_models(run, words, dates, depth, open_source)
    )
    words = _match_first(run, found.words, dates) if found.dense.rankings else found.words
    ranked = _select_candidates(run, words, found.dense, dates)
    if request.mode == "hybrid" and request.rerank is not False and len(ranked) > 1:
        from qmd.retrieval.reranking import rerank

        with trace.stage("rerank"):
            ranked = rerank(run, ranked, words.terms)
    with trace.stage("passages"):
        n_documents = reader.count_documents(query.scope)
        # The date is the last term, or the only one. Without a day as evidence 5 of 26 right first notes are weak.
        n_judged = max(len(words.terms) - (dates.group == "long date"), 1)
        read = (words.texts, words.matched)
        scale = RelevanceScale(words.terms, n_judged, n_documents, judge, dates.known_text, words.searched, *read)
        hits, relevances = build_hits(reader, ranked, scale, request)
        verdict = calibration.verdict(relevances)
        # The paths of minutes name their day.
        if verdict != "none" and any(one.date and one.date[:4] in one.path for one in [hit.document for hit in hits]):
            from qmd.retrieval.sessions import add_continuations

            hits = add_continuations(reader, hits)
    if not hits:
        _explain_no_hits(run, relevances)
    return SearchResponse(
        query=query,
        hits=_sort_hits(hits, query.sort),
        verdict=verdict,
        warnings=tuple(trace.warnings),
        expansions=found.proposed,
        dropped_expansions=found.dropped,
        timings=tuple(trace.timings),
        models=tuple(trace.models),
        terms=words.searched,
    )


def _match_first(run: Run, words: LexicalCandidates, dates: DateMatches) -> LexicalCandidates:
    """Return the lexical search with what the best candidates contain of the query, and the weight that this gives.

    Standardised scores do not show that a reworded question, or one in another language than the notes, found a single
    word of a single note.
    """
    best = [one.document_id for ranking in words.rankings[:1] for one in ranking.candidates[:FOUND_DEPTH]]
    documents = run.reader.documents(best).values()
    texts = run.reader.texts([one.hash for one in documents])
    matched = {
        one.id: match_text(texts[one.hash], words.terms, header_lines(one) + dates.known_text.get(one.id, ""))
        for one in documents
        if one.hash in texts
    }
    found = max((coverage(one.occurrences, words.terms, WINDOW_CHARS) for one in matched.values()), default=0.0)
    rare = inverse_frequency(0, run.reader.count_documents(run.query.scope))
    enough = min(FOUND_SHARE, FOUND_WORDS * rare / max(sum(one.weight for one in words.terms), rare))
    return replace(words, texts=texts, matched=matched, weight=min(found / enough, 1.0) ** 2)


class _RetrievalResult(Struct, frozen=True):
    """Lexical and dense candidates, with the sub-queries that a model proposed."""

    words: LexicalCandidates
    dense: DenseCandidates = DenseCandidates()
    proposed: tuple[SubQuery, ...] = ()
    dropped: tuple[tuple[str, str], ...] = ()


def _search_with_models(
    run: Run,
    words: LexicalCandidates,
    dates: DateMatches,
    depth: int,
    open_source: Callable[[Embedder], ChunkSource] | None,
) -> _RetrievalResult:
    """Search the expander's sub-queries by words as well, and all texts by vectors."""
    # A lexical search does not need these imports.
    from qmd.retrieval.dense import search_dense
    from qmd.retrieval.expansion import expand, should_expand

    trace, dense = run.trace, DenseCandidates()
    found = _RetrievalResult(words)
    if should_expand(run, words):
        with trace.stage("expand"):
            expansion = expand(run)
            words = _search_proposed(run, words, expansion.subqueries)
            found = _RetrievalResult(words, dense, expansion.subqueries, expansion.dropped)
    own: Sequence[SubQuery | str] = run.query.subqueries or (run.query.text,)
    texts = [text for text in (*own, *found.proposed) if isinstance(text, str) or text.kind != "lex"]
    if texts:
        with trace.stage("dense"):
            dense = search_dense(run, texts, words, words.found | dates.documents.keys(), depth, open_source)
    if not words.rankings and not dense.rankings:
        words = replace(words, rankings=(lexical_ranking(run, words.queries[0], "original", SCORE_DEPTH),))
    return replace(found, words=words, dense=dense)


def _search_words(run: Run, dates: DateMatches, depth: int) -> LexicalCandidates:
    """Return BM25 of the user's own words; for a query document without `lex` lines, terms for passages only."""
    reader, query = run.reader, run.query
    # In mode `dense` terms only serve evidence and passages: no warnings about unknown words.
    is_dense = run.request.mode == "dense"
    trace = Trace() if is_dense else run.trace
    typed = [subquery.text for subquery in query.subqueries if subquery.kind == "lex"]
    if query.subqueries and not typed:
        return LexicalCandidates((lexical_query(reader, query.text, query.scope, Trace(), lex_syntax=False),))
    if typed:
        queries = tuple(lexical_query(reader, text, query.scope, trace, lex_syntax=True) for text in typed)
        rankings = () if is_dense else tuple(lexical_ranking(run, one, "lex", depth) for one in queries)
        return LexicalCandidates(queries, rankings)
    marked = read_operators(dates.undated_text, trace)
    plain = lexical_query(reader, marked or dates.undated_text, query.scope, trace, lex_syntax=marked is not None)
    plain = replace(complete_query(plain, dates), text=query.text)
    if is_dense:
        return LexicalCandidates((plain,))
    ranking = lexical_ranking(run, plain, "original", depth)
    return LexicalCandidates((plain,), (complete_ranking(reader, plain, ranking, dates, query.scope),))


def _search_proposed(run: Run, words: LexicalCandidates, proposed: Sequence[SubQuery]) -> LexicalCandidates:
    """Return the lexical search with rankings of the sub-queries that a model proposed, in mode `hybrid`."""
    rankings = list(words.rankings)
    for subquery in proposed if run.request.mode == "hybrid" else ():
        if subquery.kind == "lex":
            # No warnings about unknown words that the model proposes.
            query = lexical_query(run.reader, subquery.text, run.query.scope, Trace(), lex_syntax=False)
            rankings.append(lexical_ranking(run, query, "lex", SCORE_DEPTH))
    return replace(words, rankings=tuple(rankings))


def _select_candidates(
    run: Run, words: LexicalCandidates, dense: DenseCandidates, dates: DateMatches
) -> list[RankedCandidate]:
    """Return the best of all candidates, each text once."""
    reader, request = run.reader, run.request
    chunks = dense.best_chunks()
    fused = {entry.document_id: entry for entry in _fuse(run, words, dense, dense.pending - chunks.keys(), dates)}
    # Before any cut, so that copies do not replace other texts.
    documents = reader.documents(list(fused))
    found = [documents[number] for number in fused if number in documents]
    copies = group_copies(found, request.missing) if request.folds_copies else {document.id: () for document in found}
    kept = islice(copies.items(), max(request.candidate_limit or CANDIDATES, request.limit))
    return [
        RankedCandidate(documents[id_], fused[id_], rank, None, fused[id_].score, chunks.get(id_), also_in)
        for rank, (id_, also_in) in enumerate(kept, start=1)
    ]


def _fuse(
    run: Run, words: LexicalCandidates, dense: DenseCandidates, unknown: Set[int], dates: DateMatches
) -> Sequence[FusedCandidate]:
    """Return one ranking of everything; required and excluded terms also apply to documents found by vectors.

    Args:
        unknown: Documents whose texts have no vectors yet.
    """
    reader, query = run.reader, run.query
    rankings = [*words.rankings, *(entry.ranking for entry in dense.rankings)]
    fused: Sequence[FusedCandidate] = fuse_zscores(rankings, _weigh_rankings(query, words, dense, unknown), unknown)
    if not query.subqueries:
        named = find_named(reader, query.text, query.scope)
        fused = add_influence(fused, dates.documents, "date", dates.date_text, dates.group)
        fused = add_influence(fused, named, NAME, query.text)
    # No line of several contains all that was typed.
    if words.rankings and len(query.subqueries) < 2:
        found = match_literal(reader, words.queries[0], fused, query.scope, run.request.limit)
        # A note of a day ranks above mentions of it, although its text need not contain the date.
        mentions = {one for one, kind in dates.documents.items() if (dates.group, kind) == ("date", "mention")}
        fused = add_influence(fused, {one: found[one] for one in found.keys() - mentions}, LITERAL, query.text)
    is_admitted = filter_by_terms(reader, words.queries, query.scope)
    return fused if is_admitted is None else [entry for entry in fused if is_admitted(entry.document_id)]


def _weigh_rankings(query: Query, words: LexicalCandidates, dense: DenseCandidates, unknown: Set[int]) -> list[float]:
    """Return the weights of the rankings, lexical first, that sum to 1.

    Lexical rankings get their share as far as they found something; dense rankings the rest, times the model's trust in
    the texts, less where the best lexical candidates are unknown to them. Within both the user's own words count 1 and
    proposed sub-queries less.
    """
    proposed = 1.0 if query.subqueries else INFLUENCES["expansion"].value
    lex = [1.0 if ranking.kind == "original" else proposed for ranking in words.rankings]
    vec = [1.0 if entry.ranking.kind == "original" else proposed for entry in dense.rankings]
    share = 0.0
    if vec:
        trust = sum(w * entry.trust for w, entry in zip(vec, dense.rankings, strict=True)) / sum(vec)
        best = dense.by_words[:KNOWN_DEPTH]
        known = 1.0 - sum(number in unknown for number in best) / max(len(best), 1)
        has_words = any(ranking.candidates for ranking in words.rankings)
        by_words = (1 - INFLUENCES["dense"].value) * words.weight
        share = trust * math.sqrt(known) * (1 - by_words) if has_words else 1.0
    return [(1 - share) * w / sum(lex) for w in lex] + [share * w / sum(vec) for w in vec]


def _explain_no_hits(run: Run, relevances: Sequence[float]) -> None:
    """Warn with the reason of an empty list."""
    scope, trace = run.query.scope, run.trace
    if relevances:
        trace.warn(f"all {len(relevances)} results score less than the minimum; the best scores {relevances[0]:.2f}")
    elif scope.collections == ():
        trace.warn("no collection is searched")
    elif not trace.warnings:
        trace.warn("no note matches" + (" these words and filters" if scope.filters else ""))


def _find_query_mistakes(run: Run, *, is_empty: bool) -> list[str]:
    """Return likely mistakes in a query: an open quote, and without hits a tag that no note has."""
    query, mistakes = run.query, []
    if not query.subqueries and query.text.count('"') % 2:
        mistakes.append("a quote is not closed: the text after it is one phrase")
    for pattern, reason in () if query.subqueries else _MISREAD.items():
        mistakes += [f"'{found[0]}' is read as plain words: {reason}" for found in re.finditer(pattern, query.text)]
    tags = [one for one in query.scope.filters if isinstance(one, TagFilter) and not one.is_negated] if is_empty else []
    if tags:
        known = _count_tags(run.reader)
        mistakes += [_explain_tag(one.name, known) for one in tags if one.name.strip("#/").casefold() not in known]
    return mistakes


def _count_tags(reader: IndexReader) -> Counter[str]:
    """Count the notes of every tag of the index, in lower case without `#`, and of the tags around nested ones."""
    found: Counter[str] = Counter()
    for document in reader.iter_documents():
        for tag in document.tags:
            parts = tag.casefold().split("/")
            found.update("/".join(parts[:count]) for count in range(1, len(parts) + 1))
    return found


def _explain_tag(tag: str, known: Counter[str]) -> str:
    near = nearest_name(tag, known)
    if near:
        return f"no note has the tag '{tag}'; did you mean 'tag:{near}'?"
    if not known:
        return f"no note has the tag '{tag}', or any other in its front matter"
    more = ", …" if len(known) > _MAX_TAGS else ""
    common = ", ".join(name for name, _ in known.most_common(_MAX_TAGS))
    return f"no note has the tag '{tag}'; there are: {common}{more}"


def _list_by_date(run: Run) -> SearchResponse:
    """Return the documents that pass the filters of a query without words, newest first, or oldest for `-date`."""
    query, request = run.query, run.request
    if query.scope == Scope() and query.sort == "relevance":
        raise UsageError("the query is empty", hint="qmd query 'how do I …', or qmd --help")
    # Stable: documents of one time stay ordered by collection and path.
    documents = list(run.reader.iter_documents(query.scope))
    documents.sort(key=lambda document: (document.day, document.modified_at), reverse=query.sort != "-date")
    copies = group_copies(documents, request.missing)
    shown = [document for document in documents if document.id in copies][: request.limit]
    texts = run.reader.texts([document.hash for document in shown])
    hits = []
    for document in shown:
        text = texts.get(document.hash, "")
        passage, _ = choose_passages(
            text, (), path=document.path, title=document.title, max_chars=request.snippet_chars
        )
        hits.append(Hit(document, 1.0, passage, None, text if request.full_body else None, also_in=copies[document.id]))
    warnings = () if hits else ("no note matches these filters",)
    return SearchResponse(query, tuple(hits), "good" if hits else "none", warnings)


def _sort_hits(hits: tuple[Hit, ...], sort: Sort) -> tuple[Hit, ...]:
    """Return the same hits by relevance or by date, hits of one day by relevance.

    Only shown hits are sorted: the newest of all documents with a word is seldom an answer.
    """
    if sort == "relevance":
        return hits
    return tuple(sorted(hits, key=lambda hit: hit.document.day, reverse=sort == "date"))
