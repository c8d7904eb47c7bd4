"""Reader of safetensors: a JSON header with the place of each tensor, and the tensors, in one file or several.

Layout: eight bytes with the header's length, the header, the tensors. A model of several files has an index that names
the file of each tensor. Not by the package `safetensors`, which copies each tensor, has no BF16 for numpy, and spends
10 s and .9 GB on a header of a million entries.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from qmd.errors import ModelError
from qmd.foreign import file_below, map_file, parse_json, reading, short
from qmd.inference.runtime.tokenization import read_json
from qmd.plugins.models.formats.stored_weights import StoredTensor, check_shape

_BYTES = {"F32": 4, "F16": 2, "BF16": 2}
"""Supported number formats, with the size of a number."""
_MAX_HEADER_BYTES = 16 << 20
_ONE_FILE = "model.safetensors"
_INDEX = "model.safetensors.index.json"


def has_safetensors(folder: Path) -> bool:
    """Return whether a folder contains a model in this format."""
    return (folder / _ONE_FILE).is_file() or (folder / _INDEX).is_file()


def read_safetensors(folder: Path) -> dict[str, StoredTensor]:
    """Return tensors by name, from all files of a model's folder.

    Raises:
        ModelError: A file is missing, damaged or cut short, or contains a tensor in an unsupported format.
    """
    if (folder / _ONE_FILE).is_file():
        return read_file(file_below(folder, _ONE_FILE, folder.name))
    placed = read_json(folder / _INDEX).get("weight_map")
    if not isinstance(placed, Mapping):
        raise ModelError(f"'{folder}' contains neither '{_ONE_FILE}' nor a whole '{_INDEX}'")
    tensors: dict[str, StoredTensor] = {}
    for name in sorted({str(file) for file in placed.values()}):
        tensors |= read_file(file_below(folder, name, folder.name))
    missing = sorted(set(placed) - set(tensors))
    if missing:
        raise ModelError(f"tensor '{short(missing[0])}' is in no file of '{folder}'", "fetch the folder again")
    return tensors


def read_file(path: Path) -> dict[str, StoredTensor]:
    """Return the tensors of one file by name; raise as `read_safetensors`."""
    with reading(path.name):
        mapped = map_file(path)
        length = int.from_bytes(mapped[:8], "little")
        if length > min(_MAX_HEADER_BYTES, len(mapped) - 8):
            raise ValueError(f"its header is longer than the file, or than {_MAX_HEADER_BYTES >> 20} MiB")
        header: dict[str, Any] = parse_json(mapped[8 : 8 + length])
        whole = np.frombuffer(mapped, np.uint8)[8 + length :]
        names = (name for name in header if name.rpartition(".")[2] not in ("__metadata__", "position_ids"))
        return {name: _tensor(name, path, header[name], whole) for name in names}


def _tensor(name: str, path: Path, entry: Mapping[str, Any], whole: npt.NDArray[np.uint8]) -> StoredTensor:
    kind, shape = str(entry["dtype"]), tuple(int(size) for size in entry["shape"])
    start, end = (int(offset) for offset in entry["data_offsets"])
    name = short(name)
    if kind not in _BYTES:
        raise ModelError(
            f"tensor '{name}' in '{path.name}' has type '{short(kind)}', which is not supported",
            f"get the model in one of: {', '.join(_BYTES)}",
        )
    if not 0 <= start <= end <= len(whole):
        raise ModelError(
            f"'{path.name}' is cut short: tensor '{name}' of type '{kind}' ends at byte {end} of {len(whole)}",
            "fetch or copy the file again",
        )
    check_shape(name, path.name, shape)
    if end - start != math.prod(shape) * _BYTES[kind]:
        raise ModelError(f"tensor '{name}' of type '{kind}' in '{path.name}' has not the size of its shape")
    n_rows = math.prod(shape[:-1])
    return StoredTensor(name, shape, kind, whole[start:end].reshape(n_rows, -1))
