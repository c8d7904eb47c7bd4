"""What number format a model file really holds, read from the file: names and catalogues are sometimes wrong.

Only the sizes and types of its constants are read, never their data, so that a file of a gigabyte takes milliseconds.
"""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Annotated

from msgspec import Struct

from qmd.errors import ModelError
from qmd.inference.onnx_files.files import read_model
from qmd.inference.onnx_files.messages import DTYPES, FLOAT, FLOAT16

_FLOATING = {FLOAT: "fp32", FLOAT16: "fp16"}


class _Constant(Struct, frozen=True):
    """Of a tensor, its size and type."""

    dims: Annotated[tuple[int, ...], 1] = ()
    data_type: Annotated[int, 2] = 0


class _Graph(Struct, frozen=True):
    initializer: Annotated[tuple[_Constant, ...], 5] = ()


class _Model(Struct, frozen=True):
    graph: Annotated[_Graph | None, 7] = None


def held_format(path: Path) -> str | None:
    """`fp32` or `fp16` when most of the file's constants are of that type; None for quantised or unreadable files."""
    try:
        graph = read_model(path, _Model).graph
    except ModelError:
        return None
    sizes: Counter[int] = Counter()
    for constant in graph.initializer if graph else ():
        _, value_bytes = DTYPES.get(constant.data_type, ("", 1))
        sizes[constant.data_type] += math.prod(constant.dims) * value_bytes
    return _FLOATING.get(sizes.most_common(1)[0][0]) if sizes else None
