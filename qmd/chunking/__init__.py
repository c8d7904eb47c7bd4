"""A document's text, headings or declarations, and token positions come in; chunks within a token budget go out.

Borders depend on the text near them alone, so an edit changes the chunks around it and no others.
It must not know files, models or the index.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from qmd.lazy import lazy_names

if TYPE_CHECKING:
    from qmd.chunking.declarations import Declaration, GrammarError, declared_headings, find_declarations
    from qmd.chunking.languages import has_grammar, language_of, suffix_of
    from qmd.chunking.split import OVERLAP_TOKENS, split_code, split_document

__all__ = [
    "CHUNKING_VERSION",
    "OVERLAP_TOKENS",
    "Declaration",
    "GrammarError",
    "declared_headings",
    "find_declarations",
    "has_grammar",
    "language_of",
    "split_code",
    "split_document",
    "suffix_of",
]

CHUNKING_VERSION = 2
"""To be raised with every change that moves a border: texts that were cut by another version are cut again."""

_HOMES = dict.fromkeys(("has_grammar", "language_of", "suffix_of"), "languages")
_HOMES |= dict.fromkeys(("Declaration", "GrammarError", "declared_headings", "find_declarations"), "declarations")


# A search needs only the name of a file's language.
__getattr__ = lazy_names(__name__, __all__, _HOMES, "split")
