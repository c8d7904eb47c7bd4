"""Writes Qwen3 as our own ONNX graph: weights come in by name, a model file goes out.

Owning the graph buys what published files lack on a CPU: key-value tensors that can be updated in place, logits of the
last token only, fused projections, quantised embedding tables and `accuracy_level` 4. Needs `onnx` (an optional
dependency, imported when a graph is written) and numpy, nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from qmd.prepare.graph_writer import MS_DOMAIN, GraphForm, GraphWriter, LinearForm, Qwen3Shape, Weights
from qmd.prepare.quantize import BlockQuantized, quantize_blocks


def weight_names(shape: Qwen3Shape, form: GraphForm, *, tied: bool = True) -> list[str]:
    """Names that `build_qwen3` reads from its weights. Matrices are (out, in)."""
    parts = ("in_norm", "q", "k", "v", "q_norm", "k_norm", "o", "post_norm", "gate", "up", "down")
    names = ["embed", *(f"layers.{i}.{part}" for i in range(shape.layers) for part in parts), "norm"]
    if form.head == "score":
        return [*names, "score"]
    return names if tied else [*names, "head"]


def build_qwen3(path: Path, shape: Qwen3Shape, form: GraphForm, weights: Weights, *, external: bool = True) -> None:
    """Write the graph to `path`, with `external` its large tensors to `path` + `_data`.

    Args:
        path: Model file; replaced if it exists.
        shape: Sizes.
        form: Formats.
        weights: See `weight_names`; read one at a time. A `head` entry means an untied language-model head.
        external: False puts everything into one file (at most 2 GB).

    Raises:
        KeyError: If a weight is missing.
    """
    writer = Qwen3Writer(path, shape, form, weights, external=external)
    writer.write()


def graph_bytes(shape: Qwen3Shape, form: GraphForm) -> int:
    """About how large the graph's files become, within a few percent; for a tied head."""
    width = 4 if form.activations == "fp32" else 2
    bytes_of = {"fp": width, "q4": 0.5 + width / form.block, "q8": 1 + width / form.block, "w8a8": 1.0}
    attention = shape.hidden * shape.head_size * 2 * (shape.heads + shape.kv_heads)
    down = shape.ffn * shape.hidden
    layer = (attention + 2 * down) * bytes_of[form.linear] + down * bytes_of[form.down or form.linear]
    rotary = shape.max_positions * shape.head_size * width
    return int(shape.layers * layer + shape.vocab * shape.hidden * bytes_of[form.table] + rotary)


