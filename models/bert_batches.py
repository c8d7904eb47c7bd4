"""A twin of the INT8 BERT graph for GPUs: the same weights and the same rounding, for padded batches of texts.

    python models/bert_batches.py models/all-minilm-l6-v2

CUDA has no kernels for dynamic INT8, and plain float products give other vectors (cosine 0.994). Here every activation
is rounded to the 256 steps that `DynamicQuantizeMatMul` would round it to, over the range of its own text, and the
products of these whole numbers are summed in fp32, where they are exact. The file holds the graph alone: its tensors
are those of `model.onnx` beside it, found by offset.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, load_model_from_string, numpy_helper
from onnx.external_data_helper import set_external_data

SOURCE, TARGET = "model.onnx", "model_batches.onnx"
_STEPS = 255.0
_EXTERNAL_BYTES = 1024
"""Tensors from this size on are not repeated."""


class _Batches:
    """The graph while it is rewritten, node by node."""

    def __init__(self, source: ModelProto) -> None:
        self._source = source
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []
        self._rounded: dict[str, tuple[str, str]] = {}

    def add(self, operator: str, inputs: list[str], output: str, **attributes: object) -> str:
        self.nodes.append(helper.make_node(operator, inputs, [output], name="n_" + output, **attributes))
        return output

    def constant(self, name: str, value: float | list[int]) -> str:
        dtype = np.int64 if isinstance(value, list) else np.float32
        self.constants.append(numpy_helper.from_array(np.array(value, dtype), name))
        return name

    def write(self) -> None:
        """All nodes of the source in their order, with what batches need before and after them."""
        self.zero, self.steps = self.constant("zero_value", 0.0), self.constant("steps", _STEPS)
        self.per_step = self.constant("per_step", 1.0 / _STEPS)
        last, tokens = self.constant("last_axis", [2]), self.constant("token_axis", [1])
        is_token = self.add("Cast", ["attention_mask"], "is_token", to=TensorProto.BOOL)
        self.is_token = self.add("Unsqueeze", [is_token, last], "is_token.column")
        self.padding = self.add("Cast", ["attention_mask"], "attention_mask.int32", to=TensorProto.INT32)
        for node in self._source.graph.node:
            if node.op_type == "DynamicQuantizeMatMul":
                self._product(node)
            elif node.op_type == "MultiHeadAttention":
                node.input.extend(["", self.padding])
                self.nodes.append(node)
            else:
                self.nodes.append(node)
        (hidden,) = (output.name for output in self._source.graph.output)
        total = self.add("ReduceSum", [self._of_tokens(hidden), tokens], "total", keepdims=0)
        counts = self.add("Cast", ["attention_mask"], "attention_mask.float", to=TensorProto.FLOAT)
        count = self.add("ReduceSum", [counts, tokens], "count", keepdims=1)
        self.add("Div", [total, count], "sentence_embedding")

    def _of_tokens(self, x: str) -> str:
        return self.add("Where", [self.is_token, x, self.zero], f"{x}.of_tokens")

    def _product(self, node: NodeProto) -> None:
        x, levels, scales, _, bias = node.input
        output = node.output[0]
        rounded, step = self._round(x)
        # Folded when the graph is opened: the file keeps one byte per weight.
        matrix = self.add("Cast", [levels], f"{levels}.float", to=TensorProto.FLOAT)
        product = self.add("MatMul", [rounded, matrix], f"{output}.levels")
        scale = self.add("Mul", [step, scales], f"{output}.scale")
        self.add("Add", [self.add("Mul", [product, scale], f"{output}.scaled"), bias], output)

    def _round(self, x: str) -> tuple[str, str]:
        """`x` in whole steps from its zero point, and the size of a step, one per text: (batch, 1, 1)."""
        if x not in self._rounded:
            known = self._of_tokens(x)
            largest = self.add("ReduceMax", [known], f"{x}.largest", axes=[1, 2])
            smallest = self.add("ReduceMin", [known], f"{x}.smallest", axes=[1, 2])
            # As the INT8 operator does it, the range includes zero.
            top = self.add("Max", [largest, self.zero], f"{x}.top")
            bottom = self.add("Min", [smallest, self.zero], f"{x}.bottom")
            span = self.add("Sub", [top, bottom], f"{x}.span")
            step = self.add("Mul", [span, self.per_step], f"{x}.step")
            lowest = self.add("Round", [self.add("Div", [bottom, step], f"{x}.bottom_steps")], f"{x}.lowest")
            highest = self.add("Add", [lowest, self.steps], f"{x}.highest")
            steps = self.add("Round", [self.add("Div", [x, step], f"{x}.steps")], f"{x}.whole_steps")
            above = self.add("Max", [steps, lowest], f"{x}.above")
            self._rounded[x] = (self.add("Min", [above, highest], f"{x}.rounded"), step)
        return self._rounded[x]


def write_batch_graph(content: bytes) -> ModelProto:
    """The twin of a graph of `bert.write_int8_graph`, whose file's bytes are `content`.

    Inputs `input_ids` and `attention_mask`, int64 (batch, tokens), padded on the right; output `sentence_embedding`,
    float32 (batch, hidden): the mean over each text's tokens, not normalised.
    """
    source = load_model_from_string(content)
    batches = _Batches(source)
    batches.write()
    used = {name for node in batches.nodes for name in node.input}
    tensors = [_located(tensor, content) for tensor in source.graph.initializer if tensor.name in used]
    hidden = source.graph.output[0].type.tensor_type.shape.dim[2].dim_value
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "tokens"])
        for name in ("input_ids", "attention_mask")
    ]
    outputs = [helper.make_tensor_value_info("sentence_embedding", TensorProto.FLOAT, ["batch", hidden])]
    graph = helper.make_graph(batches.nodes, "bert_batches", inputs, outputs, [*batches.constants, *tensors])
    return helper.make_model(
        graph, opset_imports=source.opset_import, ir_version=source.ir_version, producer_name=source.producer_name
    )


def _located(tensor: TensorProto, content: bytes) -> TensorProto:
    """The tensor with its place in the source's file instead of its bytes, where they are many."""
    raw = tensor.raw_data
    if len(raw) < _EXTERNAL_BYTES:
        return tensor
    offset = content.find(raw)
    if content.find(raw, offset + 1) >= 0:
        raise ValueError(f"tensor '{tensor.name}' is not the only one with its bytes")
    place = TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims, raw_data=b"")
    set_external_data(place, location=SOURCE, offset=offset, length=len(raw))
    place.ClearField("raw_data")
    return place


def main(argv: list[str] | None = None) -> int:
    """Write the twin beside a folder's INT8 graph."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help=f"holds {SOURCE}")
    folder: Path = parser.parse_args(argv).folder
    graph = write_batch_graph((folder / SOURCE).read_bytes())
    content = graph.SerializeToString(deterministic=True)
    (folder / TARGET).write_bytes(content)
    print(f"{folder / TARGET}: {len(content)} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
