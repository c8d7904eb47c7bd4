"""Graphs of BERT-like encoders, whose tokens attend both ways, with a norm after each half of a layer.

The weights of a network show its kind: biases and a table of positions (BERT, XLM-RoBERTa), or neither, with rotary
positions and a gate in the feed-forward half (nomic-bert).
"""

from __future__ import annotations

from functools import partial

import numpy as np

from qmd.inference.onnx_files import INT32
from qmd.plugins.models.formats.graph_writer import MS_DOMAIN, LinearForm
from qmd.plugins.models.formats.graphs import StoredWriter
from qmd.plugins.models.formats.quantize import quantize_rows

_LEVELS = 63
"""Weights of 7 bits in `int8`: sums of two products fit in 16 bits, so that AVX2 without VNNI computes the same. The
eighth bit is worth 0.001 to 0.002 of the cosine below; the runtime widens sums only where it fuses norms, too."""

_TOKEN_SCALES = (".down",)
"""Products whose input has one scale a token in `int8`. Cosine to fp32 with multilingual-e5-small, mean vector taken
away: 0.985 with one scale a run; 0.994 with these, at 0.95 of the speed; 0.996 with `up` too, at 0.86."""


class BertWriter(StoredWriter):
    """Writer of weights `embed`, `start` (added to token vectors: a row a position, or one for all), `embed_norm`.

    For layer i it reads `layers.i.` with `q`, `k` and `v` or `qkv`, `o`, `attended_norm`, `up`, `down`, `fed_norm`; and
    `gate` if there is one. Norms have a `.bias`, the others may. GELU is exact, as in the makers' training; llama.cpp
    uses its approximation by tanh.

    A graph in `int8` has no mask: inputs share one scale a run, so texts are never padded, and attention is faster.
    """

    def network(self) -> None:
        self._is_int8 = self.form.linear == "int8"
        self.declare_inputs()
        if self._is_int8:
            self.inputs.pop()
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
        self._mask = "" if self._is_int8 else self.op("Cast", ["attention_mask"], to=INT32)[0]
        for index in range(self.shape.layers):
            prefix = f"layers.{index}"
            x = self._add_and_norm(self._attend(prefix, x), x, f"{prefix}.attended_norm", f"{prefix}.o")
            x = self._add_and_norm(self._feed(prefix, x), x, f"{prefix}.fed_norm", f"{prefix}.down")
        self.declare_hidden_output(x)

    def linear(self, x: str, weight: str, name: str | None = None, form: LinearForm | None = None) -> str:
        return self._int8_product(x, [weight]) if self._is_int8 else super().linear(x, weight, name, form)

    def project(self, x: str, prefix: str, *parts: str) -> list[str]:
        """Add several projections of `x`: in `int8` one product that is cut apart, which quantizes `x` once."""
        if not self._is_int8:
            return super().project(x, prefix, *parts)
        product = self._int8_product(x, [f"{prefix}.{part}" for part in parts])
        return self.op("Split", [product], outputs=len(parts), axis=-1, num_outputs=len(parts))

    def _int8_product(self, x: str, parts: list[str]) -> str:
        """Add the product of `x` with matrices one below the other, with their biases if inputs share a scale."""
        (values,), scales = quantize_rows(np.concatenate([self.weight(part) for part in parts]), levels=_LEVELS)
        name = "_".join(parts)
        row_scales = self.initializer(f"{name}.scales", scales)
        if parts[0].endswith(_TOKEN_SCALES):
            first, scale, _ = self.scale_tokens(x)
            return self.op("Mul", [self.byte_product(first, values, row_scales, name), scale])[0]
        inputs = [x, self.initializer(f"{name}.values", values.T), row_scales]
        inputs += [self.initializer(f"{name}.zeros", np.zeros(len(scales), np.int8)), self._bias(parts)]
        return self.op("DynamicQuantizeMatMul", inputs, domain=MS_DOMAIN, name=name)[0]

    def _bias_after(self, parts: list[str]) -> str:
        """Return the biases that follow a product of projections; empty if it adds them itself."""
        return "" if self._is_int8 and not parts[0].endswith(_TOKEN_SCALES) else self._bias(parts)

    def _bias(self, parts: list[str]) -> str:
        """Return the biases of projections, concatenated; empty if they have none."""
        names = [f"{part}.bias" for part in parts]
        if names[0] not in self.weights:
            return ""
        return self.initializer("_".join(names), np.concatenate([self.weight(name) for name in names]))

    def _add_and_norm(self, x: str, other: str, norm: str, part: str = "") -> str:
        """Return the norm of a sum, with the bias of product `part`. `SkipLayerNormalization` takes a sixth longer."""
        bias = self._bias_after([part]) if part else ""
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
        inputs = [q, k, v, self._bias_after(parts), self._mask]
        attended = self.op("MultiHeadAttention", inputs, domain=MS_DOMAIN, num_heads=heads)[0]
        return self.linear(attended, f"{prefix}.o")

    def _feed(self, prefix: str, x: str) -> str:
        if f"{prefix}.gate" in self.weights:
            gate, up = self.project(x, prefix, "gate", "up")
            inner = self.op("Mul", [self.op("QuickGelu", [gate], domain=MS_DOMAIN, alpha=1.0)[0], up])[0]
        else:
            up = self.linear(x, f"{prefix}.up")
            bias = self._bias_after([f"{prefix}.up"])
            inner = self.op("BiasGelu" if bias else "Gelu", [up, *filter(None, [bias])], domain=MS_DOMAIN)[0]
        return self.linear(inner, f"{prefix}.down")
