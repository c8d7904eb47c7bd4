"""BM25 over the FTS5 table, document frequencies, and spelling suggestions from its vocabulary."""

from __future__ import annotations

import math
from collections.abc import Sequence

from qmd.records import Candidate, LexicalTerm, Scope
from qmd.store.connection import Database
from qmd.store.scope import scope_condition
from qmd.store.scoped_ranking import CANDIDATES, count_matches, rescore, statistics

FIELD_WEIGHTS = (3.0, 1.0, 1.5, 1.0, 0.5)
"""BM25 weight of title, headings, path, body, extra (unitless, > 0). A title stands in three of the fields. nDCG@10
with these and with (4, 2, 1.5, 1, .5): cranfield .529 and .526, cacm .476 and .476, nlcmd .319 and .320; fused with
vectors .569 and .568, .519 and .514, .443 and .443."""

PRUNE_FROM_DOCUMENTS = 2_000
"""Below this many documents no term is common enough to cost anything, so none is left out."""

PRUNE_SHARE = 0.5
"""FTS5 gives a term in more than half of the documents an idf of zero: dropping it costs time only, never rank."""

PRUNE_POSTINGS = 100_000
"""Postings per query that are scored in any case; beyond, the most common terms go (about 1 µs per posting)."""


def search_lexical(database: Database, terms: Sequence[LexicalTerm], k: int, scope: Scope) -> list[Candidate]:
    """Top `k` documents by BM25, best first; ties by id.

    Optional terms are OR-ed, required ones AND-ed, excluded ones NOT-ed. Empty when no term is positive. Where the
    scope names collections, what terms are worth is counted in these alone.
    """
    if k <= 0 or scope.collections == ():
        return []
    kept = prune_common_terms(database, terms, scope)
    match = match_expression(kept)
    if match is None:
        return []
    counted = statistics(database, scope)
    condition = scope_condition(scope)
    # The plus sign keeps SQLite from running MATCH once per row of the scope; the alias keeps bm25() out of FTS5's own
    # (slower) sort by rank.
    inside = f"AND +rowid IN (SELECT id FROM documents WHERE {condition.sql})" if condition.sql else ""
    weights = ", ".join(map(str, FIELD_WEIGHTS))
    rows = database.rows(
        f"SELECT rowid, -bm25(terms, {weights}) AS score FROM terms WHERE terms MATCH ? {inside} "
        "ORDER BY score DESC, rowid LIMIT ?",
        (match, *condition.bindings, k if counted is None else max(k, CANDIDATES)),
    )
    found = [Candidate(document_id, score) for document_id, score in rows]
    return found if counted is None else rescore(database, kept, found, counted, FIELD_WEIGHTS)[:k]


def match_expression(terms: Sequence[LexicalTerm]) -> str | None:
    """The FTS5 expression of a set of terms; None without a positive term."""
    required = [term.fts for term in terms if term.required and not term.excluded]
    optional = [term.fts for term in terms if not term.required and not term.excluded]
    excluded = [term.fts for term in terms if term.excluded]
    if not required and not optional:
        return None
    positive = " AND ".join(f"({fts})" for fts in required)
    either = " OR ".join(f"({fts})" for fts in optional)
    if required and optional:
        # Optional terms raise the score of what the required ones select, without selecting anything themselves.
        # Naming the required ones again keeps those documents that hold no optional term.
        positive = f"{positive} AND ({either} OR ({positive}))"
    expression = positive or either
    if excluded:
        expression = f"({expression}) NOT ({' OR '.join(f'({fts})' for fts in excluded)})"
    return expression


def prune_common_terms(database: Database, terms: Sequence[LexicalTerm], scope: Scope = Scope()) -> list[LexicalTerm]:
    """Leave out optional terms that cost much and tell little, as long as a rarer optional term remains."""
    total = count_documents(database, scope)
    optional = [term for term in terms if not term.required and not term.excluded]
    if total < PRUNE_FROM_DOCUMENTS or len(optional) < 2:
        return list(terms)
    frequencies = dict(zip(optional, document_frequencies(database, optional, scope), strict=True))
    kept: set[LexicalTerm] = set()
    postings = 0
    for term in sorted(optional, key=frequencies.__getitem__):
        frequency = frequencies[term]
        postings += frequency
        found_before = any(frequencies[other] for other in kept)
        if found_before and (frequency > total * PRUNE_SHARE or postings > PRUNE_POSTINGS):
            break
        kept.add(term)
    return [term for term in terms if term.required or term.excluded or term in kept]


