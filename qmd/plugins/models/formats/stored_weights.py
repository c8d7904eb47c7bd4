"""Weights as a GGUF or safetensors file stores them, and in the blocks of `MatMulNBits` without another rounding.

`MatMulNBits` has one scale per block and a fixed zero (8 or 128); a format that also has an offset per block stores it
separately: the product of the offsets with the sums of the input's blocks is added. Measured for one token on a CPU,
that takes 1.1 to 1.2 times the time of the bare 4-bit product, where 8 bits take about twice and the operator's own
floating zero points more than seventy times.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from qmd.errors import ModelError
from qmd.foreign import short
from qmd.plugins.models.formats.number_formats import FORMATS, Floats, NumberFormat
from qmd.plugins.models.formats.quantize import BlockQuantized, quantize_blocks

BLOCK = 32
"""Weights per scale if the file has no blocks of its own."""

_ROWS_AT_ONCE = 4096
"""Rows per step, so that the table of a large vocabulary needs no second full-size copy."""
_MOST_WEIGHTS = 1 << 30
"""Most weights in one tensor; the largest table of a supported network has 0.6 milliards."""
_LARGEST = 1e15
"""Largest weight: squares and products of two are still numbers in single precision."""


class StoredTensor(Struct, frozen=True):
    """A tensor that is read on demand. `shape` is (outputs, inputs) for a matrix.

    Reading it raises a ModelError if a weight is not a number.
    """

    name: str
    shape: tuple[int, ...]
    type: str
    """Number format, as ggml and safetensors call it."""
    rows: npt.NDArray[np.uint8]
    """Shape (rows, bytes of a row): a view of the mapped file."""

    @property
    def format(self) -> NumberFormat:
        return FORMATS[self.type]

    def floats(self) -> Floats:
        return self.floats_of(slice(None)).reshape(self.shape)

    def floats_of(self, rows: slice | list[int]) -> Floats:
        with np.errstate(all="ignore"):
            return self._check_numbers(self.format.floats(self.rows[rows]))

    def blocks(self) -> BlockQuantized:
        """Return a matrix in the blocks of its format: exact for quantized formats, rounded to 8 bits for floats."""
        layout = self.format
        if layout.read is None:
            return self._round_blocks()
        n, k = self.shape
        packed = np.empty((n, k // layout.run, layout.run * layout.bits // 8), np.uint8)
        scales = np.empty(packed.shape[:2], np.float32)
        offsets = None if layout.middle is None else np.empty_like(scales)
        for rows in self._slices():
            with np.errstate(all="ignore"):
                found = layout.quantized(self.rows[rows])
                scales[rows] = self._check_numbers(found.scales)
                if offsets is not None and found.offsets is not None:
                    offsets[rows] = self._check_numbers(found.offsets) + np.float32(layout.middle) * found.scales
            values = found.values.reshape(-1, *packed.shape[1:2], layout.run)
            if layout.bits == 4:
                packed[rows] = values[..., 0::2] | (values[..., 1::2] << np.uint8(4))
            else:
                packed[rows] = values + np.uint8(128 - (found.zero if layout.middle is None else layout.middle))
        return BlockQuantized(packed, scales, layout.bits, layout.run, offsets)

    def table(self) -> BlockQuantized:
        """Return a matrix whose rows are looked up: without offsets, which no look-up adds, so rounded to 8 bits."""
        return self.blocks() if self.format.middle is None else self._round_blocks()

    def _round_blocks(self) -> BlockQuantized:
        n, k = self.shape
        packed, scales = np.empty((n, k // BLOCK, BLOCK), np.uint8), np.empty((n, k // BLOCK), np.float32)
        for rows in self._slices():
            rounded = quantize_blocks(self.floats_of(rows), 8, BLOCK)
            packed[rows], scales[rows] = rounded.packed, rounded.scales
        return BlockQuantized(packed, scales, 8, BLOCK)

    def _slices(self) -> Iterator[slice]:
        return (slice(start, start + _ROWS_AT_ONCE) for start in range(0, len(self.rows), _ROWS_AT_ONCE))

    def _check_numbers(self, values: Floats) -> Floats:
        if not float(np.abs(values).max(initial=0)) <= _LARGEST:
            raise ModelError(f"tensor '{short(self.name)}' has weights that are not numbers", "is the file damaged?")
        return values


class StoredWeights(Struct, frozen=True):
    """Tensors by the names that qmd's graphs read, and weights that are computed from others, as a reranker's score."""

    tensors: Mapping[str, StoredTensor]
    made: Mapping[str, Floats]
    source: str
    """The file's name, for messages."""

    def __getitem__(self, name: str) -> Floats:
        return self.made[name] if name in self.made else self.stored(name).floats()

    def __contains__(self, name: object) -> bool:
        return name in self.made or name in self.tensors

    def stored(self, name: str) -> StoredTensor:
        if name not in self.tensors:
            raise ModelError(f"weight '{name}' is not found in '{self.source}'", "is the file whole?")
        return self.tensors[name]


def check_shape(name: str, source: str, shape: tuple[int, ...]) -> None:
    """Raise a ModelError for a shape that no tensor of a network has."""
    if not shape or min(shape) < 1 or math.prod(shape) > _MOST_WEIGHTS:
        listed = short(" x ".join(map(str, shape[:9])))
        raise ModelError(f"tensor '{short(name)}' in '{source}' has the shape '{listed}'", "get the file again")
