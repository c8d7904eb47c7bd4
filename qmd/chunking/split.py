from __future__ import annotations
from collections.abc import Sequence
from qmd.records import Chunk, Heading
OVERLAP_TOKENS = 30
def split_document(
    text: str,
    headings: Sequence[Heading],
    body_offset: int,
    token_starts: Sequence[int],
    max_tokens: int,
    overlap_tokens: int = OVERLAP_TOKENS,
) -> tuple[Chunk, ...]:
    raise NotImplementedError
