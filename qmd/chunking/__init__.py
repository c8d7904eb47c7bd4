"""A document's text, headings or declarations, and token positions come in; chunks within a token budget go out.

Borders depend on the text near them alone, so an edit changes the chunks around it and no others.
It must not know files, models or the index.
"""

from __future__ import annotations

CHUNKING_VERSION = 3
"""To be raised with every change that moves a border: texts that were cut by another version are cut again."""
