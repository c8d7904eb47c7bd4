"""ONNX files as records and arrays: the messages that qmd reads or writes, and constants.

Names and field numbers are those of `onnx.proto`: https://github.com/onnx/onnx/blob/main/onnx/onnx.proto
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from qmd.foreign import map_file, path_below, short
from qmd.inference.onnx_files import BFLOAT16, DTYPES, FLOAT, Entry, WireError, read_error, read_model

EXTERNAL = 1
"""`data_location` of a tensor whose bytes are in another file."""
_MOST_DIMENSIONS = 8
_NUMBERS = {name: number for number, (name, _) in DTYPES.items() if number != BFLOAT16}


class Tensor(Struct, frozen=True, kw_only=True):
    """`TensorProto`: a constant, whose data is here as bytes or, for floats, as numbers; or in another file."""

    dims: Annotated[tuple[int, ...], 1] = ()
    data_type: Annotated[int, 2] = 0
    float_data: Annotated[tuple[float, ...], 4] = ()
    name: Annotated[str, 8] = ""
    raw_data: Annotated[memoryview | None, 9] = None
    """Little-endian."""
    external_data: Annotated[tuple[Entry, ...], 13] = ()
    data_location: Annotated[int, 14] = 0


class Attribute(Struct, frozen=True, kw_only=True):
    """`AttributeProto`."""

    name: Annotated[str, 1] = ""
    f: Annotated[float | None, 2] = None
    i: Annotated[int | None, 3] = None
    t: Annotated[Tensor | None, 5] = None
    floats: Annotated[tuple[float, ...], 7] = ()
    ints: Annotated[tuple[int, ...], 8] = ()
    type: Annotated[int, 20] = 0


class Node(Struct, frozen=True, kw_only=True):
    """`NodeProto`; an empty name means an unused input or output."""

    input: Annotated[tuple[str, ...], 1] = ()
    output: Annotated[tuple[str, ...], 2] = ()
    name: Annotated[str, 3] = ""
    op_type: Annotated[str, 4] = ""
    attribute: Annotated[tuple[Attribute, ...], 5] = ()
    domain: Annotated[str, 7] = ""

    def attributes(self) -> dict[str, Any]:
        """Return the numeric attributes by name: `int`, `float`, or a tuple of them."""
        numbers = {1: "f", 2: "i", 6: "floats", 7: "ints"}
        found = {one.name: getattr(one, numbers[one.type]) for one in self.attribute if one.type in numbers}
        # Some writers do not write a zero.
        return {name: 0 if value is None else value for name, value in found.items()}


class Dimension(Struct, frozen=True):
    """`TensorShapeProto.Dimension`: a number or a symbol."""

    dim_value: Annotated[int | None, 1] = None
    dim_param: Annotated[str, 2] = ""


class Shape(Struct, frozen=True):
    """`TensorShapeProto`."""

    dim: Annotated[tuple[Dimension, ...], 1] = ()


class TensorType(Struct, frozen=True):
    """`TypeProto.Tensor`."""

    elem_type: Annotated[int, 1] = 0
    shape: Annotated[Shape | None, 2] = None


class Type(Struct, frozen=True):
    """`TypeProto`."""

    tensor_type: Annotated[TensorType | None, 1] = None


class ValueInfo(Struct, frozen=True):
    """`ValueInfoProto`: an input or output of a graph."""

    name: Annotated[str, 1] = ""
    type: Annotated[Type | None, 2] = None


class Graph(Struct, frozen=True, kw_only=True):
    """`GraphProto`."""

    node: Annotated[tuple[Node, ...], 1] = ()
    name: Annotated[str, 2] = ""
    initializer: Annotated[tuple[Tensor, ...], 5] = ()
    input: Annotated[tuple[ValueInfo, ...], 11] = ()
    output: Annotated[tuple[ValueInfo, ...], 12] = ()


class Opset(Struct, frozen=True):
    """`OperatorSetIdProto`."""

    domain: Annotated[str, 1] = ""
    version: Annotated[int, 2] = 0


class Model(Struct, frozen=True, kw_only=True):
    """`ModelProto`: a whole file."""

    ir_version: Annotated[int, 1] = 0
    producer_name: Annotated[str, 2] = ""
    graph: Annotated[Graph | None, 7] = None
    opset_import: Annotated[tuple[Opset, ...], 8] = ()


def value_info(name: str, data_type: int, dims: Sequence[int | str]) -> ValueInfo:
    """Return a tensor input or output; a name among `dims` is a symbol."""
    shape = Shape(tuple(Dimension(dim_param=one) if isinstance(one, str) else Dimension(one) for one in dims))
    return ValueInfo(name, Type(TensorType(data_type, shape)))


def attribute(name: str, value: int | float | Sequence[int] | Tensor) -> Attribute:
    """Return an attribute of the kind of its value."""
    if isinstance(value, Tensor):
        return Attribute(name=name, t=value, type=4)
    if isinstance(value, int):
        return Attribute(name=name, i=value, type=2)
    if isinstance(value, float):
        return Attribute(name=name, f=value, type=1)
    return Attribute(name=name, ints=tuple(value), type=7)


class OnnxFile:
    """An ONNX file whose data is read on demand.

    Args:
        path: The file. Other files with data are in its folder.

    Raises:
        ModelError: It cannot be read, is damaged, or contains no graph.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._maps: dict[Path, memoryview] = {}
        graph = read_model(path, Model).graph
        if graph is None:
            raise read_error(path, "it contains no graph")
        self.graph: Graph = graph

    def array(self, tensor: Tensor) -> npt.NDArray[Any]:
        """Return the values of a constant; bfloat16 as float32. A view of the file if possible.

        Raises:
            ModelError: The data is missing, cut off, or of an unsupported type.
        """
        if tensor.data_type not in DTYPES:
            raise read_error(self._path, f"'{short(tensor.name)}' has the unsupported type {tensor.data_type}")
        dtype = np.dtype(DTYPES[tensor.data_type][0])
        name, n_values = short(tensor.name), math.prod(tensor.dims[:_MOST_DIMENSIONS])
        try:
            values = self._values(tensor, dtype)
        except (WireError, ValueError, OSError) as exc:
            raise read_error(self._path, f"'{name}': {exc}") from exc
        is_shaped = min(tensor.dims, default=0) >= 0 and len(tensor.dims) <= _MOST_DIMENSIONS
        if not is_shaped or values.size != n_values:
            raise read_error(self._path, f"'{name}' has {values.size} values instead of {n_values}")
        if tensor.data_type == BFLOAT16:
            values = (values.astype(np.uint32) << 16).view(np.float32)
        return values.reshape(tensor.dims)

    def _values(self, tensor: Tensor, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """Return the values from any of the possible places, flat."""
        if tensor.data_location == EXTERNAL:
            return np.frombuffer(self._external(tensor), dtype)
        if tensor.raw_data is not None:
            return np.frombuffer(tensor.raw_data, dtype)
        return np.array(tensor.float_data if tensor.data_type == FLOAT else (), dtype)

    def _external(self, tensor: Tensor) -> memoryview:
        entries = {entry.key: entry.value for entry in tensor.external_data}
        start, source = int(entries.get("offset", "0")), f"{short(tensor.name)}' in '{self._path.name}"
        whole = self._map(path_below(self._path.parent, entries.get("location", ""), source))
        length = int(entries.get("length", len(whole) - start))
        if start < 0 or length < 0 or start + length > len(whole):
            raise WireError(f"'{short(entries['location'])}' is cut off")
        return whole[start : start + length]

    def _map(self, path: Path) -> memoryview:
        """Map the bytes of a file; the map is closed when no view of it is left."""
        if path not in self._maps:
            self._maps[path] = memoryview(map_file(path))
        return self._maps[path]


def tensor_of(name: str, array: npt.NDArray[Any]) -> Tensor:
    """Return a constant inside the model file; KeyError if ONNX has no such type."""
    data_type = _NUMBERS[str(array.dtype)]
    return Tensor(name=name, dims=array.shape, data_type=data_type, raw_data=memoryview(array.tobytes()))


def external_tensor(name: str, array: npt.NDArray[Any], location: str, offset: int) -> Tensor:
    """Return a constant whose bytes are in the file `location` of the model's folder, from `offset` on."""
    entries = (Entry("location", location), Entry("offset", str(offset)), Entry("length", str(array.nbytes)))
    data_type = _NUMBERS[str(array.dtype)]
    return Tensor(name=name, dims=array.shape, data_type=data_type, external_data=entries, data_location=EXTERNAL)
