"""BM25 in LanceDB's inverted index, document frequencies, and a table of words, as LanceDB does not list its own.

Words are added and never removed: each is checked by a full-text query before use.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from uuid import uuid4

from lancedb.query import BooleanQuery, FullTextQuery, MatchQuery, Occur, PhraseQuery

from qmd.analysis.distance import LONG_WORD, edit_distance, other_starts
from qmd.analysis.scripts import without_accents
from qmd.plugins.lance.documents import Documents, of_collections
from qmd.plugins.lance.scope import scope_condition
from qmd.plugins.lance.tables import OpenTables, Row, Tables, both, is_in, literal
from qmd.records import Candidate, LexicalTerm, Scope
from qmd.store.records import ANCHOR_CANDIDATES, ANCHOR_WEIGHT, Terms, sort_candidates

_PHRASE = re.compile(r'"([^"]*)"(\*?)')

_WORD = re.compile(r"[^\W_]+")

_LONGEST = 64
"""Longest stored word in letters; longer ones are codes that no one types."""

PREFIX_WORDS = 200
"""Most words that replace a prefix: the shortest ones."""


class Lexical(Documents):
    """Read methods for lexical search."""

    def search_lexical(
        self, terms: Terms, k: int, scope: Scope, *, within: Sequence[int] | None = None, anchors: bool = False
    ) -> list[Candidate]:
        tables = self._tables
        query = _query(tables, terms, "terms")
        if query is None or k <= 0 or scope.collections == ():
            return []
        where = both(scope_condition(tables, scope), "" if within is None else is_in("id", within))
        found = _scores(tables.match(query, k, where).to_pylist())
        if anchors:
            anchored = _score_anchors(tables, terms, scope_condition(tables, scope))
            others = [document_id for document_id in anchored if document_id not in found][:ANCHOR_CANDIDATES]
            # Required words must be in the document itself, excluded ones must not.
            if not any(term.required or term.excluded for term in terms):
                found |= dict.fromkeys(others, 0.0)
            found |= _scores(tables.match(query, len(others), is_in("id", others)).to_pylist())
            found = {one: score + ANCHOR_WEIGHT * anchored.get(one, 0.0) for one, score in found.items()}
        return sort_candidates(Candidate(*one) for one in found.items())[:k]

    def document_frequencies(self, terms: Terms, scope: Scope = Scope()) -> list[int]:
        tables = self._tables
        where = of_collections(scope.collections)
        return [_count(tables, term, "terms", where) or _count(tables, term, "anchors", where) for term in terms]

    def terms_from(self, start: str, limit: int) -> list[str]:
        return self._tables.once(("words", start), lambda: _expand_prefix(self._tables, start))[:limit]

    def similar_terms(self, term: str, limit: int = 5, scope: Scope = Scope()) -> list[str]:
        tables = self._tables
        where = of_collections(scope.collections)
        found = sorted(
            (distance, -frequency, word)
            for distance, word in _similar_words(tables, term)
            if (frequency := _count(tables, LexicalTerm(word, f'"{word}"'), "terms", where))
        )
        nearest = [word for distance, _, word in found if distance == found[0][0]]
        # Two edits lead from one word to many others: only a single match is unambiguous.
        return [] if len(nearest) > 1 and found[0][0] > 1 else nearest[:limit]


def add_words(tables: OpenTables, texts: Iterable[str]) -> None:
    found = {word for text in texts for word in _WORD.findall(text.lower())}
    if tables.words is None:
        tables.words = {row["word"] for row in tables.select("words", ("word",))}
    new = sorted(word for word in found - tables.words if len(word) <= _LONGEST)
    tables.words.update(new)
    tables.add("words", [{"key": without_accents(word), "word": word} for word in new])


def _scores(rows: Iterable[Row]) -> dict[int, float]:
    return {row["id"]: row["_score"] for row in rows}


def _count(tables: Tables, term: LexicalTerm, column: str, where: str) -> int:
    query, n, key = _term_query(tables, term.fts, column), tables.count("documents"), (column, term.fts, where)
    return 0 if query is None else tables.once(key, lambda: len(tables.match(query, n, where, ("_score",))))


def _score_anchors(tables: Tables, terms: Terms, where: str) -> dict[int, float]:
    """Score documents by BM25 of the texts of links to them, best first, times the square of the query's share there.

    A link text is a name for its target, so one word of a long question means little.
    """
    positive = [term for term in terms if not term.excluded]
    query = _any_of([one for term in positive if (one := _term_query(tables, term.fts, "anchors"))])
    table, n = tables.table("documents"), len(positive)
    if query is None or table is None:
        return {}
    if not (rows := tables.match(query, 2 * ANCHOR_CANDIDATES, where, ("id", "anchors", "_score")).to_pylist()):
        return {}
    # In one call, which takes as long as a few texts; no text contains the border.
    border = str(uuid4().int)
    texts = f" {border} ".join([*(term.fts for term in positive), *(row["anchors"] for row in rows)])
    with tables.connection.failing():
        words = " ".join(one.text for one in table.tokenize(texts, column="anchors"))
    found = [set(one.split()) for one in words.split(border)]
    scores = {
        row["id"]: row["_score"] * (sum(not one.isdisjoint(own) for own in found[:n]) / n) ** 2
        for row, one in zip(rows, found[n:], strict=True)
    }
    return dict(sorted(scores.items(), key=lambda one: (-one[1], one[0])))


def _query(tables: Tables, terms: Terms, column: str) -> FullTextQuery | None:
    """Return a query by all terms; None without a positive term, or if a required one can match nothing."""
    clauses: list[tuple[Occur, FullTextQuery]] = []
    for term in terms:
        if (made := _term_query(tables, term.fts, column)) is not None:
            occur = Occur.MUST_NOT if term.excluded else Occur.MUST if term.required else Occur.SHOULD
            clauses.append((occur, made))
        elif term.required and not term.excluded:
            return None
    return BooleanQuery(clauses) if any(occur != Occur.MUST_NOT for occur, _ in clauses) else None


def _term_query(tables: Tables, fts: str, column: str) -> FullTextQuery | None:
    """Return the query of a term: a word, a phrase, a prefix, or several of them; None if it can match nothing."""
    made: list[FullTextQuery] = []
    for words, star in _PHRASE.findall(fts):
        *before, last = words.split() or [""]
        endings = _expand_prefix(tables, last) if star and last else [last]
        kind = PhraseQuery if before else MatchQuery
        made += [kind(" ".join([*before, ending]), column) for ending in endings if ending]
    return _any_of(made)


def _any_of(queries: Sequence[FullTextQuery]) -> FullTextQuery | None:
    if len(queries) < 2:
        return queries[0] if queries else None
    return BooleanQuery([(Occur.SHOULD, one) for one in queries])


def _expand_prefix(tables: Tables, prefix: str) -> list[str]:
    """Return the indexed words with a prefix, the shortest first."""
    key = without_accents(prefix.lower())
    rows = tables.select("words", ("key", "word"), f"starts_with(key, {literal(key)})")
    rows.sort(key=lambda row: (len(row["key"]), row["word"]))
    return [row["word"] for row in rows[:PREFIX_WORDS]]


def _similar_words(tables: Tables, term: str) -> list[tuple[int, str]]:
    """Return (edits, word) of words one edit away from `term`; if there are none, two edits, for a long one."""
    key = without_accents(term.lower())
    if len(key) < 3 or not _WORD.fullmatch(key):
        return []
    found = _find_near(tables, key, [key[0]], 1 if len(key) < LONG_WORD else 2)
    return found or (_find_near(tables, key, other_starts(key), 1) if key.isascii() else [])


def _find_near(tables: Tables, key: str, starts: Iterable[str], allowed: int) -> list[tuple[int, str]]:
    begins = " OR ".join(f"starts_with(key, {literal(start)})" for start in sorted(starts))
    where = f"length(key) BETWEEN {len(key) - allowed} AND {len(key) + allowed} AND ({begins})"
    letters = frozenset(key)
    return sorted(
        (distance, str(row["word"]))
        for row in tables.select("words", ("key", "word"), where)
        if _is_near(row["key"], letters, allowed) and (distance := edit_distance(key, row["key"], allowed)) <= allowed
    )


def _is_near(word: str, letters: frozenset[str], allowed: int) -> bool:
    """Return whether a word can be near, by its letters alone; numbered codes are too many, and none means another."""
    if any(map(str.isdigit, word)):
        return any(map(str.isdigit, letters))
    return len(letters.union(word)) - len(letters) <= allowed
