"""Contents of a model file, read from the file itself: names and catalogues are sometimes wrong.

Finds the number format of its constants, the other files with constants, and the sizes of its network. Only sizes,
types and names are read, never the constants themselves, so a file of a gigabyte takes milliseconds.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Annotated

from msgspec import Struct

from qmd.errors import ModelError
from qmd.foreign import checked_path
from qmd.inference.onnx_files import DTYPES, FLOAT, FLOAT16, Constant, Graph, Model, Node, read_model
from qmd.inference.runtime.tokenization import read_json

_FLOATING = {FLOAT: "fp32", FLOAT16: "fp16"}
_ATTENTION = ("GroupQueryAttention", "MultiHeadAttention", "Attention", "QAttention")
_TABLES = {"GroupQueryAttention": slice(7, 9), "RotaryEmbedding": slice(2, 4)}
"""Operator → its inputs with cosines and sines, a row for each position."""
_NORMS = {f"{kind}LayerNormalization": slice(1, 4) for kind in ("", "Simplified", "Skip", "SkipSimplified")}
_PACKED = {"MatMulNBits": slice(1, 2), "GatherBlockQuantized": slice(0, 1)}
"""Operator → its input with weights, perhaps several in a byte."""
_BYTES, _FOUR_BITS = (2, 3), (21, 22)
_MOST = 1 << 48


class _Graph(Struct, frozen=True):
    initializer: Annotated[tuple[Constant, ...], 5] = ()


class _Model(Struct, frozen=True):
    graph: Annotated[_Graph | None, 7] = None


class Network(Struct, frozen=True):
    """Sizes of a network; None for a size that neither its graph nor its `config.json` states."""

    layers: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    width: int | None = None
    rope_base: int | None = None
    positions: int | None = None
    """The longest sequence that it can run."""
    parameters: int | None = None
    bits_per_weight: float | None = None
    """As stored, with scales and zero points."""


def read_network(path: Path, folder: Path) -> Network:
    """Read a network's sizes from its model file, else from `config.json` in `folder`; none if one is damaged."""
    try:
        graph, config = read_model(path, Model).graph, read_json(folder / "config.json")
    except ModelError:
        return Network()

    def number(found: int, key: str) -> int | None:
        value = found or config.get(key)
        return int(value) if isinstance(value, int | float) and 0 < value < _MOST else None

    attention = [node for node in graph.node if node.op_type in _ATTENTION]
    first = attention[0] if attention else Node()
    norms, tables = _inputs(graph, _NORMS), _inputs(graph, _TABLES)
    n_parameters, n_bits = _count_weights(graph, tables)
    heads = number(first.number("num_heads"), "num_attention_heads")
    return Network(
        layers=number(len(attention), "num_hidden_layers"),
        heads=heads,
        kv_heads=number(first.number("kv_num_heads"), "num_key_value_heads") or heads,
        width=number(_largest(graph, norms), "hidden_size"),
        rope_base=number(0, "rope_theta") if tables else None,
        positions=number(_largest(graph, tables), "max_position_embeddings"),
        parameters=n_parameters or None,
        bits_per_weight=n_bits / n_parameters if n_parameters else None,
    )


def stored_format(path: Path) -> str | None:
    """Return `fp32` or `fp16` if most of the file's constants have it; None for quantised or unreadable files."""
    sizes: Counter[int] = Counter()
    for constant in _constants(path):
        _, value_bytes = DTYPES.get(constant.data_type, ("", 1))
        sizes[constant.data_type] += math.prod(constant.dims[:8]) * value_bytes
    return _FLOATING.get(sizes.most_common(1)[0][0]) if sizes else None


def external_files(path: Path) -> tuple[str, ...]:
    """Return the names of the files with constants of an ONNX file, relative to its folder; () if unreadable.

    Exporters call them `model.onnx_data`, `model.onnx.data`, or one file for each constant.

    Raises:
        ModelError: A name is no file in the folder.
    """
    entries = (entry for constant in _constants(path) for entry in constant.external_data)
    names = dict.fromkeys(entry.value for entry in entries if entry.key == "location" and entry.value)
    return tuple(dict.fromkeys(checked_path(name, path.name) for name in names))


def sibling(path: str, name: str) -> str:
    """Return the path of a file from `external_files`, relative to the folder of the graph's `path`."""
    return str(PurePosixPath(path).parent / name)


def _constants(path: Path) -> tuple[Constant, ...]:
    """Return the constants of a graph; none of a file that cannot be read."""
    try:
        graph = read_model(path, _Model).graph
    except ModelError:
        return ()
    return graph.initializer if graph else ()


def _inputs(graph: Graph, places: Mapping[str, slice]) -> set[str]:
    """Return the names at these places among the inputs of these operators."""
    return {name for node in graph.node for name in node.input[places.get(node.op_type, slice(0))]}


def _largest(graph: Graph, names: set[str]) -> int:
    """Return the most rows of these constants, or values of vectors; 0 for none."""
    return max((one.dims[0] for one in graph.initializer if one.name in names and one.dims), default=0)


def _count_weights(graph: Graph, tables: set[str]) -> tuple[int, int]:
    """Return the number of parameters and of their stored bits; a constant with two names counts once.

    Of constants whose names differ only at the end, some of which are quantized values, the largest counts: the others
    are its scales or similar, or a second term of the same values.
    """
    packed: dict[str, int] = {}
    for node in graph.node:
        for name in node.input[_PACKED.get(node.op_type, slice(0))]:
            packed[name] = 8 // max(1, min(8, node.number("bits") or 4))
    n_bits, stems = 0, dict[str, list[tuple[bool, int]]]()
    for one in {one.external_data or one.name: one for one in graph.initializer if one.name not in tables}.values():
        n_values = max(0, min(math.prod(one.dims[:8]), _MOST))
        n_bits += n_values * (4 if one.data_type in _FOUR_BITS else 8 * DTYPES.get(one.data_type, ("", 1))[1])
        size = n_values * (packed.get(one.name, 1) if one.data_type in _BYTES else 1)
        stem = one.name.rpartition(".")[0] or one.name
        stems.setdefault(stem, []).append((one.data_type in (*_BYTES, *_FOUR_BITS), size))
    return sum(max(sizes)[1] if max(sizes)[0] else sum(n for _, n in sizes) for sizes in stems.values()), n_bits
