"""Layout of a text: the units that passages consist of, and the places of query terms."""

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
from qmd.retrieval.matching import MatchedText, Occurrence, WeightedTerm, fold

if TYPE_CHECKING:
    from qmd.ingest.markdown import Span

Kind = Literal["blank", "heading", "fence", "row", "text"]

_MAX_LINES = 60
"""Lines of one paragraph to read in either direction: far more than a passage contains."""

# Uncompiled: `re` compiles them for the first passage, and `--help` has none.
_ITEM = r"[ \t>]*(?:[-*+]|\d{1,9}[.)])[ \t]"
_UNDERLINE = r" {0,3}(?:=+|-+)[ \t\r]*\Z"
_SENTENCE_END = r"[.!?…]['\")\]*_»”’]*(?=\s)|[。！？]['\")\]」』”’]*"
_LONG_SENTENCE = 160
"""Code points from which a sentence is cut between words."""

_FAR = 4
"""Budgets of a single line to read in either direction: it may have ten million characters."""

TITLE_SHARE = 0.3
"""Weight of a term that is in the title or path: the whole document is about it."""

_DECLARATION = (
    r"\s*(?:(?:export|default|public|private|protected|internal|static|abstract|async|unsafe|final|override|inline"
    r"|extern|declare|pub(?:\([^)]*\))?)\s+)*"
    r"(?:def|class|func|function|fn|struct|enum|trait|impl|interface|type|mod|module|namespace|record|union|typedef"
    r"|const|let|var|macro_rules!)\b"
)
SUMMARY = (
    r"(?i)(?:\w+ )?(?:summary|conclusions?|consensus|decisions?|resolutions?|outcomes?|takeaways?|recap|tl;?dr"
    r"|zusammenfassung|fazit|ergebnis(?:se)?|beschl(?:uss|üsse)|résumé|décisions?|resum(?:en|o)|conclusi(?:ón|ones|oni)"
    r"|conclusão|riassunto|samenvatting|conclusies?|выводы?|итоги?|总结|结论|まとめ|結論)\s*(?:$|[/:,&({]|and\b|of\b)"
)
"""Headings of summaries and decisions."""

_ADDRESS = r"https?://[^\s<>]+"
_FOLDED_EXACTLY = 100_000
"""Code points of a line in which places are mapped exactly, where folding changes lengths."""


class Unit(Struct, frozen=True):
    """A span `text[start:end]` that is shown whole or not at all, from line `first` to line `last`."""

    kind: Kind
    first: int
    last: int
    start: int
    end: int
    block: int
    """First line of the block that contains it."""
    is_piece: bool = False
    """Whether the block is too long to be shown whole."""


