"""Passage choice: whole blocks around the place with most of the query."""

from __future__ import annotations

import heapq
import re
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from qmd.records import Passage
from qmd.retrieval.layout import Layout, TermPlaces, Unit
from qmd.retrieval.matching import MatchedText, Occurrence, WeightedTerm, find_occurrences, fold, match_text, windows
from qmd.retrieval.request import PASSAGE_CHARS

SHORT_CHARS = 400
SHORT_LINES = 12
"""Code points, about five lines of prose, and lines up to which a passage grows without further words of the query."""

CHUNK_BONUS = 0.05
"""Bonus for a place in the chunk that vectors found, and for a declaration in source code, as a share of the weight of
all terms: it settles near ties."""

FILL_CHARS = 1_000
"""Longest passage of the first hit for further reading; of others half as long. With 1,500 fewer expected texts are in
the first 300 tokens (.735 of garden's instead of .771), and no more in the first 3,000."""

PART_SHARE = 0.25
MAX_PARTS = 3
"""Share of the query's weight, without that of names, that a further passage has to add; passages of a note at most."""

LITTLE_SHARE = 0.5
"""Share of the query's weight below which the best passage is not enough: the chunk gets one, too."""

NAMED_SHARE = 0.7
"""Share of the query's weight in the names of a document, its date among them, from which the query asks for the
document and not a place in it: `books read oct-dec 2020`. Without it .771 of garden's texts are in the first 1,000
tokens instead of .831; of six vaults one gains, one loses a text and four stay."""

_MAX_STRETCHES = 8
_MAX_SEEDS = 3
"""Spans of a text, and units of each, around which passages are drafted."""

_ELLIPSIS = "..."


class _Draft(Struct, frozen=True):
    """A possible passage: `units[low:high + 1]`, its best line, and its score."""

    units: Sequence[Unit]
    low: int
    high: int
    line: int
    score: float

    @property
    def span(self) -> tuple[int, int]:
        """Offsets in the text."""
        return self.units[self.low].start, self.units[self.high].end

    def overlaps(self, other: _Draft) -> bool:
        """Return whether two drafts have a line in common."""
        return (
            self.units[self.low].first <= other.units[other.high].last
            and other.units[other.low].first <= self.units[self.high].last
        )


def choose_passages(
    text: str,
    terms: Sequence[WeightedTerm],
    *,
    path: str = "",
    title: str = "",
    chunk: tuple[int, int] | None = None,
    chunk_only: bool = False,
    max_chars: int = PASSAGE_CHARS,
    fill_chars: int = FILL_CHARS,
    matched: MatchedText | None = None,
) -> tuple[Passage, tuple[Passage, ...]]:
    """Return the part of `text` to show, and the passages for further reading, the best first.

    Words choose: the place with the largest weight of distinct terms, where a term weighs more the fewer
    places of the text have it. With few words the chunk decides, and a query that is nearly the names of the document
    shows its beginning. Paragraphs, list items, table rows and fenced code are shown whole if they fit; front matter
    only if no other part contains a term.

    For further reading the best passage grows to its section, and to the whole text if that is short. Then come the
    summary of the section; others with much of the query that is lacking, for each part of a question its own; and the
    chunk, with few words.

    Args:
        text: The whole document.
        path: Gives the kind of text: markdown has blocks, and declarations in source code are preferred to equal lines.
        title: Title of the document, skipped in the passage's headings.
        chunk: Span that vectors found, if any.
        chunk_only: Whether the best passage has to be in it: for a dense search.
        max_chars: Longest passage in code points; one cut inside a block has `...` there.
        fill_chars: Limit of the best passage when it grows.
        matched: Names and `text` with the places of `terms`, if at hand.

    Returns:
        The best passage, and all; line numbers are those of the file.
    """
    chooser = _PassageChooser(text, terms, path, title, chunk, matched or match_text(text, terms))
    best = chooser.choose(_TextBudget(max_chars), chunk_only)
    return best, chooser.fill(best, _TextBudget(max_chars), _TextBudget(fill_chars, fills=True))


