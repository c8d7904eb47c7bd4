"""BM25 over the FTS5 table, and document frequencies."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from qmd.records import Candidate, LexicalTerm, Scope
from qmd.store.records import ANCHOR_CANDIDATES, ANCHOR_WEIGHT, Terms, sort_candidates
from qmd.store.sqlite.documents import Documents, SqlCondition, scope_condition
from qmd.store.sqlite.scoped_ranking import (
    CANDIDATES,
    Statistics,
    count_all,
    count_matches,
    rescore,
    score_anchors,
    statistics,
)

FIELD_WEIGHTS = (3.0, 1.0, 1.5, 1.0, 0.5)
"""BM25 weight of title, headings, path, body, extra (unitless, > 0). A title occurs in three of the fields. nDCG@10
with these and with (4, 2, 1.5, 1, .5): cranfield .529 and .526, cacm .476 and .476, nlcmd .319 and .320; fused with
vectors .569 and .568, .519 and .514, .443 and .443."""


_AMONG = "+rowid IN (SELECT value FROM json_each(?))"

PRUNE_FROM_DOCUMENTS = 2_000
"""Below this many documents no term is common enough to cost anything, so all are kept."""

PRUNE_SHARE = 0.5
"""FTS5 gives a term in more than half of the documents an idf of zero: dropping it costs time only, never rank."""

PRUNE_POSTINGS = 100_000
"""Postings per query that are always scored; beyond, the most common terms are dropped (about 1 µs per posting)."""


class Lexical(Documents):
    """Read methods for lexical search."""

    def count_documents(self, scope: Scope = Scope()) -> int:
        counted = statistics(self.database, scope)
        return len(counted.ids) if counted is not None else count_all(self.database)

    def search_lexical(
        self, terms: Terms, k: int, scope: Scope, *, within: Sequence[int] | None = None, anchors: bool = False
    ) -> list[Candidate]:
        if k <= 0 or scope.collections == ():
            return []
        with self.database.snapshot():
            return self._search(self.prune_common_terms(terms, scope), k, scope, within, anchors=anchors)

    def _search(
        self, kept: Terms, k: int, scope: Scope, within: Sequence[int] | None, *, anchors: bool
    ) -> list[Candidate]:
        match = match_expression(kept)
        if match is None:
            return []
        counted = statistics(self.database, scope)
        condition = scope_condition(self.database, scope)
        # The plus sign keeps SQLite from running MATCH once per row of the scope; the alias keeps bm25() out of FTS5's
        # own (slower) sort by rank.
        inside = f"AND +rowid IN (SELECT id FROM documents WHERE {condition.sql})" if condition.sql else ""
        bindings = [*condition.bindings]
        if within is not None:
            inside += f" AND {_AMONG}"
            bindings.append(_id_list(within))
        rows = self.database.rows(
            _ranking_sql(inside, "LIMIT ?"), (match, *bindings, k if counted is None else max(k, CANDIDATES))
        )
        found = [Candidate(document_id, score) for document_id, score in rows]
        if counted is not None:
            found = rescore(self.database, kept, found, counted, FIELD_WEIGHTS)
        if anchors:
            found = self._add_anchors(kept, found, match, counted, condition)
        return found[:k]

    def document_frequencies(self, terms: Terms, scope: Scope = Scope()) -> list[int]:
        """See `IndexReader`; for a term in no document, the number of documents with it in the texts of their links."""
        counted = statistics(self.database, scope)
        return [
            count_matches(self.database, counted, term.fts)
            or count_matches(self.database, counted, term.fts, "anchors")
            for term in terms
        ]

    def terms_from(self, start: str, limit: int) -> list[str]:
        rows = "SELECT term, doc FROM vocabulary WHERE term >= ? AND term < ? LIMIT ?"
        bounds = (start, start[:-1] + chr(ord(start[-1]) + 1), limit)
        return [term for term, _ in self.database.rows(f"SELECT * FROM ({rows}) ORDER BY doc DESC, term", bounds)]

    def prune_common_terms(self, terms: Terms, scope: Scope = Scope()) -> list[LexicalTerm]:
        """Drop optional terms that are expensive and uninformative, as long as a rarer optional term remains."""
        total = self.count_documents(scope)
        optional = [term for term in terms if not term.required and not term.excluded]
        if total < PRUNE_FROM_DOCUMENTS or len(optional) < 2:
            return list(terms)
        frequencies = dict(zip(optional, self.document_frequencies(optional, scope), strict=True))
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

    def _add_anchors(
        self, terms: Terms, found: list[Candidate], match: str, counted: Statistics | None, condition: SqlCondition
    ) -> list[Candidate]:
        """Return `found`, the best by their own words, rescored with anchors, and the best by anchors alone."""
        anchored = score_anchors(self.database, terms, counted, condition)
        if not anchored:
            return found
        scores = {candidate.document_id: candidate.score for candidate in found}
        best = sort_candidates(Candidate(*one) for one in anchored.items() if one[0] not in scores)[:ANCHOR_CANDIDATES]
        if best:
            others = _id_list([candidate.document_id for candidate in best])
            own = [Candidate(*row) for row in self.database.rows(_ranking_sql(f"AND {_AMONG}", ""), (match, others))]
            if counted is not None:
                own = rescore(self.database, terms, own, counted, FIELD_WEIGHTS)
            # Required words must be in the document itself, excluded ones must not.
            if not any(term.required or term.excluded for term in terms):
                scores |= {candidate.document_id: 0.0 for candidate in best}
            scores |= {candidate.document_id: candidate.score for candidate in own}
        return sort_candidates(
            Candidate(document_id, score + ANCHOR_WEIGHT * anchored.get(document_id, 0.0))
            for document_id, score in scores.items()
        )


def _id_list(ids: Sequence[int]) -> str:
    return f"[{','.join(map(str, ids))}]"


def _ranking_sql(inside: str, limit: str) -> str:
    weights = ", ".join(map(str, FIELD_WEIGHTS))
    return (
        f"SELECT rowid, -bm25(terms, {weights}) AS score FROM terms WHERE terms MATCH ? {inside} "
        f"ORDER BY score DESC, rowid {limit}"
    )


def match_expression(terms: Terms) -> str | None:
    """Return the FTS5 expression of a set of terms; None without a positive term."""
    required = _join("AND", (term for term in terms if term.required and not term.excluded))
    optional = _join("OR", (term for term in terms if not term.required and not term.excluded))
    excluded = _join("OR", (term for term in terms if term.excluded))
    # Optional terms raise the score of documents selected by the required ones, without selecting any themselves.
    # Repeating the required ones keeps documents without optional terms.
    positive = f"{required} AND ({optional} OR ({required}))" if required and optional else required or optional
    return f"({positive}) NOT ({excluded})" if positive and excluded else positive or None


def _join(operator: str, terms: Iterable[LexicalTerm]) -> str:
    return f" {operator} ".join(f"({term.fts})" for term in terms)
