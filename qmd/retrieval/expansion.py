"""When a query is handed to the expander."""

from __future__ import annotations

from qmd.analysis.query import has_user_operators, is_identifier_like
from qmd.analysis.scripts import cjk_share
from qmd.inference.base import Embedder
from qmd.records import Query, Ranking
from qmd.retrieval.options import SearchOptions

STRONG_COVERAGE = 0.999
"""Share of the query's term weight in the first document's title (in [0, 1]) from which nothing is left to expand."""

STRONG_GAP = 0.15
"""Lead of the first lexical score over the second, as a share of the first."""

CJK_SHARE = 0.3
"""Share of CJK letters above which an English-only model is not trusted with a query (measured on Chinese)."""


def should_expand(
    query: Query, options: SearchOptions, embedder: Embedder | None, lexical: Ranking, title_coverage: float
) -> bool:
    """Whether a plain query is handed to the expander.

    Not when it uses operators or is an identifier, which mean what they say; not in a script that the embedding model
    does not know; and not when one document answers literally.

    Args:
        query: The query.
        options: `expand` True skips every rule; False forbids.
        embedder: Knows which scripts it was trained on.
        lexical: BM25 ranking of the original text.
        title_coverage: Weighted share of the query's terms in the title of the first lexical document, in [0, 1].
    """
    if options.expand is not None:
        return options.expand
    if has_user_operators(query.text) or is_identifier_like(query.text):
        return False
    if cjk_share(query.text) > CJK_SHARE and embedder is not None and embedder.query_trust(query.text) < 0.5:
        return False
    # One document answers literally when its title holds every term, and no other document comes near it.
    candidates = lexical.candidates
    if not candidates or title_coverage < STRONG_COVERAGE:
        return True
    second = candidates[1].score if len(candidates) > 1 else 0.0
    return candidates[0].score - second < STRONG_GAP * candidates[0].score
