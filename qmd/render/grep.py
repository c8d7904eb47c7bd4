"""Hits as lines `path:line:column:text`, the form of `rg --vimgrep` that editors and other programs read."""

from __future__ import annotations

from collections.abc import Mapping

from qmd.escapes import visible
from qmd.records import SearchResponse
from qmd.render.text import count_tail
from qmd.retrieval.matching import find_spans


def grep_lines(response: SearchResponse, paths: Mapping[str, str], shows_all: bool) -> str:
    """Return the best line of each passage of the hits, which need their bodies.

    The text is the whole line with control characters escaped. The column is 1 plus the bytes in UTF-8 before the first
    matching word; without such a word 1.

    Args:
        response: The answer.
        paths: Address → path; hits without a path are skipped.
        shows_all: Whether hits without a match and weak ones after good ones have lines too; programs see no scores.
    """
    found = ""
    n_shown = len(response.hits) - count_tail(response) if response.verdict != "none" else 0
    for hit in response.hits if shows_all else response.hits[:n_shown]:
        path, lines = paths.get(hit.document.uri), (hit.body or "").split("\n")
        for number in [one.line for one in hit.all_passages if path is not None]:
            text = lines[number - 1].removesuffix("\r")
            start = next(iter(find_spans(text, response.terms)), (0, 0))[0]
            found += f"{path}:{number}:{len(text[:start].encode('utf-8', 'surrogatepass')) + 1}:{visible(text)}\n"
    return found
