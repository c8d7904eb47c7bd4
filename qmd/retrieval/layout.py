"""A text as units that a passage is put together from, and where in it the terms of a query stand."""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from qmd.records import Heading
from qmd.retrieval.matching import MatchedText, Occurrence, WeightedTerm, fold, typed_pattern

if TYPE_CHECKING:
    from qmd.ingest.markdown import Span

Kind = Literal["blank", "heading", "fence", "row", "text"]

_MAX_LINES = 60
"""Lines of one paragraph that are looked at in either direction: far more than any passage has room for."""

# Kept as text: `re` compiles them when a passage is first chosen, and `--help` chooses none.
_ITEM = r"[ \t>]*(?:[-*+]|\d{1,9}[.)])[ \t]"
_UNDERLINE = r" {0,3}(?:=+|-+)[ \t\r]*\Z"
_SENTENCE_END = r"[.!?…]['\")\]*_»”’]*(?=\s)|[。！？]['\")\]」』”’]*"
_LONG_SENTENCE = 160
"""Code points from which a sentence is cut between words."""

_FAR = 4
"""Times the room that is looked at of a single line in either direction: it may have ten million characters."""

TITLE_SHARE = 0.3
"""What a term counts that the title or path holds: the whole document is about it."""

_DECLARATION = (
    r"\s*(?:(?:export|default|public|private|protected|internal|static|abstract|async|unsafe|final|override|inline"
    r"|extern|declare|pub(?:\([^)]*\))?)\s+)*"
    r"(?:def|class|func|function|fn|struct|enum|trait|impl|interface|type|mod|module|namespace|record|union|typedef"
    r"|const|let|var|macro_rules!)\b"
)
_SUMMARY = (
    r"(?i)(?:\w+ )?(?:summary|conclusions?|consensus|decisions?|resolutions?|outcomes?|takeaways?|recap|tl;?dr"
    r"|zusammenfassung|fazit|ergebnis(?:se)?|beschl(?:uss|üsse)|résumé|décisions?|resum(?:en|o)|conclusi(?:ón|ones|oni)"
    r"|conclusão|riassunto|samenvatting|conclusies?|выводы?|итоги?|总结|结论|まとめ|結論)\s*(?:$|[/:,&({]|and\b|of\b)"
)
"""Headings of what was said in brief, or decided."""

_ADDRESS = r"https?://[^\s<>]+"
_FOLDED_EXACTLY = 100_000
"""Code points of a line in which places are looked up exactly, where folding changes lengths."""


class Unit(Struct, frozen=True):
    """A stretch `text[start:end]` that is shown whole or not at all, from line `first` to line `last`."""

    kind: Kind
    first: int
    last: int
    start: int
    end: int
    block: int
    """First line of the block that it is, or is a piece of."""
    is_piece: bool = False
    """Whether the block is too long to be shown whole."""


