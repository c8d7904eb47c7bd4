"""Fenced code in markdown: which lines open and close it."""

from __future__ import annotations

import re

Span = tuple[int, int]

FENCE = r"(`{3,}|~{3,})([^\n]*)"
"""The mark of a fence and what stands behind it on its line."""

_FENCE_LINE = re.compile(rf"^ {{0,3}}{FENCE}(?:\n|\Z)", re.M)


class FenceScanner:
    """Given every line that begins with a fence's mark, in order, it knows which of them open or close a fence."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        """Fenced code that has been closed, fence lines included."""
        self._mark = ""
        self._start = 0

    @property
    def is_open(self) -> bool:
        """Whether the text here is code."""
        return bool(self._mark)

    def line(self, mark: str, rest: str, start: int, end: int) -> None:
        """Take the next line with a mark, `rest` behind it, at `text[start:end]`."""
        if self._mark:
            if mark[0] == self._mark[0] and len(mark) >= len(self._mark) and not rest.strip():
                self.spans.append((self._start, end))
                self._mark = ""
        # With a backtick behind it the mark begins an inline code span.
        elif mark[0] == "~" or "`" not in rest:
            self._mark, self._start = mark, start

    def finish(self, end: int) -> tuple[Span, ...]:
        """All fenced code of a text that ends at `end`; a fence that is still open runs to there."""
        return (*self.spans, (self._start, end)) if self._mark else tuple(self.spans)


def code_fences(text: str, start: int, end: int) -> tuple[Span, ...]:
    """Spans of fenced code in `text[start:end]`, fence lines included; an open fence runs to `end`."""
    fences = FenceScanner()
    for match in _FENCE_LINE.finditer(text, start, end):
        fences.line(match[1], match[2], match.start(), match.end())
    return fences.finish(end)
