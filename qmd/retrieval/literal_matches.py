"""Literal matches: documents with the words exactly as typed come before those with other forms of the words.

The index stores stems, so a note about `adherent` points is found for `adherence`, too; its text shows the form.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice

from msgspec.structs import replace

from qmd.batching import batches
from qmd.records import LexicalTerm, Scope
from qmd.retrieval.fusion import FusedCandidate
from qmd.retrieval.lexical import LexicalQuery
from qmd.retrieval.matching import WINDOW_CHARS, Occurrence, WeightedTerm, coverage, fold, header_lines, typed_pattern
from qmd.store.base import IndexReader

LITERAL, WORDS = "literal", "words"
"""Source and kind of the contribution."""

MAX_WORDS = 3
"""Words up to which a query is matched literally; of a longer one, a question, only quoted phrases are."""

HEAD = 40
"""Best documents whose texts are always read; it takes a millisecond, five where notes are long."""

MAX_TEXTS = 10_000
"""Limit of the texts that are read while too few matches are found: a fifth of a second, where a rare word
(`communications`) has the stem of a very common one (`community`)."""

MAX_PLACES = 2_000
"""Limit for each word in a text."""

_BATCH = 200


def match_literal(
    reader: IndexReader, query: LexicalQuery, fused: Sequence[FusedCandidate], scope: Scope, min_found: int
) -> dict[int, str]:
    """Return the documents, by id, with every word as typed in one passage; for a longer text every quoted phrase.

    Names of a document count as the start of its text. Case, accents and width of letters are ignored.

    Args:
        query: Typed text with its terms.
        fused: The fused ranking; the texts of the best are read.
        min_found: Matches from which the other documents that contain the stems are not read.
    """
    typed = select_typed_terms(query.terms)
    if not typed:
        return {}
    wanted = [typed_pattern(term) for term in typed]
    required = _require_terms(query.terms, typed)
    matching = [one.document_id for one in reader.search_lexical(required, _BATCH, scope)]
    is_complete = len(matching) < _BATCH
    head = [one.document_id for one in fused[:HEAD] if not is_complete or one.document_id in matching]
    found = _select_containing(reader, head, wanted)
    if not is_complete and len(found) < min_found:
        matching = [one.document_id for one in reader.search_lexical(required, MAX_TEXTS, scope)]
    for ids in batches([number for number in matching if number not in head], _BATCH):
        if len(found) >= min_found:
            break
        found |= _select_containing(reader, ids, wanted)
    return found


def _require_terms(terms: Sequence[LexicalTerm], typed: Sequence[LexicalTerm]) -> list[LexicalTerm]:
    """Return the terms with the typed ones required, which select the documents with all their stems."""
    return [replace(term, required=True) if term in typed else term for term in terms if not term.is_part]


def _select_containing(reader: IndexReader, ids: Sequence[int], wanted: Sequence[re.Pattern[str]]) -> dict[int, str]:
    """Return the documents whose text or names contain every word."""
    documents = reader.documents(ids)
    texts = reader.texts([document.hash for document in documents.values()])
    found = {}
    for number, document in documents.items():
        text = header_lines(document) + texts.get(document.hash, "")
        if _are_adjacent(text.lower(), wanted) or (not text.isascii() and _are_adjacent(fold(text), wanted)):
            found[number] = WORDS
    return found


def select_typed_terms(terms: Sequence[LexicalTerm]) -> list[LexicalTerm]:
    """Return the words and phrases to match literally; empty where one is a prefix."""
    typed = [term for term in terms if not (term.excluded or term.is_part)]
    if len(typed) > MAX_WORDS:
        typed = [term for term in typed if term.required]
    return [] if any(term.fts.endswith("*") for term in typed) else typed


def _are_adjacent(text: str, wanted: Sequence[re.Pattern[str]]) -> bool:
    """Return whether a window of a text contains a match of every pattern."""
    if not all(pattern.search(text) for pattern in wanted):
        return False
    places = [
        Occurrence(match.start(), number)
        for number, pattern in enumerate(wanted)
        for match in islice(pattern.finditer(text), MAX_PLACES)
    ]
    places.sort(key=lambda place: place.offset)
    terms = [WeightedTerm(LexicalTerm(pattern.pattern, ""), 1.0) for pattern in wanted]
    return coverage(places, terms, WINDOW_CHARS) == 1.0