class Layout:
    """The lines of a text and what they belong to. Lines are counted from 0, offsets in code points."""

    def __init__(self, text: str, headings: Sequence[Heading], fences: Sequence[Span], *, is_source: bool) -> None:
        self.text = text
        self.lines = text.split("\n")
        self.starts = list(accumulate((len(line) + 1 for line in self.lines), initial=0))
        self.headings = headings
        self.first, self.last = 0, len(self.lines) - 1
        self._is_source = is_source
        self._heading_lines = [self.line_at(heading.offset) for heading in headings]
        self._is_heading = frozenset(self._heading_lines)
        self._fences = [(self.line_at(start), self.line_at(max(end - 1, start))) for start, end in fences]

    def line_at(self, offset: int) -> int:
        """The line that holds an offset, the last one for offsets beyond the end."""
        return min(bisect_right(self.starts, offset) - 1, len(self.lines) - 1)

    def trail(self, line: int) -> tuple[str, ...]:
        """Texts of the headings that `line` stands under, outermost first; its own, where it is one, comes last."""
        found: list[Heading] = []
        level = 7
        for number in range(bisect_right(self._heading_lines, line) - 1, -1, -1):
            heading = self.headings[number]
            if heading.level < level:
                found.append(heading)
                level = heading.level
            if level == 1:
                break
        return tuple(heading.text for heading in reversed(found))

    def summary(self, line: int) -> int | None:
        """The line of the heading under which the innermost section around a line, that does so, sums itself up."""
        level, levels = 7, [heading.level for heading in self.headings]
        for number in range(bisect_right(self._heading_lines, line) - 1, -1, -1):
            if levels[number] >= level:
                continue
            level = levels[number]
            end = next((at for at in range(number + 1, len(levels)) if levels[at] <= level), len(levels))
            top = min(levels[number + 1 : end], default=0)
            for at in range(number + 1, end):
                if levels[at] == top and re.match(_SUMMARY, self.headings[at].text):
                    return self._heading_lines[at]
        return None

    def declares(self, line: int) -> bool:
        """Whether a line of source code declares something."""
        return self._is_source and re.match(_DECLARATION, self.lines[line]) is not None

    def blocks(self) -> Iterator[tuple[Kind, int, int]]:
        """Every block in order: what it is, its first and its last line."""
        line = 0
        while line < len(self.lines):
            kind, _, last = self._block(line)
            yield kind, line, last
            line = last + 1

    def units(self, offset: int, budget: int) -> list[Unit]:
        """The units around an offset, in order: those of its own block, and as many as `room` code points may hold."""
        line = self.line_at(offset)
        own = self._split(*self._block(line), budget, offset)
        before: list[Unit] = []
        for unit in self._walk(own[0].block - 1, -1, budget):
            before.append(unit)
            if own[0].start - unit.start > budget:
                break
        after: list[Unit] = []
        for unit in self._walk(own[-1].last + 1, 1, budget):
            after.append(unit)
            if unit.end - own[-1].end > budget:
                break
        return [*reversed(before), *own, *after]

    def _walk(self, line: int, step: Literal[-1, 1], budget: int) -> Iterator[Unit]:
        """Units that are not blank from `line` on, downwards or upwards."""
        while self.first <= line <= self.last:
            kind, first, last = self._block(line)
            if kind != "blank":
                near = self.starts[first] if step == 1 else self.starts[last + 1] - 1
                yield from self._split(kind, first, last, budget, near)[::step]
            line = last + 1 if step == 1 else first - 1

    def _block(self, line: int) -> tuple[Kind, int, int]:
        """The block that holds a line: what it is, its first and its last line."""
        if self._is_source:
            return self._kind(line), line, line
        number = bisect_right(self._fences, (line, len(self.lines))) - 1
        if number >= 0 and self._fences[number][1] >= line:
            first, last = self._fences[number]
            return "fence", max(first, self.first), min(last, self.last)
        if line > self.first and line - 1 in self._is_heading and self._is_underline(line):
            line -= 1
        kind = self._kind(line)
        if kind == "heading":
            return kind, line, line + (line < self.last and self._is_underline(line + 1))
        return (kind, *self._paragraph(line)) if kind == "text" else (kind, line, line)

    def _paragraph(self, line: int) -> tuple[int, int]:
        """First and last line of the paragraph or list item that holds a line."""
        first = line
        while first > max(self.first, line - _MAX_LINES) and not self._is_item(first) and self._continues(first - 1):
            first -= 1
        last = line
        while last < min(self.last, line + _MAX_LINES) and not self._is_item(last + 1) and self._continues(last + 1):
            last += 1
        return first, last

    def _kind(self, line: int) -> Kind:
        text = self.lines[line]
        if not text.strip(" \t\r>"):
            return "blank"
        if self._is_source:
            return "text"
        if line in self._is_heading:
            return "heading"
        return "row" if text.lstrip(" \t>").startswith("|") else "text"

    def _is_item(self, line: int) -> bool:
        """Whether a list item begins on a line."""
        return re.match(_ITEM, self.lines[line]) is not None

    def _continues(self, line: int) -> bool:
        """Whether a line may belong to the paragraph or list item beside it."""
        number = bisect_right(self._fences, (line, len(self.lines))) - 1
        return self._kind(line) == "text" and not (number >= 0 and self._fences[number][1] >= line)

    def _is_underline(self, line: int) -> bool:
        return re.match(_UNDERLINE, self.lines[line]) is not None

    def _split(self, kind: Kind, first: int, last: int, budget: int, near: int) -> list[Unit]:
        """A block as one unit, or, where there is no room for it, as its lines and sentences.

        Of fenced code the marks are left out then: one of them alone would turn what follows into code. A line of many
        times the room is only cut up around the offset `near`.
        """
        block, start, end = first, self.starts[first], self.starts[last + 1] - 1
        if end - start <= budget:
            return [Unit(kind, first, last, start, end, block)]
        if kind == "fence":
            is_closed = last > first + 1 and not self.lines[last].strip(" \t\r>`~")
            first, last = min(first + 1, last), last - 1 if is_closed else last
        pieces: list[Unit] = []
        for line in range(first, last + 1):
            start = max(self.starts[line], min(near, self.starts[line + 1] - 1) - _FAR * budget)
            end = min(self.starts[line + 1] - 1, max(near, self.starts[line]) + _FAR * budget)
            longest = max(min(_LONG_SENTENCE, budget // 3) if kind == "text" else budget, 1)
            pieces += (Unit(kind, line, line, a, b, block, is_piece=True) for a, b in self._cuts(start, end, longest))
        return pieces

    def _cuts(self, start: int, end: int, longest: int) -> Iterator[Span]:
        """A stretch of one line in sentences, and what is longer than `longest` between words."""
        if end - start <= longest:
            yield start, end
            return
        # What is behind the last word belongs to it.
        written = start + len(self.text[start:end].rstrip())
        borders = [match.end() for match in re.compile(_SENTENCE_END).finditer(self.text, start, written)]
        borders = [border for border in borders if border < written]
        for border in (*borders, end):
            while border - start > longest:
                cut = self.text.rfind(" ", start + 1, start + longest + 1)
                cut = start + longest if cut < 0 else cut
                yield start, cut
                start = cut
            if border > start:
                yield start, border
            start = border


class TermPlaces:
    """The occurrences of a query's terms in a text, by offsets of the text itself. Terms are told by their index.

    Attributes:
        terms: The terms, weighed by what they tell of a place in this text.
        occurrences: Where they stand in the folded text, ascending; those of title and path come first.
        total: Weight of all terms, found or not.
        named: The terms that stand before the text, in its path, title, aliases or date.
        share_named: Their share of the query.
        names: What stands there, folded.
    """

    def __init__(self, layout: Layout, terms: Sequence[WeightedTerm], matched: MatchedText) -> None:
        self._layout = layout
        self._matched = matched
        self._lines = list(accumulate((len(line) + 1 for line in matched.folded.split("\n")), initial=0))
        self._before = self._lines[matched.lines_before]
        self.occurrences = self._skip_addresses()
        self._offsets = [occurrence.offset for occurrence in self.occurrences]
        self.names = matched.folded.split("\n", matched.lines_before)[:-1]
        self.named = frozenset(one.term for one in self.occurrences[: bisect_left(self._offsets, self._before)])
        asked = math.fsum(one.weight for one in terms)
        self.share_named = math.fsum(terms[number].weight for number in self.named) / asked if asked > 0 else 0.0
        self.terms = self._weigh(terms)
        self.total = math.fsum(term.weight for term in self.terms)
        self._terms_by_span: dict[tuple[int, int], frozenset[int]] = {}

    def weight(self, numbers: Iterable[int]) -> float:
        """What several terms weigh together."""
        return math.fsum(self.terms[number].weight for number in numbers)

    def terms_in(self, start: int, end: int) -> frozenset[int]:
        """The terms in a span of the text."""
        if (start, end) not in self._terms_by_span:
            first, last = self.occurrence_range(start, end)
            self._terms_by_span[start, end] = frozenset(one.term for one in self.occurrences[first:last])
        return self._terms_by_span[start, end]

    def occurrence_range(self, start: int, end: int) -> tuple[int, int]:
        """The occurrences in a span of the text, as indexes of the first and of the one behind the last."""
        return bisect_left(self._offsets, self.folded(start)), bisect_left(self._offsets, self.folded(end))

    def typed_terms_in(self, numbers: Iterable[int], start: int, end: int) -> frozenset[int]:
        """Those of the terms that stand in a span as the user wrote them, not only another form of them."""
        folded = self._matched.folded[self.folded(start) : self.folded(end)]
        return frozenset(number for number in numbers if typed_pattern(self.terms[number].term).search(folded))

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

    def _skip_addresses(self) -> list[Occurrence]:
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
        size = len(self._layout.lines) + 1
        weights = [
            one.weight
            * (math.log(1 + size / max(counts[number], 1)) / math.log(1 + size))
            * (TITLE_SHARE if number in self.named else 1.0)
            for number, one in enumerate(terms)
        ]
        all_together = math.fsum(weights)
        return [
            WeightedTerm(one.term, weight + all_together * one.term.required)
            for one, weight in zip(terms, weights, strict=True)
        ]
