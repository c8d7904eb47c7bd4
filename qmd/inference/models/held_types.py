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
    for field, is_block, graph_end in _fields(stream, size):
        if field != _GRAPH or not is_block:
            continue
        for inner, is_tensor, tensor_end in _fields(stream, graph_end):
            if inner == _INITIALIZER and is_tensor:
                kind, count = _tensor(stream, tensor_end)
                sizes[kind] += count * _BYTES.get(kind, 1)
    return sizes


def _tensor(stream: BinaryIO, end: int) -> tuple[int, int]:
    """Type and number of values of the tensor that ends at `end`."""
    kind, count = 0, 1
    for field, is_block, value in _fields(stream, end):
        if field == _DATA_TYPE and not is_block:
            kind = value
        elif field == _DIMS and not is_block:
            count *= value
        elif field == _DIMS:
            while stream.tell() < value:
                count *= _varint(stream)
    return kind, count


def _fields(stream: BinaryIO, end: int) -> Iterator[tuple[int, bool, int]]:
    """(field, is a block, value) up to `end`: a number, or where the block ends at whose start the stream stands."""
    while stream.tell() < end:
        key = _varint(stream)
        if key & 7 == 0:
            yield key >> 3, False, _varint(stream)
        elif key & 7 == 2:
            length = _varint(stream)
            block_end = stream.tell() + length
            yield key >> 3, True, block_end
            stream.seek(block_end)
        elif key & 7 in (1, 5):
            stream.seek(8 if key & 7 == 1 else 4, io.SEEK_CUR)
        else:
            raise ValueError(f"wire type {key & 7} is not of an ONNX file")


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
