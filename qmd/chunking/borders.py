"""Natural borders for cutting a long section near a position, weighed against unused budget."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from operator import itemgetter

from qmd.ingest.markdown import Span

_BORDER = re.compile(
    r"(?P<blank>\n[ \t\r]*\n\s*)"
    r"|(?P<item>\n(?=[ \t]*(?:[-*+]|\d{1,3}[.)])[ \t]|[ \t]*\|))"
    # Not beyond the line's end: what follows may be a better border.
    r"|(?P<sentence>[.!?…]['\")\]*_»”’]*(?:[^\S\n]+|(?=\n))|[。！？]['\")\]」』”’]*[^\S\n]*)"
    r"|(?P<line>\n)"
)
_SPACE = re.compile(r"\s+")
_WEIGHTS = {"blank": 60.0, "item": 45.0, "sentence": 35.0, "line": 30.0}
_FENCE_WEIGHT = 80.0
_CODE_WEIGHTS = {"blank": 40.0, "item": 20.0, "sentence": 0.0, "line": 20.0}
"""Inside fenced code a blank line parts declarations, a full stop nothing; both lose to a blank line outside."""

_DISTANCE_LOSS = 0.7
"""A border at the far end of the search range keeps 30 % of its weight: a good border beats a slightly fuller chunk,
not a half-empty one."""


def best_cut(text: str, low: int, high: int, fences: Sequence[Span]) -> int | None:
    """Return the best offset in (low, high] to end a chunk: where the next line or word begins; None if none."""
    best: int | None = None
    best_score = 0.0
    width = max(high - low, 1)
    # Apart and ascending, so those in reach are neighbours: a long text has as many fences as windows.
    near = fences[bisect_right(fences, low, key=itemgetter(1)) : bisect_right(fences, high, key=itemgetter(0))]
    borders = [(offset, _FENCE_WEIGHT) for span in near for offset in span]
    # A border that starts inside the range may end beyond it (a run of blank lines): its first characters still count.
    for match in _BORDER.finditer(text, low, high):
        is_code = any(start <= match.start() < end - 1 for start, end in near)
        borders.append((match.end(), (_CODE_WEIGHTS if is_code else _WEIGHTS)[match.lastgroup or "line"]))
    for offset, weight in borders:
        score = weight * (1.0 - _DISTANCE_LOSS * ((high - offset) / width) ** 2)
        if low < offset <= high and score > 0.0 and score >= best_score:
            best, best_score = offset, score
    if best is None:
        for match in _SPACE.finditer(text, low, high):
            best = match.end()
    return best


def overlap_start(text: str, low: int, high: int, *, is_code: bool) -> int:
    """Return the start in [low, high] of the next chunk, so that it repeats the end of the last one.

    At a line or sentence in the first two thirds, else at a word, else at `high` (no overlap). In code only at a line.
    """
    if is_code:
        line_end = text.find("\n", max(low - 1, 0), high)
        return line_end + 1 if line_end >= 0 else high
    for border, limit in ((_BORDER, low + (high - low) * 2 // 3), (_SPACE, high)):
        for match in border.finditer(text, max(low - 1, 0), limit):
            if match.end() >= low:
                return match.end()
    return high
