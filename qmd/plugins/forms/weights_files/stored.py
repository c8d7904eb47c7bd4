"""A tensor as a file holds it: its shape, its number format, its bytes."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from qmd.errors import ModelError
from qmd.foreign import short
from qmd.plugins.forms.weights_files.ggml_blocks import Levels, read_floats, read_levels

_MOST_WEIGHTS = 1 << 30
"""In one tensor; the largest table of a network that is read here has 0.6 milliards."""
_LARGEST = 1e15
"""Of a weight: squares and products of two are still numbers in single precision."""


class StoredTensor(Struct, frozen=True):
    """A tensor that is read when asked for. `shape` is (outputs, inputs) for a matrix.

    Reading it raises a ModelError where a weight is no number.
    """

    name: str
    shape: tuple[int, ...]
    type: str
    """Number format, as ggml and safetensors call it."""
    rows: npt.NDArray[np.uint8]
    """Shape (rows, bytes of a row): a view of the mapped file."""

    def floats(self) -> npt.NDArray[np.float32]:
        """The whole tensor."""
        return self.floats_of(slice(None)).reshape(self.shape)

    def floats_of(self, rows: slice | list[int]) -> npt.NDArray[np.float32]:
        """Some rows."""
        with np.errstate(all="ignore"):
            return self._checked(read_floats(self.type, self.rows[rows]))

    def levels_of(self, rows: slice | list[int]) -> Levels:
        """Some rows of a quantised format, taken apart."""
        with np.errstate(all="ignore"):
            found = read_levels(self.type, self.rows[rows])
            self._checked(found.scales if found.offsets is None else np.stack([found.scales, found.offsets]))
        return found

    def _checked(self, values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        if not float(np.abs(values).max(initial=0)) <= _LARGEST:
            raise ModelError(f"tensor '{short(self.name)}' holds weights that are no numbers", "is the file damaged?")
        return values


def check_shape(name: str, source: str, shape: tuple[int, ...]) -> None:
    """Raise a ModelError for a shape that no tensor of a network has."""
    if not shape or min(shape) < 1 or math.prod(shape) > _MOST_WEIGHTS:
        listed = short(" x ".join(map(str, shape[:9])))
        raise ModelError(f"tensor '{short(name)}' in '{source}' has the shape '{listed}'", "get the file again")
