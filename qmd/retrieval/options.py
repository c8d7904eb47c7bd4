"""What a caller may choose about one search."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Mode = Literal["lexical", "dense", "hybrid"]

CANDIDATES = 40
"""Fused candidates kept where a caller sets no other number."""

PASSAGE_CHARS = 500
"""Longest passage, in code points, where a caller sets no other length."""


class SearchOptions(Struct, frozen=True):
    """Choices of one search; the defaults are those of `qmd query`."""

    mode: Mode = "hybrid"
    limit: int = 10
    """Hits returned at most, >= 1."""
    min_relevance: float = 0.0
    """Hits below this calibrated relevance are left out, in [0, 1]."""
    rerank: bool = True
    """Whether the top of the fused ranking is reranked; never in mode `lexical`."""
    expand: bool | None = None
    """True forces expansion, False forbids it, None leaves it to the policy of `qmd.retrieval.expansion`."""
    candidate_limit: int = CANDIDATES
    """Fused candidates kept for what follows, at least `limit` of them."""
    rerank_depth: int | None = None
    """Candidates that the reranker sees; None leaves it to what the reranker costs (`qmd.retrieval.reranking`)."""
    budget_ms: int | None = None
    """Wall time for the whole query; stages are cut to hold it, and a warning says which."""
    strict: bool = False
    """Whether a model that fails ends the search instead of being left out with a warning: for measuring."""
    folds_copies: bool = True
    """Whether documents with one text are one hit; False for measuring, where judgements name each of them."""
    explain: bool = False
    full_body: bool = False
    snippet_chars: int = PASSAGE_CHARS
    """Longest passage text in code points."""
