"""Encoder graphs: their inputs, the output with the embedding, and runs of padded batches.

Batches keep a GPU busy. A CPU is faster with one text a run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from qmd.errors import ModelError
from qmd.inference.records import Vectors
from qmd.inference.runtime.gpu_memory import OutOfMemory
from qmd.inference.runtime.sessions import Session

_POOLED = ("sentence_embedding", "sentence_embeddings", "text_embeds", "dense_vecs", "embedding", "embeddings")
"""Names of outputs with one vector a text, if they have two dimensions, as exporters use them.

`pooler_output` is not one: it is trained to predict whether two sentences follow each other.
"""
_TOKENS = ("last_hidden_state", "token_embeddings", "hidden_states", "text_embeds")
"""Names of outputs with one vector a token, if they have three dimensions."""

_TYPES = {"tensor(int64)": "int64", "tensor(int32)": "int32", "tensor(float)": "float32", "tensor(float16)": "float16"}
_OTHER_EXPORT = "use another export of the model, or another model: qmd models list"

BATCH_TOKENS = 16_384
"""Padded tokens in one run: 64 chunks of the usual size. The attention of the built-in model then takes 0.2 GB."""

_LEAST_FILL = 0.75
"""Least length of a text in a batch relative to the longest: the padding is computed for nothing."""


class EncoderGraph(Struct, frozen=True):
    """A graph's inputs, and the output with the embedding."""

    types: Mapping[str, str]
    """Input → numpy's name of its type."""
    past: Mapping[str, tuple[int, int]]
    """Key-value inputs of a decoder, which are fed empty → (heads, head size)."""
    output: str
    is_pooled: bool
    """The output has one vector a text, shape (batch, width); else one a token, (batch, n_tokens, width)."""

    def feeds(self, ids: npt.NDArray[np.int64], mask: npt.NDArray[np.int64]) -> dict[str, npt.NDArray[Any]]:
        """Return the feeds of a batch, padded left or right: `ids` and `mask` have shape (batch, n_tokens)."""
        values = {
            "input_ids": ids,
            "attention_mask": mask,
            "token_type_ids": np.zeros_like(ids),
            "position_ids": np.maximum(mask.cumsum(axis=1) - 1, 0),
        }
        feeds = {
            name: value.astype(self.types[name], copy=False) for name, value in values.items() if name in self.types
        }
        for name, (heads, size) in self.past.items():
            feeds[name] = np.zeros((len(ids), heads, 0, size), self.types[name])
        return feeds


def read_encoder_graph(session: Session) -> EncoderGraph:
    """Return the inputs of a session's graph and its embedding output.

    Raises:
        ModelError: An input or type is unknown, or no output is an embedding.
    """
    inputs = {node.name: node for node in session.ort.get_inputs()}
    if "input_ids" not in inputs:
        raise ModelError(f"model '{session.name}' has no 'input_ids' input", "is it an embedding model?")
    past: dict[str, tuple[int, int]] = {}
    for name, node in inputs.items():
        if name in ("input_ids", "attention_mask", "token_type_ids", "position_ids"):
            pass
        elif name.startswith("past") and [type(size) for size in node.shape[1::2]] == [int, int]:
            past[name] = (node.shape[1], node.shape[3])
        else:
            raise ModelError(f"model '{session.name}' has an unexpected input '{name}'", _OTHER_EXPORT)
        if node.type not in _TYPES:
            raise ModelError(f"model '{session.name}' has an input of type '{node.type}'", _OTHER_EXPORT)
    output, is_pooled = _embedding_output(session)
    return EncoderGraph({name: _TYPES[node.type] for name, node in inputs.items()}, past, output, is_pooled)


def _embedding_output(session: Session) -> tuple[str, bool]:
    """Return the name of the embedding output, and whether it has one vector a text."""
    ranks = {node.name: len(node.shape) for node in session.ort.get_outputs()}
    only = next(iter(ranks)) if len(ranks) == 1 and "logits" not in ranks else ""
    pooled = _first_output(_POOLED, ranks, 2)
    tokens = _first_output((*_TOKENS, only), ranks, 3)
    if pooled or tokens:
        return pooled or tokens, bool(pooled)
    named = ", ".join(f"'{name}'" for name in ranks if not name.startswith("present"))
    raise ModelError(f"no output of model '{session.name}' is known as an embedding: it has {named}", _OTHER_EXPORT)


def _first_output(names: Sequence[str], ranks: Mapping[str, int], rank: int) -> str:
    """Return the first output with `rank` dimensions, else ""; without stated ranks, the name decides."""
    both = {*_POOLED} & {*_TOKENS}
    return next((one for one in names if ranks.get(one) == rank or (ranks.get(one) == 0 and one not in both)), "")


class BatchRuns:
    """Runner of texts in batches of similar length, at most `batch_tokens` padded tokens each.

    If the device has no memory for a batch, smaller ones are tried, and used from then on.

    Args:
        session: An encoder with an `attention_mask`, so that padding does not count.

    Raises:
        ModelError: The session has no such input.
    """

    def __init__(self, session: Session, batch_tokens: int = BATCH_TOKENS) -> None:
        self.session = session
        self.batch_tokens = batch_tokens
        self._graph = read_encoder_graph(session)
        if "attention_mask" not in self._graph.types:
            raise ModelError(f"model '{session.name}' has no 'attention_mask' input, so it takes no padded batches")

    def run(self, texts: Sequence[Sequence[int]]) -> Iterator[tuple[int, Vectors]]:
        """Yield (index into `texts`, token vectors (n_tokens, dim) or one pooled vector (1, dim)), longest text first.

        Raises:
            OutOfMemory: One text by itself does not fit in memory.
            ModelError: The runtime fails.
        """
        # The longest first: the arena then never grows again.
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
                # A view: a foreign graph's output for every token is pooled without a copy.
                yield index, row[None] if row.ndim == 1 else row[: len(texts[index])]

    def _run(self, rows: Sequence[Sequence[int]], width: int) -> Vectors:
        ids = np.zeros((len(rows), width), np.int64)
        mask = np.zeros_like(ids)
        for index, row in enumerate(rows):
            ids[index, : len(row)] = row
            mask[index, : len(row)] = 1
        found = self.session.run([self._graph.output], self._graph.feeds(ids, mask))[0]
        vectors: Vectors = found.astype(np.float32, copy=False)
        return vectors
