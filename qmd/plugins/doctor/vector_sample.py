"""Comparison of stored vectors with the model's present ones: a few chunks are embedded again."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from msgspec import Struct

from qmd.chunking.split import split_document
from qmd.indexing.embed import chunk_key, embedded_text
from qmd.ingest.document import parse_text
from qmd.ingest.outline import kind_of

if TYPE_CHECKING:
    from qmd.inference.base import Embedder
    from qmd.store.base import IndexReader

MAX_DISTANCE = 0.01
"""Cosine distance that still counts as equal. Vectors are stored in 8 bits, which moves them by up to 0.0005; on
another processor or a GPU the last digit of a sum differs, which moves an INT8 model by up to 0.007."""

_MARKDOWN = (".md", ".markdown", ".mdx", ".txt")
"""Source files are skipped, because their chunks depend on the installed grammars."""


class VectorSample(Struct, frozen=True):
    """Largest cosine distance of the chunks that were embedded again."""

    n_chunks: int
    largest_distance: float

    @property
    def agrees(self) -> bool:
        """Whether every stored vector is the model's."""
        return self.largest_distance <= MAX_DISTANCE


def sample_vectors(
    reader: IndexReader, embedder: Embedder, size: int = 3, seed: int | None = None
) -> VectorSample | None:
    """Embed `size` random chunks of markdown again and compare them with the index; None if it has none.

    Raises:
        ModelError: The model fails.
    """
    documents = [document for document in reader.iter_documents() if document.path.lower().endswith(_MARKDOWN)]
    random.Random(seed).shuffle(documents)
    distances: list[float] = []
    # Empty texts and those in scripts that the model does not read have no vectors; they are skipped.
    for document in documents[: 20 * size]:
        if len(distances) == size:
            break
        text = reader.texts([document.hash]).get(document.hash, "")
        parsed = parse_text(document.path, kind_of(document.path), text)
        starts = embedder.token_starts(text)
        chunks = split_document(text, parsed.headings, parsed.body_offset, starts, embedder.max_tokens)
        readable = [chunk for chunk in chunks if embedder.embeds(chunk.text)]
        if not readable:
            continue
        embedded = embedded_text(parsed, readable[0])
        stored = reader.vectors(embedder.fingerprint, [chunk_key(embedded)]).get(chunk_key(embedded))
        if stored is not None:
            distances.append(1.0 - float(embedder.embed_documents([embedded])[0] @ stored))
    return VectorSample(len(distances), max(distances)) if distances else None
