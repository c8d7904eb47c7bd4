"""Qwen3 graphs as exporters write them: the writer of `qmd models prepare` with other names, operators and types."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt
import onnx
from msgspec import Struct

from qmd.inference.onnx_files import FLOAT, FLOAT16, INT64
from qmd.plugins.models.formats.graph_writer import MS_DOMAIN, GraphForm, LinearForm, Qwen3Shape
from qmd.plugins.models.formats.graphs import Qwen3Writer
from qmd.plugins.onnx.model import Dimension, Shape, TensorType, Type, ValueInfo, value_info

Weights = Mapping[str, npt.NDArray[np.float32]]

_PARTS = {
    "q": "self_attn/q_proj",
    "k": "self_attn/k_proj",
    "v": "self_attn/v_proj",
    "o": "self_attn/o_proj",
    "gate": "mlp/gate_proj",
    "up": "mlp/up_proj",
    "down": "mlp/down_proj",
}
_NORMS = {"in_norm": "input_layernorm", "post_norm": "post_attention_layernorm"}
_NORMS |= {"q_norm": "self_attn.q_norm", "k_norm": "self_attn.k_norm"}
LAYER_PARTS = ("in_norm", "q", "k", "v", "q_norm", "k_norm", "o", "post_norm", "gate", "up", "down")


class ExportForm(Struct, frozen=True):
    """A `GraphForm` with the choices of exporters; the defaults are those of qmd's graphs."""

    activations: Literal["fp32", "fp16"] = "fp32"
    linear: LinearForm = "q8"
    block: int = 128
    accuracy_level: int = 4
    """`MatMulNBits` attribute; 4 = 8-bit integer products, 0 = products in the activation type."""
    table: Literal["fp", "fp16", "q4", "q8"] = "q8"
    head: Literal["lm", "score"] = "lm"
    last_only: bool = True
    """Logits of each row's last token only. Always so for `score`."""
    fused: bool = False
    """One product for query, key and value, and one for gate and up, both cut apart."""
    past: bool = True
    """Key-value inputs and outputs."""
    positions: bool = False
    """A `position_ids` input and separate rotary nodes; else positions follow the mask."""
    has_zeros: bool = False
    """A zero point for every block, which asymmetric quantisation has."""
    eight_bit: frozenset[str] = frozenset()
    """Products (`layers.0.v`) that keep 8 bits where `linear` is `q4`."""
    states_head_size: bool = True
    """False leaves the last dimension of key-value tensors open, as the GenAI builder does from 0.18 on."""
    data_suffix: str = "_data"
    """Suffix of the file with the large tensors; `.data` in those exports."""


def weight_names(shape: Qwen3Shape, head: str, *, tied: bool = True) -> list[str]:
    """Return the names that a writer reads from its weights."""
    names = ["embed", *(f"layers.{i}.{part}" for i in range(shape.layers) for part in LAYER_PARTS), "norm"]
    if head == "score":
        return [*names, "score"]
    return names if tied else [*names, "head"]