class Layout:
    """Lines of a text and their blocks. Lines are counted from 0, offsets in code points."""

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
        """Return the line of an offset, the last one for offsets beyond the end."""
        return min(bisect_right(self.starts, offset) - 1, len(self.lines) - 1)

    def trail(self, line: int) -> tuple[str, ...]:
        """Return the texts of the headings above `line`, outermost first; its own, if it is one, comes last."""
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
        """Return the heading line of the summary in the innermost section around a line that has one."""
        level, levels = 7, [heading.level for heading in self.headings]
        for number in range(bisect_right(self._heading_lines, line) - 1, -1, -1):
            if levels[number] >= level:
                continue
            level = levels[number]
            end = next((at for at in range(number + 1, len(levels)) if levels[at] <= level), len(levels))
            top = min(levels[number + 1 : end], default=0)
            for at in range(number + 1, end):
                if levels[at] == top and re.match(SUMMARY, self.headings[at].text):
                    return self._heading_lines[at]
        return None

    def declares(self, line: int) -> bool:
        """Return whether a line of source code is a declaration."""
        return self._is_source and re.match(_DECLARATION, self.lines[line]) is not None

    def blocks(self) -> Iterator[tuple[Kind, int, int]]:
        """Yield every block in order: its kind, its first and its last line."""
        line = 0
        while line < len(self.lines):
            kind, _, last = self._block(line)
            yield kind, line, last
            line = last + 1

    def units(self, offset: int, budget: int) -> list[Unit]:
        """Return the units around an offset, in order: those of its block, and others within `budget` code points."""
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
        """Yield units that are not blank from `line` on, downwards or upwards."""
        while self.first <= line <= self.last:
            kind, first, last = self._block(line)
            if kind != "blank":
                near = self.starts[first] if step == 1 else self.starts[last + 1] - 1
                yield from self._split(kind, first, last, budget, near)[::step]
            line = last + 1 if step == 1 else first - 1

    def _block(self, line: int) -> tuple[Kind, int, int]:
        """Return the block of a line: its kind, its first and its last line."""
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
        """Return first and last line of the paragraph or list item of a line."""
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
        """Return whether a list item begins on a line."""
        return re.match(_ITEM, self.lines[line]) is not None

    def _continues(self, line: int) -> bool:
        """Return whether a line may belong to the paragraph or list item next to it."""
        number = bisect_right(self._fences, (line, len(self.lines))) - 1
        return self._kind(line) == "text" and not (number >= 0 and self._fences[number][1] >= line)

    def _is_underline(self, line: int) -> bool:
        return re.match(_UNDERLINE, self.lines[line]) is not None

    def _split(self, kind: Kind, first: int, last: int, budget: int, near: int) -> list[Unit]:
        """Return a block as one unit, or as its lines and sentences if it exceeds the budget.

        The marks of fenced code are skipped then: one of them alone would turn the rest into code. A line of many
        budgets is only split around the offset `near`.
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
        """Yield the sentences of a part of one line, those longer than `longest` cut between words."""
        if end - start <= longest:
            yield start, end
            return
        # Blanks after the last word belong to it.
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
    """Occurrences of a query's terms in a text, by offsets of the text itself. Terms are identified by their index.

    Attributes:
        terms: The terms, with weights for a place in this text.
        occurrences: Occurrences in the folded text, ascending; those of title and path come first.
        total: Weight of all terms, found or not.
        named: The terms in the lines before the text: path, title, aliases or date.
        share_named: Their share of the query.
        names: These lines, folded.
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
        self._lengths: dict[int, int] = {}

    def weight(self, numbers: Iterable[int]) -> float:
        """Return the total weight of several terms."""
        return math.fsum(self.terms[number].weight for number in numbers)

    def terms_in(self, start: int, end: int) -> frozenset[int]:
        """Return the terms in a span of the text."""
        if (start, end) not in self._terms_by_span:
            first, last = self.occurrence_range(start, end)
            self._terms_by_span[start, end] = frozenset(one.term for one in self.occurrences[first:last])
        return self._terms_by_span[start, end]

    def occurrence_range(self, start: int, end: int) -> tuple[int, int]:
        """Return the occurrences in a span of the text, as indexes of the first and after the last."""
        return bisect_left(self._offsets, self.folded(start)), bisect_left(self._offsets, self.folded(end))

    def line(self, occurrence: Occurrence) -> int:
        """Return the line of an occurrence in the text."""
        return bisect_right(self._lines, occurrence.offset) - 1 - self._matched.lines_before

    def offset(self, occurrence: Occurrence) -> int:
        """Return the offset of an occurrence in the text, or one near it where folding changed the line's length."""
        line = self.line(occurrence)
        column = occurrence.offset - self._lines[line + self._matched.lines_before]
        return self._layout.starts[line] + min(column, len(self._layout.lines[line]))

    def folded(self, offset: int) -> int:
        """Return the folded offset of an offset of the text: folding keeps lines, but not always their lengths."""
        line = self._layout.line_at(offset)
        start, end = self._layout.starts[line : line + 2]
        there = line + self._matched.lines_before
        has_length = self._lines[there + 1] - self._lines[there] == end - start
        if has_length or offset - start > _FOLDED_EXACTLY:
            return self._lines[there] + offset - start
        if offset not in self._lengths:
            self._lengths[offset] = len(fold(self._layout.text[start:offset]))
        return self._lines[there] + self._lengths[offset]

    def _skip_addresses(self) -> list[Occurrence]:
        """Return the occurrences without those in web addresses, of terms that also occur elsewhere."""
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
        """Return the terms with their weights in this text: the more places have them, the less.

        A quoted term outweighs all others together.
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
