"""Where in a text the terms of a query stand, and what each of them tells of a place there."""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import accumulate

from qmd.retrieval.blocks import Layout
from qmd.retrieval.matching import MatchedText, Occurrence, WeightedTerm, fold

TITLE_SHARE = 0.3
"""What a term counts that the title or path holds: the whole document is about it."""

_ADDRESS = r"https?://[^\s<>]+"
_FOLDED_EXACTLY = 100_000
"""Code points of a line in which places are looked up exactly, where folding changes lengths."""


class TermPlaces:
    """The occurrences of a query's terms in a text, by offsets of the text itself. Terms are told by their index.

    Attributes:
        terms: The terms, weighed by what they tell of a place in this text.
        occurrences: Where they stand in the folded text, ascending; those of title and path come first.
        total: Weight of all terms, found or not.
    """

    def __init__(self, layout: Layout, terms: Sequence[WeightedTerm], matched: MatchedText) -> None:
        self._layout = layout
        self._matched = matched
        self._lines = list(accumulate((len(line) + 1 for line in matched.folded.split("\n")), initial=0))
        self._before = self._lines[matched.lines_before]
        self.occurrences = self._without_addresses()
        self._offsets = [occurrence.offset for occurrence in self.occurrences]
        self.terms = self._weigh(terms)
        self.total = math.fsum(term.weight for term in self.terms)
        self._held: dict[tuple[int, int], frozenset[int]] = {}

    def weight(self, numbers: Iterable[int]) -> float:
        """What several terms weigh together."""
        return math.fsum(self.terms[number].weight for number in numbers)

    def held(self, start: int, end: int) -> frozenset[int]:
        """The terms in a span of the text."""
        if (start, end) not in self._held:
            first, last = self.between(start, end)
            self._held[start, end] = frozenset(one.term for one in self.occurrences[first:last])
        return self._held[start, end]

    def between(self, start: int, end: int) -> tuple[int, int]:
        """The occurrences in a span of the text, as indexes of the first and of the one behind the last."""
        return bisect_left(self._offsets, self.folded(start)), bisect_left(self._offsets, self.folded(end))

    def exact(self, numbers: Iterable[int], start: int, end: int) -> frozenset[int]:
        """Those of the terms that stand in a span as the user wrote them, not only another form of them."""
        folded = self._matched.folded[self.folded(start) : self.folded(end)]
        wanted = ((number, re.escape(fold(self.terms[number].term.text))) for number in numbers)
        return frozenset(number for number, text in wanted if re.search(rf"(?<!\w){text}(?!\w)", folded))

    def line(self, occurrence: Occurrence) -> int:
        """The line of the text that an occurrence stands on."""
        return bisect_right(self._lines, occurrence.offset) - 1 - self._matched.lines_before

    def offset(self, occurrence: Occurrence) -> int:
        """Where an occurrence lies in the text, or near it where folding has changed the line's length."""
        line = self.line(occurrence)
        column = occurrence.offset - self._lines[line + self._matched.lines_before]
        return self._layout.starts[line] + min(column, len(self._layout.lines[line]))

    def folded(self, offset: int) -> int:
        """Where an offset of the text lies in the folded one: folding keeps lines, but not always their lengths."""
        line = self._layout.line_at(offset)
        start, end = self._layout.starts[line : line + 2]
        there = line + self._matched.lines_before
        has_length = self._lines[there + 1] - self._lines[there] == end - start
        if has_length or offset - start > _FOLDED_EXACTLY:
            return self._lines[there] + offset - start
        return self._lines[there] + len(fold(self._layout.text[start:offset]))

    def _without_addresses(self) -> list[Occurrence]:
        """The occurrences less those in web addresses, which nobody reads, of terms that stand elsewhere as well."""
        found = self._matched.occurrences
        if "://" not in self._matched.folded:
            return list(found)
        spans = [match.span() for match in re.finditer(_ADDRESS, self._matched.folded)]
        starts = [start for start, _ in spans]

        def is_inside(offset: int) -> bool:
            number = bisect_right(starts, offset)
            return number > 0 and offset < spans[number - 1][1]

        inside = [is_inside(one.offset) for one in found]
        elsewhere = {
            one.term for one, hidden in zip(found, inside, strict=True) if not hidden and one.offset >= self._before
        }
        return [one for one, hidden in zip(found, inside, strict=True) if not hidden or one.term not in elsewhere]

    def _weigh(self, terms: Sequence[WeightedTerm]) -> list[WeightedTerm]:
        """The terms with what they tell of a place in this text: less, the more places have them.

        What the user put in quotes outweighs all else together.
        """
        counts = Counter(occurrence.term for occurrence in self.occurrences)
        named = {one.term for one in self.occurrences[: bisect_left(self._offsets, self._before)]}
        size = len(self._layout.lines) + 1
        weights = [
            one.weight
            * (math.log(1 + size / max(counts[number], 1)) / math.log(1 + size))
            * (TITLE_SHARE if number in named else 1.0)
            for number, one in enumerate(terms)
        ]
        all_together = math.fsum(weights)
        return [
            WeightedTerm(one.term, weight + all_together * one.term.required)
            for one, weight in zip(terms, weights, strict=True)
        ]
