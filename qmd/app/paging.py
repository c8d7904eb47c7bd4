"""Pages of results: those after a cursor, without those that the caller has seen."""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

from msgspec.structs import replace

from qmd.records import Hit, SearchResponse
from qmd.retrieval.request import SearchRequest


def turn_page(response: SearchResponse, request: SearchRequest) -> SearchResponse:
    """Return the results after the cursor of a request, without those that it names as seen.

    A cursor contains the number of results that were shown and their digest, so no state is kept between requests.
    """
    warnings = list(response.warnings)
    known = {one.removeprefix("qmd://").lstrip("#") for one in request.seen}
    unseen = [hit for hit in response.hits if known.isdisjoint(_names_of(hit))]
    if n_seen := len(response.hits) - len(unseen):
        warnings.append(f"skipped {n_seen} result{'' if n_seen == 1 else 's'} already seen")
    start = request.start
    if request.cursor and request.cursor != cursor_after(unseen[:start]):
        warnings.append("the results before the cursor are others now: some may be missed, or shown twice")
    hits = tuple(unseen[start : start + request.limit])
    return replace(response, hits=hits, warnings=tuple(warnings), before=tuple(unseen[:start]))


def _names_of(hit: Hit) -> set[str]:
    document = hit.document
    return {document.docid.lstrip("#"), f"{document.collection}/{document.path}", document.uri.removeprefix("qmd://")}


def cursor_after(hits: Sequence[Hit]) -> str:
    """Return the cursor after results, from the first to the last shown."""
    mark = 0
    for hit in hits:
        mark = crc32(hit.document.docid.encode(), mark)
    return f"{len(hits)}.{mark:x}"
