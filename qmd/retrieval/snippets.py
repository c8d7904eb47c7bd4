"""The passage of a document that answers: at most four lines around the line that holds most of the query."""

from __future__ import annotations

import re
from collections.abc import Sequence

from qmd.records import Passage
from qmd.retrieval.matching import MatchedText, WeightedTerm, find_occurrences, fold, match_text, windows
from qmd.retrieval.options import PASSAGE_CHARS

LINES_BEFORE = 1
LINES_AFTER = 2
_ELLIPSIS = "..."
_DECLARATION = (
    r"\s*(?:(?:export|default|public|private|protected|internal|static|abstract|async|unsafe|final|override|inline"
    r"|extern|declare|pub(?:\([^)]*\))?)\s+)*"
    r"(?:def|class|func|function|fn|struct|enum|trait|impl|interface|type|mod|module|namespace|record|union|typedef"
    r"|const|let|var|macro_rules!)\b"
)


def best_passage(
    text: str,
    terms: Sequence[WeightedTerm],
    *,
    chunk: tuple[int, int] | None = None,
    max_chars: int = PASSAGE_CHARS,
    is_source: bool = False,
    matched: MatchedText | None = None,
) -> Passage:
    """The lines to show of `text`.

    Args:
        text: The whole document.
        terms: Terms of the query with their weights.
        chunk: Span that matched, if known; the best line is looked for inside it first. A chunk that holds no term is
            shown from its own first line: it matched by meaning.
        max_chars: Longest passage in code points; longer ones end in `...`.
        is_source: Of equally good lines of source code the one that declares something is shown.
        matched: `text` with the places of `terms`, where the caller has looked for them already.

    Returns:
        Line -1 to +2 around the best one, clipped to the document; line numbers are those of the file.
    """
    lines = text.split("\n")
    first, last = 0, len(lines) - 1
    if chunk is not None:
        first = text.count("\n", 0, chunk[0])
        last = max(text.count("\n", 0, max(chunk[1] - 1, 0)), first)
    best = _best_line(lines, first, last, matched or match_text(text, terms), terms, is_source)
    if best is None and chunk is not None:
        best = _first_written(lines, first, last)
    if best is None:
        best = _first_written(lines, 0, len(lines) - 1) or 0
    start = max(best - LINES_BEFORE, 0)
    end = min(best + LINES_AFTER, len(lines) - 1)
    shown = "\n".join(line.removesuffix("\r") for line in lines[start : end + 1])
    if len(shown) > max_chars:
        # A long first line must not push the matching one out of sight.
        start, shown = best, "\n".join(line.removesuffix("\r") for line in lines[best : end + 1])
    if len(shown) > max_chars:
        shown = _cut(shown, terms, max_chars)
        end = best + shown.count("\n")
    total = len(lines) - 1 if lines[-1] == "" and len(lines) > 1 else len(lines)
    end = min(end, max(total - 1, start))
    return Passage(
        text=shown,
        start_line=start + 1,
        end_line=end + 1,
        line=best + 1,
        lines_before=start,
        lines_after=max(total - end - 1, 0),
    )


def best_span(matched: MatchedText, terms: Sequence[WeightedTerm], size: int) -> tuple[int, int]:
    """The stretch of `size` code points that holds the most term weight, cut at line ends where one is near."""
    best, best_weight = 0, -1.0
    for offset, weight in windows(matched.occurrences, terms, size // 2):
        if weight > best_weight + 1e-9:
            best, best_weight = offset, weight
    start = max(matched.folded.rfind("\n", 0, best) + 1, best - size // 4, 0)
    return start, min(start + size, len(matched.folded))


def _best_line(
    lines: Sequence[str], first: int, last: int, matched: MatchedText, terms: Sequence[WeightedTerm], is_source: bool
) -> int | None:
    """First line from `first` to `last` with the largest weight of distinct terms; None when no term occurs in them.

    In source code a declaration goes before the equally good lines that only use what it declares.
    """
    scores: dict[int, float] = {}
    seen: set[tuple[int, int]] = set()
    line, position = -matched.lines_before, 0
    for occurrence in matched.occurrences:
        line += matched.folded.count("\n", position, occurrence.offset)
        position = occurrence.offset
        if first <= line <= last and (line, occurrence.term) not in seen:
            seen.add((line, occurrence.term))
            scores[line] = scores.get(line, 0.0) + terms[occurrence.term].weight + 1e-6
    if not scores:
        return None
    highest = round(max(scores.values()), 6)
    best = [number for number, score in scores.items() if round(score, 6) == highest]
    declaring = [number for number in best if re.match(_DECLARATION, lines[number])] if is_source else []
    return min(declaring or best)


def _first_written(lines: Sequence[str], first: int, last: int) -> int | None:
    """First line in the span with a letter or digit."""
    return next((number for number in range(first, last + 1) if any(map(str.isalnum, lines[number]))), None)


def _cut(text: str, terms: Sequence[WeightedTerm], max_chars: int) -> str:
    """`max_chars` code points of `text`, from its start or, when all terms lie beyond, around the first of them."""
    room = max(max_chars - len(_ELLIPSIS), 0)
    occurrences = find_occurrences(fold(text), terms)
    start = 0
    if occurrences and "\n" not in text[: occurrences[0].offset] and occurrences[0].offset > room - 20:
        start = max(occurrences[0].offset - room // 4, 0)
    if not start:
        return text[:room] + _ELLIPSIS
    room = max(room - len(_ELLIPSIS), 0)
    return _ELLIPSIS + text[start : start + room] + (_ELLIPSIS if start + room < len(text) else "")
