"""Our graphs over weights in the blocks of the file they come from: Qwen3 as decoder, reranker and embedder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from qmd.inference.onnx_files.messages import FLOAT, value_info
from qmd.plugins.forms.graph_writer import MS_DOMAIN, GraphForm, LinearForm, Qwen3Shape
from qmd.plugins.forms.graphs import Qwen3Writer
from qmd.plugins.forms.quantize import BlockQuantized
from qmd.plugins.forms.stored_blocks import BLOCK, stack
from qmd.plugins.forms.stored_weights import HeldWeights

OUTPUT = "last_hidden_state"


class HeldWriter(Qwen3Writer):
    """Writes each matrix as the file holds it; see `qmd.plugins.forms.stored_blocks`."""

    def __init__(self, path: Path, shape: Qwen3Shape, form: GraphForm, weights: HeldWeights) -> None:
        super().__init__(path, shape, form, weights)
        self.held = weights
        self._sums: dict[tuple[str, int], str] = {}

    def linear(self, x: str, parts: Sequence[str], name: str, form: LinearForm | None = None) -> str:
        """The product of `x` with the weights `parts`, stacked along the output axis; they share a layout."""
        held = stack([self.held.blocks(part) for part in parts])
        levels = self.initializer(f"{name}.levels", held.blocks.packed)
        scales = self.initializer(f"{name}.scales", held.blocks.scales)
        product = self.block_product(x, levels, scales, held.blocks, name)
        if held.offsets is None:
            return product
        offsets = self.initializer(f"{name}.offsets", held.offsets.T)
        added = self.op("MatMul", [self._block_sums(x, held.blocks), offsets], name=f"{name}.offset")[0]
        return self.op("Add", [product, added])[0]

    def project(self, x: str, prefix: str, parts: Sequence[str], widths: Sequence[int]) -> list[str]:
        """Several projections of `x`: as one product where they are held alike, else one by one."""
        names = [f"{prefix}.{part}" for part in parts]
        if all(self.held.layout(name) == self.held.layout(names[0]) for name in names):
            return super().project(x, prefix, parts, widths)
        return [self.linear(x, [name], name) for name in names]

    def _block_sums(self, x: str, blocks: BlockQuantized) -> str:
        """Sums of the blocks of `x` along its last axis, (batch, sequence, k / block); computed once for an input."""
        if (x, blocks.block) not in self._sums:
            cut = self.op("Reshape", [x, self.constant([0, 0, blocks.shape[1] // blocks.block, blocks.block])])[0]
            self._sums[x, blocks.block] = self.op("ReduceSum", [cut, self.constant([-1])], keepdims=0)[0]
        return self._sums[x, blocks.block]

    def _embed(self) -> tuple[str, str, BlockQuantized | None]:
        return self.quantized_rows(self.held.table("embed"))

    def declare_hidden_output(self, x: str) -> None:
        """Token vectors as the graph's output, (batch, sequence, hidden)."""
        self.op("Cast", [x], outputs=[OUTPUT], to=FLOAT)
        self.outputs.append(value_info(OUTPUT, FLOAT, ["batch", "sequence", self.shape.hidden]))


class EmbeddingWriter(HeldWriter):
    """Qwen3 as an embedder: token vectors out, nothing kept between runs."""

    def attention(self, index: int, q: str, k: str, v: str) -> str:
        """Causal attention over one run."""
        return self.op(
            "GroupQueryAttention",
            [q, k, v, "", "", self.last32, self.total32, self.cos, self.sin],
            domain=MS_DOMAIN,
            name=f"layers.{index}.attention",
            num_heads=self.shape.heads,
            kv_num_heads=self.shape.kv_heads,
            do_rotary=1,
            rotary_interleaved=0,
            scale=self.shape.head_size**-0.5,
        )[0]

    def _head(self, x: str, table: str, quantized: BlockQuantized | None) -> None:
        self.declare_hidden_output(x)


def held_form(head: str) -> GraphForm:
    """The form that says what `HeldWriter` does: 8 bits where the file does not say otherwise."""
    return GraphForm(linear="q8", block=BLOCK, table="q8", head="score" if head == "score" else "lm")
