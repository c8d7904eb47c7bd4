"""Pieces of an ONNX graph: nodes, constants inside or outside the model file, norms, linear layers in every format."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Literal, Protocol

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from qmd.inference.onnx_files import encode
from qmd.plugins.models.formats.quantize import FINER, BlockQuantized, quantize_blocks, quantize_rows
from qmd.plugins.onnx.model import Graph, Model, Node, Opset, Tensor, ValueInfo, attribute, external_tensor, tensor_of

MS_DOMAIN = "com.microsoft"
_EXTERNAL_FROM_BYTES = 4096
_PAGE_BYTES = 4096
"""External tensors start on a page border, so that they can be mapped into memory."""

LinearForm = Literal["fp", "q4", "q8", "int8", "i16w8", "i16w16"]
Head = Literal["lm", "score", "hidden"]

FINE_WEIGHTS = (".v", ".o")
"""Weights with two terms in `i16w8`, too: a fifth of all, and two thirds of the variance of scores by rounding."""


class Weights(Protocol):
    """Weights by name, matrices as (out, in)."""

    def __getitem__(self, name: str, /) -> npt.NDArray[np.float32]: ...

    def __contains__(self, name: object, /) -> bool: ...


class Qwen3Shape(Struct, frozen=True):
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    ffn: int
    vocab: int
    rope_theta: float = 1e6
    eps: float = 1e-6
    max_positions: int = 4096
    """Rows of the rotary tables: the longest sequence the graph can run."""


def qwen3_shape(shape_of: Callable[[str], tuple[int, ...]], layers: int, rope_theta: float, eps: float) -> Qwen3Shape:
    """Return the sizes of a network from the shapes of its weights; vocabulary and width from `embed`."""
    vocab, hidden = (*shape_of("embed"), 0)[:2]
    head_size, queries, keys, ffn = (shape_of(f"layers.0.{part}")[0] for part in ("q_norm", "q", "k", "gate"))
    heads, kv_heads = queries // head_size, keys // head_size
    return Qwen3Shape(layers, hidden, heads, kv_heads, head_size, ffn, vocab, rope_theta, eps)


class GraphForm(Struct, frozen=True):
    """Number formats of a graph. The defaults are the form that is fastest on most CPUs."""

    linear: LinearForm = "q8"
    """`int8`: inputs in bytes, encoders only. `i16w8`, `i16w16`: inputs are the sum of two terms of a byte, weights of
    one (but see `FINE_WEIGHTS`) or two."""
    block: int = 128
    """Weights per scale of `q4` and `q8`."""
    table: Literal["fp", "fp16", "q4", "q8"] = "q8"
    """Form of the embedding table, and of the language-model head tied to it."""
    head: Head = "lm"
    """`lm`: logits over the vocabulary; `score`: one relevance logit, shape (batch, 1); `hidden`: token vectors,
    without state between runs."""


class GraphWriter:
    """Builder of the nodes, constants, inputs and outputs of one graph.

    Args:
        path: Model file; replaced if it exists. Large tensors go to `path` + `_data`.
        weights: Read one at a time.
        on_weight: Called with the name of each weight that is read, perhaps more than once.
    """

    def __init__(
        self,
        path: Path,
        shape: Qwen3Shape,
        form: GraphForm,
        weights: Weights,
        on_weight: Callable[[str], None] = lambda name: None,
    ) -> None:
        self.path, self.shape, self.form = path, shape, form
        self.weights, self._on_weight = weights, on_weight
        self.nodes: list[Node] = []
        self.initializers: dict[str, Tensor] = {}
        self.inputs: list[ValueInfo] = []
        self.outputs: list[ValueInfo] = []
        self._stream: BinaryIO
        self._written = 0
        self._count = 0
        self._tokens: dict[str, tuple[str, str, str]] = {}
        self._sums: dict[tuple[str, int], str] = {}

    def name(self, stem: str) -> str:
        """Return an unused name."""
        self._count += 1
        return f"{stem}_{self._count}"

    def op(
        self,
        kind: str,
        inputs: Sequence[str],
        *,
        outputs: Sequence[str] | int = 1,
        domain: str = "",
        name: str | None = None,
        **attributes: Any,
    ) -> list[str]:
        """Add a node; return the names of its outputs."""
        names = [self.name(kind) for _ in range(outputs)] if isinstance(outputs, int) else list(outputs)
        node = Node(
            input=tuple(inputs),
            output=tuple(names),
            name=name or self.name(f"node_{kind}"),
            op_type=kind,
            attribute=tuple(attribute(*one) for one in sorted(attributes.items())),
            domain=domain,
        )
        self.nodes.append(node)
        return names

    def initializer(self, name: str, array: npt.NDArray[Any]) -> str:
        """Add a constant tensor, outside the model file when large; return its name."""
        array = np.ascontiguousarray(array)
        if array.nbytes < _EXTERNAL_FROM_BYTES:
            self.initializers[name] = tensor_of(name, array)
            return name
        padding = -self._written % _PAGE_BYTES
        self._stream.write(b"\0" * padding)
        offset = self._written + padding
        self._stream.write(array.data)
        self._written = offset + array.nbytes
        self.initializers[name] = external_tensor(name, array, f"{self.path.name}_data", offset)
        return name

    def alias(self, name: str, source: str, dims: Sequence[int]) -> str:
        """Add a second view of a constant under another shape, which costs no bytes for an external constant."""
        self.initializers[name] = replace(self.initializers[source], name=name, dims=tuple(dims))
        return name

    def constant(self, value: object, dtype: str = "int64") -> str:
        return self.initializer(self.name("constant"), np.array(value, dtype=dtype))

    def weight(self, name: str) -> npt.NDArray[np.float32]:
        """Return a weight in full precision."""
        self._on_weight(name)
        return self.weights[name]

    def blocks(self, name: str, bits: int) -> BlockQuantized:
        """Return a matrix in blocks, rounded to `bits` unless its file has blocks."""
        return quantize_blocks(self.weight(name), bits, self.form.block)

    def norm(self, x: str, weight: str) -> str:
        """Add a root-mean-square normalisation over the last axis."""
        scale = self.initializer(weight, self.weight(weight))
        return self.op("SimplifiedLayerNormalization", [x, scale], axis=-1, epsilon=self.shape.eps, stash_type=1)[0]

    def add_norm(self, x: str, residual: str, weight: str) -> tuple[str, str]:
        """Add a norm of a sum; return the normalised sum, and the sum."""
        inputs = [x, residual, self.initializer(weight, self.weight(weight))]
        outputs = [self.name("normed"), "", "", self.name("residual")]
        kind = "SkipSimplifiedLayerNormalization"
        self.op(kind, inputs, outputs=outputs, domain=MS_DOMAIN, epsilon=self.shape.eps)
        return outputs[0], outputs[3]

    def linear(self, x: str, weight: str, name: str | None = None, form: LinearForm | None = None) -> str:
        """Add the product of `x`, (batch, sequence, k), with a weight, (n, k); `name` is the node's, if it differs."""
        name, form = name or weight, form or self.form.linear
        if form in ("q4", "q8"):
            return self._block_linear(x, self.blocks(weight, int(form[1])), name)
        if form != "fp":
            is_fine = form == "i16w16" or weight.endswith(FINE_WEIGHTS)
            return self._row_linear(x, *quantize_rows(self.weight(weight), 2 if is_fine else 1), name)
        return self.op("MatMul", [x, self.initializer(f"{name}.weight", self.weight(weight).T)], name=name)[0]

    def _block_linear(self, x: str, weight: BlockQuantized, name: str) -> str:
        values = self.initializer(f"{name}.values", weight.packed)
        scales = self.initializer(f"{name}.scales", weight.scales)
        product = self.block_product(x, values, scales, weight, name)
        if weight.offsets is None:
            return product
        offsets = self.initializer(f"{name}.offsets", weight.offsets.T)
        added = self.op("MatMul", [self._block_sums(x, weight), offsets], name=f"{name}.offset")[0]
        return self.op("Add", [product, added])[0]

    def _block_sums(self, x: str, weight: BlockQuantized) -> str:
        """Add sums of the blocks of `x` along its last axis, (batch, sequence, k / block); once for an input."""
        block = weight.block
        if (x, block) not in self._sums:
            cut = self.op("Reshape", [x, self.constant([0, 0, weight.shape[1] // block, block])])[0]
            self._sums[x, block] = self.op("ReduceSum", [cut, self.constant([-1])], keepdims=0)[0]
        return self._sums[x, block]

    def block_product(self, x: str, values: str, scales: str, weight: BlockQuantized, name: str) -> str:
        n, k = weight.shape
        return self.op(
            "MatMulNBits",
            [x, values, scales],
            domain=MS_DOMAIN,
            name=name,
            K=k,
            N=n,
            bits=weight.bits,
            block_size=weight.block,
            accuracy_level=4,  # products of 8-bit integers
        )[0]

    def _row_linear(
        self, x: str, terms: Sequence[npt.NDArray[np.int8]], scales: npt.NDArray[np.float32], name: str
    ) -> str:
        """Add x W = s w (q1 W1 + (q2 W1 + q1 W2) / FINER), the last if there is a W2: products of bytes."""
        both, first, token_scale = self._quantize_tokens(x)
        row_scales = self.initializer(f"{name}.scales", scales)
        products = [
            self.byte_product(inputs, values, row_scales, name, index)
            for index, (inputs, values) in enumerate(zip((both, first), terms, strict=False))
        ]
        rows = self.op("Concat", products, axis=2)[0] if len(products) > 1 else products[0]
        # One pass over the result scales the rows of a token and adds them.
        factors = self.op("Mul", [token_scale, self.constant([1.0, *[1 / FINER] * len(terms)], "float32")])[0]
        summed = self.op("MatMul", [factors, rows])[0]
        return self.op("Reshape", [summed, self.constant([0, 0, -1])])[0]

    def byte_product(self, x: str, values: npt.NDArray[np.int8], scales: str, name: str, term: int = 0) -> str:
        """Add the product of bytes around 128 with a weight (n, k) in bytes, times the constant scales of its rows."""
        weight = self.initializer(f"{name}.values{term}", values.T)
        inputs = [x, weight, self.constant(1.0, "float32"), scales, self.constant(128, "uint8")]
        return self.op("MatMulIntegerToFloat", inputs, domain=MS_DOMAIN, name=f"{name}{term or ''}")[0]

    def scale_tokens(self, x: str) -> tuple[str, str, str]:
        """Add `x` with a scale per token: in bytes around 128, the scale, (batch, sequence, 1), and `x` / scale."""
        peak = self.op("ReduceMax", [self.op("Abs", [x])[0], self.constant([-1])], keepdims=1)[0]
        scaled = self.op("Mul", [peak, self.constant(1 / 127, "float32")])[0]
        scale = self.op("Add", [scaled, self.constant(1e-12, "float32")])[0]
        values = self.op("Div", [x, scale])[0]
        unit = [self.constant(1.0, "float32"), self.constant(128, "uint8")]
        return self.op("QuantizeLinear", [values, *unit])[0], scale, values

    def _quantize_tokens(self, x: str) -> tuple[str, str, str]:
        """Add `x` in bytes around 128 with one scale per token; computed once for an input.

        The first token's outlier ruins a scale per tensor; the outliers of any token ruin a single term.

        Returns:
            Both terms, (batch, sequence, 2, k); the first, (batch, sequence, 1, k); the scale, (batch, sequence, 1, 1).
        """
        if x not in self._tokens:
            first, scale, values = self.scale_tokens(x)
            unit, middle, axis = self.constant(1.0, "float32"), self.constant(128, "uint8"), self.constant([2])
            left = self.op("Sub", [values, self.op("DequantizeLinear", [first, unit, middle])[0]])[0]
            second = self.op("QuantizeLinear", [left, self.constant(1 / FINER, "float32"), middle])[0]
            first, second, scale = (self.op("Unsqueeze", [one, axis])[0] for one in (first, second, scale))
            self._tokens[x] = (self.op("Concat", [first, second], axis=2)[0], first, scale)
        return self._tokens[x]

    def write(self) -> None:
        """Build and save the graph; a missing weight raises the error of `weights`."""
        with self.path.with_name(f"{self.path.name}_data").open("wb") as self._stream:
            self.network()
        graph = Graph(
            node=tuple(self.nodes),
            name="qwen3",
            initializer=tuple(self.initializers.values()),
            input=tuple(self.inputs),
            output=tuple(self.outputs),
        )
        opsets = (Opset("", 21), Opset(MS_DOMAIN, 1))
        model = Model(ir_version=10, producer_name="qmd", graph=graph, opset_import=opsets)
        self.path.write_bytes(encode(model))

    def network(self) -> None:
        """Add the graph's whole content."""
        raise NotImplementedError
