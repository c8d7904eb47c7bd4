"""Lexical retrieval: terms, substitutes for unknown words, BM25 rankings, and what the user required or excluded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from qmd.analysis.query import analyze_query, parse_lex, prefix_form
from qmd.analysis.scripts import has_cjk
from qmd.records import Candidate, LexicalTerm, Ranking, Scope
from qmd.retrieval.matching import WeightedTerm, weigh_terms
from qmd.retrieval.trace import Trace
from qmd.store.base import IndexReader

PREFIX_TRUST = 0.8
"""Share of a term's weight that a prefix of it earns in coverage."""

SPELLING_TRUST = 0.85
"""Share of a term's weight that a corrected spelling of it earns in coverage."""

SURE_LENGTH = 7
"""Letters from which a corrected spelling is searched beside known words, or though several words are equally near;
`hate` is near to too many others."""

SPELLINGS = 2
"""Corrected spellings tried for one unknown term."""

CLIPPED_LENGTH = 4
"""Most letters of a correct word that may stand for longer ones: `info`, `exam`, but not `broad` for `broadcast`."""

MOST_UNKNOWN = 20
"""Unknown words of one text whose spelling is looked up, at up to 100 ms each: a pasted page has hundreds of them, and
enough words that are known."""


class LexicalQuery(Struct, frozen=True):
    """Terms of one text as the index is asked for them.

    Attributes:
        text: The query or sub-query.
        terms: What is searched, unknown words replaced by prefixes or corrected spellings.
        weighted: What coverage is measured with; unknown words keep their weight.
    """

    text: str
    terms: tuple[LexicalTerm, ...]
    weighted: tuple[WeightedTerm, ...]


def lexical_query(reader: IndexReader, text: str, scope: Scope, trace: Trace, *, lex_syntax: bool) -> LexicalQuery:
    """Analyse `text` and replace terms that no document holds.

    Args:
        reader: For document frequencies and spellings.
        text: The query or sub-query.
        scope: Where a word must occur to be known.
        trace: Gets a warning for every unknown word.
        lex_syntax: Whether quotes, `+`, `-` and `*` are operators.
    """
    terms = parse_lex(text) if lex_syntax else analyze_query(text)
    frequencies = reader.document_frequencies(terms, scope)
    weighted = weigh_terms(terms, frequencies, reader.count_documents(scope))
    searched: list[LexicalTerm] = []
    substitutes: list[WeightedTerm] = []
    n_unknown = 0
    for term, frequency in zip(terms, frequencies, strict=True):
        is_unknown = not (frequency or term.excluded or " " in term.fts or has_cjk(term.fts))
        n_unknown += is_unknown
        if not is_unknown or n_unknown > MOST_UNKNOWN:
            searched.append(term)
            continue
        found = _substitutes(reader, term, scope, trace, is_alone=not any(frequencies))
        searched.extend(found or [term])
        if found and not term.required:
            weight = next(entry.weight for entry in weighted if entry.term == term)
            trust = PREFIX_TRUST if found[0].fts.endswith("*") else SPELLING_TRUST
            weighted = [entry for entry in weighted if entry.term != term]
            weighted.append(WeightedTerm(term, weight * (1 - trust)))
            # Spellings of one word share what it weighs: finding one of them is as good as finding all.
            any_of_them = LexicalTerm(found[0].text, f"({' OR '.join(one.fts for one in found)})")
            substitutes.append(WeightedTerm(any_of_them, weight * trust))
    if n_unknown > MOST_UNKNOWN:
        trace.warn(f"{n_unknown - MOST_UNKNOWN} further words do not appear in any note")
    return LexicalQuery(text, tuple(searched), tuple(weighted + substitutes))


def lexical_ranking(
    reader: IndexReader, query: LexicalQuery, kind: Literal["original", "lex"], k: int, scope: Scope, trace: Trace
) -> Ranking:
    """BM25 ranking of one text; required terms that no document holds together are searched as optional."""
    candidates = reader.search_lexical(query.terms, k, scope, anchors=True)
    required = [term for term in query.terms if term.required]
    if not candidates and required:
        names = _quoted([term.text for term in required])
        trace.warn(f"no note has {names} together with the other words: searched for any of the words")
        candidates = reader.search_lexical(
            [replace(term, required=False) for term in query.terms], k, scope, anchors=True
        )
    if not candidates and query.terms and all(term.excluded for term in query.terms):
        trace.warn("the query only says what to leave out: add a word to search for")
    return Ranking("bm25", kind, query.text, tuple(candidates))


def term_filter(reader: IndexReader, queries: Sequence[LexicalQuery], scope: Scope) -> Callable[[int], bool]:
    """Whether a document, by id, has every required term and no excluded one; for those that vectors find."""
    required = [term for query in queries for term in query.terms if term.required]
    excluded = [term for query in queries for term in query.terms if term.excluded]
    limit = reader.count_documents()
    allowed = None
    if required:
        allowed = _ids(reader.search_lexical(required, limit, scope)) or None
    refused: frozenset[int] = frozenset()
    if excluded:
        refused = _ids(reader.search_lexical([replace(term, excluded=False) for term in excluded], limit, scope))
    return lambda document_id: document_id not in refused and (allowed is None or document_id in allowed)


def _substitutes(
    reader: IndexReader, term: LexicalTerm, scope: Scope, trace: Trace, *, is_alone: bool
) -> list[LexicalTerm]:
    """What is searched in place of an unknown term; empty where a wrong guess would do more harm than none."""
    from qmd.inference.models.words import is_word

    prefix = prefix_form(term)
    is_absent = is_word(term.text)
    may_be_clipped = len(term.text) <= CLIPPED_LENGTH or not is_absent
    if prefix is not None and may_be_clipped and reader.document_frequencies([prefix], scope)[0]:
        return [prefix]
    spellings = () if is_absent or len(term.text) < 4 else reader.similar_terms(term.text, SPELLINGS + 1, scope)
    if not spellings:
        trace.warn(f"'{term.text}' does not appear in any note")
        return []
    is_sure = len(term.text) >= SURE_LENGTH or (is_alone and len(spellings) <= SPELLINGS)
    if term.required or not is_sure:
        trace.warn(f"'{term.text}' does not appear in any note: did you mean '{spellings[0]}'?")
        return []
    tried = spellings[:SPELLINGS]
    trace.warn(f"'{term.text}' does not appear in any note: searched for {_quoted(tried)} instead")
    return [LexicalTerm(spelling, f'"{spelling}"') for spelling in tried]


def _ids(candidates: Sequence[Candidate]) -> frozenset[int]:
    return frozenset(candidate.document_id for candidate in candidates)


def _quoted(words: Sequence[str]) -> str:
    return ", ".join(f"'{word}'" for word in words)
