"""Tiny Qwen3 graphs with the signatures, operators and types of the published ones, and a float64 reference for them.

The reference is an independent implementation (no key-value cache, no ONNX) of the architecture; it was itself compared
with transformers' Qwen3ForCausalLM 5.23 on such weights (largest difference 1.5e-6). Quantised graphs are compared with
it on their dequantised weights.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from qmd.plugins.models.formats.graph_writer import FINE_WEIGHTS, Qwen3Shape
from qmd.plugins.models.formats.quantize import FINER, quantize_blocks, quantize_rows
from tests.inference.exported_graphs import LAYER_PARTS, ExportForm, PublishedWriter, weight_names

SHAPE = Qwen3Shape(
    layers=2, hidden=64, heads=4, kv_heads=2, head_size=32, ffn=128, vocab=320, rope_theta=1e6, max_positions=1024
)
Array = npt.NDArray[np.float64]
Weights = dict[str, npt.NDArray[np.float32]]

PUBLISHED = ExportForm(linear="fp", block=32, accuracy_level=0, table="fp", last_only=False, positions=True)
"""Decoder of exporters: all logits, separate projections, a full-precision table, explicit positions."""


def random_weights(shape: Qwen3Shape = SHAPE, *, seed: int = 3, tied: bool = True) -> Weights:
    """Return weights by name, (out, in), with a score head."""
    rng = np.random.default_rng(seed)
    query, key = shape.heads * shape.head_size, shape.kv_heads * shape.head_size
    sizes: dict[str, tuple[int, ...]] = {
        "q": (query, shape.hidden),
        "k": (key, shape.hidden),
        "v": (key, shape.hidden),
        "o": (shape.hidden, query),
        "gate": (shape.ffn, shape.hidden),
        "up": (shape.ffn, shape.hidden),
        "down": (shape.hidden, shape.ffn),
        "embed": (shape.vocab, shape.hidden),
        "head": (shape.vocab, shape.hidden),
        "score": (1, shape.hidden),
        "norm": (shape.hidden,),
        "in_norm": (shape.hidden,),
        "post_norm": (shape.hidden,),
        "q_norm": (shape.head_size,),
        "k_norm": (shape.head_size,),
    }
    weights: Weights = {}
    for name in [*weight_names(shape, "lm", tied=tied), "score"]:
        size = sizes[name.rsplit(".", 1)[-1]]
        values = 0.08 * rng.standard_normal(size) + (1.0 if len(size) == 1 else 0.0)
        weights[name] = values.astype(np.float32)
    return weights


def stored_weights(weights: Weights, form: ExportForm) -> Weights:
    """Return the weights as a graph of this form stores them: rounded to its blocks, rows or half precision."""
    stored: Weights = {}
    for name, value in weights.items():
        part = name.rsplit(".", 1)[-1]
        kind: str = form.linear
        if part in ("embed", "head"):
            kind = form.table
        if name in form.eight_bit:
            kind = "q8"
        if value.ndim == 1 or part == "score":
            kind = "fp"
        if kind == "i16w8" and name.endswith(FINE_WEIGHTS):
            kind = "i16w16"
        stored[name] = _round_trip(value, kind, form)
    if form.table != "fp" and "head" not in weights:
        stored["head"] = stored["embed"]
    return stored


def dequantize_blocks(
    packed: npt.NDArray[np.uint8], scales: npt.NDArray[np.floating], *, bits: int, block: int, k: int
) -> npt.NDArray[np.float32]:
    """Return the (n, k) weight of the inputs of a `MatMulNBits` node.

    Args:
        packed: uint8, n * ceil(k / block) * block * bits / 8 values in any shape whose first axis is n.
        scales: n * ceil(k / block) values in any shape.
        bits: 4 or 8.
        block: Weights per scale.
        k: Columns of the weight.
    """
    n = packed.shape[0]
    per_row = -(-k // block)
    rows = packed.reshape(n, -1)
    if bits == 4:
        rows = np.stack([rows & 15, rows >> 4], axis=-1)  # low half first
    values = rows.reshape(n, per_row, block).astype(np.float32) - 2 ** (bits - 1)
    return np.ascontiguousarray((values * np.asarray(scales, np.float32).reshape(n, per_row, 1)).reshape(n, -1)[:, :k])


def _round_trip(value: npt.NDArray[np.float32], kind: str, form: ExportForm) -> npt.NDArray[np.float32]:
    half = form.activations == "fp16" or kind == "fp16"
    if kind in ("q4", "q8"):
        blocks = quantize_blocks(value, int(kind[1]), form.block)
        scales = blocks.scales.astype(np.float16) if half else blocks.scales
        return dequantize_blocks(blocks.packed, scales, bits=blocks.bits, block=blocks.block, k=value.shape[1])
    if kind.startswith("i16"):
        terms, row_scales = quantize_rows(value, 2 if kind == "i16w16" else 1)
        summed = sum(term / np.float32(FINER) ** index for index, term in enumerate(terms))
        return np.asarray(summed * row_scales[:, None], np.float32)
    return value.astype(np.float16).astype(np.float32) if half else value


def reference_logits(weights: Weights, ids: Sequence[int], shape: Qwen3Shape = SHAPE, *, score: bool = False) -> Array:
    """Return logits at every position, shape (tokens, vocabulary); with `score` the last one's logit, shape (1,)."""
    value = {name: array.astype(np.float64) for name, array in weights.items()}
    x = value["embed"][list(ids)]
    n = len(x)
    size = shape.head_size
    angles = np.arange(n)[:, None] / shape.rope_theta ** (np.arange(0, size, 2) / size)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]

    def norm(y: Array, weight: Array) -> Array:
        return np.asarray(y / np.sqrt(np.square(y).mean(-1, keepdims=True) + shape.eps) * weight)

    def rotate(y: Array) -> Array:
        first, second = y[..., : size // 2], y[..., size // 2 :]
        return np.concatenate([first * cos - second * sin, second * cos + first * sin], -1)

    future = np.triu(np.full((n, n), -np.inf), 1)
    for layer in range(shape.layers):
        weight = {name: value[f"layers.{layer}.{name}"] for name in LAYER_PARTS}
        y = norm(x, weight["in_norm"])
        q = rotate(norm((y @ weight["q"].T).reshape(n, shape.heads, size), weight["q_norm"]))
        k = rotate(norm((y @ weight["k"].T).reshape(n, shape.kv_heads, size), weight["k_norm"]))
        v = (y @ weight["v"].T).reshape(n, shape.kv_heads, size)
        k, v = (np.repeat(z, shape.heads // shape.kv_heads, axis=1) for z in (k, v))
        attention = np.exp(q.transpose(1, 0, 2) @ k.transpose(1, 2, 0) / np.sqrt(size) + future)
        attention /= attention.sum(-1, keepdims=True)
        x = x + (attention @ v.transpose(1, 0, 2)).transpose(1, 0, 2).reshape(n, -1) @ weight["o"].T
        y = norm(x, weight["post_norm"])
        gate = y @ weight["gate"].T
        x = x + (gate / (1 + np.exp(-gate)) * (y @ weight["up"].T)) @ weight["down"].T
    x = norm(x, value["norm"])
    if score:
        return np.asarray(x[-1] @ value["score"].T)
    return np.asarray(x @ value.get("head", value["embed"]).T)


def write_model(
    path: Path,
    form: ExportForm,
    weights: Weights,
    *,
    writer: type[PublishedWriter] = PublishedWriter,
    external: bool = False,
) -> Weights:
    """Write a graph; return its stored weights, for `reference_logits`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    writer(path, SHAPE, form, weights, external=external).write()
    return stored_weights(weights, form)
