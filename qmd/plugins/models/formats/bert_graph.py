"""Graphs of BERT-like encoders, whose tokens attend both ways, with a norm after each half of a layer.

The weights of a network show its kind: biases and a table of positions (BERT, XLM-RoBERTa), or neither, with rotary
positions and a gate in the feed-forward half (nomic-bert).
"""

from __future__ import annotations

from functools import partial

import numpy as np

from qmd.inference.onnx_files import INT32
from qmd.plugins.models.formats.graph_writer import MS_DOMAIN
from qmd.plugins.models.formats.graphs import StoredWriter


class BertWriter(StoredWriter):
    """Writer of weights `embed`, `start` (added to token vectors: a row a position, or one for all), `embed_norm`.

    For layer i it reads `layers.i.` with `q`, `k` and `v` or `qkv`, `o`, `attended_norm`, `up`, `down`, `fed_norm`; and
    `gate` if there is one. Norms have a `.bias`, the others may. GELU is exact, as in the makers' training; llama.cpp
    uses its approximation by tanh.
    """

    def network(self) -> None:
        self.declare_inputs()
        tokens, _, _ = self._embed()
        start = self.weight("start")
        rows = self.initializer("start", start)
        self._is_rotary = len(start) == 1
        if self._is_rotary:
            self._rotary = (self.constant([0]), *self.rotary_tables("rope", self.shape.rope_theta))
        else:
            length = self.op("Shape", ["input_ids"], start=1, end=2)[0]
            rows = self.op("Slice", [rows, self.constant([0]), length, self.constant([0])])[0]
        x = self._add_and_norm(tokens, rows, "embed_norm")
        self._mask = self.op("Cast", ["attention_mask"], to=INT32)[0]
        for index in range(self.shape.layers):
            prefix = f"layers.{index}"
            x = self._add_and_norm(self._attend(prefix, x), x, f"{prefix}.attended_norm", f"{prefix}.o")
            x = self._add_and_norm(self._feed(prefix, x), x, f"{prefix}.fed_norm", f"{prefix}.down")
        self.declare_hidden_output(x)

    def _bias(self, parts: list[str]) -> str:
        """Return the biases of projections, concatenated; empty if they have none."""
        names = [f"{part}.bias" for part in parts]
        if names[0] not in self.weights:
            return ""
        return self.initializer("_".join(names), np.concatenate([self.weight(name) for name in names]))

    def _add_and_norm(self, x: str, other: str, norm: str, part: str = "") -> str:
        """Return the norm of a sum, with the bias of product `part`. `SkipLayerNormalization` takes a sixth longer."""
        bias = self._bias([part]) if part else ""
        for addend in filter(None, (bias, other)):
            x = self.op("Add", [x, addend])[0]
        weights = (self.initializer(name, self.weight(name)) for name in (norm, f"{norm}.bias"))
        return self.op("LayerNormalization", [x, *weights], axis=-1, epsilon=self.shape.eps)[0]

    def _attend(self, prefix: str, x: str) -> str:
        heads = self.shape.heads
        parts = [f"{prefix}.{part}" for part in ("q", "k", "v")]
        if f"{prefix}.qkv" in self.weights:
            parts = [f"{prefix}.qkv"]
            q, k, v = self.op("Split", [self.linear(x, parts[0])], outputs=3, axis=-1, num_outputs=3)
        else:
            q, k, v = self.project(x, prefix, "q", "k", "v")
        if self._is_rotary:
            rotate = partial(self.op, "RotaryEmbedding", domain=MS_DOMAIN, num_heads=heads)
            q, k = (rotate([one, *self._rotary])[0] for one in (q, k))
        inputs = [q, k, v, self._bias(parts), self._mask]
        attended = self.op("MultiHeadAttention", inputs, domain=MS_DOMAIN, num_heads=heads)[0]
        return self.linear(attended, f"{prefix}.o")

    def _feed(self, prefix: str, x: str) -> str:
        if f"{prefix}.gate" in self.weights:
            gate, up = self.project(x, prefix, "gate", "up")
            inner = self.op("Mul", [self.op("QuickGelu", [gate], domain=MS_DOMAIN, alpha=1.0)[0], up])[0]
        else:
            up = self.linear(x, f"{prefix}.up")
            inner = self.op("BiasGelu", [up, self._bias([f"{prefix}.up"])], domain=MS_DOMAIN)[0]
        return self.linear(inner, f"{prefix}.down")
