"""Results that go on where an answer ended, without those that somebody has already."""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

from msgspec.structs import replace

from qmd.errors import UsageError
from qmd.records import Hit, SearchResponse


def start_of(cursor: str | None) -> int:
    """How many results a cursor has behind it.

    Raises:
        UsageError: It is none of ours.
    """
    number, _, mark = (cursor or "0.0").partition(".")
    if not (number.isascii() and number.isdigit() and len(number) < 6 and mark):
        raise UsageError(f"cursor: '{cursor}' is none", "take it from the last line of the answer before, as it is")
    return int(number)


def turn_page(response: SearchResponse, cursor: str | None, seen: Sequence[str], limit: int) -> SearchResponse:
    """The results from a cursor on, without those that are seen already, by docid or address.

    A cursor says how many results were shown and which, so nothing is kept between two requests.
    """
    warnings = list(response.warnings)
    known = {one.removeprefix("qmd://").lstrip("#") for one in seen}
    unseen = [hit for hit in response.hits if known.isdisjoint(_names_of(hit))]
    if n_seen := len(response.hits) - len(unseen):
        warnings.append(f"left out as seen: {n_seen} result{'' if n_seen == 1 else 's'}")
    start = start_of(cursor)
    if cursor and cursor != cursor_after(unseen[:start]):
        warnings.append("the results before the cursor are others now: some may be missed, or shown twice")
    hits = tuple(unseen[start : start + limit])
    return replace(response, hits=hits, warnings=tuple(warnings), before=tuple(unseen[:start]))


def _names_of(hit: Hit) -> set[str]:
    document = hit.document
    return {document.docid.lstrip("#"), f"{document.collection}/{document.path}", document.uri.removeprefix("qmd://")}


def cursor_after(hits: Sequence[Hit]) -> str:
    """The cursor behind results, the first to the last that was shown."""
    mark = 0
    for hit in hits:
        mark = crc32(hit.document.docid.encode(), mark)
    return f"{len(hits)}.{mark:x}"
