"""A path and a configuration, or nothing at all, come in; a `Store` that searches, reads and indexes goes out.

The Python form of what the command line and the servers do, over the same functions and records.
It must not know terminals or protocols, and importing it must cost next to nothing.
"""

from __future__ import annotations

from qmd.api.opening import default_index_path, open_store
from qmd.api.records import ContextNote, DocumentText, DocumentTexts, IndexHealth, SkippedDocument
from qmd.api.store import Store

__all__ = [
    "ContextNote",
    "DocumentText",
    "DocumentTexts",
    "IndexHealth",
    "SkippedDocument",
    "Store",
    "default_index_path",
    "open_store",
]
