"""The number formats of GGUF and safetensors files: quantized values with a scale for every few weights, or floats.

Every quantized format here means: weight = scale x (value - zero) + offset, with one scale (and one offset, in the
formats that have any) for each run of 16 or 32 weights along a row. The formats differ in the arrangement of the
values' bits in a block's bytes. The layouts are those of `ggml-common.h` in llama.cpp.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt
from msgspec import Struct

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]


class Quantized(Struct, frozen=True):
    """Weights as scales x (values - zero) + offsets: values of any shape whose first axis is the row or the block."""

    values: Bytes
    zero: int
    scales: Floats
    """For each run of a row, in order, as are the offsets."""
    offsets: Floats | None = None

    def floats(self) -> Floats:
        """Return the weights (n, k) of row data."""
        n, k = self.values.shape
        runs = self.values.reshape(n, self.scales.shape[1], -1).astype(np.float32) - np.float32(self.zero)
        runs *= self.scales[..., None]
        if self.offsets is not None:
            runs += self.offsets[..., None]
        return runs.reshape(n, k)


class NumberFormat(Struct, frozen=True):
    """Encoding of a tensor's weights in a file, and the blocks of qmd's graphs that store them without rounding."""

    number: int
    """In GGUF files."""
    block: int = 1
    """Weights per block in the file."""
    block_bytes: int = 4
    read: Callable[[Bytes], Quantized] | None = None
    """Decodes blocks, of shape (blocks, bytes of a block); None for floats."""
    bits: int = 8
    """Bits of the values in qmd's blocks; floats are rounded to 8."""
    run: int = 32
    """Weights per scale there."""
    middle: int | None = None
    """In formats with an offset per run, the value that becomes zero: about the middle one, as inputs are rounded."""

    def floats(self, rows: Bytes) -> Floats:
        """Return rows of shape (n, bytes of a row) as float32."""
        if self.read is not None:
            return self.quantized(rows).floats()
        rows = np.ascontiguousarray(rows)
        if self is FORMATS["BF16"]:
            # The upper half of a float32.
            return (rows.view("<u2").astype(np.uint32) << 16).view(np.float32)
        return rows.view("<f4" if self.block_bytes == 4 else "<f2").astype(np.float32)

    def quantized(self, rows: Bytes) -> Quantized:
        """Return rows of a quantized format, (n, bytes of a row), as values (n, k), scales and offsets (n, k / run)."""
        assert self.read is not None
        n, found = len(rows), self.read(np.ascontiguousarray(rows).reshape(-1, self.block_bytes))
        offsets = None if found.offsets is None else found.offsets.reshape(n, -1)
        return Quantized(found.values.reshape(n, -1), found.zero, found.scales.reshape(n, -1), offsets)


def _half(block: Bytes, start: int) -> Floats:
    """Return a half-precision number at a byte of each block, shape (blocks, 1)."""
    return np.ascontiguousarray(block[:, start : start + 2]).view("<f2").astype(np.float32)


def _nibbles(packed: Bytes) -> Bytes:
    """Return first all low halves of the bytes, then all high ones."""
    return np.concatenate([packed & 15, packed >> 4], axis=-1)


def _fifth_bits(block: Bytes, start: int) -> Bytes:
    """Return 32 bits from a byte on, lowest first, each as 16 or 0."""
    return np.unpackbits(block[:, start : start + 4], axis=1, bitorder="little") << np.uint8(4)


def _six_bit_pairs(block: Bytes) -> tuple[Floats, Floats]:
    """Return scales and offsets of the eight runs of a 256-weight block: 6-bit numbers in 12 bytes, times 2 halves."""
    low, mid, high = block[:, 4:8], block[:, 8:12], block[:, 12:16]
    scales = np.concatenate([low & 63, (high & 15) | (low >> 6 << 4)], axis=1)
    minima = np.concatenate([mid & 63, (high >> 4) | (mid >> 6 << 4)], axis=1)
    return scales * _half(block, 0), -(minima * _half(block, 2))


def _q4_k(block: Bytes) -> Quantized:
    scales, offsets = _six_bit_pairs(block)
    return Quantized(_nibbles(block[:, 16:].reshape(-1, 4, 32)).reshape(-1, 256), 0, scales, offsets)


def _q5_k(block: Bytes) -> Quantized:
    scales, offsets = _six_bit_pairs(block)
    low = _nibbles(block[:, 48:].reshape(-1, 4, 32)).reshape(-1, 8, 32)
    # Bit i of byte j is the fifth bit of weight j of run i.
    fifth = (block[:, None, 16:48] >> np.arange(8, dtype=np.uint8)[:, None]) & np.uint8(1)
    return Quantized((low | fifth << np.uint8(4)).reshape(-1, 256), 0, scales, offsets)


def _q6_k(block: Bytes) -> Quantized:
    # Halves of 128 weights: 64 bytes of low nibbles, 32 bytes of four upper pairs of bits.
    low = _nibbles(block[:, :128].reshape(-1, 2, 64)).reshape(-1, 2, 4, 32)
    pairs = block[:, 128:192].reshape(-1, 2, 1, 32) >> np.array([0, 2, 4, 6], np.uint8)[:, None]
    scales = np.ascontiguousarray(block[:, 192:208]).view(np.int8).astype(np.float32) * _half(block, 208)
    return Quantized((low | (pairs & np.uint8(3)) << np.uint8(4)).reshape(-1, 256), 32, scales)


FORMATS: Mapping[str, NumberFormat] = {
    "F32": NumberFormat(0),
    "F16": NumberFormat(1, block_bytes=2),
    "BF16": NumberFormat(30, block_bytes=2),
    # The signed byte plus 128: flipping its sign bit.
    "Q8_0": NumberFormat(8, 32, 34, lambda b: Quantized(b[:, 2:] ^ np.uint8(128), 128, _half(b, 0))),
    "Q4_0": NumberFormat(2, 32, 18, lambda b: Quantized(_nibbles(b[:, 2:]), 8, _half(b, 0)), bits=4),
    "Q4_1": NumberFormat(
        3, 32, 20, lambda b: Quantized(_nibbles(b[:, 4:]), 0, _half(b, 0), _half(b, 2)), bits=4, middle=8
    ),
    "Q5_0": NumberFormat(6, 32, 22, lambda b: Quantized(_nibbles(b[:, 6:]) | _fifth_bits(b, 2), 16, _half(b, 0))),
    "Q5_1": NumberFormat(
        7, 32, 24, lambda b: Quantized(_nibbles(b[:, 8:]) | _fifth_bits(b, 4), 0, _half(b, 0), _half(b, 2)), middle=16
    ),
    "Q4_K": NumberFormat(12, 256, 144, _q4_k, bits=4, middle=8),
    "Q5_K": NumberFormat(13, 256, 176, _q5_k, middle=16),
    "Q6_K": NumberFormat(14, 256, 210, _q6_k, run=16),
}
"""Supported formats, by ggml's names."""
