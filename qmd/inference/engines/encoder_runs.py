"""Padded batches of texts through an encoder: how a GPU is kept busy. A CPU is faster with one text a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from qmd.inference.runtime.gpu_memory import OutOfMemory
from qmd.inference.runtime.sessions import Session

BATCH_TOKENS = 16_384
"""Padded tokens in one run: 64 chunks of the usual size. The attention of the built-in model then takes 0.2 GB."""


class BatchRuns:
    """Runs texts of similar length together, at most `batch_tokens` padded tokens at a time.

    Where the device has no room for a batch, smaller ones are tried, and are kept to.

    Args:
        session: Takes `input_ids` and `attention_mask`, (batch, tokens).
        output: What to ask of it: (batch, tokens, dim), or (batch, dim) of a graph that pools.
        pad_id: What padded places hold; the mask hides them.
    """

    def __init__(self, session: Session, output: str, pad_id: int = 0, batch_tokens: int = BATCH_TOKENS) -> None:
        self.session = session
        self.batch_tokens = batch_tokens
        self._output = output
        self._pad_id = pad_id
        self._inputs = {node.name for node in session.ort.get_inputs()}

    def run(self, texts: Sequence[Sequence[int]]) -> Iterator[tuple[int, npt.NDArray[np.float32]]]:
        """(index into `texts`, its token vectors (n_tokens, dim), or its vector (dim,)), the longest texts first.

        Raises:
            OutOfMemory: There is no room for one text by itself.
            ModelError: The runtime fails.
        """
        # The longest first: what the arena grows to for them holds every later batch.
        waiting = sorted(range(len(texts)), key=lambda index: -len(texts[index]))
        while waiting:
            width = len(texts[waiting[0]])
            batch = waiting[: max(1, self.batch_tokens // max(1, width))]
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
                yield index, row[: len(texts[index])] if row.ndim == 2 else row

    def _run(self, rows: Sequence[Sequence[int]], width: int) -> npt.NDArray[np.float32]:
        ids = np.full((len(rows), width), self._pad_id, np.int64)
        mask = np.zeros_like(ids)
        for index, row in enumerate(rows):
            ids[index, : len(row)] = row
            mask[index, : len(row)] = 1
        known: dict[str, Any] = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        feeds = {name: known[name] for name in self._inputs if name in known}
        vectors: npt.NDArray[np.float32] = self.session.run([self._output], feeds)[0].astype(np.float32, copy=False)
        return vectors
