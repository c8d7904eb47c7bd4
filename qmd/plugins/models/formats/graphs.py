"""Qwen3 as an ONNX graph, decoder, reranker or embedder: weights come in by name, a model file goes out.

The graph has features that published files lack on a CPU: key-value tensors that can be updated in place, logits of
the last token only, products of bytes, quantized embedding tables and `accuracy_level` 4.
"""

from __future__ import annotations

import numpy as np

from qmd.inference.onnx_files import FLOAT, INT32, INT64
from qmd.plugins.models.formats.graph_writer import MS_DOMAIN, GraphForm, GraphWriter, Qwen3Shape
from qmd.plugins.models.formats.quantize import BlockQuantized
from qmd.plugins.models.formats.stored_weights import StoredWeights
from qmd.plugins.onnx.model import value_info

OUTPUT = "last_hidden_state"


def graph_bytes(shape: Qwen3Shape, form: GraphForm) -> int:
    """Return the approximate size of the graph's files, within a few percent, for a tied head."""
    bytes_of = {"fp": 4, "fp16": 2, "q4": 0.5 + 4 / form.block, "q8": 1 + 4 / form.block, "i16w8": 1, "i16w16": 2}
    attention = shape.hidden * shape.head_size * (3 if form.linear == "i16w8" else 2) * (shape.heads + shape.kv_heads)
    layer = (attention + 3 * shape.ffn * shape.hidden) * bytes_of[form.linear]
    rotary = shape.max_positions * shape.head_size * 4
    return int(shape.layers * layer + shape.vocab * shape.hidden * bytes_of[form.table] + rotary)


