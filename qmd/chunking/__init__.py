"""A document's text, headings and token positions come in; chunks within a token budget go out.

Borders depend on the text near them alone, so an edit changes the chunks around it and no others.
It must not know files, models or the index.
"""

from qmd.chunking.split import OVERLAP_TOKENS, split_document
from qmd.chunking.tokens import regex_token_starts

__all__ = ["OVERLAP_TOKENS", "regex_token_starts", "split_document"]
