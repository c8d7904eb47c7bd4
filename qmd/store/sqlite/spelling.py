"""Indexed words with a spelling like that of a missing one."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from qmd.analysis.distance import LONG_WORD, edit_distance, front_distance, other_starts
from qmd.records import LexicalTerm, Scope
from qmd.store.sqlite.connection import Database
from qmd.store.sqlite.lexical import Lexical
from qmd.store.sqlite.schema import indexed_form

STEMS = 8
"""Nearest stems whose written words are looked for."""

LONG_STEM = 5
"""Fewest letters of a stem that is recognisable without its ending: if documents only have `aggressively`,
`agressive` means that."""

LONGER_ENDING = 2
"""Further edits allowed for the ending of such a word."""

DOCUMENTS = 60
"""Documents that are read for the written words of one stem."""

CHARACTERS = 60_000
"""Characters of them, about 2 ms; the last document may be longer."""

_MARKS = "[\u0300-\u036f]*"
"""Accents of a letter, which the index lacks."""


class _NearStem(Struct, frozen=True, order=True):
    """An indexed stem that may be that of the intended word; the likeliest comes first."""

    distance: int
    length_difference: int
    minus_frequency: int
    stem: str


class _WrittenWord(Struct, frozen=True, order=True):
    """A word as a document writes it, and its distance from the requested one; the likeliest comes first."""

    distance: int
    minus_frequency: int
    word: str


def similar_terms(reader: Lexical, term: str, limit: int, scope: Scope) -> list[str]:
    """Return the words of documents in the scope's collections nearest to `term`, the most frequent first.

    They are one edit away; if there are none, a single word two edits away, for a long `term`. The index contains
    stems, which are not words: documents are searched for their written forms, and these are compared.
    """
    if len(word := indexed_form(term, stemmed=False)) < 3:
        return []
    found = _nearest_words(reader, word, [word[0]], 1 if len(word) < LONG_WORD else 2, scope)
    if not found and word.isascii():
        found = _nearest_words(reader, word, other_starts(word), 1, scope)
    nearest = [one for one in found if one.distance == found[0].distance]
    if len(nearest) > 1 and nearest[0].distance > 1:
        return []
    return [one.word for one in nearest[:limit]]


def _nearest_words(reader: Lexical, word: str, starts: Iterable[str], allowed: int, scope: Scope) -> list[_WrittenWord]:
    """Return written words near `word` whose stems have one of these beginnings, the nearest first."""
    own = indexed_form(word)
    found: list[_WrittenWord] = []
    for near in _near_stems(reader.database, word, own, starts, allowed)[:STEMS]:
        if (written := _find_written(reader, near, word)) is None:
            continue
        if written.distance <= allowed:
            found.append(written)
        elif _shares_stem(own, near.stem) and written.distance <= allowed + LONGER_ENDING:
            found.append(replace(written, distance=allowed + 1))
    if scope.collections is not None:
        # Other collections must not decide between two words of this scope.
        frequencies = reader.document_frequencies([LexicalTerm(one.word, f'"{one.word}"') for one in found], scope)
        found = [replace(one, minus_frequency=-n) for one, n in zip(found, frequencies, strict=True) if n]
    return sorted(found)


def _shares_stem(own: str, stem: str) -> bool:
    """Return whether two stems are so long and so near that they are one with a typing error in it."""
    return len(stem) >= LONG_STEM and own[:1] == stem[0] and edit_distance(own, stem, 1) == 1


def _near_stems(database: Database, word: str, own: str, starts: Iterable[str], allowed: int) -> list[_NearStem]:
    """Return stems with one of these beginnings that are near the front of the word, whose stem is `own`."""
    # Numbered codes are as many as words, and no one means another one of them.
    digits = "" if any(map(str.isdigit, word)) else "AND term NOT GLOB '*[0-9]*'"
    sql = f"SELECT term, doc FROM vocabulary WHERE term >= ? AND term < ? AND length(term) BETWEEN ? AND ? {digits}"
    letters = frozenset(word)
    near: list[_NearStem] = []
    for start in sorted(starts):
        bounds = (start, start[:-1] + chr(ord(start[-1]) + 1), 2, len(word) + allowed)
        for stem, frequency in database.rows(sql, bounds):
            front = _common_front(stem)
            # Each letter that one of them lacks costs an edit: this avoids the table for nearly all stems.
            if len(letters.union(front)) - len(letters) > allowed:
                continue
            if len(set(word[: len(front) - allowed]).difference(front)) > allowed:
                continue
            if (distance := front_distance(front, word, allowed)) <= allowed:
                near.append(_NearStem(distance, abs(len(stem) - len(own)), -frequency, stem))
    return sorted(near)


def _common_front(stem: str) -> str:
    """Return the common beginning of a stem's words: `happy` has stem `happi`, `hoping` has `hope`."""
    return stem[:-1] if stem[-1] in "ie" and len(stem) > 3 else stem


def _find_written(reader: Lexical, near: _NearStem, word: str) -> _WrittenWord | None:
    """Return the word in a document nearest to `word` with this stem; None if there is none."""
    best: _WrittenWord | None = None
    seen: set[str] = set()
    front = _MARKS.join(map(re.escape, unicodedata.normalize("NFD", _common_front(near.stem))))
    pattern = re.compile(rf"{front}(?:[^\W_]|[\u0300-\u036f])*")
    for text in _read_texts(reader, near.stem):
        for match in pattern.finditer(text):
            form = match[0]
            if form in seen or text[match.start() - 1].isalnum():
                continue
            seen.add(form)
            # Terms of split words, such as names in code, occur in no text by themselves.
            if indexed_form(form) == near.stem:
                distance = edit_distance(word, indexed_form(form, stemmed=False), len(word))
                if best is None or distance < best.distance:
                    best = _WrittenWord(distance, near.minus_frequency, unicodedata.normalize("NFC", form))
        if best is not None and best.distance <= 1:
            break
    return best


def _read_texts(reader: Lexical, stem: str) -> Iterator[str]:
    """Yield title, path and text of documents with a term, in lower case, accents apart from their letters."""
    reader.database.run("CREATE VIRTUAL TABLE IF NOT EXISTS temp.places USING fts5vocab (main, terms, instance)")
    places = reader.database.rows(
        "SELECT hash, title, path, n_chars FROM documents"
        " WHERE id IN (SELECT DISTINCT doc FROM temp.places WHERE term = ? LIMIT ?) ORDER BY n_chars",
        (stem, DOCUMENTS),
    )
    n_characters = 0
    for hash_, title, path, n_chars in places:
        text = f" {title} {path} {reader.texts([hash_]).get(hash_, '')}".lower()
        yield text if text.isascii() else unicodedata.normalize("NFD", text)
        n_characters += n_chars
        if n_characters > CHARACTERS:
            return