class Qwen3Writer(GraphWriter):
    """Builder of one Qwen3 graph, layer by layer.

    It reads the weights `embed`; for layer i `layers.i.` with `in_norm`, `q`, `k`, `v`, `q_norm`, `k_norm`, `o`,
    `post_norm`, `gate`, `up` and `down`; `norm`; and `score`, or `head` if the head is not tied to the table.
    """

    def network(self) -> None:
        self.declare_inputs()
        hidden, table, quantized = self._embed()
        self._prepare_attention()
        residual = ""
        for index in range(self.shape.layers):
            hidden, residual = self._layer(index, hidden, residual)
        normed, _ = self.add_norm(hidden, residual, "norm")
        self._head(normed, table, quantized)

    def declare_inputs(self) -> None:
        for name, length in (("input_ids", "sequence"), ("attention_mask", "total")):
            self.inputs.append(value_info(name, INT64, ["batch", length]))

    def _embed(self) -> tuple[str, str, BlockQuantized | None]:
        """Add the tokens' vectors; return them, the name of the table, and the table if it is quantized."""
        if self.form.table in ("fp", "fp16"):
            is_half = self.form.table == "fp16"
            name = self.initializer("embed", self.weight("embed").astype(np.float16 if is_half else np.float32))
            rows = self.op("Gather", [name, "input_ids"], axis=0)
            return (self.op("Cast", rows, to=FLOAT) if is_half else rows)[0], name, None
        table = self.table("embed", int(self.form.table[1]))
        values = self.initializer("embed.values", table.packed.reshape(table.shape[0], -1))
        scales = self.initializer("embed.scales", table.scales)
        rows = self.op(
            "GatherBlockQuantized",
            [values, "input_ids", scales],
            domain=MS_DOMAIN,
            gather_axis=0,
            quantize_axis=1,
            block_size=table.block,
            bits=table.bits,
        )
        return rows[0], values, table

    def table(self, name: str, bits: int) -> BlockQuantized:
        """Return a matrix whose rows are looked up, as `blocks`, without offsets."""
        return self.blocks(name, bits)

    def _prepare_attention(self) -> None:
        """Add the nodes that all layers share: rotary tables, last position of each row, total length."""
        self.cos, self.sin = self.rotary_tables("rope", self.shape.rope_theta)
        lengths = self.op("ReduceSum", ["attention_mask", self.constant([1])], keepdims=0)[0]
        self.last = self.op("Sub", [lengths, self.constant(1)])[0]
        self.last32 = self.op("Cast", [self.last], to=INT32)[0]
        mask_shape = self.op("Shape", ["attention_mask"])[0]
        self.total = self.op("Gather", [mask_shape, self.constant(1)], axis=0)[0]
        self.total32 = self.op("Cast", [self.total], to=INT32)[0]

    def rotary_tables(self, stem: str, theta: float) -> tuple[str, str]:
        """Return cosines and sines of every position, (positions, head size / 2)."""
        size = self.shape.head_size
        inverse = 1.0 / theta ** (np.arange(0, size, 2) / size)
        angles = np.arange(self.shape.max_positions)[:, None] * inverse[None]
        cos = self.initializer(f"{stem}.cos", np.cos(angles).astype(np.float32))
        return cos, self.initializer(f"{stem}.sin", np.sin(angles).astype(np.float32))

    def _layer(self, index: int, hidden: str, residual: str) -> tuple[str, str]:
        shape, prefix = self.shape, f"layers.{index}"
        if residual:
            normed, residual = self.add_norm(hidden, residual, f"{prefix}.in_norm")
        else:
            normed, residual = self.norm(hidden, f"{prefix}.in_norm"), hidden
        q, k, v = self.project(normed, prefix, "q", "k", "v")
        q = self._head_norm(q, shape.heads, f"{prefix}.q_norm")
        k = self._head_norm(k, shape.kv_heads, f"{prefix}.k_norm")
        attended = self.linear(self.attention(index, q, k, v), f"{prefix}.o")
        normed, residual = self.add_norm(attended, residual, f"{prefix}.post_norm")
        gate, up = self.project(normed, prefix, "gate", "up")
        gated = self.op("Mul", [gate, self.op("Sigmoid", [gate])[0]])[0]
        return self.linear(self.op("Mul", [gated, up])[0], f"{prefix}.down"), residual

    def project(self, x: str, prefix: str, *parts: str) -> list[str]:
        """Add several projections of `x`. One product that is cut apart takes as long or longer."""
        return [self.linear(x, f"{prefix}.{part}") for part in parts]

    def _head_norm(self, x: str, heads: int, weight: str) -> str:
        split = self.op("Reshape", [x, self.constant([0, 0, heads, self.shape.head_size])])[0]
        return self.op("Reshape", [self.norm(split, weight), self.constant([0, 0, -1])])[0]

    def attention(self, index: int, q: str, k: str, v: str) -> str:
        """Add causal attention over (batch, sequence, width) projections, by GroupQueryAttention."""
        if self.form.head == "hidden":
            # Up to ONNX Runtime 1.24 the operator must have all its outputs, read or not.
            past, present = ["", ""], [self.name("key"), self.name("value")]
        else:
            past, present = self.declare_past(index)
        return self.op(
            "GroupQueryAttention",
            [q, k, v, *past, self.last32, self.total32, self.cos, self.sin],
            outputs=[self.name("attended"), *present],
            domain=MS_DOMAIN,
            name=f"layers.{index}.attention",
            num_heads=self.shape.heads,
            kv_num_heads=self.shape.kv_heads,
            do_rotary=1,
            rotary_interleaved=0,
            scale=self.shape.head_size**-0.5,
        )[0]

    def declare_past(self, index: int) -> tuple[list[str], list[str]]:
        """Declare a layer's key and value as inputs and as outputs; return the names of both."""
        stems = ("past_key_values", "present")
        past, present = ([f"{stem}.{index}.{kind}" for kind in ("key", "value")] for stem in stems)
        for names, place, length in ((past, self.inputs, "past"), (present, self.outputs, "total")):
            dims: list[int | str] = ["batch", self.shape.kv_heads, length, self.shape.head_size]
            place += [value_info(name, FLOAT, dims) for name in names]
        return past, present

    def _head(self, x: str, table: str, quantized: BlockQuantized | None) -> None:
        dims: list[int | str]
        if self.form.head == "hidden":
            self.declare_hidden_output(x)
            return
        if self.form.head == "score":
            weights = self.weight("score")
            weight = self.initializer("score.weight", weights.T)
            logits = self.op("MatMul", [self.take_last(x), weight], name="score")[0]
            dims = ["batch", len(weights)]
        else:
            x = self.logit_rows(x)
            if "head" in self.weights:
                logits = self.linear(x, "head", "lm_head", "fp" if self.form.table == "fp16" else self.form.table)
            elif quantized is None:
                logits = self.op("MatMul", [x, self.op("Transpose", [table], perm=[1, 0])[0]], name="lm_head")[0]
            else:
                values = self.alias("lm_head.values", table, quantized.packed.shape)
                logits = self.block_product(x, values, "embed.scales", quantized, "lm_head")
            dims = ["batch", "logit_positions", self.shape.vocab]
        self.op("Cast", [logits], outputs=["logits"], to=FLOAT)
        self.outputs.insert(0, value_info("logits", FLOAT, dims))

    def declare_hidden_output(self, x: str) -> None:
        """Declare token vectors as the graph's output, (batch, sequence, hidden)."""
        self.op("Cast", [x], outputs=[OUTPUT], to=FLOAT)
        self.outputs.append(value_info(OUTPUT, FLOAT, ["batch", "sequence", self.shape.hidden]))

    def logit_rows(self, x: str) -> str:
        """Return the positions that get logits, (batch, positions, hidden): the last of each row."""
        return self.op("Unsqueeze", [self.take_last(x), self.constant([1])])[0]

    def take_last(self, x: str) -> str:
        """Add the last real token of each row, (batch, hidden); right padding puts it before the end."""
        ids_shape = self.op("Shape", ["input_ids"])[0]
        length = self.op("Gather", [ids_shape, self.constant(1)], axis=0)[0]
        # `last` counts from the start of the whole sequence; this run contains only its final `length` positions.
        index = self.op("Add", [self.op("Sub", [length, self.total])[0], self.last])[0]
        # A batch of branches adds one token a row; the mask is as wide as the longest, so shorter rows count below 0.
        index = self.op("Max", [index, self.constant(0)])[0]
        return self.op("GatherND", [x, self.op("Unsqueeze", [index, self.constant([-1])])[0]], batch_dims=1)[0]


class StoredWriter(Qwen3Writer):
    """Writer of each matrix in the blocks of its file; see `StoredTensor.blocks`."""

    weights: StoredWeights

    def blocks(self, name: str, bits: int) -> BlockQuantized:
        """Return a matrix as it is stored, for any `bits`."""
        self._on_weight(name)
        return self.weights.stored(name).blocks()

    def table(self, name: str, bits: int) -> BlockQuantized:
        """Return a matrix whose rows are looked up, rounded if it is stored with offsets."""
        self._on_weight(name)
        return self.weights.stored(name).table()
