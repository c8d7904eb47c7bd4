"""When a query is handed to the expander."""

from __future__ import annotations

from qmd.analysis import cjk_share, has_user_operators, is_identifier_like
from qmd.inference.base import Embedder
from qmd.records import Query, Ranking
from qmd.retrieval.options import SearchOptions

STRONG_COVERAGE = 0.999
"""Share of the query's term weight in the first document's title (in [0, 1]) from which nothing is left to expand."""

STRONG_GAP = 0.15
"""Lead of the first lexical score over the second, as a share of the first."""

CJK_SHARE = 0.3
"""Share of CJK letters above which an English-only model is not trusted with a query (measured on Chinese)."""


def skip_reason(
    query: Query, options: SearchOptions, embedder: Embedder | None, lexical: Ranking, title_coverage: float
) -> str | None:
    """Why the query is not expanded; None when it is to be.

    Args:
        query: Typed query documents are never expanded, whatever the options say: their author wrote the sub-queries.
        options: `expand` True skips every rule but that one; False forbids.
        embedder: Knows which scripts it was trained on.
        lexical: BM25 ranking of the original text.
        title_coverage: Weighted share of the query's terms in the title of the first lexical document, in [0, 1].
    """
    if query.subqueries:
        return "the query is typed"
    if options.expand is not None:
        return None if options.expand else "not wanted"
    if has_user_operators(query.text):
        return "the query uses operators"
    if is_identifier_like(query.text):
        return "the query is an identifier"
    if cjk_share(query.text) > CJK_SHARE and embedder is not None and embedder.query_trust(query.text) < 0.5:
        return "the embedding model does not know the query's script"
    if is_strong(lexical, title_coverage):
        return "strong lexical match"
    return None


def is_strong(lexical: Ranking, title_coverage: float) -> bool:
    """Whether one document answers literally: its title holds every term, and no other document comes near it."""
    candidates = lexical.candidates
    if not candidates or title_coverage < STRONG_COVERAGE:
        return False
    second = candidates[1].score if len(candidates) > 1 else 0.0
    return candidates[0].score - second >= STRONG_GAP * candidates[0].score
