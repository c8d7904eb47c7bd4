"""Folders and raw bytes come in; file lists and parsed documents (title, headings, metadata) go out.

It must not know the index, the models or the terms that search uses.
What it cannot take it says: a skipped path with a reason, a warning on the document, or `UnindexableFileError`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from qmd.lazy import lazy_names

if TYPE_CHECKING:
    from qmd.ingest.document import MAX_SIZE_BYTES, parse_document, read_document
    from qmd.ingest.errors import UnindexableFileError
    from qmd.ingest.globs import compile_globs, split_mask
    from qmd.ingest.scan import ScanResult, SkippedPath, scan_collection

__all__ = [
    "MAX_SIZE_BYTES",
    "ScanResult",
    "SkippedPath",
    "UnindexableFileError",
    "compile_globs",
    "parse_document",
    "read_document",
    "scan_collection",
    "split_mask",
]

_HOMES = {
    "ScanResult": "scan",
    "SkippedPath": "scan",
    "scan_collection": "scan",
    "UnindexableFileError": "errors",
    "compile_globs": "globs",
    "split_mask": "globs",
}


# `multi-get` needs the globs and not the parsers.
__getattr__ = lazy_names(__name__, __all__, _HOMES, "document")
