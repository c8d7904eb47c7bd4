"""The passage of a document that answers: whole blocks around the place that holds most of the query."""

from __future__ import annotations

import heapq
import math
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import accumulate, takewhile

from msgspec import Struct
from msgspec.structs import replace

from qmd.ingest.fences import Span
from qmd.records import Passage
from qmd.retrieval.blocks import Layout, Unit
from qmd.retrieval.matching import MatchedText, Occurrence, WeightedTerm, find_occurrences, fold, match_text, windows
from qmd.retrieval.options import PASSAGE_CHARS

LINES = 4
"""Lines that are not blank in a passage, unless more of them are short or hold further words of the query."""

SHORT_CHARS = 400
"""Code points up to which a passage may have more lines than that: about five lines of prose."""

CHUNK_BONUS = 0.15
"""What lying in the chunk that vectors found is worth, as a share of the weight of all terms: it decides where the text
holds few of them."""

CLOSE_CHARS = 120
"""Stretch in which terms stand close together: a sentence."""

CLOSE_BONUS = 0.3
"""What the share of the terms in one such stretch is worth."""

HEADING_SHARE = 0.4
"""What a term in a heading above the passage counts, against 1 in the passage."""

EXACT_BONUS = 0.1
"""What standing there exactly as the user wrote it adds to a term's weight."""

DECLARATION_BONUS = 0.05
"""What declaring something is worth in source code."""

_FOLDED_EXACTLY = 100_000
"""Code points of a line in which places are looked up exactly, where folding changes lengths."""

TITLE_SHARE = 0.3
"""What a term counts that the title or path holds: the whole document is about it."""

_MOST_SEEDS = 3
_MOST_PLACES = 10
"""Places that a passage is put together for, so that the best of them can be taken."""

_ELLIPSIS = "..."
_ADDRESS = r"https?://[^\s<>]+"
_DECLARATION = (
    r"\s*(?:(?:export|default|public|private|protected|internal|static|abstract|async|unsafe|final|override|inline"
    r"|extern|declare|pub(?:\([^)]*\))?)\s+)*"
    r"(?:def|class|func|function|fn|struct|enum|trait|impl|interface|type|mod|module|namespace|record|union|typedef"
    r"|const|let|var|macro_rules!)\b"
)


class _Draft(Struct, frozen=True):
    """A passage that may be shown: `units[low:high + 1]`, its best line, and how much of the query it holds."""

    units: Sequence[Unit]
    low: int
    high: int
    line: int
    score: float


def best_passage(
    text: str,
    terms: Sequence[WeightedTerm],
    *,
    path: str = "",
    title: str = "",
    chunk: tuple[int, int] | None = None,
    chunk_only: bool = False,
    max_chars: int = PASSAGE_CHARS,
    matched: MatchedText | None = None,
) -> Passage:
    """The part of `text` to show.

    Words choose: the place with the largest weight of distinct terms close together, where a term counts the more the
    fewer places of the text have it. The chunk decides where words say little. Paragraphs, list items, table rows and
    fenced code are shown whole where there is room; front matter only where no other part holds a term.

    Args:
        text: The whole document.
        terms: Terms of the query with their weights.
        path: Tells what the text is: of markdown the blocks are known, of source code a line that declares something is
            shown before equally good ones.
        title: Of the document; left out of the passage's headings.
        chunk: Span that vectors found, if any.
        chunk_only: Whether the passage has to lie in it: for a search by meaning alone.
        max_chars: Longest passage in code points; one that has to be cut inside a block has `...` there.
        matched: `text` with the places of `terms`, where the caller has looked for them already.

    Returns:
        The passage; line numbers are those of the file.
    """
    return _Chooser(text, terms, path, chunk, max_chars, matched or match_text(text, terms)).choose(title, chunk_only)


