"""Inputs and outputs of a decoder graph, read from the graph itself: nothing about a model is hard-coded."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from qmd.errors import ModelError
from qmd.inference.runtime.sessions import Session

_PAST = re.compile(r"^past(?:_key_values)?[._](\d+)[._](?:decoder[._])?(key|value)s?$")
_PRESENT = re.compile(r"^present(?:_key_values)?[._](\d+)[._](?:decoder[._])?(key|value)s?$")
_ENCODER_OUTPUTS = frozenset({"last_hidden_state", "token_embeddings", "sentence_embedding"})
_KEEP_NAMES = ("num_logits_to_keep", "logits_to_keep")
"""Scalar input of some exports: the number of trailing positions that get logits."""
_FLOATS = {"tensor(float)": "float32", "tensor(float16)": "float16"}
_INTEGERS = {"tensor(int64)": "int64", "tensor(int32)": "int32"}
_OTHER_EXPORT = "use another export of the model: see qmd models list"
_HEAD_SIZES = (128, 64, 80, 96, 256, *(size for size in range(8, 513, 8) if size not in (128, 64, 80, 96, 256)))
"""Sizes of an attention head to try if the graph states none, usual ones first. Kernels want multiples of 8."""


class DecoderSignature(Struct, frozen=True):
    """Inputs and outputs of a causal model. `layers` is 0 if the graph takes no key-value tensors."""

    layers: int
    kv_heads: int
    head_size: int
    kv_dtype: str
    id_dtype: str
    has_mask: bool
    has_positions: bool
    keep_input: str | None
    past: tuple[str, ...]
    """Key-value inputs: layer by layer, key before value."""
    present: tuple[str, ...]
    """The outputs that continue them, in the same order."""
    logits: str
    logits_rank: int
    """3: (batch, positions, vocabulary); 2: (batch, labels)."""
    logits_width: int | None
    """Their last dimension, if the graph states it."""

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of one token in the key-value tensors of all layers."""
        size = 2 if self.kv_dtype == "float16" else 4
        return len(self.past) * self.kv_heads * self.head_size * size


def read_signature(session: Session) -> DecoderSignature:
    """Read the graph's signature.

    Raises:
        ModelError: If an input is unknown, a key-value tensor has no partner, or a type is not one ONNX Runtime can
            be fed from numpy.
    """
    inputs = {node.name: node for node in session.ort.get_inputs()}
    outputs = {node.name: node for node in session.ort.get_outputs()}
    past = _sort_by_layer(_PAST, inputs)
    _check_names(session.name, inputs, outputs, past.values())
    logits = outputs.get("logits") or next(iter(outputs.values()))
    kv_heads, head_size, kv_dtype = _kv_shape(session.name, [inputs[name] for name in past.values()])
    present = _sort_by_layer(_PRESENT, outputs)
    if past and present.keys() != past.keys():
        raise ModelError(f"model '{session.name}' does not return every key-value tensor it takes", _OTHER_EXPORT)
    signature = DecoderSignature(
        layers=len(past) // 2,
        kv_heads=kv_heads,
        head_size=head_size or 0,
        kv_dtype=kv_dtype,
        id_dtype=_type_name(session.name, inputs["input_ids"], _INTEGERS),
        has_mask="attention_mask" in inputs,
        has_positions="position_ids" in inputs,
        keep_input=next((name for name in _KEEP_NAMES if name in inputs), None),
        past=tuple(past.values()),
        present=tuple(present[key] for key in past),
        logits=logits.name,
        logits_rank=len(logits.shape),
        logits_width=logits.shape[-1] if isinstance(logits.shape[-1], int) else None,
    )
    return signature if head_size is not None else replace(signature, head_size=_probe_head_size(session, signature))


def _check_names(model: str, inputs: Iterable[str], outputs: Iterable[str], past: Iterable[str]) -> None:
    """Raise a ModelError for a graph that is no decoder, or has unknown inputs."""
    unknown = sorted({*inputs} - {"input_ids", "attention_mask", "position_ids", *_KEEP_NAMES, *past})
    encoded = sorted(_ENCODER_OUTPUTS & {*outputs})
    if "input_ids" not in inputs:
        raise ModelError(f"model '{model}' has no input 'input_ids'", _OTHER_EXPORT)
    if unknown:
        raise ModelError(f"model '{model}' has an unexpected input '{unknown[0]}'", _OTHER_EXPORT)
    if encoded and "logits" not in outputs:
        raise ModelError(f"model '{model}' is an encoder: it returns '{encoded[0]}', no logits", _OTHER_EXPORT)


def _probe_head_size(session: Session, signature: DecoderSignature) -> int:
    """Return the head size that the graph computes with, for exports whose signature does not state it.

    The ONNX Runtime GenAI builder omits it from 0.18 on, since one export serves plain and compressed caches. A graph
    refuses an empty past of another head size in its first layer, or ignores it and returns keys of its own size.
    """
    import numpy as np

    feeds: dict[str, Any] = {"input_ids": np.ones((1, 1), signature.id_dtype)}
    if signature.has_mask:
        feeds["attention_mask"] = np.ones((1, 1), signature.id_dtype)
    if signature.has_positions:
        feeds["position_ids"] = np.zeros((1, 1), signature.id_dtype)
    if signature.keep_input is not None:
        feeds[signature.keep_input] = np.array(1, np.int64)
    for size in _HEAD_SIZES:
        past = np.zeros((1, signature.kv_heads, 0, size), signature.kv_dtype)
        try:
            returned = session.run([signature.present[0]], feeds | dict.fromkeys(signature.past, past))[0]
        except ModelError:
            continue
        return int(returned.shape[3])
    raise ModelError(f"model '{session.name}' does not state the size of its attention heads", _OTHER_EXPORT)


def _sort_by_layer(pattern: re.Pattern[str], names: Iterable[str]) -> dict[tuple[int, str], str]:
    """Return (layer, key or value) → name, in ascending order."""
    matches = filter(None, map(pattern.match, names))
    return dict(sorted(((int(match[1]), match[2]), match[0]) for match in matches))


def _kv_shape(model: str, nodes: list[object]) -> tuple[int, int | None, str]:
    """Return key-value heads, head size and type, common to all tensors; None for a size that the graph leaves open."""
    if not nodes:
        return 0, 0, "float32"
    shapes = {(node.shape[1], node.shape[3]) if len(node.shape) == 4 else None for node in nodes}  # type: ignore[attr-defined]
    if len(shapes) != 1 or None in shapes:
        raise ModelError(f"model '{model}' has key-value tensors of different shapes", _OTHER_EXPORT)
    heads, size = shapes.pop() or (0, 0)
    if not isinstance(heads, int):
        raise ModelError(f"model '{model}' does not state its key-value heads", _OTHER_EXPORT)
    return heads, size if isinstance(size, int) else None, _type_name(model, nodes[0], _FLOATS)


def _type_name(model: str, node: object, table: dict[str, str]) -> str:
    kind = str(node.type)  # type: ignore[attr-defined]
    if kind not in table:
        raise ModelError(f"model '{model}' has an input of type '{kind}' which is not supported", _OTHER_EXPORT)
    return table[kind]
