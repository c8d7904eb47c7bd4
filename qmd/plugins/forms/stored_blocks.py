"""Weights that a file holds in integers, put into the blocks of `MatMulNBits` without rounding them anew.

`MatMulNBits` has one scale per block and a fixed zero (8 or 128); a format that also has an offset per block keeps it
beside: the product of the offsets with the sums of the input's blocks is added. Measured for one token on a CPU, that
takes 1.1 to 1.2 times the time of the bare 4-bit product, where 8 bits take about twice and the operator's own floating
zero points more than seventy times.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from qmd.plugins.forms.quantize import BlockQuantized, quantize_blocks
from qmd.plugins.forms.weights_files.ggml_blocks import is_quantized
from qmd.plugins.forms.weights_files.stored import StoredTensor

BLOCK = 32
"""Weights per scale where the file has no blocks of its own."""

_ROWS_AT_ONCE = 4096
"""So that the table of a large vocabulary needs no second full-size copy."""
_FOUR_BITS = frozenset({"Q4_0", "Q4_1", "Q4_K"})
_MIDDLES = {"Q4_1": 8, "Q4_K": 8, "Q5_1": 16, "Q5_K": 16}
"""Formats with an offset per run, and the level that becomes zero: about the middle one, as inputs are rounded too."""
_SHORT_RUNS = frozenset({"Q6_K"})
"""One scale for every 16 weights, not 32."""


class HeldBlocks(Struct, frozen=True):
    """A matrix in blocks, with an offset per block where the format has any: (n, k / block)."""

    blocks: BlockQuantized
    offsets: npt.NDArray[np.float32] | None = None


class Layout(Struct, frozen=True):
    """What blocks of a format look like: matrices of one layout can be stacked."""

    bits: int
    block: int
    has_offsets: bool


def layout_of(kind: str) -> Layout:
    """The layout that holds a format exactly; 8-bit blocks, which round, for floats."""
    bits = 4 if kind in _FOUR_BITS else 8
    return Layout(bits, 16 if kind in _SHORT_RUNS else BLOCK, kind in _MIDDLES)


def hold(tensor: StoredTensor) -> HeldBlocks:
    """A matrix in the layout of its format; exact for quantised formats."""
    layout = layout_of(tensor.type)
    n, k = tensor.shape
    packed = np.empty((n, k // layout.block, layout.block * layout.bits // 8), np.uint8)
    scales = np.empty(packed.shape[:2], np.float32)
    offsets = np.empty_like(scales) if layout.has_offsets else None
    for start in range(0, n, _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        if not is_quantized(tensor.type):
            rounded = quantize_blocks(tensor.floats_of(rows), layout.bits, layout.block)
            packed[rows], scales[rows] = rounded.packed, rounded.scales
            continue
        held = tensor.levels_of(rows)
        scales[rows] = held.scales
        levels = held.levels.reshape(-1, *packed.shape[1:2], layout.block)
        if layout.bits == 4:
            packed[rows] = levels[..., 0::2] | (levels[..., 1::2] << np.uint8(4))
        else:
            packed[rows] = levels + np.uint8(128 - _MIDDLES.get(tensor.type, held.zero))
        if offsets is not None and held.offsets is not None:
            offsets[rows] = held.offsets + np.float32(_MIDDLES[tensor.type]) * held.scales
    return HeldBlocks(BlockQuantized(packed, scales, layout.bits, layout.block), offsets)


def hold_table(tensor: StoredTensor) -> BlockQuantized:
    """A matrix whose rows are looked up: without offsets, which a look-up cannot add, and so rounded to 8 bits."""
    if not layout_of(tensor.type).has_offsets:
        return hold(tensor).blocks
    n, k = tensor.shape
    packed, scales = np.empty((n, k // BLOCK, BLOCK), np.uint8), np.empty((n, k // BLOCK), np.float32)
    for start in range(0, n, _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        rounded = quantize_blocks(tensor.floats_of(rows), 8, BLOCK)
        packed[rows], scales[rows] = rounded.packed, rounded.scales
    return BlockQuantized(packed, scales, 8, BLOCK)


def stack(held: list[HeldBlocks]) -> HeldBlocks:
    """Matrices of one layout, one under the other."""
    if len(held) == 1:
        return held[0]
    first = held[0].blocks
    packed = np.concatenate([item.blocks.packed for item in held])
    scales = np.concatenate([item.blocks.scales for item in held])
    offsets = [item.offsets for item in held if item.offsets is not None]
    blocks = BlockQuantized(packed, scales, first.bits, first.block)
    return HeldBlocks(blocks, np.concatenate(offsets) if offsets else None)