class Qwen3Writer(GraphWriter):
    """Builds one Qwen3 graph, layer by layer."""

    def network(self) -> None:
        """Inputs, layers, head."""
        self._declare_inputs()
        hidden, table = self._embed()
        self.prepare_attention()
        residual = ""
        for index in range(self.shape.layers):
            hidden, residual = self._layer(index, hidden, residual)
        normed, _ = self.add_norm(hidden, residual, "norm")
        self._head(normed, table)

    def _declare_inputs(self) -> None:
        from onnx import TensorProto, helper

        def integers(name: str, *dims: str) -> None:
            self.inputs.append(helper.make_tensor_value_info(name, TensorProto.INT64, list(dims)))

        integers("input_ids", "batch", "sequence")
        integers("attention_mask", "batch", "total")
        if self.form.positions:
            integers("position_ids", "batch", "sequence")

    def _embed(self) -> tuple[str, BlockQuantized | None]:
        if self.form.table == "fp":
            table = self.initializer(self.constant_name("embed"), self.weights["embed"].astype(self.float_dtype))
            return self.op("Gather", [table, "input_ids"], axis=0)[0], None
        quantized = quantize_blocks(self.weights["embed"], int(self.form.table[1]), self.form.block)
        levels = self.initializer("embed.levels", quantized.packed.reshape(quantized.shape[0], -1))
        scales = self.initializer("embed.scales", quantized.scales.astype(self.float_dtype))
        rows = self.op(
            "GatherBlockQuantized",
            [levels, "input_ids", scales],
            domain=MS_DOMAIN,
            gather_axis=0,
            quantize_axis=1,
            block_size=quantized.block,
            bits=quantized.bits,
        )
        return rows[0], quantized

    def prepare_attention(self) -> None:
        """Nodes that all layers share: rotary tables, last position of each row, total length."""
        import numpy as np
        from onnx import TensorProto

        shape = self.shape
        inverse = 1.0 / shape.rope_theta ** (np.arange(0, shape.head_size, 2) / shape.head_size)
        angles = np.arange(shape.max_positions)[:, None] * inverse[None]
        self.cos = self.initializer("rope.cos", np.cos(angles).astype(self.float_dtype))
        self.sin = self.initializer("rope.sin", np.sin(angles).astype(self.float_dtype))
        lengths = self.op("ReduceSum", ["attention_mask", self.constant([1])], keepdims=0)[0]
        self.last = self.op("Sub", [lengths, self.constant(1)])[0]
        self.last32 = self.op("Cast", [self.last], to=TensorProto.INT32)[0]
        mask_shape = self.op("Shape", ["attention_mask"])[0]
        self.total = self.op("Gather", [mask_shape, self.constant(1)], axis=0)[0]
        self.total32 = self.op("Cast", [self.total], to=TensorProto.INT32)[0]

    def _layer(self, index: int, hidden: str, residual: str) -> tuple[str, str]:
        shape, prefix = self.shape, f"layers.{index}"
        if residual:
            normed, residual = self.add_norm(hidden, residual, f"{prefix}.in_norm")
        else:
            normed, residual = self.norm(hidden, f"{prefix}.in_norm"), hidden
        widths = [shape.heads * shape.head_size, *2 * [shape.kv_heads * shape.head_size]]
        q, k, v = self._project(normed, prefix, ("q", "k", "v"), widths)
        q = self._head_norm(q, shape.heads, f"{prefix}.q_norm")
        k = self._head_norm(k, shape.kv_heads, f"{prefix}.k_norm")
        attended = self.attention(index, q, k, v)
        attended = self.linear(attended, [f"{prefix}.o"], self.node_name(index, "o"))
        normed, residual = self.add_norm(attended, residual, f"{prefix}.post_norm")
        gate, up = self._project(normed, prefix, ("gate", "up"), [shape.ffn, shape.ffn])
        gated = self.op("Mul", [gate, self.op("Sigmoid", [gate])[0]])[0]
        product = self.op("Mul", [gated, up])[0]
        return self.linear(product, [f"{prefix}.down"], self.node_name(index, "down"), self.form.down), residual

    def node_name(self, index: int, part: str) -> str:
        """Name of a projection's node."""
        return f"layers.{index}.{part}"

    def _project(self, x: str, prefix: str, parts: Sequence[str], widths: Sequence[int]) -> list[str]:
        index = int(prefix.split(".")[1])
        if not self.form.fused:
            return [self.linear(x, [f"{prefix}.{part}"], self.node_name(index, part)) for part in parts]
        joined = self.linear(x, [f"{prefix}.{part}" for part in parts], self.node_name(index, "_".join(parts)))
        return self.op("Split", [joined, self.constant(list(widths))], outputs=len(parts), axis=-1)

    def _head_norm(self, x: str, heads: int, weight: str) -> str:
        split = self.op("Reshape", [x, self.constant([0, 0, heads, self.shape.head_size])])[0]
        return self.op("Reshape", [self.norm(split, weight), self.constant([0, 0, -1])])[0]

    def attention(self, index: int, q: str, k: str, v: str) -> str:
        """Attention over (batch, sequence, width) projections, by GroupQueryAttention."""
        shape = self.shape
        if self.form.positions:
            q, k = self.rotate(q, shape.heads), self.rotate(k, shape.kv_heads)
        past = self.declare_past(index) if self.form.past else ("", "")
        outputs = [self.name("attended"), *self.present_names(index)]
        rope = ["", ""] if self.form.positions else [self.cos, self.sin]
        return self.op(
            "GroupQueryAttention",
            [q, k, v, *past, self.last32, self.total32, *rope],
            outputs=outputs,
            domain=MS_DOMAIN,
            name=f"layers.{index}.attention",
            num_heads=shape.heads,
            kv_num_heads=shape.kv_heads,
            do_rotary=0 if self.form.positions else 1,
            rotary_interleaved=0,
            scale=shape.head_size**-0.5,
        )[0]

    def rotate(self, x: str, heads: int) -> str:
        """Rotary embedding by `position_ids`."""
        inputs = [x, "position_ids", self.cos, self.sin]
        return self.op("RotaryEmbedding", inputs, domain=MS_DOMAIN, num_heads=heads, interleaved=0)[0]

    def present_names(self, index: int) -> list[str]:
        """Names of a layer's key and value outputs."""
        if self.form.past:
            return [f"present.{index}.key", f"present.{index}.value"]
        return [self.name("key"), self.name("value")]

    def declare_past(self, index: int) -> tuple[str, str]:
        """Declare a layer's key-value inputs and outputs; returns the inputs' names."""
        from onnx import helper

        def tensor(name: str, length: str) -> Any:
            dims = ["batch", self.shape.kv_heads, length, self.shape.head_size]
            return helper.make_tensor_value_info(name, self.float_type, dims)

        key, value = f"past_key_values.{index}.key", f"past_key_values.{index}.value"
        self.inputs += [tensor(key, "past"), tensor(value, "past")]
        self.outputs += [tensor(name, "total") for name in self.present_names(index)]
        return key, value

    def _head(self, x: str, table: BlockQuantized | None) -> None:
        from onnx import TensorProto, helper

        if self.form.last_only or self.form.head == "score":
            x = self.take_last(x)
        if self.form.head == "score":
            score_weight = self.weights["score"]
            weight = self.initializer("score.weight", score_weight.T.astype(self.float_dtype))
            score = self.op("MatMul", [x, weight], name="score")[0]
            self.op("Cast", [score], outputs=["logits"], to=TensorProto.FLOAT)
            self.outputs.insert(
                0, helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", len(score_weight)])
            )
            return
        if self.form.last_only:
            x = self.op("Unsqueeze", [x, self.constant([1])])[0]
        if "head" in self.weights:
            form: LinearForm = "fp" if self.form.table == "fp" else self.form.table
            logits = self.linear(x, ["head"], "lm_head", form)
        elif table is None:
            logits = self.op(
                "MatMul", [x, self.op("Transpose", [self.constant_name("embed")], perm=[1, 0])[0]], name="lm_head"
            )[0]
        else:
            levels = self.alias("lm_head.levels", "embed.levels", table.packed.shape)
            logits = self.block_product(x, levels, "embed.scales", table, "lm_head")
        self.op("Identity", [logits], outputs=["logits"])
        dims = ["batch", "logit_positions", self.shape.vocab]
        self.outputs.insert(0, helper.make_tensor_value_info("logits", self.float_type, dims))

    def take_last(self, x: str) -> str:
        """(batch, hidden): the last real token of each row, which right padding puts before the end."""
        ids_shape = self.op("Shape", ["input_ids"])[0]
        length = self.op("Gather", [ids_shape, self.constant(1)], axis=0)[0]
        # `last` counts from the start of the whole sequence; this run holds only its final `length` positions.
        index = self.op("Add", [self.op("Sub", [length, self.total])[0], self.last])[0]
        # A batch of branches adds one token a row; the mask is as wide as the longest, so shorter rows count below 0.
        index = self.op("Max", [index, self.constant(0)])[0]
        return self.op("GatherND", [x, self.op("Unsqueeze", [index, self.constant([-1])])[0]], batch_dims=1)[0]
