"""The number formats of ggml as integer levels with a scale for every few weights, and as floats.

Every quantised format here says the same thing: weight = scale x (level - zero) + offset, with one scale (and one
offset, in the formats that have any) for each run of 16 or 32 weights along a row. What differs is how the levels' bits
are spread over a block's bytes. The layouts are those of `ggml-common.h` in llama.cpp.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from msgspec import Struct

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]


class Levels(Struct, frozen=True):
    """A matrix (n, k) as weight = scales x (levels - zero) + offsets, scales and offsets of shape (n, k / run)."""

    levels: Bytes
    zero: int
    scales: Floats
    offsets: Floats | None = None

    def floats(self) -> Floats:
        """The weights, shape (n, k)."""
        n, k = self.levels.shape
        runs = self.levels.reshape(n, self.scales.shape[1], -1).astype(np.float32) - np.float32(self.zero)
        runs *= self.scales[..., None]
        if self.offsets is not None:
            runs += self.offsets[..., None]
        return runs.reshape(n, k)


def read_levels(kind: str, rows: Bytes) -> Levels:
    """Rows of a quantised format, shape (n, bytes of a row), taken apart."""
    read, block_bytes = _READERS[kind]
    n = len(rows)
    levels, zero, scales, offsets = read(np.ascontiguousarray(rows).reshape(-1, block_bytes))
    return Levels(
        levels.reshape(n, -1), zero, scales.reshape(n, -1), None if offsets is None else offsets.reshape(n, -1)
    )


def read_floats(kind: str, rows: Bytes) -> Floats:
    """Rows of any format, shape (n, bytes of a row), as float32."""
    if kind in _READERS:
        return read_levels(kind, rows).floats()
    rows = np.ascontiguousarray(rows)
    if kind == "BF16":
        # The upper half of a float32.
        return (rows.view("<u2").astype(np.uint32) << 16).view(np.float32)
    return rows.view("<f4" if kind == "F32" else "<f2").astype(np.float32)


def is_quantized(kind: str) -> bool:
    """False for the floating formats."""
    return kind in _READERS


_Parts = tuple[Bytes, int, Floats, Floats | None]
"""Levels, zero, scales, offsets of blocks, first axis the block."""


def _half(block: Bytes, start: int) -> Floats:
    """A half-precision number at a byte of each block, shape (blocks, 1)."""
    return np.ascontiguousarray(block[:, start : start + 2]).view("<f2").astype(np.float32)


def _nibbles(packed: Bytes) -> Bytes:
    """First all low halves of the bytes, then all high ones."""
    return np.concatenate([packed & 15, packed >> 4], axis=-1)


def _fifth_bits(block: Bytes, start: int) -> Bytes:
    """32 bits from a byte on, lowest first, each as 16 or 0."""
    return np.unpackbits(block[:, start : start + 4], axis=1, bitorder="little") << np.uint8(4)


def _q8_0(block: Bytes) -> _Parts:
    # The signed byte plus 128: flipping its sign bit.
    return block[:, 2:] ^ np.uint8(128), 128, _half(block, 0), None


def _q4_0(block: Bytes) -> _Parts:
    return _nibbles(block[:, 2:]), 8, _half(block, 0), None


def _q4_1(block: Bytes) -> _Parts:
    return _nibbles(block[:, 4:]), 0, _half(block, 0), _half(block, 2)


def _q5_0(block: Bytes) -> _Parts:
    return _nibbles(block[:, 6:]) | _fifth_bits(block, 2), 16, _half(block, 0), None


def _q5_1(block: Bytes) -> _Parts:
    return _nibbles(block[:, 8:]) | _fifth_bits(block, 4), 0, _half(block, 0), _half(block, 2)


def _six_bit_pairs(block: Bytes) -> tuple[Floats, Floats]:
    """Scales and offsets of the eight runs of a 256-weight block: 6-bit numbers in 12 bytes, times two halves."""
    low, mid, high = block[:, 4:8], block[:, 8:12], block[:, 12:16]
    scales = np.concatenate([low & 63, (high & 15) | (low >> 6 << 4)], axis=1)
    minima = np.concatenate([mid & 63, (high >> 4) | (mid >> 6 << 4)], axis=1)
    return scales * _half(block, 0), -(minima * _half(block, 2))


def _q4_k(block: Bytes) -> _Parts:
    scales, offsets = _six_bit_pairs(block)
    return _nibbles(block[:, 16:].reshape(-1, 4, 32)).reshape(-1, 256), 0, scales, offsets


def _q5_k(block: Bytes) -> _Parts:
    scales, offsets = _six_bit_pairs(block)
    low = _nibbles(block[:, 48:].reshape(-1, 4, 32)).reshape(-1, 8, 32)
    # Bit i of byte j is the fifth bit of weight j of run i.
    fifth = (block[:, None, 16:48] >> np.arange(8, dtype=np.uint8)[:, None]) & np.uint8(1)
    return (low | fifth << np.uint8(4)).reshape(-1, 256), 0, scales, offsets


def _q6_k(block: Bytes) -> _Parts:
    # Halves of 128 weights: 64 bytes of low nibbles, 32 bytes of four upper pairs of bits.
    low = _nibbles(block[:, :128].reshape(-1, 2, 64)).reshape(-1, 2, 4, 32)
    pairs = block[:, 128:192].reshape(-1, 2, 1, 32) >> np.array([0, 2, 4, 6], np.uint8)[:, None]
    scales = np.ascontiguousarray(block[:, 192:208]).view(np.int8).astype(np.float32) * _half(block, 208)
    return (low | (pairs & np.uint8(3)) << np.uint8(4)).reshape(-1, 256), 32, scales, None


_READERS: dict[str, tuple[Callable[[Bytes], _Parts], int]] = {
    "Q8_0": (_q8_0, 34),
    "Q4_0": (_q4_0, 18),
    "Q4_1": (_q4_1, 20),
    "Q5_0": (_q5_0, 22),
    "Q5_1": (_q5_1, 24),
    "Q4_K": (_q4_k, 144),
    "Q5_K": (_q5_k, 176),
    "Q6_K": (_q6_k, 210),
}
