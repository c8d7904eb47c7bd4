"""BM25 with the statistics of some collections alone, so that other collections cannot change their results.

FTS5's own `bm25()` counts documents, lengths and frequencies over the whole table. It still chooses the candidates,
which are then scored again here.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

import apsw
from msgspec import Struct, field

from qmd.records import Candidate, Scope
from qmd.store.records import Terms, sort_candidates
from qmd.store.sqlite.connection import Database
from qmd.store.sqlite.documents import SqlCondition

CANDIDATES = 300
"""Candidates that are at least scored again: a result that the whole table ranks lower is out of reach."""

MAX_DOCUMENTS = 50_000
"""Largest scope whose documents are counted; larger ones (about 100 ms more) use the whole table's statistics."""

K1 = 1.2
B = 0.75
"""FTS5's own constants: saturation of a term's frequency, influence of a document's length."""

ANCHOR_TOKENS = 8.0
"""Usual length of anchors; a constant, because the content of other collections must not matter."""

LEAST_IDF = 1e-6
"""FTS5's own floor, for terms in more than half of the documents."""

_IN_SCOPE = "qmd_in_scope"
_FREQUENCIES = "qmd_frequencies"
_PHRASE = re.compile(r'"[^"]*"\*?')


class Statistics(Struct, frozen=True):
    """BM25 statistics of some collections.

    Attributes:
        ids: Their documents.
        mean_tokens: Mean length of these, all columns together.
        version: State of the index at the time of counting.
        frequencies: (table, expression) → number of these documents that match it, as far as requested.
    """

    ids: frozenset[int]
    mean_tokens: float
    version: tuple[int, int]
    frequencies: dict[tuple[str, str], int] = field(default_factory=dict)


def statistics(database: Database, scope: Scope) -> Statistics | None:
    """Return counts of the scope's collections; None if the whole table's are equal or must suffice."""
    names = scope.collections
    if names is None:
        return None
    version = database.state()
    known: Statistics | None = database.statistics.get(names)
    if known is None or known.version != version:
        known = _count(database, names, version)
        database.statistics[names] = known
    return known if len(known.ids) < min(count_all(database), MAX_DOCUMENTS + 1) else None


def count_all(database: Database) -> int:
    """Count the documents: SQLite steps through pages, not rows (0.03 ms for 20,000), so no cache is needed."""
    return int(database.value("SELECT count(*) FROM documents"))


def count_matches(database: Database, counted: Statistics | None, expression: str, table: str = "terms") -> int:
    """Count the documents in scope, or all with None, that match an FTS5 expression in a table."""
    sql = f"SELECT count(*) FROM {table} WHERE {table} MATCH ?"
    if counted is None:
        return int(database.value(sql, (expression,)))
    known = counted.frequencies.get((table, expression))
    if known is None:
        database.connection.create_scalar_function(_IN_SCOPE, lambda *values: values[0] in counted.ids, 1)
        known = int(database.value(f"{sql} AND {_IN_SCOPE}(rowid)", (expression,)))
        counted.frequencies[table, expression] = known
    return known


def rescore(
    database: Database, terms: Terms, candidates: Sequence[Candidate], counted: Statistics, weights: Sequence[float]
) -> list[Candidate]:
    """Score `candidates` by BM25 with the statistics of a scope, best first; ties by id.

    Args:
        database: The index.
        terms: The query's terms; excluded ones do not count.
        candidates: Documents that match.
        counted: The scope's statistics.
        weights: BM25 weight of each column.
    """
    phrases = _count_phrases(terms)
    idfs = [times * _idf(count_matches(database, counted, one), len(counted.ids)) for one, times in phrases.items()]
    _register_frequencies(database.connection, weights)
    found = database.rows(
        f"SELECT rowid, {_FREQUENCIES}(terms) FROM terms WHERE terms MATCH ?"
        " AND +rowid IN (SELECT value FROM json_each(?))",
        (" OR ".join(phrases), str([candidate.document_id for candidate in candidates])),
    )
    return sort_candidates(Candidate(one, _bm25(packed, idfs, counted.mean_tokens)) for one, packed in found)