class PublishedWriter(Qwen3Writer):
    """The same network as exporters write it: with their names, and their choice of operators and types."""

    plain = False

    def __init__(
        self, path: Path, shape: Qwen3Shape, form: ExportForm, weights: Weights, *, external: bool = False
    ) -> None:
        own = GraphForm(form.linear, form.block, form.table, form.head)
        super().__init__(path, shape, own, weights)
        self.export = form
        self._is_external = external
        self._is_half = form.activations == "fp16"

    def write(self) -> None:
        super().write()
        if not self._is_external:
            onnx.save(onnx.load(str(self.path)), str(self.path))
            self.path.with_name(f"{self.path.name}_data").unlink()
        elif self.export.data_suffix != "_data":
            self._rename_data(f"{self.path.name}{self.export.data_suffix}")

    def _rename_data(self, name: str) -> None:
        model = onnx.load(str(self.path), load_external_data=False)
        for tensor in model.graph.initializer:
            for entry in tensor.external_data:
                entry.value = name if entry.key == "location" else entry.value
        onnx.save(model, str(self.path))
        self.path.with_name(f"{self.path.name}_data").rename(self.path.with_name(name))

    def network(self) -> None:
        super().network()
        self.inputs = [self._exported(info) for info in self.inputs]
        self.outputs = [self._exported(info) for info in self.outputs]

    def _exported(self, info: ValueInfo) -> ValueInfo:
        """Return an input or output as the exporter declares it."""
        held = info.type.tensor_type if info.type else None
        assert held is not None and held.shape is not None
        kind, dims = held.elem_type, held.shape.dim
        if not self.export.states_head_size and info.name.startswith(("past", "present")):
            dims = (*dims[:3], Dimension(dim_param="kv_cache_dim"))
        is_score = info.name == "logits" and self.form.head == "score"
        if self._is_half and kind == FLOAT and not is_score:
            kind = FLOAT16
        return ValueInfo(info.name, Type(TensorType(kind, Shape(dims))))

    def op(self, kind: str, inputs: Sequence[str], **options: Any) -> list[str]:
        if kind in ("MatMulNBits", "GatherBlockQuantized") and self.export.has_zeros:
            inputs = [*inputs, self._zeros(inputs[2], options["bits"])]
        if kind == "MatMulNBits":
            options["accuracy_level"] = self.export.accuracy_level
        elif kind == "GroupQueryAttention" and self.export.positions:
            inputs, options["do_rotary"] = [*inputs[:-2], "", ""], 0
        elif options.get("outputs") == ["logits"] and self._is_half and self.form.head == "lm":
            options["to"] = FLOAT16
        return super().op(kind, inputs, **options)

    def initializer(self, name: str, array: npt.NDArray[Any]) -> str:
        if self._is_half and array.dtype == np.float32:
            array = array.astype(np.float16)
        return super().initializer(self._constant_name(name), array)

    def _zeros(self, scales: str, bits: int) -> str:
        """Add the zero points of the blocks of `scales`: the middle, at the cost of any other."""
        name = f"{scales}.zeros"
        if name not in self.initializers:
            n, blocks = self.initializers[scales].dims
            size, middle = (-(-blocks // 2), 0x88) if bits == 4 else (blocks, 0x80)
            self.initializer(name, np.full((n, size), middle, np.uint8))
        return name

    def _constant_name(self, weight: str) -> str:
        pieces = weight.split(".")
        if pieces[-1] in _NORMS:
            return f"model.layers.{pieces[1]}.{_NORMS[pieces[-1]]}.weight"
        return {"embed": "model.embed_tokens.weight", "norm": "model.norm.weight"}.get(weight, weight)

    def linear(self, x: str, weight: str, name: str | None = None, form: LinearForm | None = None) -> str:
        pieces = weight.split(".")
        form = "q8" if weight in self.export.eight_bit else form
        return super().linear(x, weight, self.node_name(int(pieces[1]), pieces[2]) if len(pieces) == 3 else name, form)

    def node_name(self, index: int, part: str) -> str:
        """Return the name of a projection's node."""
        return f"/model/layers.{index}/{_PARTS.get(part, part)}/MatMul"

    def project(self, x: str, prefix: str, *parts: str) -> list[str]:
        if not self.export.fused:
            return super().project(x, prefix, *parts)
        weights, joined = [self.weight(f"{prefix}.{part}") for part in parts], f"{prefix}.{'_'.join(parts)}"
        self.weights = {joined: np.concatenate(weights), **cast("Weights", self.weights)}
        widths = self.constant([len(weight) for weight in weights])
        return self.op("Split", [self.linear(x, joined), widths], outputs=len(parts), axis=-1)

    def declare_inputs(self) -> None:
        super().declare_inputs()
        if self.export.positions:
            self.inputs.append(value_info("position_ids", INT64, ["batch", "sequence"]))

    def declare_past(self, index: int) -> tuple[list[str], list[str]]:
        if self.export.past:
            return super().declare_past(index)
        return ["", ""], [self.name("key"), self.name("value")]

    def logit_rows(self, x: str) -> str:
        return super().logit_rows(x) if self.export.last_only else x

    def attention(self, index: int, q: str, k: str, v: str) -> str:
        shape = self.shape
        if self.plain or self.export.positions:
            q, k = self.rotate(q, shape.heads), self.rotate(k, shape.kv_heads)
        if not self.plain:
            return super().attention(index, q, k, v)
        query = self._heads(q, shape.heads)
        key, value = self._heads(k, shape.kv_heads), self._heads(v, shape.kv_heads)
        if self.export.past:
            (past_key, past_value), names = self.declare_past(index)
            key = self.op("Concat", [past_key, key], outputs=[names[0]], axis=2)[0]
            value = self.op("Concat", [past_value, value], outputs=[names[1]], axis=2)[0]
        key, value = self._repeat(key), self._repeat(value)
        scores = self.op("MatMul", [query, self.op("Transpose", [key], perm=[0, 1, 3, 2])[0]])[0]
        scale = self.initializer(self.name("scale"), np.array(shape.head_size**-0.5, np.float32))
        scores = self.op("Add", [self.op("Mul", [scores, scale])[0], self._bias()])[0]
        attended = self.op("MatMul", [self.op("Softmax", [scores], axis=-1)[0], value])[0]
        joined = self.op("Transpose", [attended], perm=[0, 2, 1, 3])[0]
        return self.op("Reshape", [joined, self.constant([0, 0, -1])])[0]

    def rotate(self, x: str, heads: int) -> str:
        """Add rotary embedding by `position_ids`, or by places in the sequence without such an input."""
        positions = "position_ids" if self.export.positions else self._counted_positions()
        return self.op("RotaryEmbedding", [x, positions, self.cos, self.sin], domain=MS_DOMAIN, num_heads=heads)[0]

    def _heads(self, x: str, heads: int) -> str:
        split = self.op("Reshape", [x, self.constant([0, 0, heads, self.shape.head_size])])[0]
        return self.op("Transpose", [split], perm=[0, 2, 1, 3])[0]

    def _repeat(self, x: str) -> str:
        """Repeat each key-value head for every query head that shares it."""
        shape, times = self.shape, self.shape.heads // self.shape.kv_heads
        wide = self.op("Unsqueeze", [x, self.constant([2])])[0]
        wide = self.op("Expand", [wide, self.constant([1, 1, times, 1, 1])])[0]
        return self.op("Reshape", [wide, self.constant([0, shape.heads, -1, shape.head_size])])[0]

    def _sequence_range(self) -> str:
        """Add the places of this run's tokens in the whole sequence, shape (sequence,)."""
        length = self.op("Gather", [self.op("Shape", ["input_ids"])[0], self.constant(1)], axis=0)[0]
        start = self.op("Sub", [self.total, length])[0]
        return self.op("Range", [start, self.total, self.constant(1)])[0]

    def _counted_positions(self) -> str:
        """Add positions for a graph without the input: places in the sequence, the same for every row."""
        row = self.op("Unsqueeze", [self._sequence_range(), self.constant([0])])[0]
        ids_shape = self.op("Shape", ["input_ids"])[0]
        return self.op("Expand", [row, ids_shape])[0]

    def _bias(self) -> str:
        """Add 0 for allowed positions, -10,000 elsewhere: (batch, 1, sequence, total)."""
        places = self.op("Unsqueeze", [self._sequence_range(), self.constant([1])])[0]
        keys = self.op("Range", [self.constant(0), self.total, self.constant(1)])[0]
        causal = self.op("LessOrEqual", [keys, places])[0]
        real = self.op("Unsqueeze", [self.op("Cast", ["attention_mask"], to=9)[0], self.constant([1, 2])])[0]
        allowed = self.op("And", [causal, real])[0]
        zero, far = (self.initializer(self.name("bias"), np.array(v, np.float32)) for v in (0.0, -1e4))
        return self.op("Where", [allowed, zero, far])[0]


class PlainWriter(PublishedWriter):
    """Attention as MatMul, Softmax, MatMul with concatenated keys and values."""

    plain = True
