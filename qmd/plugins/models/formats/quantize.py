"""Blockwise and per-row integer forms of weight matrices, in numpy.

The layouts are those of the `MatMulNBits` and `GatherBlockQuantized` operators: a weight of shape (n, k) is cut along k
into blocks, each with one scale, around the zero point 8 or 128.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct

_SCALE_FACTORS = (1.0, 0.96, 0.92, 0.88)
"""Candidates at 4 bits: a smaller scale clips the largest weight and refines the rest; the best one is kept."""

FINER = 254
"""Steps of a second term in one step of the first: half a step, the most that rounding leaves, is its 127."""

_ROWS_AT_ONCE = 4096
"""Rows quantized in one go, so that an embedding table of 150,000 rows needs no second full-size copy."""


class BlockQuantized(Struct, frozen=True):
    """A weight of shape (n, k) in blocks along k.

    `packed` is uint8 of shape (n, k / block, block * bits / 8), low nibble first; `scales` is (n, k / block).
    """

    packed: npt.NDArray[np.uint8]
    scales: npt.NDArray[np.float32]
    bits: int
    block: int
    offsets: npt.NDArray[np.float32] | None = None
    """Offsets added to the weights of each block, shaped as `scales`; None for none."""

    @property
    def shape(self) -> tuple[int, int]:
        """(n, k) of the weight."""
        n, blocks = self.scales.shape
        return n, blocks * self.block


def quantize_blocks(weight: npt.NDArray[np.float32], bits: int, block: int) -> BlockQuantized:
    """Quantize symmetrically, one scale per block.

    The value of largest magnitude in a block becomes the outermost value (-8 or -128), so that the asymmetry of two's
    complement is not wasted. At 4 bits a few smaller scales are tried and the one with least squared error kept.

    Args:
        weight: Shape (n, k); k is a multiple of `block`.
        bits: 4 or 8.
        block: Weights per scale.

    Raises:
        ValueError: If k is not a multiple of `block`, or `bits` is neither 4 nor 8.
    """
    n, k = weight.shape
    if bits not in (4, 8) or k % block:
        raise ValueError(f"cannot quantize shape {weight.shape} to {bits} bits in blocks of {block}")
    packed = np.empty((n, k // block, block * bits // 8), np.uint8)
    scales = np.empty((n, k // block), np.float32)
    for start in range(0, n, _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        blocks = weight[rows].astype(np.float32).reshape(-1, k // block, block)
        values, scales[rows] = _round_blocks(blocks, bits)
        packed[rows] = values if bits == 8 else values[..., 0::2] | (values[..., 1::2] << 4)
    return BlockQuantized(packed, scales, bits, block)


def _round_blocks(blocks: npt.NDArray[np.float32], bits: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.float32]]:
    """Return quantized values (same shape, 0 to 2^bits - 1) and scales of blocks of shape (n, blocks, block)."""
    half = 2 ** (bits - 1)
    extreme = np.take_along_axis(blocks, np.abs(blocks).argmax(-1)[..., None], -1)
    full = np.where(extreme == 0, 1.0, extreme / -half).astype(np.float32)
    best_error = np.full(full.shape, np.inf, np.float32)
    best_scale = full
    best_values = np.zeros(blocks.shape, np.uint8)
    for factor in _SCALE_FACTORS if bits == 4 else (1.0,):
        scale = full * np.float32(factor)
        values = np.clip(np.rint(blocks / scale), -half, half - 1)
        error = np.square(values * scale - blocks).sum(-1, keepdims=True)
        better = error < best_error
        best_error = np.where(better, error, best_error)
        best_scale = np.where(better, scale, best_scale)
        best_values = np.where(better, (values + half).astype(np.uint8), best_values)
    return best_values, best_scale[..., 0]


def quantize_rows(
    weight: npt.NDArray[np.float32], terms: int = 1, levels: int = 127
) -> tuple[list[npt.NDArray[np.int8]], npt.NDArray[np.float32]]:
    """Return a weight (n, k) as the sum of `terms` (1 or 2) matrices of bytes, and one scale per output row (n,).

    The second matrix is the first one's rounding error, in steps `FINER` times as fine: 15 bits together. Above 63
    `levels`, products need sums in 32 bits; those in 16 bits, as of AVX2 without VNNI, saturate.
    """
    peak = np.abs(weight).max(axis=1)
    scales = (np.where(peak < 1e-30, 1.0, peak) / levels).astype(np.float32)
    left, values = weight / scales[:, None], []
    for _ in range(terms):
        values.append(np.rint(left).astype(np.int8))
        left = (left - values[-1]) * FINER
    return values, scales