def document_frequencies(database: Database, terms: Sequence[LexicalTerm], scope: Scope = Scope()) -> list[int]:
    """Number of documents in the scope's collections that match each term, whatever its form (word, prefix, phrase)."""
    counted = statistics(database, scope)
    if counted is not None:
        return [count_matches(database, counted, term.fts) for term in terms]
    sql = "SELECT count(*) FROM terms WHERE terms MATCH ?"
    return [int(database.value(sql, (term.fts,))) for term in terms]


def count_documents(database: Database, scope: Scope = Scope()) -> int:
    """Number of documents in the scope's collections."""
    counted = statistics(database, scope)
    return len(counted.ids) if counted is not None else int(database.value("SELECT count(*) FROM documents"))


def similar_terms(database: Database, term: str, limit: int) -> list[str]:
    """Indexed terms within edit distance 2 of `term` that share its first letter, most frequent first.

    The vocabulary holds stems, so both sides are compared as stems, and a suggestion matches like any other word.
    """
    meant = {form for form in (_stem(database, term), *_bare_forms(term)) if len(form) >= 3}
    if not meant:
        return []
    first = min(meant)[0]
    # One pass over the words of one letter; numbered codes are as many as words and nobody means another one of them.
    digits = "" if any(map(str.isdigit, term)) else "AND term NOT GLOB '*[0-9]*'"
    vocabulary = database.rows(
        f"SELECT term, doc FROM vocabulary WHERE term >= ? AND term < ? AND length(term) BETWEEN ? AND ? {digits}",
        (first, chr(ord(first) + 1), min(map(len, meant)) - 5, max(map(len, meant)) + 2),
    )
    near = [
        (distance, -frequency, candidate)
        for candidate, frequency in vocabulary
        if candidate not in meant and (distance := _distance_to_any(meant, candidate)) is not None
    ]
    # A much more frequent word at distance 2 beats a rare one at 1: the rare one is often another misspelling.
    near.sort(key=lambda item: (item[0] - math.log10(-item[1]), item[2]))
    return [candidate for _, _, candidate in near[:limit]]


def edit_distance(left: str, right: str, limit: int) -> int:
    """Edits (insert, delete, substitute, swap of neighbours) between two words, or `limit + 1` when there are more."""
    if abs(len(left) - len(right)) > limit:
        return limit + 1
    before: list[int] = []
    above = list(range(len(right) + 1))
    for i, a in enumerate(left, start=1):
        current = [i]
        for j, b in enumerate(right, start=1):
            cost = min(above[j] + 1, current[j - 1] + 1, above[j - 1] + (a != b))
            if i > 1 and j > 1 and a == right[j - 2] and left[i - 2] == b:
                cost = min(cost, before[j - 2] + 1)
            current.append(cost)
        if min(current) > limit:
            return limit + 1
        before, above = above, current
    return min(above[-1], limit + 1)


def _distance_to_any(forms: set[str], candidate: str) -> int | None:
    """Edits to the nearest of `forms`; None when there are too many for its length."""
    letters = set(candidate)
    best: int | None = None
    for form in forms:
        allowed = 1 if len(form) < 5 else 2
        if len(candidate) >= 6 and len(form) - len(candidate) <= 5 and form.startswith(candidate):
            # A typing error in a long ending ("configuraton") leaves the stem whole at the front of the word.
            distance = 1
        elif abs(len(form) - len(candidate)) > allowed or len(letters.difference(form)) > allowed:
            # Each letter that the form lacks costs an edit: this spares the table for nearly all words.
            continue
        elif len(set(form) - letters) > allowed:
            continue
        else:
            distance = edit_distance(form, candidate, allowed)
        if distance <= allowed and (best is None or distance < best):
            best = distance
    return best


def _bare_forms(term: str) -> list[str]:
    """The word without a common ending: a typing error in front of it can keep the stemmer from taking it off."""
    folded = term.casefold()
    return [folded.removesuffix(ending) for ending in ("ing", "ed", "es", "s", "ion") if folded.endswith(ending)]


def _stem(database: Database, term: str) -> str:
    """The term as the index holds it; empty when it is not exactly one."""
    import apsw

    from qmd.store.schema import TOKENIZER

    name, *arguments = TOKENIZER.split()
    tokenize = database.connection.fts5_tokenizer(name, arguments)
    flags = {"include_offsets": False, "include_colocated": False}
    tokens = list(tokenize(term.encode(), apsw.FTS5_TOKENIZE_QUERY, None, **flags))
    return str(tokens[0]) if len(tokens) == 1 else ""
