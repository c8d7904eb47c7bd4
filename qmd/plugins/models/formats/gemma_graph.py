"""Graph of EmbeddingGemma: an encoder of Gemma 3 layers, whose tokens attend both ways.

Differences from Qwen3: a norm after each half of a layer as well as before it, GELU, tables of two rotary bases, and
attention to near tokens only in most layers. The two projections after pooling have no bias, so one matrix before the
mean replaces both.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from qmd.plugins.models.formats.graph_writer import MS_DOMAIN, GraphForm, Qwen3Shape
from qmd.plugins.models.formats.graphs import StoredWriter
from qmd.plugins.models.formats.stored_weights import StoredWeights

_FAR = -1e9
"""Added to the attention of a masked token."""


class GemmaShape(Struct, frozen=True):
    """Sizes of an EmbeddingGemma network, beyond those of `Qwen3Shape`, whose `rope_theta` is the global layers'."""

    sizes: Qwen3Shape
    window: int
    """Tokens that a local layer sees: half of them on each side."""
    is_local: tuple[bool, ...]
    """By layer."""
    local_theta: float = 1e4


class GemmaWriter(StoredWriter):
    """Writer of `Qwen3Writer`'s weights, each layer's `attended_norm` and `fed_norm`, and `dense` if present."""

    def __init__(self, path: Path, shape: GemmaShape, weights: StoredWeights, on_weight: Callable[[str], None]) -> None:
        super().__init__(path, shape.sizes, GraphForm(head="hidden"), weights, on_weight)
        self.gemma = shape

    def network(self) -> None:
        self.declare_inputs()
        hidden, _, _ = self._embed()
        scale = self.constant(self.shape.hidden**0.5, "float32")
        residual = self.op("Mul", [hidden, scale])[0]
        self._prepare()
        x = self.norm(residual, "layers.0.in_norm")
        for index in range(self.shape.layers):
            prefix = f"layers.{index}"
            attended = self.norm(self._attend(index, x), f"{prefix}.attended_norm")
            x, residual = self.add_norm(attended, residual, f"{prefix}.post_norm")
            fed = self.norm(self._feed(prefix, x), f"{prefix}.fed_norm")
            after = f"layers.{index + 1}.in_norm" if index + 1 < self.shape.layers else "norm"
            x, residual = self.add_norm(fed, residual, after)
        if "dense" in self.weights:
            x = self.op("MatMul", [x, self.initializer("dense", self.weight("dense").T)], name="dense")[0]
        self.declare_hidden_output(x)

    def _prepare(self) -> None:
        """Add rotary tables and masks of local and of global layers."""
        self._rotary = {
            is_local: self.rotary_tables("rope.local" if is_local else "rope.global", theta)
            for is_local, theta in ((True, self.gemma.local_theta), (False, self.shape.rope_theta))
        }
        length = self.op("Gather", [self.op("Shape", ["input_ids"])[0], self.constant(1)], axis=0)[0]
        places = self.op("Range", [self.constant(0), length, self.constant(1)])[0]
        columns = self.op("Unsqueeze", [places, self.constant([0])])[0]
        apart = self.op("Abs", [self.op("Sub", [self.op("Unsqueeze", [places, self.constant([1])])[0], columns])[0]])[0]
        is_near = self.op("LessOrEqual", [apart, self.constant(self.gemma.window // 2)])[0]
        always = self.op("GreaterOrEqual", [apart, self.constant(0)])[0]
        real = self.op("Greater", ["attention_mask", self.constant(0)])[0]
        real = self.op("Unsqueeze", [real, self.constant([1, 2])])[0]
        zero, far = self.constant(0.0, "float32"), self.constant(_FAR, "float32")
        self._bias = {
            is_local: self.op("Where", [self.op("And", [real, seen])[0], zero, far])[0]
            for is_local, seen in ((True, is_near), (False, always))
        }
        self._first = self.constant([0])

    def _attend(self, index: int, x: str) -> str:
        shape, prefix, is_local = self.shape, f"layers.{index}", self.gemma.is_local[index]
        q, k, v = self.project(x, prefix, "q", "k", "v")
        q = self._rotate(self._head_norm(q, shape.heads, f"{prefix}.q_norm"), shape.heads, is_local)
        k = self._rotate(self._head_norm(k, shape.kv_heads, f"{prefix}.k_norm"), shape.kv_heads, is_local)
        attended = self.op(
            "MultiHeadAttention",
            [q, self._repeat(k), self._repeat(v), "", "", self._bias[is_local]],
            domain=MS_DOMAIN,
            name=f"{prefix}.attention",
            num_heads=shape.heads,
            scale=shape.head_size**-0.5,
        )[0]
        return self.linear(attended, f"{prefix}.o")

    def _rotate(self, x: str, heads: int, is_local: bool) -> str:
        inputs = [x, self._first, *self._rotary[is_local]]
        return self.op("RotaryEmbedding", inputs, domain=MS_DOMAIN, num_heads=heads)[0]

    def _repeat(self, x: str) -> str:
        """Repeat each key-value head for every query head that shares it."""
        shape = self.shape
        times = shape.heads // shape.kv_heads
        if times == 1:
            return x
        cut = self.op("Reshape", [x, self.constant([0, 0, shape.kv_heads, 1, shape.head_size])])[0]
        wide = self.op("Expand", [cut, self.constant([1, 1, 1, times, 1])])[0]
        return self.op("Reshape", [wide, self.constant([0, 0, shape.heads * shape.head_size])])[0]

    def _feed(self, prefix: str, x: str) -> str:
        gate, up = self.project(x, prefix, "gate", "up")
        gated = self.op("Mul", [self.op("FastGelu", [gate], domain=MS_DOMAIN)[0], up])[0]
        return self.linear(gated, f"{prefix}.down")
