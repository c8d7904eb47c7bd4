"""Store vectors that a search has computed, before the run that completes them.

Texts are split by the rules of that run, so that it finds every vector under its key and computes none again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from qmd.file_names import suffix_of
from qmd.indexing.embed import Chunker
from qmd.indexing.stamps import may_add_chunks
from qmd.store.base import IndexWriter
from qmd.store.records import ChunkRecord, PendingContent

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from qmd.inference.base import Embedder


class _EmbeddedText(Struct, frozen=True):
    """Chunks of a text that have a vector, and whether these are all."""

    chunks: Sequence[ChunkRecord]
    is_complete: bool


class PrecomputedChunks:
    """Splitter of texts as in an embedding run, with the vectors computed for them until they are stored."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._chunker = Chunker(embedder)
        self._kept: dict[str, _EmbeddedText] = {}
        self._vectors: dict[bytes, npt.NDArray[np.float32]] = {}

    @property
    def has_vectors(self) -> bool:
        """Whether there are vectors to store."""
        return bool(self._vectors)

    def cut(self, content: PendingContent) -> Sequence[tuple[ChunkRecord, str]]:
        """Return the chunks of a text that the model reads, each with the text to embed."""
        return self._chunker.cut(content)

    def keep(
        self, content: PendingContent, chunks: Sequence[ChunkRecord], vectors: Mapping[bytes, npt.NDArray[np.float32]]
    ) -> None:
        """Keep the vectors, by key, of chunks of a text; `chunks` are all that it has."""
        known = [chunk for chunk in chunks if chunk.key in vectors]
        # Source code split without its grammar is split again when the grammar is installed: a run notes such endings.
        is_complete = len(known) == len(chunks) and suffix_of(content.path) not in self._chunker.plain
        self._kept[content.hash] = _EmbeddedText(known, is_complete)
        self._vectors.update((chunk.key, vectors[chunk.key]) for chunk in known)

    def store(self, writer: IndexWriter) -> None:
        """Store the kept vectors, of whole texts as done and of others as waiting for the rest.

        Store nothing if another version has split the texts of the index, or if its vectors are another model's: only a
        run chooses the model of an index.
        """
        fingerprint, dim = self._embedder.fingerprint, self._embedder.dim
        with writer.transaction():
            if not may_add_chunks(writer, fingerprint):
                return
            # A run may have completed some of them meanwhile.
            waiting = writer.without_vectors(fingerprint, list(self._kept))
            kept = {name: one for name, one in self._kept.items() if name in waiting}
            keys = {chunk.key for one in kept.values() for chunk in one.chunks}
            writer.put_vectors(fingerprint, dim, {key: self._vectors[key] for key in keys})
            for is_complete in (True, False):
                sets = {name: one.chunks for name, one in kept.items() if one.is_complete == is_complete}
                writer.put_chunks(fingerprint, dim, sets, is_complete=is_complete)
