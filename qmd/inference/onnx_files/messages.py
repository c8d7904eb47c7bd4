"""The messages of an ONNX file, as far as qmd reads or writes them: names and field numbers are those of `onnx.proto`.

Source: https://github.com/onnx/onnx/blob/main/onnx/onnx.proto
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from msgspec import Struct

from qmd.inference.onnx_files.wire import Packed

FLOAT, INT32, INT64, FLOAT16, BFLOAT16 = 1, 6, 7, 10, 16
"""Of `TensorProto.DataType`."""
DTYPES: Mapping[int, tuple[str, int]] = {
    FLOAT: ("float32", 4),
    2: ("uint8", 1),
    3: ("int8", 1),
    4: ("uint16", 2),
    5: ("int16", 2),
    INT32: ("int32", 4),
    INT64: ("int64", 8),
    9: ("bool", 1),
    FLOAT16: ("float16", 2),
    11: ("float64", 8),
    12: ("uint32", 4),
    13: ("uint64", 8),
    # Which numpy does not have; these are its bits.
    BFLOAT16: ("uint16", 2),
}
"""numpy's name of a data type, and the bytes of a value, in files little-endian."""
EXTERNAL = 1
"""`data_location` of a tensor whose bytes lie in a file beside the model."""


class Entry(Struct, frozen=True):
    """`StringStringEntryProto`."""

    key: Annotated[str, 1] = ""
    value: Annotated[str, 2] = ""


class Tensor(Struct, frozen=True, kw_only=True):
    """`TensorProto`: a constant, with its data in one of three places."""

    dims: Annotated[tuple[int, ...], 1] = ()
    data_type: Annotated[int, 2] = 0
    float_data: Annotated[tuple[Packed, ...], 4] = ()
    int32_data: Annotated[tuple[Packed, ...], 5] = ()
    int64_data: Annotated[tuple[Packed, ...], 7] = ()
    name: Annotated[str, 8] = ""
    raw_data: Annotated[memoryview | None, 9] = None
    """Little-endian."""
    double_data: Annotated[tuple[Packed, ...], 10] = ()
    uint64_data: Annotated[tuple[Packed, ...], 11] = ()
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
    """`NodeProto`; an empty name stands for an input or output that is left out."""

    input: Annotated[tuple[str, ...], 1] = ()
    output: Annotated[tuple[str, ...], 2] = ()
    name: Annotated[str, 3] = ""
    op_type: Annotated[str, 4] = ""
    attribute: Annotated[tuple[Attribute, ...], 5] = ()
    domain: Annotated[str, 7] = ""

    def attributes(self) -> dict[str, Any]:
        """The numeric attributes by name: `int`, `float`, or a tuple of them."""
        numbers = {1: "f", 2: "i", 6: "floats", 7: "ints"}
        found = {one.name: getattr(one, numbers[one.type]) for one in self.attribute if one.type in numbers}
        # Some writers leave out a zero.
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


class OperatorSet(Struct, frozen=True):
    """`OperatorSetIdProto`."""

    domain: Annotated[str, 1] = ""
    version: Annotated[int, 2] = 0


class Model(Struct, frozen=True, kw_only=True):
    """`ModelProto`: what a file holds."""

    ir_version: Annotated[int, 1] = 0
    producer_name: Annotated[str, 2] = ""
    graph: Annotated[Graph | None, 7] = None
    opset_import: Annotated[tuple[OperatorSet, ...], 8] = ()


def value_info(name: str, data_type: int, dims: Sequence[int | str]) -> ValueInfo:
    """An input or output that is a tensor; a name among `dims` is a symbol."""
    shape = Shape(tuple(Dimension(dim_param=one) if isinstance(one, str) else Dimension(one) for one in dims))
    return ValueInfo(name, Type(TensorType(data_type, shape)))


def attribute(name: str, value: int | float | Sequence[int] | Tensor) -> Attribute:
    """An attribute of the kind that its value has."""
    if isinstance(value, Tensor):
        return Attribute(name=name, t=value, type=4)
    if isinstance(value, int):
        return Attribute(name=name, i=value, type=2)
    if isinstance(value, float):
        return Attribute(name=name, f=value, type=1)
    return Attribute(name=name, ints=tuple(value), type=7)
