"""Lexical retrieval: terms, substitutes for unknown words, BM25 rankings, required and excluded terms."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from itertools import filterfalse
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from qmd.analysis.query import analyze_query, has_user_operators, parse_lex, prefix_form
from qmd.analysis.scripts import has_unspaced, without_accents
from qmd.analysis.stopwords import LANGUAGES, STEMMED, language_of, stop_words_of
from qmd.records import Candidate, LexicalTerm, Ranking, Scope
from qmd.retrieval.matching import MatchedText, WeightedTerm, weigh_terms
from qmd.retrieval.trace import Run, Trace
from qmd.store.base import IndexReader
from qmd.store.records import sort_candidates

PREFIX_TRUST = 0.8
"""Share of a term's weight in coverage for a prefix of it."""

SPELLING_TRUST = 0.85
"""Share of a term's weight in coverage for a corrected spelling of it."""

LONG_WORD = 7
"""Letters from which a corrected spelling is searched though several words are equally near,"""

LONE_WORD = 5
"""and from which it is searched where only one is near; `hate` is near to too many others."""

MAX_SPELLINGS = 2
"""Corrected spellings searched for one unknown term."""

CLIPPED_LENGTH = 4
"""Most letters of a correct word that may be short for longer ones: `info`, `exam`, but not `broad` for `broadcast`."""

MAX_UNKNOWN = 20
"""Unknown words of one text to correct, at up to 100 ms each: a pasted page has hundreds, and enough known words."""

FORMS, FORMS_WEIGHT, MAX_TERMS = 5, 0.25, 1_000
"""Forms of one word to search (a Spanish verb has a dozen), the weight of a ranking by them next to that by the words
as typed, and terms of the index to compare with a word."""

SENTENCE_WORDS = 5
"""Words without an operator from which a query with a stop word is a sentence."""

PASSAGE_WORDS = 25
"""Words without an operator from which a query is a pasted text, whose quotations are not required: hybrid nDCG@10 on
the long requests of cacm falls from .525 to .519 when one is."""

_WITH_OPERATOR = r'[+-]?"[^"]*"|(?<!\S)[+-]\S+'
_QUOTED = r'(?<![\w"])([+-]?)"([^"]*)"(?!\w)'
_SIGNED = r"(?<!\S)([+-])(?=([^\W\d_][\w.-]+)?)\S*"


class LexicalQuery(Struct, frozen=True):
    """Terms of one text for a search of the index.

    Attributes:
        text: The query or sub-query.
        terms: Searched terms, with prefixes or corrected spellings in place of unknown words.
        weighted: Terms for coverage; unknown words keep their weight.
        forms: The terms with other forms of the words in place of words; empty for English.
    """

    text: str
    terms: tuple[LexicalTerm, ...]
    weighted: tuple[WeightedTerm, ...]
    forms: tuple[LexicalTerm, ...] = ()


class LexicalCandidates(Struct, frozen=True):
    """Queries by words with a ranking for each, or none yet."""

    queries: tuple[LexicalQuery, ...]
    rankings: tuple[Ranking, ...] = ()
    texts: Mapping[str, str] = {}
    """Texts of the very best, by hash,"""
    matched: Mapping[int, MatchedText] = {}
    """and what `terms` match in them, by document id; read only where the weight of words depends on it."""
    weight: float = 0.0
    """This weight in [0, 1], of their share next to vectors."""

    @property
    def terms(self) -> tuple[WeightedTerm, ...]:
        """Terms of the user's own words, for evidence and passages."""
        return self.queries[0].weighted

    @property
    def searched(self) -> tuple[LexicalTerm, ...]:
        """Every term to mark in a text."""
        return tuple({term: None for query in self.queries for term in query.forms or query.terms if not term.excluded})

    @property
    def found(self) -> set[int]:
        """Ids of the documents in any of the rankings."""
        return {candidate.document_id for ranking in self.rankings for candidate in ranking.candidates}


