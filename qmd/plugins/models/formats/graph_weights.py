"""Weights of a published Qwen3 graph by name, from any exporter.

Exporters name nodes and initializers after the modules of the original network (`model.layers.3.self_attn.q_proj`);
those names, with the operator around them, identify each tensor.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from qmd.errors import ModelError
from qmd.inference.runtime.tokenization import read_json
from qmd.plugins.models.formats.graph_writer import Qwen3Shape, qwen3_shape
from qmd.plugins.onnx.model import Node, OnnxFile

_LAYER = re.compile(r"layers?[./_](\d+)[./_]")
_PROJECTION = re.compile(r"(qkv_proj|gate_up_proj|q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj)")
_NORM = re.compile(r"(input_layernorm|post_attention_layernorm|q_norm|k_norm|final_norm|model[./]norm)")
_PARTS = {f"{part}_proj": part for part in ("q", "k", "v", "o", "gate", "up", "down", "qkv", "gate_up")}
_NORMS = {"input_layernorm": "in_norm", "post_attention_layernorm": "post_norm", "q_norm": "q_norm", "k_norm": "k_norm"}
_PASSED = frozenset({"Cast", "Identity", "Transpose"})
_OTHER_EXPORT = "the published file is used as it is"


class GraphWeights(Mapping[str, "npt.NDArray[np.float32]"]):
    """Weights by the names that `Qwen3Writer` reads, as float32, matrices (out, in); read on demand.

    Until then they are views of the mapped file, so that a file of gigabytes takes no memory.

    Raises:
        ModelError: If the graph is damaged, quantized, or not a Qwen3 network with its original names.
    """

    def __init__(self, path: Path) -> None:
        self._file = OnnxFile(path)
        graph = self._file.graph
        self._name = path.name
        self._constants = {item.name: item for item in graph.initializer}
        self._producers = {output: node for node in graph.node for output in node.output}
        self._found: dict[str, npt.NDArray[Any]] = {}
        self.eps = 1e-6
        for node in graph.node:
            self._read_node(node)
        self._split_fused()
        self._drop_tied_head()
        self.shape = self._infer_shape(path)

    def __getitem__(self, name: str) -> npt.NDArray[np.float32]:
        return self._view(name).astype(np.float32)

    def __contains__(self, name: object) -> bool:
        return name in self._found

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def _view(self, name: str) -> npt.NDArray[Any]:
        if name not in self._found:
            raise ModelError(f"weight '{name}' is not found in '{self._name}'", _OTHER_EXPORT)
        return self._found[name]

    def _read_node(self, node: Node) -> None:
        if node.op_type in ("MatMulNBits", "GatherBlockQuantized"):
            raise ModelError(f"the weights of '{self._name}' are quantised", _OTHER_EXPORT)
        if node.op_type == "Gather" and "input_ids" in node.input:
            self._read_table(node)
        elif node.op_type in ("MatMul", "Gemm"):
            origin = self._trace(node.input[1])
            if origin is not None:
                constant, is_transposed = origin
                # Gemm may state the transposition itself. The result is (out, in): MatMul multiplies by (in, out).
                flips = is_transposed != bool(node.attributes().get("transB", 0))
                self._note_matrix(node, constant, transpose=not flips)
        else:
            self._read_norm(node)

    def _trace(self, name: str) -> tuple[str, bool] | None:
        """Return the constant before casts and transpositions, and if it is transposed; None for computed inputs."""
        is_transposed = False
        while name not in self._constants:
            node = self._producers.get(name)
            if node is None or node.op_type not in _PASSED:
                return None
            is_transposed ^= node.op_type == "Transpose"
            name = node.input[0]
        return name, is_transposed

    def _note_matrix(self, node: Node, constant: str, *, transpose: bool) -> None:
        for text in (constant, node.name):
            layer, part = _LAYER.search(text), _PROJECTION.search(text)
            if layer and part:
                label = f"layers.{int(layer[1])}.{_PARTS[part[1]]}"
            elif "lm_head" in text:
                label = "head"
            elif "score" in text or "classifier" in text:
                label = "score"
            else:
                continue
            array = self._array(constant)
            self._found[label] = array.T if transpose else array
            return

    def _read_table(self, node: Node) -> None:
        origin = self._trace(node.input[0])
        if origin is not None and not origin[1]:
            self._found["embed"] = self._array(origin[0])

    def _read_norm(self, node: Node) -> None:
        for name in node.input:
            if name not in self._constants or len(self._constants[name].dims) != 1:
                continue
            text = name if _NORM.search(name) else node.name
            kind, layer = _NORM.search(text), _LAYER.search(text)
            if kind is None or self._constants[name].dims[0] == 1:
                continue
            label = f"layers.{int(layer[1])}.{_NORMS[kind[1]]}" if layer and kind[1] in _NORMS else "norm"
            self._found.setdefault(label, self._array(name))
            self.eps = node.attributes().get("epsilon", self.eps)

    def _array(self, name: str) -> npt.NDArray[Any]:
        return self._file.array(self._constants[name])

    def _split_fused(self) -> None:
        """Cut `qkv` and `gate_up` products into their parts."""
        for name in [name for name in self._found if name.endswith((".qkv", ".gate_up"))]:
            prefix, _, kind = name.rpartition(".")
            whole = self._found.pop(name)
            rows = len(whole)
            if kind == "gate_up":
                bounds = {"gate": (0, rows // 2), "up": (rows // 2, rows)}
            else:
                kv = (rows - self._found[f"{prefix}.o"].shape[1]) // 2
                bounds = {"q": (0, rows - 2 * kv), "k": (rows - 2 * kv, rows - kv), "v": (rows - kv, rows)}
            for part, (start, end) in bounds.items():
                self._found[f"{prefix}.{part}"] = whole[start:end]

    def _drop_tied_head(self) -> None:
        if "head" not in self._found or "embed" not in self._found:
            return
        head, table = self._found["head"], self._found["embed"]
        if head.shape != table.shape:
            return
        # A tied head may differ by rounding; a separately trained one differs completely.
        a, b = head[:64].astype(np.float32), table[:64].astype(np.float32)
        if float((a * b).sum() / (np.linalg.norm(a) * np.linalg.norm(b) + 1e-12)) > 0.9:
            del self._found["head"]

    def _infer_shape(self, path: Path) -> Qwen3Shape:
        config = next((found for folder in path.parents[:3] if (found := read_json(folder / "config.json"))), {})
        if config.get("model_type", "qwen3") != "qwen3" or config.get("rope_scaling"):
            raise ModelError(f"'{self._name}' is not a plain Qwen3 network", _OTHER_EXPORT)
        layers = 1 + max((int(name.split(".")[1]) for name in self._found if name.startswith("layers.")), default=-1)
        # Newer configurations have it in `rope_parameters`.
        theta = config.get("rope_theta") or (config.get("rope_parameters") or {}).get("rope_theta") or 1e6
        eps = float(config.get("rms_norm_eps", self.eps))
        return qwen3_shape(lambda name: self._view(name).shape, layers, float(theta), eps)
