"""Cut a document into chunks: whole sections where they fit, small neighbours together, long sections in windows."""

from __future__ import annotations

import re
import zlib
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from qmd.chunking.borders import best_cut, code_fences, overlap_start
from qmd.records import Chunk, Heading

OVERLAP_TOKENS = 30
"""Enough for one sentence that a window border would otherwise part from its subject."""

_RESET_PERIOD = 8
"""One section in so many begins a new pack whatever precedes it, chosen by its own words. It bounds how far a changed
section can shift the packs after it, for about 6 % more chunks."""

_HASHED_CHARS = 200
_SETEXT_HEADING = re.compile(r"[^\n]*\n {0,3}(?:=+|-+)[ \t\r]*\Z")


@dataclass(frozen=True, slots=True)
class _Section:
    """A heading with its own text; heading-only sections are joined to the one below them."""

    start: int
    end: int
    level: int
    """Level of the outermost heading in it; 0 for text before any heading."""
    path: tuple[str, ...]


def split_document(
    text: str,
    headings: Sequence[Heading],
    body_offset: int,
    token_starts: Sequence[int],
    max_tokens: int,
    overlap_tokens: int = OVERLAP_TOKENS,
) -> tuple[Chunk, ...]:
    """Chunks that cover every non-blank character of `text[body_offset:]`, in order.

    A section that fits is never cut; neighbours share a chunk while they fit and the next one is not of a higher level.
    Only windows of one long section overlap. `heading_path` is what all sections of a chunk have in common.

    Args:
        text: The document, front matter included.
        headings: Ascending by offset; those before `body_offset` are passed over.
        body_offset: Where prose begins.
        token_starts: Offsets in `text` of the model's tokens, ascending.
        max_tokens: Budget of one chunk, at least 1.
        overlap_tokens: Tokens repeated between windows; at most a quarter of the budget is used.

    Returns:
        Chunks with ascending starts and no blank ends; empty when the body is blank.

    Raises:
        ValueError: If `max_tokens` is less than 1.
    """
    if max_tokens < 1:
        raise ValueError(f"max_tokens must be at least 1, got {max_tokens}")
    overlap = max(0, min(overlap_tokens, max_tokens // 4))
    chunks: list[Chunk] = []
    for start, end, path in _spans(text, headings, body_offset, token_starts, max_tokens, overlap):
        piece = text[start:end]
        start += len(piece) - len(piece.lstrip())
        piece = piece.strip()
        if piece:
            chunks.append(Chunk(len(chunks), start, start + len(piece), piece, path))
    return tuple(chunks)


def _spans(
    text: str, headings: Sequence[Heading], body_offset: int, token_starts: Sequence[int], max_tokens: int, overlap: int
) -> Iterator[tuple[int, int, tuple[str, ...]]]:
    """(start, end, heading path) of every chunk, blank ends not yet removed."""
    pack: list[_Section] = []
    used = 0
    for section in _sections(text, headings, body_offset):
        n_tokens = bisect_left(token_starts, section.end) - bisect_left(token_starts, section.start)
        fits = used + n_tokens <= max_tokens
        if pack and not (fits and section.level >= pack[0].level and not _resets(text, section)):
            yield _packed(pack)
            pack, used = [], 0
        if n_tokens <= max_tokens:
            pack.append(section)
            used += n_tokens
        else:
            for start, end in _windows(text, section.start, section.end, token_starts, max_tokens, overlap):
                yield start, end, section.path
    if pack:
        yield _packed(pack)


def _packed(pack: Sequence[_Section]) -> tuple[int, int, tuple[str, ...]]:
    shared = pack[0].path
    for section in pack[1:]:
        common = 0
        for a, b in zip(shared, section.path, strict=False):
            if a != b:
                break
            common += 1
        shared = shared[:common]
    return pack[0].start, pack[-1].end, shared


def _resets(text: str, section: _Section) -> bool:
    sample = text[section.start : min(section.end, section.start + _HASHED_CHARS)]
    return zlib.crc32(sample.encode("utf-8", "replace")) % _RESET_PERIOD == 0


def _sections(text: str, headings: Sequence[Heading], body_offset: int) -> Iterator[_Section]:
    marks = [heading for heading in headings if heading.offset >= body_offset]
    first = marks[0].offset if marks else len(text)
    if text[body_offset:first].strip():
        yield _Section(body_offset, first, 0, ())
    stack: list[Heading] = []
    joined: tuple[int, int] | None = None
    for i, heading in enumerate(marks):
        end = marks[i + 1].offset if i + 1 < len(marks) else len(text)
        while stack and stack[-1].level >= heading.level:
            stack.pop()
        stack.append(heading)
        start, level = joined if joined is not None else (heading.offset, heading.level)
        is_parent = i + 1 < len(marks) and marks[i + 1].level > heading.level
        # A heading alone says nothing by itself, and its words belong to what it introduces.
        if is_parent and _is_bare(text[heading.offset : end]):
            joined = (start, level)
            continue
        joined = None
        yield _Section(start, end, level, tuple(h.text for h in stack))


def _is_bare(section: str) -> bool:
    stripped = section.strip()
    return "\n" not in stripped or _SETEXT_HEADING.match(stripped) is not None


def _windows(
    text: str, start: int, end: int, token_starts: Sequence[int], max_tokens: int, overlap: int
) -> Iterator[tuple[int, int]]:
    """Spans of at most `max_tokens` tokens over a section that is longer than that."""
    fences = code_fences(text, start, end)
    last = bisect_left(token_starts, end)
    position = start
    covered = start
    while True:
        first = bisect_left(token_starts, position)
        if last - first <= max_tokens:
            yield position, end
            return
        high = token_starts[first + max_tokens]
        low = max(token_starts[first + max_tokens // 2], covered)
        cut = best_cut(text, low, high, fences) if high > low else None
        if cut is None:
            # One unbreakable run: cut between tokens, or take the token whole where several share one start.
            cut = high if high > covered else _next_start(token_starts, covered, end)
        yield position, cut
        covered = cut
        position = cut
        if overlap and cut < end:
            index = bisect_left(token_starts, cut)
            position = overlap_start(text, token_starts[max(index - overlap, first)], cut)


def _next_start(token_starts: Sequence[int], after: int, end: int) -> int:
    index = bisect_left(token_starts, after + 1)
    return token_starts[index] if index < len(token_starts) and token_starts[index] < end else end