def lexical_query(reader: IndexReader, text: str, scope: Scope, trace: Trace, *, lex_syntax: bool) -> LexicalQuery:
    """Analyse `text` and replace terms that no document contains.

    Args:
        reader: For document frequencies and spellings.
        scope: Documents in which a word must occur to be known.
        trace: Gets a warning for every unknown word.
        lex_syntax: Whether quotes, `+`, `-` and `*` are operators.
    """
    terms = parse_lex(text) if lex_syntax else analyze_query(text)
    counts = reader.document_frequencies(terms, scope)
    weighted = weigh_terms(terms, counts, reader.count_documents(scope))
    forms, substitutes = _find_alternatives(reader, text, dict(zip(terms, counts, strict=True)), scope, trace)
    searched = tuple(one for term in terms for one in substitutes.get(term) or [term])
    joined = {term: [term, found] for term, found in forms.items()} | substitutes
    with_forms = tuple(forms.get(term, term) for term in searched) if forms else ()
    return LexicalQuery(text, searched, _reweigh_terms(weighted, joined), with_forms)


def _find_alternatives(
    reader: IndexReader, text: str, frequencies: Mapping[LexicalTerm, int], scope: Scope, trace: Trace
) -> tuple[Mapping[LexicalTerm, LexicalTerm], dict[LexicalTerm, list[LexicalTerm]]]:
    """Return forms of words of other languages than English, and substitutes for unknown words."""
    typed = language_of(text, 2, is_listed=True)
    of_notes = next(iter(STEMMED & {reader.main_language(scope)}), None) if typed in (None, "en") else None
    language = typed or of_notes or "en"
    forms = {} if language == "en" else _find_forms(reader, frequencies, scope, language)
    unknown = [term for term, frequency in frequencies.items() if not frequency and _is_single_word(term)]
    is_all_unknown = not any(frequencies.values())
    # With one sign of another language its words are not corrected: most are no errors, and one warning lists them.
    is_foreign = not {language, language_of(text, is_listed=True)} <= {"en", None}
    unknown_trace = trace if {language, of_notes} <= {"en", None} else Trace()
    substitutes = {
        term: [forms[term]]
        if term in forms
        else _find_substitutes(reader, term, scope, trace, unknown_trace, is_all_unknown, is_foreign)
        for term in unknown[:MAX_UNKNOWN]
    }
    if len(unknown) > MAX_UNKNOWN:
        trace.warn(f"{len(unknown) - MAX_UNKNOWN} further words do not appear in any note")
    missing = [term.text for term in filterfalse(substitutes.get, unknown[:MAX_UNKNOWN])]
    if missing and unknown_trace is not trace:
        trace.warn(f"the query is read as {LANGUAGES.get(language, 'English')}: no note has {_quote(missing)}")
    return forms, substitutes


def _is_single_word(term: LexicalTerm) -> bool:
    """Return whether a term is one word, for which a substitute may be searched."""
    return not (term.excluded or " " in term.fts or has_unspaced(term.fts))


def _find_forms(
    reader: IndexReader, frequencies: Mapping[LexicalTerm, int], scope: Scope, language: str
) -> dict[LexicalTerm, LexicalTerm]:
    """Return plain words with the terms that have their stem in another language; none where words are marked."""
    marks = {(term.required, term.excluded) for term in frequencies}
    if marks != {(False, False)} or not find_spec("py_rust_stemmers"):
        return {}
    from py_rust_stemmers import SnowballStemmer

    from qmd.inference.models.builtin import is_word

    stem_words = SnowballStemmer(LANGUAGES[language].lower()).stem_words
    found = {}
    for term, frequency in [one for one in frequencies.items() if one[0].fts[1:-1].isalpha()][:MAX_UNKNOWN]:
        # Terms of the index have no accents, which some stemmers need.
        word = term.fts[1:-1]
        stems = set(map(without_accents, stem_words([word, without_accents(word)])))
        # Endings may change the letters before them.
        start = min(stems, key=len)
        near = reader.terms_from(start[: max(3, len(start) - 2)], MAX_TERMS)
        stemmed = zip(near, map(without_accents, stem_words(near)), strict=True)
        # An English word that only looks like an unknown word is no form of it.
        same = [one for one, stem in stemmed if stem in stems and (frequency or is_word(word) or not is_word(one))]
        form = replace(term, fts='("' + '" OR "'.join(same[:FORMS]) + '")')
        if same and (frequency or reader.document_frequencies([form], scope)[0]):
            found[term] = form
    return found


