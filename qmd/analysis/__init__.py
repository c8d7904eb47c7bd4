"""Normalised terms of documents and queries.

Comes in: documents and query texts. Goes out: the strings that full-text search indexes, and query terms in the same
normal form. Must not know the index, its tables or how terms are weighted.
"""

from __future__ import annotations

ANALYSIS_VERSION = 6
"""Raise this with every change of the output of `analyze_document` or of the headings that it receives: the next update
then analyses files again that an older version indexed."""

SIMILAR_VERSION = 5
"""Older version with the same output but for the documents of `index.is_analysed_otherwise`."""
