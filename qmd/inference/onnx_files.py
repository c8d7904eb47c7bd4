"""Reader and writer of ONNX files as records, through a memory map: Protobuf's wire format, driven by annotations.

`dims: Annotated[tuple[int, ...], 1]` is field 1, repeated. Fields that a record does not name are skipped unread, so a
record of two fields reads a file of a gigabyte in milliseconds. It replaces the package `onnx`, of which qmd would use
a hundredth, and knows no models, engines or runtime.

Source: https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

from msgspec import Struct

from qmd.errors import ModelError
from qmd.foreign import map_file, short

FLOAT, INT32, INT64, FLOAT16, BFLOAT16 = 1, 6, 7, 10, 16
"""Values of `TensorProto.DataType`."""
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
    # Bits of bfloat16, which numpy does not have.
    BFLOAT16: ("uint16", 2),
}
"""Data type → numpy's name and bytes of a value, in files little-endian."""

_MOST_STEPS = 2_000_000
"""Fields, numbers and 16-byte pieces of text of one file: seconds of reading, about ten times a large graph."""
_MAX_DEPTH = 100
"""Messages within messages, as in protobuf itself: a graph may contain graphs."""
_BYTES_A_STEP: Mapping[type, int] = {int: 1, float: 4, str: 16}
_WIRE_VARINT, _WIRE_EIGHT, _WIRE_BLOCK, _WIRE_FOUR = 0, 1, 2, 5
_FIXED_SIZE = {_WIRE_EIGHT: 8, _WIRE_FOUR: 4}

Message = TypeVar("Message", bound=Struct)


class WireError(ValueError):
    """The bytes are not the message that was expected."""


class Entry(Struct, frozen=True):
    """`StringStringEntryProto` of `onnx.proto`: the place of a constant whose data is in another file."""

    key: Annotated[str, 1] = ""
    value: Annotated[str, 2] = ""


class Constant(Struct, frozen=True):
    """Size, type, name and place of a tensor."""

    dims: Annotated[tuple[int, ...], 1] = ()
    data_type: Annotated[int, 2] = 0
    name: Annotated[str, 8] = ""
    external_data: Annotated[tuple[Entry, ...], 13] = ()


class Number(Struct, frozen=True):
    """An attribute of a node that is a whole number."""

    name: Annotated[str, 1] = ""
    i: Annotated[int, 3] = 0


class Node(Struct, frozen=True):
    """An operator, its inputs and outputs, and its numbers."""

    input: Annotated[tuple[str, ...], 1] = ()
    op_type: Annotated[str, 4] = ""
    attribute: Annotated[tuple[Number, ...], 5] = ()

    def number(self, name: str) -> int:
        """Return an attribute; 0 if it has none of that name."""
        return next((one.i for one in self.attribute if one.name == name), 0)


class Graph(Struct, frozen=True):
    """`GraphProto` without the values of its constants."""

    node: Annotated[tuple[Node, ...], 1] = ()
    initializer: Annotated[tuple[Constant, ...], 5] = ()


class Model(Struct, frozen=True):
    """`ModelProto`."""

    graph: Annotated[Graph, 7] = Graph()


class _Field(Struct, frozen=True):
    name: str
    number: int
    kind: type
    """`int`, `float`, `str`, `memoryview` or a record."""
    is_repeated: bool
    default: object


def read_model(path: Path, kind: type[Message]) -> Message:
    """Read a record `kind` from an ONNX file; its fields are the wanted ones of `ModelProto`.

    Raises:
        ModelError: The file cannot be read or is damaged.
    """
    try:
        return decode(kind, memoryview(map_file(path)))
    except (ValueError, OSError) as exc:
        raise read_error(path, getattr(exc, "strerror", None) or str(exc)) from exc


def read_error(path: Path, reason: str) -> ModelError:
    """Return the error for a file with wrong contents."""
    return ModelError(f"model file '{path.name}' cannot be read: {short(reason)}", "qmd models verify")


def decode(kind: type[Message], block: memoryview, depth: int = 0, left: list[int] | None = None) -> Message:
    """Decode a message; its blocks of bytes are views of `block`. `left` counts the steps that remain.

    Raises:
        WireError: The bytes are damaged, cut off, or another message.
    """
    if depth > _MAX_DEPTH:
        raise WireError("messages are nested too deeply")
    fields, left = _fields(kind), [_MOST_STEPS] if left is None else left
    found: dict[str, Any] = {}
    for number, wire, content in _entries(block):
        field = fields.get(number)
        left[0] -= 1 + (0 if field is None else len(content) // _BYTES_A_STEP.get(field.kind, len(content) + 1))
        if left[0] < 0:
            raise WireError("it has more parts than a graph has")
        if field is None:
            continue
        if not field.is_repeated:
            (found[field.name],) = _values(field, wire, content, depth, left)
        else:
            found.setdefault(field.name, []).extend(_values(field, wire, content, depth, left))
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in found.items()})


