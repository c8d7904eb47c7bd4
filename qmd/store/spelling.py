"""Words of the index that are spelled like one that it does not hold."""

from __future__ import annotations

import math
import re

from qmd.analysis.distance import edit_distance
from qmd.store.connection import Database
from qmd.store.documents import fetch_texts

_WORD = re.compile(r"[^\W_]+")


def similar_terms(database: Database, term: str, limit: int) -> list[str]:
    """Indexed words within edit distance 2 of `term` that share its first letter, likeliest first.

    The vocabulary holds stems, so both sides are compared as stems; what is given is a word as some document writes it.
    """
    meant = {form for form in (_stem(database, term), *_bare_forms(term)) if len(form) >= 3}
    if not meant:
        return []
    first = min(meant)[0]
    # One pass over the words of one letter; numbered codes are as many as words and nobody means another one of them.
    digits = "" if any(map(str.isdigit, term)) else "AND term NOT GLOB '*[0-9]*'"
    vocabulary = database.rows(
        f"SELECT term, doc FROM vocabulary WHERE term >= ? AND term < ? AND length(term) BETWEEN ? AND ? {digits}",
        (first, chr(ord(first) + 1), min(map(len, meant)) - 5, max(map(len, meant)) + 2),
    )
    near = [
        (distance, -frequency, candidate)
        for candidate, frequency in vocabulary
        if candidate not in meant and (distance := _distance_to_any(meant, candidate)) is not None
    ]
    # A much more frequent word at distance 2 beats a rare one at 1: the rare one is often another misspelling.
    near.sort(key=lambda item: (item[0] - math.log10(-item[1]), item[2]))
    return [_as_written(database, stem) for _, _, stem in near[:limit]]


def _as_written(database: Database, stem: str) -> str:
    """A word of a document that has this stem, or the stem where none is found.

    A stem is no word to show, and asking for it may find nothing: the stemmer makes `deci` of the stem `decis`.
    """
    # Terms of words that were taken apart, such as names in code, stand in no text by themselves.
    database.run("CREATE VIRTUAL TABLE IF NOT EXISTS temp.places USING fts5vocab (main, terms, instance)")
    place = database.rows(
        "SELECT d.hash, d.title, d.path FROM temp.places p JOIN documents d ON d.id = p.doc WHERE p.term = ? LIMIT 1",
        (stem,),
    )
    for hash_, title, path in place:
        text: str = f"{title} {path} {fetch_texts(database, [hash_]).get(hash_, '')}".lower()
        for word in dict.fromkeys(match[0] for match in _WORD.finditer(text)):
            if word[:2] == stem[:2] and _stem(database, word) == stem:
                return word
    return stem


def _distance_to_any(forms: set[str], candidate: str) -> int | None:
    """Edits to the nearest of `forms`; None when there are too many for its length."""
    letters = set(candidate)
    best: int | None = None
    for form in forms:
        allowed = 1 if len(form) < 5 else 2
        if len(candidate) >= 6 and len(form) - len(candidate) <= 5 and form.startswith(candidate):
            # A typing error in a long ending ("configuraton") leaves the stem whole at the front of the word.
            distance = 1
        elif abs(len(form) - len(candidate)) > allowed or len(letters.difference(form)) > allowed:
            # Each letter that the form lacks costs an edit: this spares the table for nearly all words.
            continue
        elif len(set(form) - letters) > allowed:
            continue
        else:
            distance = edit_distance(form, candidate, allowed)
        if distance <= allowed and (best is None or distance < best):
            best = distance
    return best


def _bare_forms(term: str) -> list[str]:
    """The word without a common ending: a typing error in front of it can keep the stemmer from taking it off."""
    folded = term.casefold()
    return [folded.removesuffix(ending) for ending in ("ing", "ed", "es", "s", "ion") if folded.endswith(ending)]


def _stem(database: Database, term: str) -> str:
    """The term as the index holds it; empty when it is not exactly one."""
    import apsw

    from qmd.store.schema import TOKENIZER

    name, *arguments = TOKENIZER.split()
    tokenize = database.connection.fts5_tokenizer(name, arguments)
    flags = {"include_offsets": False, "include_colocated": False}
    tokens = list(tokenize(term.encode(), apsw.FTS5_TOKENIZE_QUERY, None, **flags))
    return str(tokens[0]) if len(tokens) == 1 else ""