class _TextBudget(Struct, frozen=True):
    """Budget of a passage: code points, and whether it grows until they are used up."""

    chars: int
    fills: bool = False


class _PassageChooser:
    """State of one choice: the text with its blocks, and the places of the terms."""

    def __init__(
        self,
        text: str,
        terms: Sequence[WeightedTerm],
        path: str,
        title: str,
        chunk: tuple[int, int] | None,
        matched: MatchedText,
    ) -> None:
        from qmd.ingest.outline import kind_of, read_outline

        outline = read_outline(kind := kind_of(path or ".md"), text)
        self._is_source = kind.is_source
        self._body = outline.front.body_offset
        self._layout = Layout(text, outline.headings, outline.fences, is_source=self._is_source)
        self._places = TermPlaces(self._layout, terms, matched)
        self._text = text
        self._title = title
        self._chunk = chunk
        self._found_drafts: Sequence[_Draft] = ()

    def choose(self, budget: _TextBudget, chunk_only: bool) -> Passage:
        """Return the best of all possible passages."""
        layout, places = self._layout, self._places
        if self._body < len(self._text):
            layout.first = layout.line_at(self._body)
        body = layout.first
        span = self._chunk if chunk_only and self._chunk is not None else (layout.starts[layout.first], len(self._text))
        drafts = self._draft_passages(*places.occurrence_range(*span), budget)
        if self._chunk is not None:
            drafts.append(self._draft_from(*self._chunk, budget))
        elif not drafts and layout.first > 1:
            front = places.occurrence_range(0, layout.starts[layout.first])
            layout.first, layout.last = 1, layout.first - 2
            drafts = self._draft_passages(*front, budget)
        drafts.sort(key=lambda draft: (-round(draft.score, 6), draft.units[draft.low].start))
        if not drafts or (not chunk_only and self._is_named(drafts[0])):
            layout.first, layout.last = body, len(layout.lines) - 1
            headings = [one.offset for one in layout.headings[:1] if fold(one.text) in places.names]
            drafts.insert(0, self._draft_from(max(self._body, *headings, 0), len(self._text), budget))
        self._found_drafts = drafts
        return self._passage(drafts[0], budget)

    def _is_named(self, best: _Draft) -> bool:
        """Return whether the query asks for the document by its names, and not for a place under a matching heading."""
        places = self._places
        if self._is_source or places.share_named < NAMED_SHARE:
            return False
        own = places.weight(places.terms_in(*best.span) - places.named)
        nearest = {fold(one) for one in self._layout.trail(best.line)[-1:]}.difference(places.names)
        return own < LITTLE_SHARE * places.total and not any(find_occurrences(one, places.terms) for one in nearest)

    def fill(self, best: Passage, budget: _TextBudget, first_budget: _TextBudget) -> tuple[Passage, ...]:
        """Return the chosen passage grown, the summary, others with a part of the query it lacks, and the chunk."""
        layout, places = self._layout, self._places
        units = layout.units(layout.starts[best.line - 1], first_budget.chars)
        seed = next(number for number, unit in enumerate(units) if unit.last >= best.line - 1)
        taken = [self._grow(units, seed, first_budget)]
        passages = [replace(self._passage(taken[0], first_budget), line=best.line)]
        found_terms = places.terms_in(*taken[0].span)
        end, filling = len(self._text), replace(budget, fills=True)
        others = [(draft, False) for draft in self._found_drafts[1:]]
        if (summary := layout.summary(best.line - 1)) is not None:
            others.insert(0, (self._draft_from(layout.starts[summary + 1], end, filling), True))
        if self._chunk is not None and places.weight(found_terms) < LITTLE_SHARE * places.total:
            others.append((self._draft_from(self._chunk[0], end, filling), True))
        for draft, is_own in others:
            new = places.terms_in(*draft.span) - found_terms - places.named
            has_part = is_own or places.weight(new) >= PART_SHARE * places.total
            if len(taken) < MAX_PARTS and has_part and not any(draft.overlaps(other) for other in taken):
                taken.append(draft)
                passages.append(self._passage(draft, budget))
                found_terms |= new
        return tuple(passages)

    def _find_stretches(self, low: int, high: int, budget: _TextBudget) -> list[tuple[int, int]]:
        """Return the best disjoint runs of occurrences, as first and last index."""
        places = self._places
        occurrences = places.occurrences[low:high]
        found = windows(occurrences, places.terms, budget.chars)
        scored = [(weight, -last, first) for last, (first, weight) in enumerate(found)]
        taken: list[tuple[int, int]] = []
        for _, negative, first in heapq.nlargest(8 * _MAX_STRETCHES, scored):
            if all(-negative < start or first > end for start, end in taken):
                taken.append((first, -negative))
        return [(low + first, low + last) for first, last in taken[:_MAX_STRETCHES]]

    def _draft_passages(self, low: int, high: int, budget: _TextBudget) -> list[_Draft]:
        """Draft passages around the heaviest units of the best runs of the occurrences from `low` to before `high`."""
        places = self._places
        drafts = []
        for first, last in self._find_stretches(low, high, budget):
            start, end = places.offset(places.occurrences[first]), places.offset(places.occurrences[last])
            units = self._layout.units(end, budget.chars)
            weights = {
                number: places.weight(places.terms_in(unit.start, unit.end))
                for number, unit in enumerate(units)
                if unit.end > start and unit.start <= end
            }
            seeds = heapq.nlargest(_MAX_SEEDS, weights, key=lambda number: (weights[number], -number)) or [0]
            drafts += [self._grow(units, seed, budget) for seed in seeds]
        return drafts

    def _draft_from(self, start: int, end: int, budget: _TextBudget) -> _Draft:
        """Draft a passage from the first letter or digit of a span, or of the body where the span has none."""
        first_letter = self._find_first_letter(start, end)
        if first_letter is None:
            first_letter = self._find_first_letter(self._layout.starts[self._layout.first], len(self._text)) or 0
        units = self._layout.units(first_letter, budget.chars)
        seed = next((number for number, unit in enumerate(units) if unit.end > first_letter), len(units) - 1)
        return self._grow(units, seed, budget)

    def _find_first_letter(self, start: int, end: int) -> int | None:
        match = re.compile(r"[^\W_]").search(self._text, start, end)
        return match.start() if match is not None else None

    def _grow(self, units: Sequence[Unit], seed: int, budget: _TextBudget) -> _Draft:
        """Draft the unit `seed` with units around it: first those with further terms, then those that fit.

        A passage that fills its budget continues over headings in a short text.
        """
        if units[seed].kind == "heading" and seed + 1 < len(units) and units[seed + 1].kind == "fence":
            seed += units[seed + 1].is_piece  # the two cannot be shown together
        low, high = self._find_table_top(units, seed, budget), seed
        crosses, is_short = False, budget.fills and len(self._text) - self._body <= budget.chars
        while True:
            at = self._next_unit(units, low, high, seed, budget, crosses)
            if at is not None:
                low, high = min(low, at), max(high, at)
            elif crosses or not is_short:
                break
            else:
                crosses = True
        while crosses and high > seed and units[high].kind == "heading":
            high -= 1
        return _Draft(units, low, high, *self._score_span(units[low].start, units[high].end))

    def _next_unit(
        self, units: Sequence[Unit], low: int, high: int, seed: int, budget: _TextBudget, crosses: bool
    ) -> int | None:
        """Return the unit by which `units[low:high + 1]` grows, if any."""
        found_terms = self._places.terms_in(units[low].start, units[high].end)
        choices = []
        for step, at in ((1, high + 1), (-1, low - 1)):
            if not 0 <= at < len(units) or not self._may_join(units, low, high, at, units[seed], budget, crosses):
                continue
            unit, first, last = units[at], units[min(low, at)], units[max(high, at)]
            new = self._places.terms_in(unit.start, unit.end) - found_terms
            lines = self._layout.lines[first.first : last.last + 1]
            is_short = last.end - first.start <= SHORT_CHARS and sum(map(bool, map(str.strip, lines))) <= SHORT_LINES
            if new or budget.fills or is_short:
                turn = (high - seed <= seed - low) == (step == 1)
                choices.append((self._places.weight(new), turn, at))
        return max(choices)[-1] if choices else None

    def _may_join(
        self, units: Sequence[Unit], low: int, high: int, at: int, seed: Unit, budget: _TextBudget, crosses: bool
    ) -> bool:
        """Return whether a unit may become the new first or last one of `units[low:high + 1]`.

        A part of fenced code stays alone: between it and its neighbours is a mark that nothing would close.
        """
        unit = units[at]
        if unit.block != seed.block and any(one.kind == "fence" and one.is_piece for one in (unit, seed)):
            return False
        start, end = min(units[low].start, unit.start), max(units[high].end, unit.end)
        if end - start + 2 * len(_ELLIPSIS) * unit.is_piece > budget.chars:
            return False
        only_headings = units[high].kind == "heading"
        is_border = (unit.kind == "heading" and at > high) or (units[low].kind == "heading" and at < low)
        if is_border and not crosses:
            return only_headings and at > high
        is_long = units[high].end - units[low].start > SHORT_CHARS // 2
        return not unit.is_piece or unit.block == seed.block or only_headings or not is_long

    def _find_table_top(self, units: Sequence[Unit], row: int, budget: _TextBudget) -> int:
        """Return the first row of the table of `row` if the budget allows all rows between, else `row`."""
        top = row
        while top and units[top].kind == units[top - 1].kind == "row" and units[top - 1].last == units[top].first - 1:
            top -= 1
        return top if units[row].end - units[top].start <= budget.chars else row

    def _score_span(self, start: int, end: int) -> tuple[int, float]:
        """Return the line with most of the query in a span, and the score of the span."""
        places = self._places
        first, last = places.occurrence_range(start, end)
        occurrences = places.occurrences[first:last]
        if occurrences:
            line = self._best_line(occurrences)
        else:
            first_letter = self._find_first_letter(start, end)
            line = self._layout.line_at(start if first_letter is None else first_letter)
        score = places.weight(places.terms_in(start, end))
        return line, score + CHUNK_BONUS * places.total * (self._is_in_chunk(start, end) + self._layout.declares(line))

    def _best_line(self, occurrences: Sequence[Occurrence]) -> int:
        """Return the line with the largest weight of distinct terms.

        Ties go in source code to a declaration, then to a line in the chunk, then to the first.
        """
        on_line: dict[int, set[int]] = {}
        for occurrence in occurrences:
            on_line.setdefault(self._places.line(occurrence), set()).add(occurrence.term)
        starts = self._layout.starts
        return max(
            on_line,
            key=lambda n: (
                round(self._places.weight(on_line[n]), 6),
                self._layout.declares(n),
                self._is_in_chunk(starts[n], starts[n + 1]),
                -n,
            ),
        )

    def _is_in_chunk(self, start: int, end: int) -> bool:
        return self._chunk is not None and self._chunk[0] < end and start < self._chunk[1]

    def _passage(self, draft: _Draft, budget: _TextBudget) -> Passage:
        layout = self._layout
        first, last = draft.units[draft.low], draft.units[draft.high]
        shown = self._text[first.start : last.end]
        rest = self._text[last.end : layout.starts[last.last + 1] - 1]
        if first.start > layout.starts[first.first]:
            shown = _ELLIPSIS + shown.lstrip()
        shown = shown.rstrip() + _ELLIPSIS if rest.strip() else shown + rest
        shown = shown.replace("\r\n", "\n").removesuffix("\r")
        if len(shown) > budget.chars:
            shown = shown[: max(budget.chars - len(_ELLIPSIS), 0)] + _ELLIPSIS
        total = len(layout.lines) - (layout.lines[-1] == "" and len(layout.lines) > 1)
        trail = layout.trail(draft.line)
        return Passage(
            text=shown,
            start_line=first.first + 1,
            end_line=last.last + 1,
            line=draft.line + 1,
            lines_before=first.first,
            lines_after=max(total - last.last - 1, 0),
            heading_trail=trail[1:] if trail and trail[0] == self._title else trail,
            is_code=self._is_source or (first.kind == "fence" and first.is_piece),
        )