def encode(message: Struct) -> bytes:
    """Encode a message: its fields by number, without those at their defaults, numbers unpacked."""
    parts: list[bytes] = []
    for field in _fields(type(message)).values():
        value = getattr(message, field.name)
        if value != field.default:
            parts.extend(_encoded(field, one) for one in (value if field.is_repeated else (value,)))
    return b"".join(parts)


@functools.cache
def _fields(kind: type[Struct]) -> Mapping[int, _Field]:
    """Return the fields of a record by number, in that order."""
    defaults = dict(zip(kind.__struct_fields__, kind.__struct_defaults__, strict=True))
    fields: dict[int, _Field] = {}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        inner, number = get_args(hint)
        if get_origin(inner) is UnionType:
            inner = next(one for one in get_args(inner) if one is not NoneType)
        is_repeated = get_origin(inner) is tuple
        fields[number] = _Field(name, number, get_args(inner)[0] if is_repeated else inner, is_repeated, defaults[name])
    return dict(sorted(fields.items()))


def _entries(block: memoryview) -> Iterator[tuple[int, int, Any]]:
    """Yield (field number, wire type, number or view of the bytes) of each field."""
    place = 0
    while place < len(block):
        start = place
        key, place = _varint(block, place)
        wire = key & 7
        if wire == _WIRE_VARINT:
            start = place
            _, place = _varint(block, place)
        elif wire == _WIRE_BLOCK:
            length, start = _varint(block, place)
            place = start + length
        elif wire in _FIXED_SIZE:
            start, place = place, place + _FIXED_SIZE[wire]
        else:
            raise WireError(f"wire type {wire} at byte {start} is not known")
        if place > len(block):
            raise WireError("it is cut off")
        yield key >> 3, wire, block[start:place]


def _values(field: _Field, wire: int, content: memoryview, depth: int, left: list[int]) -> Iterator[Any]:
    """Yield the values of an entry's field: one value, or those of a packed block."""
    is_packed = wire == _WIRE_BLOCK and field.is_repeated
    if field.kind is int and (is_packed or wire == _WIRE_VARINT):
        place = 0
        while place < len(content):
            value, place = _varint(content, place)
            value &= (1 << 64) - 1
            yield value - (1 << 64) if value >> 63 else value  # signed
    elif field.kind is float and (is_packed or wire == _WIRE_FOUR):
        if len(content) % 4:
            raise WireError("it is cut off")
        yield from struct.unpack(f"<{len(content) // 4}f", content)
    elif wire != _WIRE_BLOCK or field.kind in (int, float):
        raise WireError(f"field '{field.name}' has wire type {wire}")
    elif field.kind is str:
        yield str(content, "utf-8")
    elif field.kind is memoryview:
        yield content
    else:
        yield decode(field.kind, content, depth + 1, left)


def _encoded(field: _Field, value: Any) -> bytes:
    if field.kind is int:
        return _as_varint(field.number << 3) + _as_varint(value & (1 << 64) - 1)
    if field.kind is float:
        return _as_varint(field.number << 3 | _WIRE_FOUR) + struct.pack("<f", value)
    if isinstance(value, str):
        value = value.encode()
    elif isinstance(value, Struct):
        value = encode(value)
    return b"".join([_as_varint(field.number << 3 | _WIRE_BLOCK), _as_varint(len(value)), value])


def _varint(block: memoryview, place: int) -> tuple[int, int]:
    """Return the number that begins at `place`, unsigned, and the place after it."""
    value = shift = 0
    while shift < 64:
        if place >= len(block):
            raise WireError("it is cut off")
        octet = block[place]
        value |= (octet & 127) << shift
        place += 1
        if octet < 128:
            return value, place
        shift += 7
    raise WireError(f"the number before byte {place} is too long")


def _as_varint(value: int) -> bytes:
    octets = bytearray()
    while value > 127:
        octets.append(value & 127 | 128)
        value >>= 7
    octets.append(value)
    return bytes(octets)
