"""Which notes of an answer are quoted, and how much of each: the most that is new for its length."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from qmd.records import Hit, Passage, SearchResponse
from qmd.retrieval.calibration import GOOD
from qmd.retrieval.matching import WeightedTerm, find_occurrences, fold

SIZES = (800, 1_500, 3_000, 6_000)
"""Characters that each passage of a note grows to. To grow all alike shows more of what is sought than to grow the
best: of minutes of a day .93 of the texts in 345 tokens, against .89 in 377."""

QUALITY = (0.72, 0.87, 0.90, 0.925, 0.945, 0.965)
"""Share of the texts sought in a note that its best passage shows, all of them, and those grown to `SIZES`: of 389."""

NOTES = 15
"""Notes that are looked at: with 40 no more is found, with 10 less of what several notes answer."""

NEW_SHARE = 0.6
"""What of a note's worth falls with the words of the question that other notes of the pack hold already."""

_HEADING = re.compile(r"#{1,6}\s")
_CITATION_CHARS = 100


class Note(Struct, frozen=True):
    """A note that may be quoted: its passages by size, its worth, and which words of the question it has.

    The worth falls with the rank: a sure first note is quoted at length before others, equal ones side by side.
    """

    hit: Hit
    levels: tuple[tuple[Passage, ...], ...]
    worth: float
    terms: frozenset[int]

    def length(self, size: int) -> int:
        """Characters of a size; 0 of -1, which is none."""
        return sum(len(one.text) + _CITATION_CHARS for one in self.levels[size]) if size >= 0 else 0


def read_notes(response: SearchResponse, longest: int) -> list[Note]:
    """The notes of an answer by relevance, each best passage once; passages grow to at most so many characters."""
    terms = [WeightedTerm(one, 1.0) for one in response.terms if not (one.excluded or one.is_part)]
    notes: dict[str, Note] = {}
    for rank, hit in enumerate(sorted(response.hits, key=lambda one: one.relevance, reverse=True), start=1):
        parts = hit.passages or (hit.passage,)
        held = find_occurrences(fold("\n".join((hit.document.title, *(one.text for one in parts)))), terms)
        levels = ((hit.passage,), parts, *(_grow(hit.body or "", parts, size) for size in SIZES if size <= longest))
        note = Note(hit, levels, hit.relevance**2 / rank**1.5, frozenset(one.term for one in held))
        notes.setdefault(" ".join(hit.passage.text.split()), note)
    return list(notes.values())


def _grow(text: str, parts: Sequence[Passage], size: int) -> tuple[Passage, ...]:
    """A short text whole, else its passages with the lines around them up to the borders of their sections."""
    lines = text.rstrip().split("\n")
    mark = lines[0].rstrip()
    first = lines.index(mark, 1) + 1 if mark in ("---", "+++") and mark in lines[1:] else 0
    if sum(map(len, lines[first:])) + len(lines) - first <= size:
        return (_span(lines, first, len(lines), parts[0]),)
    grown: list[Passage] = []
    for part in parts:
        if not any(part.start_line <= one.end_line and one.start_line <= part.end_line for one in grown):
            low = max((one.end_line for one in grown if one.end_line < part.start_line), default=first)
            high = min((one.start_line - 1 for one in grown if one.start_line > part.end_line), default=len(lines))
            grown.append(_grow_one(lines, part, low, high, size))
    return tuple(grown)


def _grow_one(lines: Sequence[str], part: Passage, low: int, high: int, size: int) -> Passage:
    """A passage with lines from `lines[low:high]` around it, as many above as below where both have some."""
    start, end = part.start_line - 1, min(part.end_line, len(lines))
    left = size - sum(len(one) + 1 for one in lines[start:end])
    if left < 0:
        return part
    while True:
        below = end < high and len(lines[end]) < left and not _HEADING.match(lines[end])
        above = start > low and len(lines[start - 1]) < left and not _HEADING.match(lines[start])
        if below and (not above or end - part.end_line < part.start_line - start):
            end += 1
            left -= len(lines[end - 1]) + 1
        elif above:
            start -= 1
            left -= len(lines[start]) + 1
        else:
            return _span(lines, start, end, part)


def _span(lines: Sequence[str], start: int, end: int, part: Passage) -> Passage:
    """`lines[start:end]` without blank ones around them, in place of a part of them."""
    while start + 1 < end and not lines[start].strip():
        start += 1
    while start + 1 < end and not lines[end - 1].strip():
        end -= 1
    return replace(part, text="\n".join(lines[start:end]), start_line=start + 1, end_line=end)


def choose(notes: Sequence[Note], most: int, cost: Callable[[int, int], int]) -> list[tuple[int, int]]:
    """Steps in their order, each the number of a note and its size from there on, together for at most `most` tokens.

    Always the step that adds most of what is sought for its length; before that the first two notes, where both answer.
    `cost` tells the tokens of a note in a size.
    """
    steps: list[tuple[int, int]] = []
    sizes = dict.fromkeys(range(len(notes)), -1)
    ends = [len(one.levels) for one in notes]
    n_terms = len(frozenset[int]().union(*(one.terms for one in notes))) or 1

    def gain(step: tuple[int, int]) -> tuple[float, int, int]:
        number, size = step
        note, before = notes[number], sizes[number]
        held = frozenset[int]().union(*(notes[one].terms for one, has in sizes.items() if has >= 0 and one != number))
        new = 1 - NEW_SHARE * (1 - len(note.terms - held) / n_terms)
        better = QUALITY[size] - (QUALITY[before] if before >= 0 else 0.0)
        longer = max(note.length(size) - note.length(before), 1)
        return note.worth * new * better / longer, -number, size

    first = [(number, 0) for number, one in enumerate(notes[:2]) if one.hit.relevance >= GOOD]
    while options := first[:1] or [(n, size) for n, has in sizes.items() for size in range(has + 1, ends[n])]:
        first = first[1:]
        number, size = max(options, key=gain)
        extra = cost(number, size) - (cost(number, sizes[number]) if sizes[number] >= 0 else 0)
        if extra > most:
            ends[number] = size
        else:
            most -= extra
            sizes[number] = size
            steps.append((number, size))
    return steps
