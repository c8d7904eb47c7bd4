"""Which notes of an answer are quoted, and how much of each: the most that is new for its length."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from qmd.records import Hit, Passage, SearchResponse
from qmd.retrieval.calibration import GOOD
from qmd.retrieval.matching import WeightedTerm, find_occurrences, fold

SIZES = (800, 1_500, 3_000, 6_000)
"""Code points that passages grow to."""

QUALITY = (0.72, 0.87, 0.90, 0.925, 0.945, 0.965)
"""Share of the texts sought in a note that its best passage holds, all three of them, and those grown to `SIZES`: of
389 that three vaults were asked for."""

NOTES = 15
"""Notes that are looked at; with 40 no more is found, and with 10 less of what is asked of several notes."""

NEW_SHARE = 0.6
"""What of a note's worth falls with the words of the question that notes before it hold already."""

_CITATION_CHARS = 100


class Note(Struct, frozen=True):
    """A note that may be quoted: its passages by size, the smallest first, and what quoting it is worth."""

    hit: Hit
    weight: float
    """Falls with the rank, so that a sure first note is quoted at length before others, and equal ones side by side."""
    terms: frozenset[int]
    lengths: tuple[int, ...]
    """What each size takes, in code points."""

    @property
    def is_relevant(self) -> bool:
        """Whether it is an answer by itself."""
        return self.hit.relevance >= GOOD


def read_notes(response: SearchResponse) -> list[Note]:
    """The notes of an answer by relevance, a note whose best passage another one has as well left out."""
    terms = [WeightedTerm(one, 1.0) for one in response.terms if not one.excluded and not one.is_part]
    notes: dict[str, Note] = {}
    for rank, hit in enumerate(sorted(response.hits, key=lambda one: one.relevance, reverse=True), start=1):
        levels = levels_of(hit)
        said = "\n".join((hit.document.title, *(one.text for one in levels[:2][-1])))
        note = Note(
            hit,
            hit.relevance**2 / rank**1.5,
            frozenset(place.term for place in find_occurrences(fold(said), terms)),
            tuple(sum(len(passage.text) + _CITATION_CHARS for passage in level) for level in levels),
        )
        notes.setdefault(" ".join(levels[0][0].text.split()), note)
    return list(notes.values())


def levels_of(hit: Hit) -> Sequence[Sequence[Passage]]:
    """The passages of a hit by size; of one that no words have found the only one."""
    return hit.levels or ((hit.passage,),)


def choose(notes: Sequence[Note], n_terms: int, most: int, cost: Callable[[int, int], int]) -> list[tuple[int, int]]:
    """Steps in their order, each a note and the size it now has, the sum of whose last ones costs at most `most`.

    Always the step that adds most of what is sought for its length; the first two notes before that, where both answer.

    Args:
        notes: By relevance.
        n_terms: Terms of the question.
        most: Tokens.
        cost: Of a note in a size.
    """
    steps: list[tuple[int, int]] = []
    sizes: dict[int, int] = {}
    ends = [len(one.lengths) for one in notes]
    first = [(number, 0) for number, one in enumerate(notes[:2]) if one.is_relevant]
    while True:
        options = first[:1] or [(n, size) for n in range(len(notes)) for size in range(sizes.get(n, -1) + 1, ends[n])]
        if not options:
            return steps
        first = first[1:]
        number, size = max(options, key=lambda one: (_gain(notes, sizes, n_terms, *one), -one[0], one[1]))
        before = sizes.get(number)
        extra = cost(number, size) - (0 if before is None else cost(number, before))
        if extra > most:
            ends[number] = size
            continue
        most -= extra
        sizes[number] = size
        steps.append((number, size))


def _gain(notes: Sequence[Note], sizes: dict[int, int], n_terms: int, number: int, size: int) -> float:
    """What a step adds for its length."""
    note, before = notes[number], sizes.get(number)
    held = frozenset[int]().union(*(notes[other].terms for other in sizes if other != number))
    new = len(note.terms - held) / n_terms if n_terms else 1.0
    better = QUALITY[size] - (0.0 if before is None else QUALITY[before])
    longer = note.lengths[size] - (0 if before is None else note.lengths[before])
    return note.weight * better * (1 - NEW_SHARE + NEW_SHARE * new) / max(longer, 1)
