"""What an encoder's graph takes and gives, read from the graph: its feeds, and the output that is the embedding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from qmd.errors import ModelError

if TYPE_CHECKING:
    from qmd.inference.runtime.sessions import Session

_POOLED = ("sentence_embedding", "sentence_embeddings", "text_embeds", "dense_vecs", "embedding", "embeddings")
"""Names of outputs with one vector a text, if they have two dimensions: as exporters call what their model ends in.

`pooler_output` is none of them: it is trained to tell whether two sentences follow each other.
"""
_TOKENS = ("last_hidden_state", "token_embeddings", "hidden_states", "text_embeds")
"""Names of outputs with one vector a token, if they have three dimensions."""

_TYPES = {"tensor(int64)": "int64", "tensor(int32)": "int32", "tensor(float)": "float32", "tensor(float16)": "float16"}
_OTHER_EXPORT = "use another export of the model, or another model: qmd models list"


class EncoderGraph(Struct, frozen=True):
    """A graph's inputs, and the output to take."""

    types: Mapping[str, str]
    """Input → numpy's name of its type."""
    past: Mapping[str, tuple[int, int]]
    """Key-value inputs of a decoder, which are fed empty → (heads, head size)."""
    output: str
    is_pooled: bool
    """The output has one vector a text, shape (batch, width); else one a token, (batch, n_tokens, width)."""

    def feeds(self, ids: npt.NDArray[np.int64], mask: npt.NDArray[np.int64]) -> dict[str, npt.NDArray[Any]]:
        """Feeds of a batch, padded left or right: `ids` and `mask` have shape (batch, n_tokens)."""
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
    """What the graph of a session takes and gives.

    Raises:
        ModelError: An input or type is not known, or no output is an embedding.
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
    """The output that is the embedding, and whether it has one vector a text."""
    ranks = {node.name: len(node.shape) for node in session.ort.get_outputs()}
    only = next(iter(ranks)) if len(ranks) == 1 and "logits" not in ranks else ""
    pooled = _first_of(_POOLED, ranks, 2)
    tokens = _first_of((*_TOKENS, only), ranks, 3)
    if pooled or tokens:
        return pooled or tokens, bool(pooled)
    named = ", ".join(f"'{name}'" for name in ranks if not name.startswith("present"))
    raise ModelError(f"no output of model '{session.name}' is known as an embedding: it has {named}", _OTHER_EXPORT)


def _first_of(names: Sequence[str], ranks: Mapping[str, int], rank: int) -> str:
    """The first output of so many dimensions, empty for none; where a graph does not state them, its name must do."""
    both = {*_POOLED} & {*_TOKENS}
    return next((one for one in names if ranks.get(one) == rank or (ranks.get(one) == 0 and one not in both)), "")
