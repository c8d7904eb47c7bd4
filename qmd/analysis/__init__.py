"""Documents and query texts come in; the strings that full-text search indexes and the terms it is asked for go out.

Index and query go through the same normalisation, so what one writes the other finds.
It must not know the index, its tables or how terms are weighted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from qmd.lazy import lazy_names

if TYPE_CHECKING:
    from qmd.analysis.index import analyze_document, analyze_text
    from qmd.analysis.query import analyze_query, has_user_operators, is_identifier_like, parse_lex, prefix_form
    from qmd.analysis.scripts import cjk_share, has_cjk

__all__ = [
    "ANALYSIS_VERSION",
    "analyze_document",
    "analyze_query",
    "analyze_text",
    "cjk_share",
    "has_cjk",
    "has_user_operators",
    "is_identifier_like",
    "parse_lex",
    "prefix_form",
]

ANALYSIS_VERSION = 2
"""To be raised with every change of what `analyze_document` makes of a file, or of the headings that it is given: the
next update then analyses the files again that an older version indexed."""
_HOMES = {"cjk_share": "scripts", "has_cjk": "scripts", "analyze_document": "index", "analyze_text": "index"}


# The versions are asked for by updates that analyse nothing.
__getattr__ = lazy_names(__name__, __all__, _HOMES, "query")