def best_span(matched: MatchedText, terms: Sequence[WeightedTerm], size: int) -> tuple[int, int]:
    """The stretch of `size` code points that holds the most term weight, cut at line ends where one is near."""
    best, best_weight = 0, -1.0
    for first, weight in windows(matched.occurrences, terms, size // 2):
        if weight > best_weight + 1e-9:
            best, best_weight = matched.occurrences[first].offset, weight
    start = max(matched.folded.rfind("\n", 0, best) + 1, best - size // 4, 0)
    return start, min(start + size, len(matched.folded))


class _Chooser:
    """One choice under way: the text with its blocks, and where the terms are in it."""

    def __init__(
        self,
        text: str,
        terms: Sequence[WeightedTerm],
        path: str,
        chunk: tuple[int, int] | None,
        max_chars: int,
        matched: MatchedText,
    ) -> None:
        from qmd.ingest.frontmatter import read_front_matter
        from qmd.ingest.markdown import find_headings, structure_of

        structure = structure_of(path or ".md")
        self._is_source = structure == "plain" and _is_source(path)
        self._body = read_front_matter(text).body_offset if structure == "markdown" else 0
        headings, fences = find_headings(text, self._body, structure)
        self._layout = Layout(text, headings, fences, is_source=self._is_source)
        self._text = text
        self._chunk = chunk
        self._room = max_chars
        self._matched = matched = _without_addresses(matched)
        self._lines = list(accumulate((len(line) + 1 for line in matched.folded.split("\n")), initial=0))
        self._offsets = [occurrence.offset for occurrence in matched.occurrences]
        self._known_trails: dict[tuple[str, ...], frozenset[int]] = {}
        self._known: dict[Span, frozenset[int]] = {}
        self._terms = self._locally_weighed(terms)
        self._total = math.fsum(term.weight for term in self._terms)

    def _locally_weighed(self, terms: Sequence[WeightedTerm]) -> list[WeightedTerm]:
        """The terms with what they tell of a place in this text: less, the more places have them.

        What the user put in quotes outweighs all else together.
        """
        counts = Counter(occurrence.term for occurrence in self._matched.occurrences)
        size = len(self._layout.lines) + 1
        rarity = [math.log(1 + size / max(counts[number], 1)) / math.log(1 + size) for number in range(len(terms))]
        before = self._lines[self._matched.lines_before]
        named = {one.term for one in takewhile(lambda one: one.offset < before, self._matched.occurrences)}
        weights = [
            one.weight * rarity[number] * (TITLE_SHARE if number in named else 1.0) for number, one in enumerate(terms)
        ]
        required = math.fsum(weights)
        return [
            WeightedTerm(one.term, weight + required * one.term.required)
            for one, weight in zip(terms, weights, strict=True)
        ]

    def choose(self, title: str, chunk_only: bool) -> Passage:
        layout, matched = self._layout, self._matched
        body_line = layout.line_at(self._body) if self._body < len(self._text) else len(layout.lines) - 1
        body = bisect_left(self._offsets, self._lines[body_line + matched.lines_before])
        low, high = body, len(self._offsets)
        if chunk_only and self._chunk is not None:
            low, high = (bisect_left(self._offsets, self._folded(offset)) for offset in self._chunk)
        layout.first = body_line
        drafts = self._drafts(low, high)
        if self._chunk is not None:
            drafts.append(self._first_of(*self._chunk))
        elif not drafts:
            front = bisect_left(self._offsets, self._lines[matched.lines_before])
            if front < body:
                layout.first, layout.last = 1, max(body_line - 2, 1)
                drafts = self._drafts(front, body)
        if not drafts:
            drafts = [self._first_of(self._body, len(self._text))]
        best = max(drafts, key=lambda draft: (round(draft.score, 6), -draft.units[draft.low].start))
        return self._passage(best, title)

    # --- places -----------------------------------------------------------------------------------

    def _places(self, low: int, high: int) -> list[tuple[int, int]]:
        """The best stretches of occurrences, by index, that have nothing in common with each other."""
        occurrences = self._matched.occurrences[low:high]
        chunk = [self._folded(offset) for offset in self._chunk] if self._chunk is not None else [0, 0]
        scored = []
        for last, (first, weight) in enumerate(windows(occurrences, self._terms, self._room)):
            offset = occurrences[last].offset
            if chunk[0] <= offset < chunk[1]:
                weight += CHUNK_BONUS * self._total
            scored.append((weight, -last, first))
        taken: list[tuple[int, int]] = []
        for _, last, first in heapq.nlargest(8 * _MOST_PLACES, scored):
            last = -last
            if all(last < start or first > end for start, end in taken):
                taken.append((first, last))
        return [(low + first, low + last) for first, last in taken[:_MOST_PLACES]]

    def _drafts(self, low: int, high: int) -> list[_Draft]:
        """Passages around the heaviest units of the best places among the occurrences from `low` to `high`."""
        drafts = []
        for first, last in self._places(low, high):
            start, end = self._original(self._offsets[first]), self._original(self._offsets[last])
            units = self._layout.units(end, self._room)
            weights = {
                n: self._weight(self._held(unit))
                for n, unit in enumerate(units)
                if unit.end > start and unit.start <= end
            }
            seeds = heapq.nlargest(_MOST_SEEDS, weights, key=lambda n: (weights[n], -n)) or [0]
            drafts += [self._grown(units, seed) for seed in seeds]
        return drafts

    def _first_of(self, start: int, end: int) -> _Draft:
        """A passage from the first letter or digit of a span on, of the whole text where the span has none."""
        written = next((k for k in range(start, min(end, len(self._text))) if self._text[k].isalnum()), 0)
        units = self._layout.units(written, self._room)
        seed = next((n for n, unit in enumerate(units) if unit.end > written), len(units) - 1)
        return self._grown(units, seed)

    def _grown(self, units: Sequence[Unit], seed: int) -> _Draft:
        """The unit `seed` with what follows and precedes it: first what holds further terms, then what has room."""
        low = high = seed
        held = self._held(units[seed])
        while True:
            choices = []
            for step, at in ((1, high + 1), (-1, low - 1)):
                if not 0 <= at < len(units) or not self._may_join(units, low, high, at, units[seed].block):
                    continue
                new = self._held(units[at]) - held
                has_room = self._has_room(units[min(low, at)], units[max(high, at)])
                if new or has_room:
                    turn = (high - seed <= seed - low) == (step == 1)
                    choices.append((self._weight(new), turn, at))
            if not choices:
                break
            _, _, at = max(choices)
            low, high = min(low, at), max(high, at)
            held |= self._held(units[at])
        low = self._with_header(units, low, high)
        return _Draft(units, low, high, *self._judge(units[low].start, units[high].end))

    def _may_join(self, units: Sequence[Unit], low: int, high: int, at: int, block: int) -> bool:
        """Whether a unit may become the new first or last one of `units[low:high + 1]`."""
        unit = units[at]
        start, end = min(units[low].start, unit.start), max(units[high].end, unit.end)
        if end - start + 2 * len(_ELLIPSIS) * unit.is_piece > self._room:
            return False
        only_headings = units[high].kind == "heading"
        if (unit.kind == "heading" and at > high) or (units[low].kind == "heading" and at < low):
            return only_headings and at > high
        is_long = units[high].end - units[low].start > SHORT_CHARS // 2
        return not unit.is_piece or unit.block == block or only_headings or not is_long

    def _has_room(self, first: Unit, last: Unit) -> bool:
        lines = self._layout.lines[first.first : last.last + 1]
        return (
            last.end - first.start <= SHORT_CHARS or sum(not line.isspace() and line != "" for line in lines) <= LINES
        )

    def _with_header(self, units: Sequence[Unit], low: int, high: int) -> int:
        """`low`, or the first row of its table where there is room for all rows from there on."""
        top = low
        while (
            units[top].kind == "row"
            and top
            and units[top - 1].kind == "row"
            and units[top - 1].last == units[top].first - 1
        ):
            top -= 1
        return top if units[high].end - units[top].start <= self._room else low

    # --- terms ------------------------------------------------------------------------------------

    def _judge(self, start: int, end: int) -> tuple[int, float]:
        """The line that holds most of the query in a span, and what the span is worth."""
        first, last = (bisect_left(self._offsets, self._folded(offset)) for offset in (start, end))
        occurrences = self._matched.occurrences[first:last]
        held = {occurrence.term for occurrence in occurrences}
        line = self._best_line(occurrences) if occurrences else self._layout.line_at(self._first_letter(start, end))
        headings = self._terms_above(line) - held
        close = max((weight for _, weight in windows(occurrences, self._terms, CLOSE_CHARS)), default=0.0)
        bonus = 0.0
        if self._is_in_chunk(start, end):
            bonus += CHUNK_BONUS
        folded = self._matched.folded[self._folded(start) : self._folded(end)]
        for number in held:
            if re.search(rf"(?<!\w){re.escape(fold(self._terms[number].term.text))}(?!\w)", folded):
                bonus += EXACT_BONUS * self._terms[number].weight / self._total
        if self._declares(line):
            bonus += DECLARATION_BONUS
        score = self._weight(held) + HEADING_SHARE * self._weight(headings) + CLOSE_BONUS * close + bonus * self._total
        return line, score

    def _terms_above(self, line: int) -> frozenset[int]:
        """The terms in the headings that a line stands under, by index."""
        trail = self._layout.trail(line)
        if trail not in self._known_trails:
            folded = fold("\n".join(trail))
            self._known_trails[trail] = frozenset(one.term for one in find_occurrences(folded, self._terms))
        return self._known_trails[trail]

    def _best_line(self, occurrences: Sequence[Occurrence]) -> int:
        """The line with the largest weight of distinct terms.

        Of equal ones in source code one that declares something, then one in the chunk, then the first.
        """
        on_line: dict[int, set[int]] = {}
        for occurrence in occurrences:
            line = bisect_right(self._lines, occurrence.offset) - 1 - self._matched.lines_before
            on_line.setdefault(line, set()).add(occurrence.term)
        starts = self._layout.starts
        return max(
            on_line,
            key=lambda n: (
                round(self._weight(on_line[n]), 6),
                self._declares(n),
                self._is_in_chunk(starts[n], starts[n + 1]),
                -n,
            ),
        )

    def _declares(self, line: int) -> bool:
        return self._is_source and re.match(_DECLARATION, self._layout.lines[line]) is not None

    def _is_in_chunk(self, start: int, end: int) -> bool:
        return self._chunk is not None and self._chunk[0] < end and start < self._chunk[1]

    def _first_letter(self, start: int, end: int) -> int:
        return next((k for k in range(start, end) if self._text[k].isalnum()), start)

    def _weight(self, numbers: Iterable[int]) -> float:
        return math.fsum(self._terms[number].weight for number in numbers)

    def _held(self, unit: Unit) -> frozenset[int]:
        """The terms in a unit, by index."""
        span = (unit.start, unit.end)
        if span not in self._known:
            first, last = (bisect_left(self._offsets, self._folded(offset)) for offset in span)
            self._known[span] = frozenset(one.term for one in self._matched.occurrences[first:last])
        return self._known[span]

    # --- offsets ----------------------------------------------------------------------------------

    def _folded(self, offset: int) -> int:
        """Where an offset of the text lies in the folded one: folding keeps lines, but not always their lengths."""
        layout = self._layout
        line = layout.line_at(offset)
        start, there = layout.starts[line], self._lines[line + self._matched.lines_before]
        if self._has_length(line) or offset - start > _FOLDED_EXACTLY:
            return there + offset - start
        return there + len(fold(self._text[start:offset]))

    def _original(self, offset: int) -> int:
        """Where an offset of the folded text lies in the text, or near it where folding has changed a line's length."""
        line = bisect_right(self._lines, offset) - 1
        return self._layout.starts[line - self._matched.lines_before] + min(
            offset - self._lines[line], len(self._layout.lines[line - self._matched.lines_before])
        )

    def _has_length(self, line: int) -> bool:
        """Whether folding has left a line's length as it was."""
        there = line + self._matched.lines_before
        return self._lines[there + 1] - self._lines[there] == self._layout.starts[line + 1] - self._layout.starts[line]

    # --- passage ----------------------------------------------------------------------------------

    def _passage(self, draft: _Draft, title: str) -> Passage:
        layout = self._layout
        first, last = draft.units[draft.low], draft.units[draft.high]
        shown = self._text[first.start : last.end]
        if first.start > layout.starts[first.first]:
            shown = _ELLIPSIS + shown.lstrip()
        if last.end < layout.starts[last.last + 1] - 1 and self._text[last.end : layout.starts[last.last + 1]].strip():
            shown = shown.rstrip() + _ELLIPSIS
        shown = shown.replace("\r\n", "\n").removesuffix("\r")
        if len(shown) > self._room:
            shown = shown[: max(self._room - len(_ELLIPSIS), 0)] + _ELLIPSIS
        total = len(layout.lines) - (layout.lines[-1] == "" and len(layout.lines) > 1)
        trail = layout.trail(draft.line)
        return Passage(
            text=shown,
            start_line=first.first + 1,
            end_line=last.last + 1,
            line=draft.line + 1,
            lines_before=first.first,
            lines_after=max(total - last.last - 1, 0),
            heading_trail=trail[1:] if trail and trail[0] == title else trail,
        )


def _without_addresses(matched: MatchedText) -> MatchedText:
    """`matched` less the places inside web addresses, which nobody reads; all of them where there are no others."""
    if "://" not in matched.folded:
        return matched
    spans = [match.span() for match in re.finditer(_ADDRESS, matched.folded)]
    starts = [start for start, _ in spans]
    kept = [
        one
        for one in matched.occurrences
        if not (number := bisect_right(starts, one.offset)) or one.offset >= spans[number - 1][1]
    ]
    return replace(matched, occurrences=kept or matched.occurrences)


def _is_source(path: str) -> bool:
    from qmd.chunking.languages import language_of

    return language_of(path) is not None
