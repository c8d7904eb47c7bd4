"""A tensor as a file holds it: its shape, its number format, its bytes."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from qmd.errors import ModelError
from qmd.foreign import short
from qmd.inference.weights_files.ggml_blocks import Levels, is_quantized, read_floats, read_levels

_MOST_WEIGHTS = 1 << 30
"""In one tensor; the largest table of a network that is read here has 0.6 milliards."""
_LARGEST = 1e15
"""Of a weight: squares and products of two are still numbers in single precision."""


class StoredTensor(Struct, frozen=True):
    """A tensor that is read when asked for. `shape` is (outputs, inputs) for a matrix."""

    name: str
    shape: tuple[int, ...]
    type: str
    """Number format, as ggml and safetensors call it."""
    rows: npt.NDArray[np.uint8]
    """Shape (rows, bytes of a row): a view of the mapped file."""

    def floats(self) -> npt.NDArray[np.float32]:
        """The whole tensor; raises what `floats_of` does."""
        return self.floats_of(slice(None)).reshape(self.shape)

    def floats_of(self, rows: slice | list[int]) -> npt.NDArray[np.float32]:
        """Some rows.

        Raises:
            ModelError: A weight is no number.
        """
        if is_quantized(self.type):
            return self.levels_of(rows).floats()
        with np.errstate(all="ignore"):
            found = read_floats(self.type, self.rows[rows])
        return self._numbers(found)

    def levels_of(self, rows: slice | list[int]) -> Levels:
        """Some rows of a quantised format, taken apart; raises what `floats_of` does."""
        with np.errstate(all="ignore"):
            found = read_levels(self.type, self.rows[rows])
        for part in (found.scales, found.offsets):
            self._numbers(np.zeros(1, np.float32) if part is None else part)
        return found

    def _numbers(self, values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        with np.errstate(all="ignore"):
            is_sound = not values.size or float(np.abs(values).max()) <= _LARGEST
        if not is_sound:
            raise ModelError(f"tensor '{short(self.name)}' holds weights that are no numbers", "is the file damaged?")
        return values


def check_shape(name: str, source: str, shape: tuple[int, ...]) -> None:
    """Refuse a shape that no tensor of a network has.

    Raises:
        ModelError: It has no size, or is larger than what is read.
    """
    if not shape or min(shape) < 1 or math.prod(shape) > _MOST_WEIGHTS:
        listed = short(" x ".join(map(str, shape[:9])))
        raise ModelError(f"tensor '{short(name)}' in '{source}' has the shape '{listed}'", "get the file again")
