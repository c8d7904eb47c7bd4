"""A text as units that a passage is put together from: paragraphs, list items, headings, table rows, fenced code."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from qmd.records import Heading

if TYPE_CHECKING:
    from qmd.ingest.markdown import Span

Kind = Literal["blank", "heading", "fence", "row", "text"]

_MOST_LINES = 60
"""Lines of one paragraph that are looked at in either direction: far more than any passage has room for."""

# Kept as text: `re` compiles them when a passage is first chosen, and `--help` chooses none.
_ITEM = r"[ \t>]*(?:[-*+]|\d{1,9}[.)])[ \t]"
_ROW = r"[ \t>]*\|"
_UNDERLINE = r" {0,3}(?:=+|-+)[ \t\r]*\Z"
_SENTENCE_END = r"[.!?…]['\")\]*_»”’]*(?=\s)|[。！？]['\")\]」』”’]*"
_LONG_SENTENCE = 160
"""Code points from which a sentence is cut between words."""

_FAR = 4
"""Times the room that is looked at of a single line in either direction: it may have ten million characters."""


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
        self._headings = headings
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
            heading = self._headings[number]
            if heading.level < level:
                found.append(heading)
                level = heading.level
            if level == 1:
                break
        return tuple(heading.text for heading in reversed(found))

    def blocks(self) -> Iterator[tuple[Kind, int, int]]:
        """Every block in order: what it is, its first and its last line."""
        line = 0
        while line < len(self.lines):
            kind, _, last = self._block(line)
            yield kind, line, last
            line = last + 1

    def units(self, offset: int, room: int) -> list[Unit]:
        """The units around an offset, in order: those of its own block, and as many as `room` code points may hold."""
        line = self.line_at(offset)
        own = self._split(*self._block(line), room, offset)
        before: list[Unit] = []
        for unit in self._walk(own[0].block - 1, -1, room):
            before.append(unit)
            if own[0].start - unit.start > room:
                break
        after: list[Unit] = []
        for unit in self._walk(own[-1].last + 1, 1, room):
            after.append(unit)
            if unit.end - own[-1].end > room:
                break
        return [*reversed(before), *own, *after]

    def _walk(self, line: int, step: Literal[-1, 1], room: int) -> Iterator[Unit]:
        """Units that are not blank from `line` on, downwards or upwards."""
        while self.first <= line <= self.last:
            kind, first, last = self._block(line)
            if kind != "blank":
                near = self.starts[first] if step == 1 else self.starts[last + 1] - 1
                yield from self._split(kind, first, last, room, near)[::step]
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
        if kind != "text":
            return kind, line, line
        first = line
        while first > max(self.first, line - _MOST_LINES) and not self._begins(first) and self._continues(first - 1):
            first -= 1
        last = line
        while last < min(self.last, line + _MOST_LINES) and not self._begins(last + 1) and self._continues(last + 1):
            last += 1
        return kind, first, last

    def _kind(self, line: int) -> Kind:
        text = self.lines[line]
        if not text.strip(" \t\r>"):
            return "blank"
        if self._is_source:
            return "text"
        if line in self._is_heading:
            return "heading"
        return "row" if re.match(_ROW, text) else "text"

    def _begins(self, line: int) -> bool:
        """Whether a list item begins on a line."""
        return re.match(_ITEM, self.lines[line]) is not None

    def _continues(self, line: int) -> bool:
        """Whether a line may belong to the paragraph or list item beside it."""
        number = bisect_right(self._fences, (line, len(self.lines))) - 1
        return self._kind(line) == "text" and not (number >= 0 and self._fences[number][1] >= line)

    def _is_underline(self, line: int) -> bool:
        return re.match(_UNDERLINE, self.lines[line]) is not None

    def _split(self, kind: Kind, first: int, last: int, room: int, near: int) -> list[Unit]:
        """A block as one unit, or, where there is no room for it, as its lines and sentences.

        Of fenced code the marks are left out then: one of them alone would turn what follows into code. A line of many
        times the room is only cut up around the offset `near`.
        """
        block, start, end = first, self.starts[first], self.starts[last + 1] - 1
        if end - start <= room:
            return [Unit(kind, first, last, start, end, block)]
        if kind == "fence":
            is_closed = last > first + 1 and not self.lines[last].strip(" \t\r>`~")
            first, last = min(first + 1, last), last - 1 if is_closed else last
        pieces: list[Unit] = []
        for line in range(first, last + 1):
            start = max(self.starts[line], min(near, self.starts[line + 1] - 1) - _FAR * room)
            end = min(self.starts[line + 1] - 1, max(near, self.starts[line]) + _FAR * room)
            longest = max(min(_LONG_SENTENCE, room // 3) if kind == "text" else room, 1)
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
