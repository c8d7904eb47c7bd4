"""Full-text columns of a document."""

from __future__ import annotations

import re

from qmd.analysis.identifiers import camel_words, identifier_parts, symbol_terms
from qmd.analysis.note_names import note_names
from qmd.analysis.scripts import analyze_text
from qmd.analysis.stopwords import LANGUAGE_MARK, LANGUAGES, STEMMED, language_of_words
from qmd.records import Document, IndexTerms

_BEGINNING, _SIGNS = 1_000, 3
"""Code points of a text that decide its language, at a hundredth of its indexing cost, and the fewest matches."""


def analyze_document(document: Document) -> IndexTerms:
    """Return the FTS5 columns of `document`.

    `title` contains all names of the note. `body` is the whole text, front matter included: its keywords and
    descriptions are written to be found. ASCII text passes unchanged. `extra` contains each derived term once, among
    them the dates that the note names, and its language if that is not English.
    """
    path, text = document.path, document.text
    names = "\n".join(note_names(document))
    derived = f"{path}\n{names}\n{text}"
    language = _language_of(text)
    marks = [f"{LANGUAGE_MARK}{language}0"] if language in LANGUAGES else []
    parts = [part for word in camel_words(derived) for part in identifier_parts(word) if len(part) > 1]
    if document.dates:
        from qmd.analysis.dates import date_terms

        parts += date_terms(document.dates)
    return IndexTerms(
        title=analyze_text(names),
        headings=analyze_text("\n".join([heading.text for heading in document.headings])),
        path=analyze_text(path),
        body=analyze_text(text),
        extra=" ".join(dict.fromkeys([*symbol_terms(derived), *parts, *marks])),
    )


def is_analysed_otherwise(path: str, text: str) -> bool:
    """Return whether version 5, which knew only languages with stop words and pairs of CJK, gave other terms."""
    new = "[\u0e01-\u0fbc\u1000-\u109f\u1780-\u17dd\ua000-\ua3ff\uaa60-\uaa7f]"
    return _language_of(text) in LANGUAGES.keys() - STEMMED or re.search(new, path + text) is not None


def _language_of(text: str) -> str | None:
    return language_of_words(text[:_BEGINNING].lower().split(), _SIGNS)
