"""A tensor as a file holds it: its shape, its number format, its bytes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from qmd.inference.weights_files.ggml_blocks import read_floats


class StoredTensor(Struct, frozen=True):
    """A tensor that is read when asked for. `shape` is (outputs, inputs) for a matrix."""

    name: str
    shape: tuple[int, ...]
    type: str
    """Number format, as ggml and safetensors call it."""
    rows: npt.NDArray[np.uint8]
    """Shape (rows, bytes of a row): a view of the mapped file."""

    def floats(self) -> npt.NDArray[np.float32]:
        """The whole tensor."""
        return read_floats(self.type, self.rows).reshape(self.shape)
