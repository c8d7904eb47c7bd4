"""Documents and query texts come in; the strings that full-text search indexes and the terms it is asked for go out.

Index and query go through the same normalisation, so what one writes the other finds.
It must not know the index, its tables or how terms are weighted.
"""

from __future__ import annotations

ANALYSIS_VERSION = 5
"""To be raised with every change of what `analyze_document` makes of a file, or of the headings that it is given: the
next update then analyses the files again that an older version indexed."""
