"""The constants of an ONNX file as arrays, and arrays as constants."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from qmd.foreign import map_file, path_below, short
from qmd.inference.onnx_files.files import read_model, refused
from qmd.inference.onnx_files.messages import BFLOAT16, DTYPES, EXTERNAL, Entry, Graph, Model, Tensor
from qmd.inference.onnx_files.wire import Packed, WireError, read_varints

_MOST_DIMENSIONS = 8
_MOST_VARINTS = 8 << 20
"""Bytes of numbers that are read one by one."""
_NUMBERS = {name: number for number, (name, _) in DTYPES.items() if number != BFLOAT16}


class OnnxFile:
    """An ONNX file whose data stays on disk until it is asked for.

    Args:
        path: The file. Data beside it is looked for in its folder.

    Raises:
        ModelError: It cannot be read, is damaged, or holds no graph.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._maps: dict[Path, memoryview] = {}
        graph = read_model(path, Model).graph
        if graph is None:
            raise refused(path, "it holds no graph")
        self.graph: Graph = graph

    def array(self, tensor: Tensor) -> npt.NDArray[Any]:
        """The values of a constant; half floats of 8 exponent bits as float32. A view of the file where it can be.

        Raises:
            ModelError: The data is missing, cut off, or of a type that is not read here.
        """
        if tensor.data_type not in DTYPES:
            raise refused(self._path, f"'{short(tensor.name)}' has the type {tensor.data_type}, which is not read")
        dtype = np.dtype(DTYPES[tensor.data_type][0])
        name, n_values = short(tensor.name), math.prod(tensor.dims[:_MOST_DIMENSIONS])
        try:
            values = self._values(tensor, dtype)
        except (WireError, ValueError, OSError) as exc:
            raise refused(self._path, f"'{name}': {exc}") from exc
        is_shaped = min(tensor.dims, default=0) >= 0 and len(tensor.dims) <= _MOST_DIMENSIONS
        if not is_shaped or values.size != n_values:
            raise refused(self._path, f"'{name}' has {values.size} values instead of {n_values}")
        if tensor.data_type == BFLOAT16:
            values = (values.astype(np.uint32) << 16).view(np.float32)
        return values.reshape(tensor.dims)

    def _values(self, tensor: Tensor, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """The values wherever they are, flat."""
        if tensor.data_location == EXTERNAL:
            return np.frombuffer(self._external(tensor), dtype)
        if tensor.raw_data is not None:
            return np.frombuffer(tensor.raw_data, dtype)
        if tensor.data_type in (1, 11):
            return np.frombuffer(_joined(tensor.float_data or tensor.double_data), dtype)
        block = _joined(tensor.int32_data or tensor.int64_data or tensor.uint64_data)
        if len(block) > _MOST_VARINTS:
            raise WireError("its numbers are written one by one")
        numbers = read_varints(block)
        # Cut to the width of the type: half floats are the bits of the numbers, small ones may be negative.
        return np.array(numbers, np.int64).astype(f"<u{dtype.itemsize}").view(dtype)

    def _external(self, tensor: Tensor) -> memoryview:
        entries = {entry.key: entry.value for entry in tensor.external_data}
        start, source = int(entries.get("offset", "0")), f"{short(tensor.name)}' in '{self._path.name}"
        whole = self._map(path_below(self._path.parent, entries.get("location", ""), source))
        length = int(entries.get("length", len(whole) - start))
        if start < 0 or length < 0 or start + length > len(whole):
            raise WireError(f"'{short(entries['location'])}' is cut off")
        return whole[start : start + length]

    def _map(self, path: Path) -> memoryview:
        """The bytes of a file; the map is closed when nobody looks at them any more."""
        if path not in self._maps:
            self._maps[path] = memoryview(map_file(path))
        return self._maps[path]


def tensor_of(name: str, array: npt.NDArray[Any]) -> Tensor:
    """A constant that lies in the model file itself.

    Raises:
        KeyError: ONNX has no such type.
    """
    return Tensor(name=name, dims=array.shape, data_type=data_type_of(array), raw_data=memoryview(array.tobytes()))


def external_tensor(name: str, array: npt.NDArray[Any], location: str, offset: int) -> Tensor:
    """A constant whose bytes lie in the file `location` of the model's folder, from `offset` on."""
    entries = (Entry("location", location), Entry("offset", str(offset)), Entry("length", str(array.nbytes)))
    return Tensor(
        name=name, dims=array.shape, data_type=data_type_of(array), external_data=entries, data_location=EXTERNAL
    )


def data_type_of(array: npt.NDArray[Any]) -> int:
    """The `TensorProto.DataType` of an array."""
    return _NUMBERS[str(array.dtype)]


def _joined(blocks: tuple[Packed, ...]) -> memoryview:
    return blocks[0] if len(blocks) == 1 else memoryview(b"".join(blocks))
