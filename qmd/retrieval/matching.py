"""Matching: occurrences of query terms in a text, for passages, coverage and display, not for ranking."""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice

from msgspec import Struct

from qmd.analysis.scripts import has_unspaced, marks_as_letters, normal_form, without_latin_accents, without_unspaced
from qmd.note_names import aliases_of
from qmd.records import LexicalTerm, StoredDocument
from qmd.store.sqlite.schema import indexed_form

_QUOTED = re.compile(r'"([^"]*)"(\*?)')
_MAX_OCCURRENCES = 20_000
"""Limit of occurrences; a text of ten megabytes can have millions, and a search would take ten seconds."""

WINDOW_CHARS = 400
"""Window (code points) in which terms count as close together; about four lines of prose."""

PRIOR_DOCUMENTS = 50
"""Documents of other people added to the size of every collection: in two notes, a word of both would else be as common
as a stop word. No visible effect above some thousand documents."""

MAX_SPANS = 2_000
"""Limit for each spelling of a term: more than a screen shows; a text of ten megabytes has many more."""

_PIECE = r"[\0-\x7f]+|[^\0-\x7f]{1,64}"
"""ASCII, whose length folding keeps, or a few of the characters whose length may change."""

_CHANGED_ENDING = r"(?<=\w)[eil]\b"
"""Last letter of a stem that its words may lack: `hope` in `hoping`, `happi` in `happy`, `probabl` in `probability`."""

_BEYOND_ASCII = r"[^\0-\x7f]+(?:[\0-\x7f]{1,8}[^\0-\x7f]+)*"
"""Stretches with other characters than ASCII, not split at each word of a language that uses them."""


class WeightedTerm(Struct, frozen=True):
    """A query term and its weight: the inverse document frequency, 0 for a form that adds nothing."""

    term: LexicalTerm
    weight: float


class Occurrence(Struct, frozen=True):
    """An occurrence of a term: `offset` in code points of the folded text, `term` the index of the term."""

    offset: int
    term: int


class MatchedText(Struct, frozen=True):
    """A folded text with the occurrences of a query's terms; its first `lines_before` lines are not the text's own."""

    folded: str
    occurrences: Sequence[Occurrence]
    lines_before: int = 0


def weigh_terms(terms: Sequence[LexicalTerm], frequencies: Sequence[int], n_documents: int) -> list[WeightedTerm]:
    """Return the terms with their `inverse_frequency`, without excluded terms.

    A term without documents weighs most: missing words are the mark of a nonsense query. Phrases of a compound word and
    character groups, many of which cross a word border, weigh nothing then, because their parts are terms as well.
    """
    weighed = []
    for term, frequency in zip(terms, frequencies, strict=True):
        if term.excluded:
            continue
        derived = not term.required and (" " in term.fts or has_unspaced(term.fts))
        weight = inverse_frequency(frequency, n_documents)
        weighed.append(WeightedTerm(term, 0.0 if frequency == 0 and derived else weight))
    return weighed


def inverse_frequency(frequency: int, n_documents: int) -> float:
    """Return log((N + P + 1) / (df + 0.5)) with P `PRIOR_DOCUMENTS`, at least 0.05, so that some term counts."""
    return max(math.log((n_documents + PRIOR_DOCUMENTS + 1.0) / (min(frequency, n_documents) + 0.5)), 0.05)


def fold(text: str) -> str:
    """Return `text` as full-text search compares it, in lower case without accents; lines keep their places."""
    if text.isascii():
        return text.lower()
    # Most texts have a few such stretches, and folding takes ten times as long as looking for them.
    return re.sub(_BEYOND_ASCII, _fold_stretch, text.lower())


def _fold_stretch(match: re.Match[str]) -> str:
    plain = without_latin_accents(normal_form("NFKC", match[0]).casefold().replace("\u00ad", ""))
    return marks_as_letters(plain)


_fold_term = lru_cache(maxsize=1 << 10)(fold)


def find_occurrences(folded: str, terms: Sequence[WeightedTerm]) -> list[Occurrence]:
    """Return every occurrence of the terms in a folded text, by offset; at most 20,000 for each spelling."""
    spaced = folded if folded.isascii() else without_unspaced(folded)
    found = [
        Occurrence(start, number)
        for number, weighted in enumerate(terms)
        for spans in _find_spellings(folded, spaced, weighted.term)
        for start, _ in islice(spans, _MAX_OCCURRENCES)
    ]
    found.sort(key=lambda occurrence: (occurrence.offset, occurrence.term))
    return found


def _find_spellings(folded: str, spaced: str, term: LexicalTerm) -> Iterator[Iterator[tuple[int, int]]]:
    """Yield for each spelling of a term its spans in a folded text; `spaced` is the text `without_unspaced`."""
    name = _fold_term(term.text)
    # A name with symbols (`C++`) is one word in the index, but not in a text.
    if name and not re.fullmatch(r"[\w\s]*", name):
        border = r"(?!\w)" if name[-1].isalnum() else ""
        yield (match.span() for match in re.finditer(rf"(?<!\w){re.escape(name)}{border}", folded))
    for text, star in _QUOTED.findall(term.fts):
        if has_unspaced(text):
            runs = map(re.escape, re.findall(r"[^\W_]+", name) or [name])
            yield (match.span() for match in re.finditer(r"[\W_]*".join(runs), folded))
        elif words := tuple(fold(text).split()):
            yield _find_words(spaced, words, bool(star))