def _reweigh_terms(
    weighted: Sequence[WeightedTerm], substitutes: Mapping[LexicalTerm, Sequence[LexicalTerm]]
) -> tuple[WeightedTerm, ...]:
    """Return the terms, those with substitutes last with their remaining weight, and then the substitutes."""
    replaced = {term: found for term, found in substitutes.items() if found and not term.required}
    halves = [_split_weight(entry, found) for entry in weighted if (found := replaced.get(entry.term))]
    kept = [entry for entry in weighted if entry.term not in replaced]
    return (*kept, *(own for own, _ in halves), *(other for _, other in halves))


def _split_weight(entry: WeightedTerm, found: Sequence[LexicalTerm]) -> tuple[WeightedTerm, WeightedTerm]:
    """Return a term with its remaining weight, and its substitutes with theirs."""
    trust = PREFIX_TRUST if found[0].fts.endswith("*") else SPELLING_TRUST
    # Spellings of one word share its weight: one of them is as good as all.
    any_of_them = LexicalTerm(found[0].text, f"({' OR '.join(one.fts for one in found)})")
    return WeightedTerm(entry.term, entry.weight * (1 - trust)), WeightedTerm(any_of_them, entry.weight * trust)


def lexical_ranking(run: Run, query: LexicalQuery, kind: Literal["original", "lex"], k: int) -> Ranking:
    """Return the BM25 ranking of one text; if no document contains all required terms, they are optional."""
    reader, scope, trace = run.reader, run.query.scope, run.trace
    candidates = reader.search_lexical(query.terms, k, scope, anchors=True)
    if query.forms:
        scores = {one.document_id: one.score for one in candidates}
        for one in reader.search_lexical(query.forms, k, scope, anchors=True):
            scores[one.document_id] = scores.get(one.document_id, 0.0) + FORMS_WEIGHT * one.score
        candidates = sort_candidates(Candidate(*entry) for entry in scores.items())[:k]
    required = [term for term in query.terms if term.required]
    if not candidates and required:
        names = _quote([term.text for term in required])
        trace.warn(f"no note has {names} together with the other words: searched for any of the words")
        candidates = reader.search_lexical(
            [replace(term, required=False) for term in query.terms], k, scope, anchors=True
        )
    if not candidates and query.terms and all(term.excluded for term in query.terms):
        trace.warn("the query has only excluded words: add a word to search for")
    return Ranking("bm25", kind, query.text, tuple(candidates))


def filter_by_terms(reader: IndexReader, queries: Sequence[LexicalQuery], scope: Scope) -> Callable[[int], bool] | None:
    """Return a test of ids of documents: every required term and no excluded one; None without such terms."""
    required = [term for query in queries for term in query.terms if term.required]
    excluded = [term for query in queries for term in query.terms if term.excluded]
    if not required and not excluded:
        return None
    limit = reader.count_documents()
    allowed = None
    if required:
        allowed = _ids(reader.search_lexical(required, limit, scope)) or None
    refused: frozenset[int] = frozenset()
    if excluded:
        refused = _ids(reader.search_lexical([replace(term, excluded=False) for term in excluded], limit, scope))
    return lambda document_id: document_id not in refused and (allowed is None or document_id in allowed)


