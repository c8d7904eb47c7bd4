"""Chunks of documents within a token budget.

Comes in: a document's text, headings or declarations, and token positions. Goes out: chunks whose borders depend only
on nearby text, so an edit changes the chunks around it and no others. Must not know files, models or the index.
"""

from __future__ import annotations

CHUNKING_VERSION = 3
"""Raise this with every change that moves a border: texts cut by another version are cut again."""