def score_anchors(
    database: Database, terms: Terms, counted: Statistics | None, condition: SqlCondition
) -> dict[int, float]:
    """Score documents by BM25 of the texts of links to them, by id, times the square of the query's share found there.

    Terms have the weights of the documents' own texts. A link text is a name for its target, so one word of a long
    question means little: without the share, questions of many words lose more than names win.

    Args:
        database: The index.
        terms: The query's terms; excluded ones do not count.
        counted: The scope's statistics; None if the whole table's suffice.
        condition: The scope, as far as it is SQL.
    """
    phrases = _count_phrases(terms)
    _register_frequencies(database.connection, (1.0,))
    inside = f"AND +rowid IN (SELECT id FROM documents WHERE {condition.sql})" if condition.sql else ""
    found = database.rows(
        f"SELECT rowid, {_FREQUENCIES}(anchors) FROM anchors WHERE anchors MATCH ? {inside}",
        (" OR ".join(phrases), *condition.bindings),
    )
    if not found:
        return {}
    total = count_all(database) if counted is None else len(counted.ids)
    idfs = [times * _idf(count_matches(database, counted, one), total) for one, times in phrases.items()]
    total_weight = math.fsum(idfs)
    scores = {}
    for document_id, packed in found:
        _, *frequencies = packed.split(",")
        weight = math.fsum(idf for idf, f in zip(idfs, frequencies, strict=True) if float(f))
        scores[document_id] = _bm25(packed, idfs, ANCHOR_TOKENS) * (weight / total_weight) ** 2
    return scores


def _bm25(packed: str, idfs: Sequence[float], mean_tokens: float) -> float:
    length, *frequencies = map(float, packed.split(","))
    long = K1 * (1 - B + B * length / max(mean_tokens, 1.0))
    return math.fsum(idf * f * (K1 + 1) / (f + long) for idf, f in zip(idfs, frequencies, strict=True) if f)


def _count_phrases(terms: Terms) -> Counter[str]:
    """Return the scored phrases with their number in `match_expression`: FTS5 counts a repeated one twice."""
    required = [term for term in terms if term.required and not term.excluded]
    optional = [term for term in terms if not term.required and not term.excluded]
    named = [*required, *optional, *(required if optional else ())]
    return Counter(phrase for term in named for phrase in _PHRASE.findall(term.fts))


def _count(database: Database, names: Sequence[str], version: tuple[int, int]) -> Statistics:
    marks = ",".join("?" * len(names))
    ids = frozenset(row[0] for row in database.rows(f"SELECT id FROM documents WHERE collection IN ({marks})", names))
    if len(ids) > MAX_DOCUMENTS:
        return Statistics(ids, 0.0, version)
    sizes = database.rows(
        f"SELECT sz FROM documents JOIN terms_docsize USING (id) WHERE collection IN ({marks})", names
    )
    return Statistics(ids, sum(_sum_lengths(row[0]) for row in sizes) / max(len(ids), 1), version)


def _sum_lengths(sizes: bytes) -> int:
    """Sum the lengths of a document's columns, which FTS5 stores as big-endian numbers of seven bits a byte."""
    total = value = 0
    for byte in sizes:
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            total += value
            value = 0
    return total


def _idf(frequency: int, n_documents: int) -> float:
    return max(math.log((n_documents - frequency + 0.5) / (frequency + 0.5)), LEAST_IDF)


def _register_frequencies(connection: apsw.Connection, weights: Sequence[float]) -> None:
    """Register an SQL function of the current row: its length and each phrase's frequency over the weighted columns."""

    def frequencies(row: apsw.FTS5ExtensionApi, *_: object) -> str:
        found = [
            sum(weights[one] * len(row.phrase_column_offsets(phrase, one)) for one in row.phrase_columns(phrase))
            for phrase in range(row.phrase_count)
        ]
        return ",".join(map(str, (row.column_size(), *found)))

    connection.register_fts5_function(_FREQUENCIES, frequencies)
