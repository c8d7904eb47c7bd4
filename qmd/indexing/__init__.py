"""Collections come in; an index that equals the files on disk, with vectors for every text, goes out.

This is the whole write path: `update_collection` for documents and terms, `embed_pending` for vectors, both resumable.
It must not know SQL, a model's inside, or how results are searched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from qmd.lazy import lazy_names

if TYPE_CHECKING:
    from qmd.indexing.embed import EmbedReport, embed_pending
    from qmd.indexing.makers import forget_outdated_chunks
    from qmd.indexing.update import UpdateReport, update_collection

__all__ = ["EmbedReport", "UpdateReport", "embed_pending", "forget_outdated_chunks", "update_collection"]

_HOMES = {"UpdateReport": "update", "update_collection": "update", "forget_outdated_chunks": "makers"}


# An update that finds nothing new needs no chunker.
__getattr__ = lazy_names(__name__, __all__, _HOMES, "embed")
