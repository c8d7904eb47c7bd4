"""Name matches: documents whose name the query is, which come first whatever the rankings are."""

from __future__ import annotations

import re

from qmd.analysis.note_names import name_key
from qmd.analysis.scripts import analyze_text
from qmd.records import LexicalTerm, Scope
from qmd.store.base import IndexReader

NAME = "name"
"""Source of the contribution."""

MANY_NOTES = 20
"""Notes of one name (`index`) above which the name is no evidence."""

MANY_HEADINGS = 3
"""The same for a heading: above it a heading is a label (`Examples`)."""

MAX_WORDS = 20


def find_named(reader: IndexReader, text: str, scope: Scope) -> dict[int, str]:
    """Return the kind of match of each document, by id, whose name (file, title, alias) or, else, heading is the query.

    Each kind is a row of `qmd.retrieval.fusion.INFLUENCES`.
    """
    if not text.strip() or len(text.split()) > MAX_WORDS:
        return {}
    found = reader.find_named(name_key(text), scope, MANY_NOTES + 1)
    if found:
        return {one.document_id: one.kind for one in found} if len(found) <= MANY_NOTES else {}
    return dict.fromkeys(_find_by_heading(reader, text, scope), "heading")


def _find_by_heading(reader: IndexReader, text: str, scope: Scope) -> list[int]:
    words = re.findall(r"[^\W_]+", analyze_text(text))
    if not words:
        return []
    heading = LexicalTerm(text, f'headings : "{" ".join(words)}"')
    candidates = reader.search_lexical([heading], 4 * MANY_HEADINGS, scope)
    documents = reader.documents([candidate.document_id for candidate in candidates])
    if not documents:
        return []
    from qmd.ingest.outline import kind_of, read_outline

    key = name_key(text)
    texts = reader.texts([document.hash for document in documents.values()])
    found = []
    for document in documents.values():
        headings = read_outline(kind_of(document.path), texts.get(document.hash, "")).headings
        if any(name_key(heading.text) == key for heading in headings):
            found.append(document.id)
    return found if len(found) <= MANY_HEADINGS else []
