"""Cut a document into chunks: whole sections if they fit, small neighbours together, long sections in windows.

A section is a heading with its text or, in source code, a declaration with its comments.
"""

from __future__ import annotations

import re
import zlib
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import takewhile

from msgspec import Struct
from msgspec.structs import replace

from qmd.chunking.borders import best_cut, overlap_start
from qmd.ingest.markdown import Span, code_fences
from qmd.records import Chunk, Heading

OVERLAP_TOKENS = 30
"""Enough for one sentence that a window border would otherwise part from its subject."""

_RESET_PERIOD = 8
"""One section in so many begins a new pack, chosen by its own words. This bounds how far a changed section can shift
the packs after it, for about 6 % more chunks."""

_HASHED_CHARS = 200

_CODE_PACK_SHARE = 3
"""Declarations share a chunk only up to a third of the budget: together they would blur what each one does."""

_SETEXT_HEADING = re.compile(r"[^\n]*\n {0,3}(?:=+|-+)[ \t\r]*\Z")


class Declaration(Struct, frozen=True):
    """One named part of a source: `text[start:end]`, extended to whole lines if it is alone on them."""

    name: str
    """Keyword and name as people write them: `class Store`, `def open`, `impl Display for Store`."""
    start: int
    end: int
    children: tuple[Declaration, ...] = ()


class _Section(Struct, frozen=True):
    """A heading with its own text (heading-only sections are joined to the one below them), or a declaration."""

    start: int
    end: int
    level: int
    """Level of the outermost heading in it; 0 for text before any heading."""
    path: tuple[str, ...]
    is_code: bool = False


class _Budget(Struct, frozen=True):
    """Token positions of the text, and the token limits of a chunk, its overlap and a pack."""

    token_starts: Sequence[int]
    max_tokens: int
    overlap: int
    pack_tokens: int

    def count(self, start: int, end: int) -> int:
        return bisect_left(self.token_starts, end) - bisect_left(self.token_starts, start)


def split_document(
    text: str,
    headings: Sequence[Heading],
    body_offset: int,
    token_starts: Sequence[int],
    max_tokens: int,
    overlap_tokens: int = OVERLAP_TOKENS,
) -> tuple[Chunk, ...]:
    """Split `text[body_offset:]` into chunks that cover every non-blank character, in order.

    A section that fits is never cut; neighbours share a chunk while they fit and the next one is not of a higher level.
    Only windows of one long section overlap. `heading_path` is the part of the path that all sections of a chunk share.

    Args:
        text: The document, front matter included.
        headings: Ascending by offset; those before `body_offset` are ignored.
        body_offset: Where prose begins.
        token_starts: Offsets in `text` of the model's tokens, ascending.
        max_tokens: Budget of one chunk, at least 1.
        overlap_tokens: Tokens repeated between windows; at most a quarter of the budget is used.

    Returns:
        Chunks with ascending starts and no blank ends; empty if the body is blank.

    Raises:
        ValueError: If `max_tokens` is less than 1.
    """
    budget = _make_budget(token_starts, max_tokens, overlap_tokens)
    return _make_chunks(text, _split_sections(text, headings, body_offset), budget)