def typed_pattern(term: LexicalTerm) -> re.Pattern[str]:
    """Return a pattern for a term in a folded text as it was typed, between borders of words; `C++` with symbols."""
    wanted = _fold_term(term.text)
    is_plain = re.fullmatch(r"[\w\s'’./:-]*", wanted) is not None
    words = (re.findall(r"[^\W_]+", wanted) if is_plain else []) or [wanted]
    first, *rest = map(re.escape, words)
    # The left border is checked after the first word: a pattern that begins with a literal runs at memory speed.
    left = rf"(?<![^\W_]{first})" if wanted[:1].isalnum() else ""
    right = r"(?![^\W_])" if wanted[-1:].isalnum() else ""
    return re.compile(r"[\W_]+".join((first + left, *rest)) + right)


def match_text(text: str, terms: Sequence[WeightedTerm], before: str = "") -> MatchedText:
    """Return `text` folded, after the whole lines of `before`, with every occurrence of the terms."""
    folded = fold(before + text)
    return MatchedText(folded, find_occurrences(folded, terms), before.count("\n"))


def header_lines(document: StoredDocument) -> str:
    """Return path, title and aliases as lines before a text, so that they count as close to its first ones."""
    return "".join(f"{name}\n" for name in (document.path, document.title, *aliases_of(document.metadata)))


def coverage(occurrences: Sequence[Occurrence], terms: Sequence[WeightedTerm], window: int | None = None) -> float:
    """Return the weighted share of the terms that occur, in [0, 1]; with `window` (code points) the best in one."""
    total = math.fsum(weighted.weight for weighted in terms)
    if total <= 0:
        return 0.0
    if window is None:
        return math.fsum(terms[number].weight for number in {o.term for o in occurrences}) / total
    best = max((weight for _, weight in windows(occurrences, terms, window)), default=0.0)
    return min(best / total, 1.0)


def windows(occurrences: Sequence[Occurrence], terms: Sequence[WeightedTerm], size: int) -> Iterator[tuple[int, float]]:
    """Yield for each occurrence the index of the first one in the window that ends with it, and its weight."""
    weight = 0.0
    counts = [0] * len(terms)
    first = 0
    for occurrence in occurrences:
        if counts[occurrence.term] == 0:
            weight += terms[occurrence.term].weight
        counts[occurrence.term] += 1
        while occurrences[first].offset < occurrence.offset - size:
            leaving = occurrences[first].term
            counts[leaving] -= 1
            if counts[leaving] == 0:
                weight -= terms[leaving].weight
            first += 1
        yield first, weight


def best_span(matched: MatchedText, terms: Sequence[WeightedTerm], size: int) -> tuple[int, int]:
    """Return the span of `size` code points with the most term weight, cut at line ends where one is near."""
    best, best_weight = 0, -1.0
    for first, weight in windows(matched.occurrences, terms, size // 2):
        if weight > best_weight + 1e-9:
            best, best_weight = matched.occurrences[first].offset, weight
    start = max(matched.folded.rfind("\n", 0, best) + 1, best - size // 4, 0)
    return start, min(start + size, len(matched.folded))


def _find_words(spaced: str, words: tuple[str, ...], is_prefix: bool) -> Iterator[tuple[int, int]]:
    stems, pattern = _compile_words(words)
    for match in pattern.finditer(spaced) if all(stems) else ():
        found = tuple(map(indexed_form, (match[0], *match.groups())))
        if found == stems or (is_prefix and found[:-1] == stems[:-1] and found[-1].startswith(stems[-1])):
            yield match.start(), match.end(len(stems) - 1)


@lru_cache(maxsize=256)
def _compile_words(words: tuple[str, ...]) -> tuple[tuple[str, ...], re.Pattern[str]]:
    """Return the stems of words, and a pattern for words in sequence with their first letters."""
    stems = tuple(map(indexed_form, words))
    first, *rest = re.sub(_CHANGED_ENDING, "", " ".join(stems)).split() or [""]
    # The left border comes after the first letters, so that the engine searches a literal at memory speed; without a
    # border a line of ten million equal letters would take quadratic time.
    further = "".join(map(r"[\W_]+({}[^\W_]*+)".format, rest))
    return stems, re.compile(rf"{first}(?<![^\W_]{first})[^\W_]*+" + (further and f"(?={further})"))


def find_spans(text: str, terms: Sequence[LexicalTerm]) -> list[tuple[int, int]]:
    """Return the spans (start, end) of `text` that `terms` match, ascending and disjoint.

    Whole words in any form (`linking` for `links`); phrases as one span; groups of characters of scripts
    without spaces joined. `terms` are those of `SearchResponse.terms`.
    """
    folded, origin = _fold_with_origin(text)
    found: list[tuple[int, int]] = []
    spaced = folded if folded.isascii() else without_unspaced(folded)
    for term in terms:
        for spans in _find_spellings(folded, spaced, term):
            found += islice(spans, MAX_SPANS)
    found.sort()
    joined: list[tuple[int, int]] = []
    for start, end in found:
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    # A span ends after the accents of its last letter, and never inside a character.
    return [(origin[start], origin[end] + (origin[end] == origin[end - 1])) for start, end in joined]


def _fold_with_origin(text: str) -> tuple[str, Sequence[int]]:
    """Return the folded text, and the offset in the text of each of its characters and of its end."""
    if text.isascii():
        return fold(text), range(len(text) + 1)
    from array import array

    origin = array("I")
    parts: list[str] = []
    for match in re.finditer(_PIECE, text):
        piece, start = match[0], match.start()
        parts.append(folded := fold(piece))
        if len(folded) == len(piece):
            origin.extend(range(start, match.end()))
        else:
            lengths = [len(fold(piece[:number])) for number in range(len(piece))]
            origin.extend([start + bisect_right(lengths, place) - 1 for place in range(len(folded))])
    origin.append(len(text))
    return "".join(parts), origin
