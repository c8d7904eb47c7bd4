"""Collections come in; an index that equals the files on disk, with vectors for every text, goes out.

This is the whole write path: `update_collection` for documents and terms, `embed_pending` for vectors, both resumable.
It must not know SQL, a model's inside, or how results are searched.
"""

from qmd.indexing.embed import EmbedReport, embed_pending
from qmd.indexing.makers import forget_outdated_chunks
from qmd.indexing.update import UpdateReport, update_collection

__all__ = ["EmbedReport", "UpdateReport", "embed_pending", "forget_outdated_chunks", "update_collection"]
