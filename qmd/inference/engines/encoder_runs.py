"""Padded batches of texts through an encoder: how a GPU is kept busy. A CPU is faster with one text a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from qmd.errors import ModelError
from qmd.inference.engines.encoder_graph import read_encoder_graph
from qmd.inference.runtime.gpu_memory import OutOfMemory
from qmd.inference.runtime.sessions import Session

BATCH_TOKENS = 16_384
"""Padded tokens in one run: 64 chunks of the usual size. The attention of the built-in model then takes 0.2 GB."""

_LEAST_FILL = 0.75
"""Length of a text in a batch relative to the longest: the rest of its place is computed for nothing."""


class BatchRuns:
    """Runs texts of similar length together, at most `batch_tokens` padded tokens at a time.

    Where the device has no room for a batch, smaller ones are tried, and are kept to.

    Args:
        session: An encoder that takes an `attention_mask`: what stands in padded places does not count then.

    Raises:
        ModelError: It is no such encoder.
    """

    def __init__(self, session: Session, batch_tokens: int = BATCH_TOKENS) -> None:
        self.session = session
        self.batch_tokens = batch_tokens
        self._graph = read_encoder_graph(session)
        if "attention_mask" not in self._graph.types:
            raise ModelError(f"model '{session.name}' has no 'attention_mask' input, so it takes no padded batches")

    def run(self, texts: Sequence[Sequence[int]]) -> Iterator[tuple[int, npt.NDArray[np.float32]]]:
        """(index into `texts`, token vectors (n_tokens, dim), or (1, dim) of a graph that pools), longest text first.

        Raises:
            OutOfMemory: There is no room for one text by itself.
            ModelError: The runtime fails.
        """
        # The longest first: what the arena grows to for them holds every later batch.
        waiting = sorted(range(len(texts)), key=lambda index: -len(texts[index]))
        while waiting:
            width = len(texts[waiting[0]])
            fitting = waiting[: max(1, self.batch_tokens // max(1, width))]
            batch = [index for index in fitting if len(texts[index]) >= _LEAST_FILL * width]
            try:
                vectors = self._run([texts[index] for index in batch], width)
            except OutOfMemory:
                if len(batch) == 1:
                    raise
                self.batch_tokens = len(batch) * width // 2
                continue
            waiting = waiting[len(batch) :]
            for index, row in zip(batch, vectors, strict=True):
                # A view: what a foreign graph returns for every token is pooled where it lies.
                yield index, row[None] if row.ndim == 1 else row[: len(texts[index])]

    def _run(self, rows: Sequence[Sequence[int]], width: int) -> npt.NDArray[np.float32]:
        ids = np.zeros((len(rows), width), np.int64)
        mask = np.zeros_like(ids)
        for index, row in enumerate(rows):
            ids[index, : len(row)] = row
            mask[index, : len(row)] = 1
        found = self.session.run([self._graph.output], self._graph.feeds(ids, mask))[0]
        vectors: npt.NDArray[np.float32] = found.astype(np.float32, copy=False)
        return vectors
