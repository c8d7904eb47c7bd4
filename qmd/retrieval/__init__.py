"""A query, an open index and the loaded engines come in; ranked hits with calibrated relevance and passages go out.

Also here: finding single documents by docid, URI, path or pattern, and the user's notes that apply to them.
It must not know SQL, model files, terminals or protocols.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from qmd.lazy import lazy_names

if TYPE_CHECKING:
    from qmd.retrieval.lookup import (
        LineRange,
        Problem,
        Resolution,
        context_for,
        parse_line_range,
        resolve_document,
        resolve_many,
    )
    from qmd.retrieval.options import SearchOptions
    from qmd.retrieval.pipeline import search
    from qmd.retrieval.query_parser import build_scope, parse_query, validate_subqueries

__all__ = [
    "LineRange",
    "Problem",
    "Resolution",
    "SearchOptions",
    "build_scope",
    "context_for",
    "parse_line_range",
    "parse_query",
    "resolve_document",
    "resolve_many",
    "search",
    "validate_subqueries",
]

_HOMES = {
    "SearchOptions": "options",
    "search": "pipeline",
    "parse_query": "query_parser",
    "build_scope": "query_parser",
    "validate_subqueries": "query_parser",
}


# `get` must not pay for the pipeline, nor `search` for the lookup.
__getattr__ = lazy_names(__name__, __all__, _HOMES, "lookup")
