"""Rendering of search hits for a model, as text and as objects, within a limit of tokens. Pure.

Each form is complete, because some clients show their model only one of the two.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from msgspec import to_builtins
from msgspec.json import encode
from msgspec.structs import replace

from qmd.analysis.tokens import count_tokens
from qmd.app.budget import fill
from qmd.escapes import LONG_CHARS, address_line, one_line, visible
from qmd.plugins.mcp.presentation import document_uri, file_of
from qmd.records import Hit, Passage, SearchResponse, StoredDocument
from qmd.render.formats import HitOptions, Row, hit_object, passage_objects
from qmd.render.text import (
    VERDICT_NOTES,
    budget_line,
    continues_line,
    continues_object,
    in_brief,
    note_lines,
    number_lines,
    refreshed_line,
    round_half_up,
    worth_showing,
)

DETAILS = ("passages", "paths", "full")
"""Amount shown of each hit: the matching passages, only its path, or the whole note with its metadata."""

TEXT_TOKENS, STRUCTURED_TOKENS, EMPTY_TOKENS = 1_015, 1_200, 270
"""Estimated tokens of ten rows as text and as objects, and of a response without a good match."""

_ROWS, _LABEL_CHARS, _BRIEF_CHARS, _FURTHER = 10, 40, 240, 1.5

_Passages = tuple[Passage, ...]
_MORE = "…"


def results_text(response: SearchResponse, label: str, detail: str = "passages") -> str:
    """Render a search response as text: number of hits, notices, and rows."""
    hits, head = _closest(response), _found_text(response, label)
    tail = [budget_line(response.budget, 'cursor "{}"', 'get with file="{}"')] if response.budget else []
    if detail == "full":
        return "\n\n".join([head, *map(_whole_text, hits), *tail])
    if detail == "paths":
        return "\n".join([head, *(_head(hit, "", (hit.document.title,)) for hit in hits), *tail])
    contexts = _new_contexts([hit.context for hit in hits])

    def row(number: int, passages: _Passages) -> str:
        hit, best = hits[number], (*passages, hits[number].passage)[0]
        span = f":{best.start_line}" + (f"-{best.end_line}" if best.end_line > best.start_line else "")
        names = (hit.document.title, *hit.passage.heading_trail)
        lines = [continues_line(hit.continues)] if hit.continues else []
        lines += map(visible, _lines(passages, names))
        return "\n".join([_head(hit, span, names), *_context_line(contexts[number]), *lines])

    return "\n".join([head, *map(row, range(len(hits)), _fill(response, hits, head, row, TEXT_TOKENS)), *tail])


def _found_text(response: SearchResponse, label: str) -> str:
    """Return the number of hits as text, with notices."""
    label = one_line(label, _LABEL_CHARS)
    count = len(response.hits)
    found = f'Found {count} result{"" if count == 1 else "s"} for "{label}":'
    if not count and not (response.budget and response.budget.left):
        found = f'No results found for "{label}"'
    elif response.verdict == "none":
        found = "No good match found; the closest:"
    notes = [f"Warning: {warning}" for warning in response.warnings]
    notes += [f"Note: {refreshed_line(response.refreshed)}."] if response.refreshed else []
    notes += [f"Note: {VERDICT_NOTES['weak']}."] if count and response.verdict == "weak" else []
    return "\n".join([found, *notes])


def answer_object(
    response: SearchResponse, name: Callable[[StoredDocument], str] = file_of, detail: str = "passages"
) -> dict[str, Any]:
    """Return a search response as an object without empty fields; `name` names a document, `detail` is in `DETAILS`."""
    hits = _closest(response)
    content: dict[str, Any] = {"results": [], "verdict": response.verdict}
    if response.warnings:
        content["warnings"] = list(response.warnings)
    if response.refreshed:
        content["refreshed"] = response.refreshed
    if response.budget:
        content["budget"] = {name: value for name, value in to_builtins(response.budget).items() if value}
    contexts = _new_contexts([hit.written_context or hit.context for hit in hits])

    def row(number: int, passages: _Passages) -> dict[str, Any]:
        hit, best = hits[number], (*passages, hits[number].passage)[0]
        entry = _entry(hit, name)
        if detail == "paths":
            return entry
        entry |= {"line": hit.passage.line, "start_line": best.start_line, "end_line": best.end_line}
        if contexts[number]:
            entry["context"] = contexts[number]
        lines = _lines(passages, (hit.document.title,)) or hit.passage.heading_trail[-1:]
        return entry | {"snippet": "\n".join(lines)} | continues_object(hit)

    if detail == "full":
        return content | {"results": [_whole_object(hit, name) for hit in hits]}
    filled = _fill(response, hits, encode(content).decode(), lambda *one: encode(row(*one)).decode(), STRUCTURED_TOKENS)
    return content | {"results": list(map(row, range(len(hits)), filled))}


def _closest(response: SearchResponse) -> Sequence[Hit]:
    """Return the hits to show; without a good match two, each with a short extract before its passage."""
    if response.verdict != "none":
        return response.hits
    hits = worth_showing(response).hits
    return [replace(hit, passage=in_brief(hit.passage, _BRIEF_CHARS), passages=(hit.passage,)) for hit in hits]


def _fill(
    response: SearchResponse, hits: Sequence[Hit], fixed: str, shown: Callable[[int, _Passages], str], room: int
) -> list[_Passages]:
    """Choose the passages of each hit: none, its passage of 300 characters, or all its passages.

    The best hits get passages first; a hit gets further passages after the first ones of hits that are nearly as good.
    In a test of 200 questions, the first hit contains three quarters of the answers, the first five all but five. A
    response with a budget drops hits instead. `fixed` is the text outside the rows, `shown` renders a hit by its
    number, `room` is the limit for ten rows.
    """
    if response.budget:
        return [hit.all_passages for hit in hits]
    room = EMPTY_TOKENS if response.verdict == "none" else room
    levels: list[tuple[_Passages, ...]] = [((), (hit.passage,), hit.passages) for hit in hits]
    cost = cache(lambda number, level: count_tokens(shown(number, levels[number][level])))
    order = sorted(
        (-(1 / (number + 1) + hit.relevance) / weight, number, level)
        for number, hit in enumerate(hits)
        for level, weight in ((1, 1), (2, _FURTHER))
    )
    heads = (shown(number, ()) for number in range(len(hits)))
    chosen = fill(
        lambda sizes: ((n, (level,)) for _, n, level in order if cost(n, level) > cost(n, sizes.get(n, 0))),
        int(room * max(len(hits) / _ROWS, 1)) - count_tokens("\n".join([fixed, *heads])),
        lambda number, level: cost(number, level) - cost(number, 0),
    )
    return [one[chosen.get(number, 0)] for number, one in enumerate(levels)]


def _head(hit: Hit, span: str, names: Sequence[str]) -> str:
    """Return `#docid 97% collection/path:12-40 2023-05-30 › Names`, without repeated names."""
    document = hit.document
    stem = document.path.rpartition("/")[2].rpartition(".")[0]
    further = {_folded(name): name for name in reversed((stem, *names))}
    further.pop(_folded(stem))
    dated = f" {document.date}" if document.date and document.date not in document.path else ""
    trail = "".join(f" › {one_line(name)}" for name in reversed(further.values()) if name)
    score = f"{round(round_half_up(hit.relevance) * 100)}%"
    return f"{document.docid} {score} {address_line(file_of(document))}{span}{dated}{trail}"


def _context_line(context: str | None) -> list[str]:
    return [f"Context: {one_line(context, LONG_CHARS)}"] if context else []


def _lines(passages: _Passages, names: Sequence[str]) -> list[str]:
    """Return the numbered lines of passages, without blank lines and headings that the row names."""
    said = {_folded(name) for name in names}
    lines: list[str] = []
    for passage in passages:
        lines += [_MORE] if lines else []
        text = passage.text.split("\n")[: passage.end_line - passage.start_line + 1]
        lines += [
            f"{number}: {line}"
            for number, line in enumerate(text, passage.start_line)
            if line.strip() and (line[:1] != "#" or passage.is_code or _folded(line) not in said)
        ]
    return lines


def _folded(name: str) -> str:
    """Normalize a name for comparison: `# 2023: News!` is `2023 news`, while `my-news` differs from `My News`."""
    return " ".join(re.sub(r"[^\w\s]", "", name).casefold().split())


def _new_contexts(of_hits: Sequence[str | None]) -> list[str]:
    """Return the parts of each hit's context that no earlier hit showed."""
    said: set[str] = set()
    contexts = []
    for context in of_hits:
        parts = [part for part in (context or "").split("\n\n") if part and part not in said]
        said.update(parts)
        contexts.append("\n\n".join(parts))
    return contexts


def _entry(hit: Hit, name: Callable[[StoredDocument], str]) -> dict[str, Any]:
    document = hit.document
    entry: dict[str, Any] = {"docid": document.docid, "file": name(document), "title": document.title}
    return entry | {"score": round_half_up(hit.relevance)} | ({"date": document.date} if document.date else {})


def _whole_text(hit: Hit) -> str:
    lines = [_head(hit, "", (hit.document.title, *hit.passage.heading_trail))]
    lines += _context_line(hit.context)
    lines += [f"Also in {address_line(uri)}" for uri in hit.also_in]
    lines += note_lines(hit)
    return "\n".join([*lines, number_lines(hit.body or "", 1)])


def _whole_object(hit: Hit, name: Callable[[StoredDocument], str]) -> dict[str, Any]:
    row = Row(hit, name(hit.document), hit.document.docid)
    snippet = "\n".join(_lines((hit.passage,), (hit.document.title,)))
    further = {"uri": document_uri(hit.document), "snippet": snippet, "passages": passage_objects(hit)}
    return hit_object(row, HitOptions(full=True, metadata=True)) | further
