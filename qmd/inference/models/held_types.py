"""What a model file really holds, read from the file: names and catalogues are sometimes wrong.

The number format of its constants, and the files beside it that hold constants too. An ONNX file is a protobuf
message. Only lengths, types and names are read here, never the constants themselves, so that a file of a gigabyte takes
milliseconds and `onnx` is not needed.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from qmd.errors import ModelError

_GRAPH, _INITIALIZER, _DIMS, _DATA_TYPE = 7, 5, 1, 2
"""Field numbers of ModelProto.graph, GraphProto.initializer, TensorProto.dims and TensorProto.data_type."""
_EXTERNAL_DATA, _KEY, _VALUE = 13, 1, 2
"""TensorProto.external_data, a list of pairs: StringStringEntryProto.key and value."""
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


def external_files(path: Path) -> tuple[str, ...]:
    """Names of the files beside an ONNX file that hold constants of it, relative to its folder; () if unreadable.

    Exporters call them `model.onnx_data`, `model.onnx.data`, or one file for each constant.

    Raises:
        ModelError: It names a file outside its folder.
    """
    names: dict[str, None] = {}
    try:
        with path.open("rb") as stream:
            for tensor_end in _constants(stream, path.stat().st_size):
                names |= dict.fromkeys(name for name in _locations(stream, tensor_end) if name)
    except (OSError, ValueError, EOFError):
        return ()
    for name in names:
        pure = PurePosixPath(name)
        if pure.is_absolute() or ".." in pure.parts or "\\" in name or ":" in name:
            raise ModelError(f"'{path.name}' keeps its weights outside its folder, in '{name}'", "use another model")
    return tuple(names)


def beside(path: str, name: str) -> str:
    """The path of a file that `external_files` names, from where the graph's `path` starts."""
    return str(PurePosixPath(path).parent / name)


def _bytes_by_type(stream: BinaryIO, size: int) -> Counter[int]:
    sizes: Counter[int] = Counter()
    for tensor_end in _constants(stream, size):
        kind, count = _tensor(stream, tensor_end)
        sizes[kind] += count * _BYTES.get(kind, 1)
    return sizes


def _constants(stream: BinaryIO, size: int) -> Iterator[int]:
    """Where each constant of the graph ends, the stream standing at its start."""
    for field, is_block, graph_end in _fields(stream, size):
        if field != _GRAPH or not is_block:
            continue
        for inner, is_tensor, tensor_end in _fields(stream, graph_end):
            if inner == _INITIALIZER and is_tensor:
                yield tensor_end


def _locations(stream: BinaryIO, end: int) -> Iterator[str]:
    """The file that the constant which ends at `end` lies in, where it lies in another one."""
    for field, is_block, entry_end in _fields(stream, end):
        if field != _EXTERNAL_DATA or not is_block:
            continue
        entry = {}
        for inner, is_text, text_end in _fields(stream, entry_end):
            if is_text:
                entry[inner] = stream.read(text_end - stream.tell()).decode("utf-8")
        if entry.get(_KEY) == "location":
            yield entry.get(_VALUE, "")


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
