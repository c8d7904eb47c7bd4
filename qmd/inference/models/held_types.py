"""What number format a model file really holds, read from the file: names and catalogues are sometimes wrong.

An ONNX file is a protobuf message. Only the lengths and types of its constants are read here, never their data, so that
a file of a gigabyte takes milliseconds and `onnx` is not needed.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

_GRAPH, _INITIALIZER, _DIMS, _DATA_TYPE = 7, 5, 1, 2
"""Field numbers of ModelProto.graph, GraphProto.initializer, TensorProto.dims and TensorProto.data_type."""
_FLOATING = {1: "fp32", 10: "fp16"}
_BYTES = {1: 4, 10: 2, 2: 1, 3: 1, 6: 4, 7: 8, 9: 1, 16: 2}
"""Size of one value by TensorProto.DataType; packed 4-bit types are stored as bytes."""


def held_format(path: Path) -> str | None:
    """`fp32` or `fp16` when most of the file's constants are of that type; None for quantised or unreadable files."""
    try:
        with path.open("rb") as stream:
            sizes = _bytes_by_type(stream, path.stat().st_size)
    except (OSError, ValueError, EOFError):
        return None
    if not sizes:
        return None
    return _FLOATING.get(sizes.most_common(1)[0][0])


def _bytes_by_type(stream: BinaryIO, size: int) -> Counter[int]:
    sizes: Counter[int] = Counter()
    for field, length in _messages(stream, size):
        if field != _GRAPH:
            continue
        for inner, tensor_length in _messages(stream, stream.tell() + length):
            if inner == _INITIALIZER:
                kind, count = _tensor(stream, stream.tell() + tensor_length)
                sizes[kind] += count * _BYTES.get(kind, 1)
    return sizes


def _tensor(stream: BinaryIO, end: int) -> tuple[int, int]:
    """Type and number of values of the tensor that ends at `end`."""
    kind, count = 0, 1
    for field, wire in _fields(stream, end):
        if field == _DATA_TYPE and wire == 0:
            kind = _varint(stream)
        elif field == _DIMS and wire == 0:
            count *= _varint(stream)
        elif field == _DIMS and wire == 2:
            packed = io.BytesIO(stream.read(_varint(stream)))
            while packed.tell() < len(packed.getvalue()):
                count *= _varint(packed)
        else:
            _skip(stream, wire)
    return kind, count


def _messages(stream: BinaryIO, end: int) -> Iterator[tuple[int, int]]:
    """(field, length) of each length-delimited field up to `end`, the stream standing at its content."""
    for field, wire in _fields(stream, end):
        if wire != 2:
            _skip(stream, wire)
            continue
        length = _varint(stream)
        start = stream.tell()
        yield field, length
        stream.seek(start + length)


def _fields(stream: BinaryIO, end: int) -> Iterator[tuple[int, int]]:
    while stream.tell() < end:
        key = _varint(stream)
        yield key >> 3, key & 7


def _skip(stream: BinaryIO, wire: int) -> None:
    if wire == 0:
        _varint(stream)
    elif wire in (1, 5):
        stream.seek(8 if wire == 1 else 4, io.SEEK_CUR)
    elif wire == 2:
        stream.seek(_varint(stream), io.SEEK_CUR)
    else:
        raise ValueError(f"wire type {wire} is not of an ONNX file")


def _varint(stream: BinaryIO) -> int:
    value = shift = 0
    while shift < 64:
        byte = stream.read(1)
        if not byte:
            raise EOFError
        value |= (byte[0] & 127) << shift
        if byte[0] < 128:
            return value
        shift += 7
    raise ValueError("a number is too long for an ONNX file")
