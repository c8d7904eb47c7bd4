"""BERT encoders without a framework: read safetensors, compute in numpy, write an INT8 ONNX graph.

The numpy encoder is the reference; it shares no operator with the graph, so that a mistake in one shows against the
other.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, TensorProto, helper, numpy_helper

Floats = npt.NDArray[np.float32]
Weights = Mapping[str, Floats]

MICROSOFT = "com.microsoft"
OPSET = 17


@dataclass(frozen=True)
class BertShape:
    """Sizes of a BERT encoder."""

    layers: int
    hidden: int
    heads: int
    epsilon: float


def read_safetensors(raw: bytes) -> dict[str, Floats]:
    """Float32 tensors of a safetensors file by name; other types are left out.

    Layout: an 8-byte little-endian length, a JSON header with offsets, then the data.
    """
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    base = 8 + length
    tensors: dict[str, Floats] = {}
    for name, entry in header.items():
        if name == "__metadata__" or entry["dtype"] != "F32":
            continue
        start, end = entry["data_offsets"]
        tensors[name] = np.frombuffer(raw[base + start : base + end], dtype="<f4").reshape(entry["shape"])
    return tensors


# --- reference ------------------------------------------------------------------------------------


def encode_reference(weights: Weights, shape: BertShape, ids: npt.NDArray[np.int64]) -> Floats:
    """Token vectors of one text in float32, shape (len(ids), hidden). Source: Devlin et al., NAACL 2019."""
    x = (
        weights["embeddings.word_embeddings.weight"][ids]
        + weights["embeddings.position_embeddings.weight"][: len(ids)]
        + weights["embeddings.token_type_embeddings.weight"][0]
    )
    x = _layer_norm(x, weights, "embeddings.LayerNorm", shape.epsilon)
    for layer in range(shape.layers):
        prefix = f"encoder.layer.{layer}."
        mixed = _attend(x, weights, prefix + "attention.self.", shape.heads)
        mixed = _linear(mixed, weights, prefix + "attention.output.dense")
        x = _layer_norm(x + mixed, weights, prefix + "attention.output.LayerNorm", shape.epsilon)
        inner = _gelu(_linear(x, weights, prefix + "intermediate.dense"))
        outer = _linear(inner, weights, prefix + "output.dense")
        x = _layer_norm(x + outer, weights, prefix + "output.LayerNorm", shape.epsilon)
    return x


def pool(vectors: Floats) -> Floats:
    """Mean over tokens, L2-normalised: shape (n_tokens, hidden) → (hidden,)."""
    mean = vectors.mean(axis=0)
    result: Floats = mean / np.linalg.norm(mean)
    return result


def _linear(x: Floats, weights: Weights, name: str) -> Floats:
    result: Floats = x @ weights[name + ".weight"].T + weights[name + ".bias"]
    return result


def _layer_norm(x: Floats, weights: Weights, name: str, epsilon: float) -> Floats:
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = (centred * centred).mean(axis=-1, keepdims=True)
    result: Floats = centred / np.sqrt(variance + epsilon) * weights[name + ".weight"] + weights[name + ".bias"]
    return result


def _gelu(x: Floats) -> Floats:
    error_function = np.frompyfunc(math.erf, 1, 1)
    result: Floats = x * 0.5 * (1.0 + error_function(x / math.sqrt(2.0)).astype(np.float32))
    return result


def _attend(x: Floats, weights: Weights, prefix: str, heads: int) -> Floats:
    n_tokens, hidden = x.shape
    size = hidden // heads

    def split(name: str) -> Floats:
        return _linear(x, weights, prefix + name).reshape(n_tokens, heads, size).transpose(1, 0, 2)

    scores = split("query") @ split("key").transpose(0, 2, 1) / math.sqrt(size)
    scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
    shares = scores / scores.sum(axis=-1, keepdims=True)
    result: Floats = (shares @ split("value")).transpose(1, 0, 2).reshape(n_tokens, hidden)
    return result


# --- graph ----------------------------------------------------------------------------------------


@dataclass
class _Graph:
    """Nodes and initializers collected while the graph is written."""

    nodes: list[object] = field(default_factory=list)
    initializers: list[TensorProto] = field(default_factory=list)

    def constant(self, name: str, value: npt.NDArray[np.generic]) -> str:
        self.initializers.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def add(self, operator: str, inputs: list[str], output: str, domain: str = "", **attributes: object) -> str:
        self.nodes.append(helper.make_node(operator, inputs, [output], name="n_" + output, domain=domain, **attributes))
        return output


def quantize_columns(matrix: Floats, levels: int) -> tuple[npt.NDArray[np.int8], Floats]:
    """Symmetric INT8 with one scale per column: (matrix int8 (k, n), scales (n,)).

    `levels` 127 uses the whole range. 63 is the reduced range: on CPUs with AVX2 but no VNNI, the sum of two products
    of an unsigned activation and a signed weight would saturate 16 bits beyond it.
    """
    scales = np.maximum(np.abs(matrix).max(axis=0), 1e-12).astype(np.float32) / np.float32(levels)
    return np.rint(matrix / scales).astype(np.int8), scales.astype(np.float32)


def write_int8_graph(
    weights: Weights,
    shape: BertShape,
    producer: str,
    words: tuple[npt.NDArray[np.uint8], Floats] | None = None,
    *,
    scales_tokens: bool = False,
) -> ModelProto:
    """The encoder as ONNX with signed per-channel INT8 weights and dynamically quantised activations.

    `words` is a word table in 4 bits, which `weights` then lacks: levels (n, hidden / 2), the lower half of a byte
    first and 8 for zero, and scales (n, hidden / 32). With `scales_tokens` the input of the last product of a layer has
    one scale a token: a few tokens have values far outside those of the others. With multilingual-e5-small, the mean
    vector taken away, the cosine to fp32 is 0.993 instead of 0.984; a run takes a twentieth longer.

    Input `input_ids`, int64 (batch, tokens); output `last_hidden_state`, float32 (batch, tokens, hidden). Activations
    get one scale per run, so a text's vectors depend slightly on what shares its batch: one text per run keeps them
    the same for ever. Then nothing is padded, so there is no `attention_mask`: without one, attention takes the
    runtime's blocked path (10-12 % of the run at 240 tokens). Open the graph with basic optimisation: the full level
    replaces Add and LayerNormalization by SkipLayerNormalization, which measured four times slower on the CPU.
    """
    graph = _Graph()
    word = _write_bytes_table(graph, weights) if words is None else _write_nibbles_table(graph, *words)
    x = _write_embeddings(graph, weights, shape, word)
    for layer in range(shape.layers):
        x = _write_layer(graph, weights, shape, layer, x, scales_tokens=scales_tokens)
    dims = ["batch", "tokens"]
    onnx_graph = helper.make_graph(
        graph.nodes,
        "bert",
        [helper.make_tensor_value_info("input_ids", TensorProto.INT64, dims)],
        [helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, [*dims, shape.hidden])],
        graph.initializers,
    )
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(onnx_graph, opset_imports=opsets, ir_version=8, producer_name=producer)


def _write_bytes_table(graph: _Graph, weights: Weights) -> str:
    words, scales = quantize_columns(weights["embeddings.word_embeddings.weight"].T, 127)
    graph.constant("words", words.T)
    graph.constant("word_scales", scales[:, None])
    graph.add("Gather", ["words", "input_ids"], "word_levels")
    graph.add("Cast", ["word_levels"], "word_floats", to=TensorProto.FLOAT)
    graph.add("Gather", ["word_scales", "input_ids"], "word_scale")
    return graph.add("Mul", ["word_floats", "word_scale"], "word")


def _write_nibbles_table(graph: _Graph, levels: npt.NDArray[np.uint8], scales: Floats) -> str:
    inputs = [graph.constant("words", levels), "input_ids", graph.constant("word_scales", scales)]
    sizes = {"bits": 4, "block_size": 2 * levels.shape[1] // scales.shape[1], "gather_axis": 0, "quantize_axis": 1}
    return graph.add("GatherBlockQuantized", inputs, "word", MICROSOFT, **sizes)


def _write_embeddings(graph: _Graph, weights: Weights, shape: BertShape, word: str) -> str:
    # Every text is of segment 0, so its vector is part of the position table.
    positions = weights["embeddings.position_embeddings.weight"] + weights["embeddings.token_type_embeddings.weight"][0]
    graph.constant("positions", positions)
    graph.constant("zero", np.array([0], np.int64))
    graph.add("Shape", ["input_ids"], "n_tokens", start=1, end=2)
    graph.add("Slice", ["positions", "zero", "n_tokens"], "position")
    return _write_norm(graph, weights, shape, "embeddings.LayerNorm", word, "position")


def _write_layer(graph: _Graph, weights: Weights, shape: BertShape, layer: int, x: str, *, scales_tokens: bool) -> str:
    prefix = f"encoder.layer.{layer}."
    attention = prefix + "attention."
    packed = _write_linear(graph, weights, [f"{attention}self.{part}" for part in ("query", "key", "value")], x)
    parts = [f"{packed}.{part}" for part in ("q", "k", "v")]
    graph.nodes.append(helper.make_node("Split", [packed], parts, name=f"n_{packed}.split", axis=-1))
    mixed = graph.add(
        "MultiHeadAttention",
        parts,
        f"{attention}mixed",
        MICROSOFT,
        num_heads=shape.heads,
        scale=1.0 / math.sqrt(shape.hidden // shape.heads),
    )
    mixed = _write_linear(graph, weights, [f"{attention}output.dense"], mixed)
    x = _write_norm(graph, weights, shape, f"{attention}output.LayerNorm", x, mixed)
    inner = _write_linear(graph, weights, [prefix + "intermediate.dense"], x)
    inner = graph.add("Gelu", [inner], inner + ".gelu", MICROSOFT)
    if scales_tokens:
        outer = _write_token_linear(graph, weights, prefix + "output.dense", inner)
    else:
        outer = _write_linear(graph, weights, [prefix + "output.dense"], inner)
    last = layer == shape.layers - 1
    return _write_norm(
        graph, weights, shape, prefix + "output.LayerNorm", x, outer, "last_hidden_state" if last else None
    )


def _write_linear(graph: _Graph, weights: Weights, names: list[str], x: str) -> str:
    """One quantised product for all `names`, side by side: their input is then quantised once."""
    matrix = np.concatenate([weights[name + ".weight"].T for name in names], axis=1)
    bias = np.concatenate([weights[name + ".bias"] for name in names])
    levels, scales = quantize_columns(matrix, 63)
    name = names[0]
    inputs = [
        x,
        graph.constant(name + ".levels", levels),
        graph.constant(name + ".scales", scales),
        graph.constant(name + ".zero_points", np.zeros(len(scales), np.int8)),
        graph.constant(name + ".bias", bias),
    ]
    return graph.add("DynamicQuantizeMatMul", inputs, name + ".out", MICROSOFT)


def _write_token_linear(graph: _Graph, weights: Weights, name: str, x: str) -> str:
    """A product of the output of a GELU, quantised with one scale a token."""
    levels, scales = quantize_columns(weights[name + ".weight"].T, 63)
    # A GELU is nowhere below -0.17.
    constants = {"least": np.float32(0.17), "share": np.float32(1 / 127), "one": np.float32(1), "middle": np.uint8(128)}
    least, share, one, middle = (graph.constant(f"{name}.{key}", np.array(value)) for key, value in constants.items())
    peak = graph.add("ReduceMax", [x], name + ".peak", axes=[-1], keepdims=1)
    step = graph.add("Mul", [graph.add("Max", [peak, least], name + ".span"), share], name + ".step")
    steps = graph.add("Div", [x, step], name + ".steps")
    inputs = [
        graph.add("QuantizeLinear", [steps, one, middle], name + ".bytes"),
        graph.constant(name + ".levels", levels),
        one,
        graph.constant(name + ".scales", scales),
        middle,
    ]
    product = graph.add("MatMulIntegerToFloat", inputs, name + ".product", MICROSOFT)
    scaled = graph.add("Mul", [product, step], name + ".scaled")
    return graph.add("Add", [scaled, graph.constant(name + ".bias", weights[name + ".bias"])], name + ".out")


def _write_norm(
    graph: _Graph, weights: Weights, shape: BertShape, name: str, x: str, addend: str, output: str | None = None
) -> str:
    """LayerNorm(x + addend)."""
    total = graph.add("Add", [x, addend], name + ".sum")
    constants = [graph.constant(f"{name}.{part}", weights[f"{name}.{part}"]) for part in ("weight", "bias")]
    return graph.add("LayerNormalization", [total, *constants], output or name + ".out", axis=-1, epsilon=shape.epsilon)
