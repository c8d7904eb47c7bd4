"""What a model file really contains, read from the file: names and catalogues are sometimes wrong.

The number format of its constants, and the files beside it with more constants. Only sizes, types and names are
read, never the constants themselves, so that a file of a gigabyte takes milliseconds.
"""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path, PurePosixPath
from typing import Annotated

from msgspec import Struct

from qmd.errors import ModelError
from qmd.foreign import checked_path
from qmd.inference.onnx_files import DTYPES, FLOAT, FLOAT16, Entry, read_model

_FLOATING = {FLOAT: "fp32", FLOAT16: "fp16"}


class _Constant(Struct, frozen=True):
    """Of a tensor, its size, its type and its place."""

    dims: Annotated[tuple[int, ...], 1] = ()
    data_type: Annotated[int, 2] = 0
    external_data: Annotated[tuple[Entry, ...], 13] = ()


class _Graph(Struct, frozen=True):
    initializer: Annotated[tuple[_Constant, ...], 5] = ()


class _Model(Struct, frozen=True):
    graph: Annotated[_Graph | None, 7] = None


def stored_format(path: Path) -> str | None:
    """`fp32` or `fp16` when most of the file's constants are of that type; None for quantised or unreadable files."""
    sizes: Counter[int] = Counter()
    for constant in _constants(path):
        _, value_bytes = DTYPES.get(constant.data_type, ("", 1))
        sizes[constant.data_type] += math.prod(constant.dims[:8]) * value_bytes
    return _FLOATING.get(sizes.most_common(1)[0][0]) if sizes else None


def external_files(path: Path) -> tuple[str, ...]:
    """Names of the files beside an ONNX file with constants of it, relative to its folder; () if unreadable.

    Exporters call them `model.onnx_data`, `model.onnx.data`, or one file for each constant.

    Raises:
        ModelError: It names what is no file in its folder.
    """
    entries = (entry for constant in _constants(path) for entry in constant.external_data)
    names = dict.fromkeys(entry.value for entry in entries if entry.key == "location" and entry.value)
    return tuple(dict.fromkeys(checked_path(name, path.name) for name in names))


def beside(path: str, name: str) -> str:
    """The path of a file that `external_files` names, from where the graph's `path` starts."""
    return str(PurePosixPath(path).parent / name)


def _constants(path: Path) -> tuple[_Constant, ...]:
    """The constants of a graph; none of a file that cannot be read."""
    try:
        graph = read_model(path, _Model).graph
    except ModelError:
        return ()
    return graph.initializer if graph else ()
