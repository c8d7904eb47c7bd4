"""The index: documents, terms and vectors come in, rankings and texts go out.

Everything lives in one SQLite file that any number of readers and one writer share; no other package knows SQL.
It must not know how text is parsed, analysed or embedded, nor what becomes of a ranking.
"""

from __future__ import annotations

from qmd.store.connection import DamagedIndexError, ForeignIndexError
from qmd.store.documents import pack_text
from qmd.store.index import IndexReader, IndexWriter
from qmd.store.opening import open_reader, open_writer

__all__ = [
    "DamagedIndexError",
    "ForeignIndexError",
    "IndexReader",
    "IndexWriter",
    "open_reader",
    "open_writer",
    "pack_text",
]