def _find_substitutes(
    reader: IndexReader,
    term: LexicalTerm,
    scope: Scope,
    trace: Trace,
    unknown_trace: Trace,
    is_all_unknown: bool,
    is_foreign: bool,
) -> list[LexicalTerm]:
    """Return terms to search in place of an unknown one; empty where a wrong guess would do more harm than none.

    Args:
        term: A term that no document contains.
        trace: Gets a warning with the substitutes,
        unknown_trace: and this one a warning about a term without any.
        is_all_unknown: Whether no word of the query is known.
        is_foreign: Whether the query is in another language than English, whose words resemble English ones by chance.
    """
    from qmd.inference.models.builtin import is_word

    prefix = prefix_form(term)
    is_absent = is_word(term.text)
    may_be_clipped = len(term.text) <= CLIPPED_LENGTH or not is_absent
    if prefix is not None and may_be_clipped and reader.document_frequencies([prefix], scope)[0]:
        return [prefix]
    spellings = () if is_absent or len(term.text) < 4 else reader.similar_terms(term.text, MAX_SPELLINGS + 1, scope)
    spellings = [one for one in spellings if not (is_foreign and is_word(one))]
    if not spellings or term.required or not _are_few_enough(term.text, len(spellings), is_all_unknown=is_all_unknown):
        guess = f": did you mean '{spellings[0]}'?" if spellings else ""
        unknown_trace.warn(f"'{term.text}' does not appear in any note{guess}")
        return []
    tried = spellings[:MAX_SPELLINGS]
    trace.warn(f"'{term.text}' does not appear in any note: searched for {_quote(tried)} instead")
    return [LexicalTerm(spelling, f'"{spelling}"') for spelling in tried]


def _are_few_enough(word: str, n_spellings: int, *, is_all_unknown: bool) -> bool:
    """Return whether a word of this length may be replaced by so many equally near words."""
    if n_spellings == 1 and len(word) >= LONE_WORD:
        return True
    return len(word) >= LONG_WORD or (is_all_unknown and n_spellings <= MAX_SPELLINGS)


def _ids(candidates: Sequence[Candidate]) -> frozenset[int]:
    return frozenset(candidate.document_id for candidate in candidates)


def _quote(words: Sequence[str]) -> str:
    return ", ".join(f"'{word}'" for word in words)


def read_operators(text: str, trace: Trace) -> str | None:
    """Return `text` as a lex query when it has operators, else None.

    In a sentence only unambiguous signs are operators: a quoted phrase of two words or more, `+word` and `-word`. One
    word or a command with its options in quotes is a quotation there, not required: requiring these as well took BM25
    from .328 to .309 nDCG@10 on shell questions. Dashes between words and inside them are never operators.
    """
    if not has_user_operators(text):
        return None
    words = re.findall(r"[^\W_]+", re.sub(_WITH_OPERATOR, " ", text).lower())
    if len(words) < SENTENCE_WORDS or not stop_words_of(words):
        return text
    if len(words) >= PASSAGE_WORDS:
        trace.warn("in a text this long, quotes and signs are plain text; write a 'lex:' line to use them")
        return None
    pieces: list[str] = []
    position = 0
    has_quotation = False
    for match in re.finditer(_QUOTED, text):
        pieces.append(_remove_punctuation(text[position : match.start()], trace))
        quoted = match[2].split()
        is_operator = bool(match[1]) or (len(quoted) > 1 and not any(word.startswith("-") for word in quoted))
        has_quotation = has_quotation or not is_operator
        pieces.append(match[0] if is_operator else f" {match[2]} ")
        position = match.end()
    pieces.append(_remove_punctuation(text[position:], trace))
    if has_quotation:
        trace.warn(
            "the quotes are read as a quotation in a sentence, their words are not required; '+\"…\"' requires it"
        )
    kept = "".join(pieces)
    return kept if has_user_operators(kept) else None


def _remove_punctuation(text: str, trace: Trace) -> str:
    """Return `text` outside quotes with the signs of `+word` and `-word` kept and all other signs and quotes blank."""

    def keep(match: re.Match[str]) -> str:
        if match[2] is None:
            return match[0].lstrip("+-")
        if match[1] == "-":
            trace.warn(f"documents with '{match[2]}' are excluded because of '{match[0]}'")
        return match[0]

    return re.sub(_SIGNED, keep, text.replace('"', " "))