def split_code(
    text: str,
    declarations: Sequence[Declaration],
    token_starts: Sequence[int],
    max_tokens: int,
    overlap_tokens: int = OVERLAP_TOKENS,
) -> tuple[Chunk, ...]:
    """Split a source file into chunks at declarations; they cover every non-blank character.

    A declaration that fits is one chunk, or shares one with small neighbours; a longer one is cut where its own
    declarations (the methods of a class) begin, and only the parts that remain too long in windows. `heading_path` is
    the qualified name: `("class Store", "def open")`.

    `declarations` are the outermost ones, ascending and apart; for the rest see `split_document`.
    """
    budget = _make_budget(token_starts, max_tokens, overlap_tokens)
    budget = replace(budget, pack_tokens=max_tokens // _CODE_PACK_SHARE)
    return _make_chunks(text, _split_parts(text, (0, len(text)), declarations, (), budget), budget)


def _make_budget(token_starts: Sequence[int], max_tokens: int, overlap_tokens: int) -> _Budget:
    if max_tokens < 1:
        raise ValueError(f"max_tokens must be at least 1, got {max_tokens}")
    return _Budget(token_starts, max_tokens, max(0, min(overlap_tokens, max_tokens // 4)), max_tokens)


def _make_chunks(text: str, sections: Iterator[_Section], budget: _Budget) -> tuple[Chunk, ...]:
    chunks: list[Chunk] = []
    for start, end, path in _cut_spans(text, sections, budget):
        start += len(text[start:end]) - len(text[start:end].lstrip())
        if piece := text[start:end].rstrip():
            chunks.append(Chunk(len(chunks), start, start + len(piece), piece, path))
    return tuple(chunks)


def _cut_spans(text: str, sections: Iterator[_Section], budget: _Budget) -> Iterator[tuple[int, int, tuple[str, ...]]]:
    """Yield (start, end, heading path) of every chunk, blank ends not yet removed."""
    pack: list[_Section] = []
    used = 0
    for section in sections:
        n_tokens = budget.count(section.start, section.end)
        fits = used + n_tokens <= budget.pack_tokens
        if pack and not (fits and _may_follow(section, pack[0]) and not _starts_pack(text, section)):
            yield _join_pack(pack)
            pack, used = [], 0
        if n_tokens <= budget.max_tokens:
            pack.append(section)
            used += n_tokens
        else:
            yield from ((*span, section.path) for span in _split_windows(text, section, budget))
    if pack:
        yield _join_pack(pack)


def _may_follow(section: _Section, first: _Section) -> bool:
    """Return whether a section may follow in one chunk: not of a higher level, and not a declaration after imports."""
    return section.level >= first.level and not (first.is_code and not first.path)


def _join_pack(pack: Sequence[_Section]) -> tuple[int, int, tuple[str, ...]]:
    # Loose statements after a declaration do not take its name from it.
    paths = [section.path for section in pack if section.path or not section.is_code] or [()]
    shared = takewhile(lambda names: len(set(names)) == 1, zip(*paths, strict=False))
    return pack[0].start, pack[-1].end, tuple(names[0] for names in shared)


def _starts_pack(text: str, section: _Section) -> bool:
    sample = text[section.start : min(section.end, section.start + _HASHED_CHARS)]
    return zlib.crc32(sample.encode("utf-8", "replace")) % _RESET_PERIOD == 0


def _split_sections(text: str, headings: Sequence[Heading], body_offset: int) -> Iterator[_Section]:
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
        start, level = joined or (heading.offset, heading.level)
        is_parent = i + 1 < len(marks) and marks[i + 1].level > heading.level
        # A heading has no content of its own; its words belong to the section that it introduces.
        bare = text[heading.offset : end].strip()
        if is_parent and ("\n" not in bare or _SETEXT_HEADING.match(bare)):
            joined = (start, level)
            continue
        joined = None
        yield _Section(start, end, level, tuple(h.text for h in stack))


def _split_parts(
    text: str, span: Span, declarations: Sequence[Declaration], path: tuple[str, ...], budget: _Budget
) -> Iterator[_Section]:
    """Yield the declarations in a span and the code between them; split those too long for a chunk into their parts."""
    position, end = span
    inner = len(path) + 1
    for declaration in declarations:
        if text[position : declaration.start].strip():
            # Code before the first member is the declaration's own head, under which its members come.
            level = inner - 1 if position == span[0] else inner
            yield _Section(position, declaration.start, level, path, is_code=True)
        name = (*path, declaration.name)
        if not declaration.children or budget.count(declaration.start, declaration.end) <= budget.max_tokens:
            yield _Section(declaration.start, declaration.end, inner, name, is_code=True)
        else:
            yield from _split_parts(text, (declaration.start, declaration.end), declaration.children, name, budget)
        position = declaration.end
    if text[position:end].strip():
        yield _Section(position, end, inner, path, is_code=True)


def _split_windows(text: str, section: _Section, budget: _Budget) -> Iterator[Span]:
    """Yield spans of at most `max_tokens` tokens over a longer section."""
    start, end, is_code = section.start, section.end, section.is_code
    token_starts, max_tokens, overlap = budget.token_starts, budget.max_tokens, budget.overlap
    # In code, as in a fence, a blank line parts more than a full stop does.
    fences = ((start, end),) if is_code else code_fences(text, start, end)
    last = bisect_left(token_starts, end)
    position = covered = start
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
        covered = position = cut
        if overlap and cut < end:
            index = bisect_left(token_starts, cut)
            position = overlap_start(text, token_starts[max(index - overlap, first)], cut, is_code=is_code)


def _next_start(token_starts: Sequence[int], after: int, end: int) -> int:
    index = bisect_left(token_starts, after + 1)
    return token_starts[index] if index < len(token_starts) and token_starts[index] < end else end
