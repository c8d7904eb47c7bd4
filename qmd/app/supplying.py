"""Vectors that a search computes for its best candidates, kept in the index when the answer is there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from qmd.errors import QmdError

if TYPE_CHECKING:
    from qmd.indexing.ahead import ChunksAhead
    from qmd.inference.base import Embedder


class VectorSupply:
    """Opens the source of chunks of one search when the search finds texts without vectors, and keeps its vectors."""

    def __init__(self) -> None:
        self._ahead: ChunksAhead | None = None

    def open(self, embedder: Embedder) -> ChunksAhead:
        """Texts are cut for this model."""
        # Parsers and splitters take 60 ms to import, which an index with all of its vectors does without.
        from qmd.indexing.ahead import ChunksAhead

        self._ahead = ChunksAhead(embedder)
        return self._ahead

    @property
    def has_new(self) -> bool:
        """Whether there is anything to store."""
        return self._ahead is not None and self._ahead.has_vectors

    def store(self, database: Path) -> None:
        """Store what was computed, unless another process is writing or the index cannot be written.

        The answer is there: it neither waits nor fails, and a later search or run computes these vectors again.
        """
        from qmd.store.opening import open_writer

        if self._ahead is None:
            return
        try:
            with open_writer(database, busy_timeout_ms=0) as writer:
                self._ahead.store(writer)
        except (QmdError, OSError):
            return
