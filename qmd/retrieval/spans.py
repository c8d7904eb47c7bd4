"""Where a text holds what a search looked for, for those who show it: by the analysis that searched, never by letters.

Passages are chosen by `matching`, which this asks; here its places become spans of the text as it stands.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import islice

from qmd.records import LexicalTerm
from qmd.retrieval.matching import find_matches, fold

MOST_SPANS = 2_000
"""Of each way to write a term: more than any screen shows, and far less than a text of ten megabytes can hold."""

_PIECE = r"[\0-\x7f]+|[^\0-\x7f]{1,64}"
"""ASCII, which folding leaves in its place, or a few of the characters that it may make longer or shorter."""


def find_spans(text: str, terms: Sequence[LexicalTerm]) -> list[tuple[int, int]]:
    """The stretches (start, end) of `text` that `terms` found, ascending and apart from each other.

    Whole words, in whatever form they stand there (`linking` for `links`); phrases as one stretch; pairs of Chinese,
    Japanese or Korean characters run together. `terms` are those of `SearchResponse.terms`.
    """
    folded, origin = _fold(text)
    found: list[tuple[int, int]] = []
    for term in terms:
        found += _literal(folded, term)
        for match in find_matches(folded, term):
            found += islice(((one.start(), one.end()) for one in match), MOST_SPANS)
    found.sort()
    joined: list[tuple[int, int]] = []
    for start, end in found:
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    if origin is None:
        return joined
    return [(origin.start(start), origin.end(end)) for start, end in joined]


def _literal(folded: str, term: LexicalTerm) -> Iterator[tuple[int, int]]:
    """Names that symbols tell apart (`C++`) as they are written: the index holds a word for them, no text does."""
    text = fold(term.text)
    if re.fullmatch(r"[\w\s]*", text):
        return iter(())
    border = r"(?!\w)" if text[-1].isalnum() else ""
    found = re.finditer(rf"(?<!\w){re.escape(text)}{border}", folded)
    return islice(((match.start(), match.end()) for match in found), MOST_SPANS)


class _Origin:
    """Where the characters of a folded text stood before, by stretches: (folded offset, offset, whether they agree)."""

    def __init__(self) -> None:
        self._folded: list[int] = []
        self._own: list[int] = []
        self._is_same: list[bool] = []

    def add(self, folded: int, own: int, *, is_same: bool) -> None:
        """From here on a folded offset is one of the text, character by character or all of it one character."""
        self._folded.append(folded)
        self._own.append(own)
        self._is_same.append(is_same)

    def start(self, offset: int) -> int:
        """The character that holds a folded offset."""
        at = bisect_right(self._folded, offset) - 1
        return self._own[at] + (offset - self._folded[at]) * self._is_same[at]

    def end(self, offset: int) -> int:
        """The end of the character before a folded offset, with its accents."""
        at = bisect_right(self._folded, offset) - 1
        inside = offset - self._folded[at]
        return self._own[at] + (inside if self._is_same[at] else min(inside, 1))


def _fold(text: str) -> tuple[str, _Origin | None]:
    """The folded text and where its characters come from; None where every one is still in its place."""
    if text.isascii():
        return fold(text), None
    origin = _Origin()
    parts: list[str] = []
    length = 0
    for match in re.finditer(_PIECE, text):
        piece, start = match[0], match.start()
        folded = fold(piece)
        if len(folded) == len(piece):
            origin.add(length, start, is_same=True)
        else:
            for number in range(len(piece)):
                origin.add(length + min(len(fold(piece[:number])), len(folded)), start + number, is_same=False)
        parts.append(folded)
        length += len(folded)
    origin.add(length, len(text), is_same=True)
    return "".join(parts), origin
