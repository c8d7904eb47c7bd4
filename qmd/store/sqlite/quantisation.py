"""Stored form of vectors and computations on it: int8 values and sign bits.

A row is `dim` int8 values, the vector times a factor that makes its largest value 127. The cosine of two normalised
vectors is the dot product of one with the other's values, times the reciprocal norm of these, its scale.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]

_ROWS_AT_ONCE = 1_024
"""Rows that stay in the processor's cache as float32: twice as fast as one large product."""


def quantise(vectors: Floats) -> npt.NDArray[np.int8]:
    """Convert vectors, shape (n, dim), to stored rows, shape (n, dim)."""
    peak = np.abs(vectors).max(axis=1, keepdims=True)
    return np.rint(vectors * (127.0 / np.where(peak > 0, peak, 1.0))).astype(np.int8)


def dequantise(rows: npt.NDArray[np.int8]) -> Floats:
    """Convert stored rows to unit vectors, shape (n, dim)."""
    vectors: Floats = rows.astype(np.float32)
    vectors *= _reciprocal(np.sqrt((vectors**2).sum(axis=1)))[:, None]
    return vectors


def score_rows(rows: npt.NDArray[np.int8], query: Floats, scales: Floats | None = None) -> tuple[Floats, Floats]:
    """Return cosines and scales.

    Args:
        rows: Stored rows, shape (n, dim).
        query: Unit vector, shape (dim,).
        scales: Scales returned for these rows before: computing them takes half of the time.

    Returns:
        The cosine of every row with `query`, shape (n,), and the reciprocal norm of every row, shape (n,), by which
        rounding cannot change the length of a vector. A zero vector has 0 for both.
    """
    scores = np.empty(len(rows), dtype=np.float32)
    squares = np.empty(len(rows) if scales is None else 0, dtype=np.float32)
    ones = np.ones(rows.shape[1], dtype=np.float32)
    for first in range(0, len(rows), _ROWS_AT_ONCE):
        part = rows[first : first + _ROWS_AT_ONCE].astype(np.float32)
        scores[first : first + _ROWS_AT_ONCE] = part @ query
        if scales is None:
            squares[first : first + _ROWS_AT_ONCE] = np.square(part, out=part) @ ones
    scales = _reciprocal(np.sqrt(squares)) if scales is None else scales
    scores *= scales
    return scores, scales


def _reciprocal(norms: Floats) -> Floats:
    return np.divide(1.0, norms, out=np.zeros_like(norms), where=norms > 0)


def sign_bytes(dim: int) -> int:
    """Return the bytes of a vector's sign bits."""
    return -(-dim // 8)


def pack_signs(vectors: Floats, centre: Floats) -> npt.NDArray[np.uint8]:
    """Return sign bits about `centre`, shape (n, sign_bytes(dim)), in the order of sqlite-vec; unused bits are zero.

    Centring matters: embedding models put most vectors into a narrow cone, where raw signs hardly differ.
    """
    return np.packbits(vectors > centre, axis=1, bitorder="little")


def as_words(signs: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint64]:
    """Convert sign bits, shape (n, bytes), to words, shape (ceil(bytes / 8), n), in storage order."""
    n_bytes = signs.shape[1]
    if n_bytes % 8:
        signs = np.pad(signs, ((0, 0), (0, 8 - n_bytes % 8)))
    return np.ascontiguousarray(signs).view(np.uint64).T


def hamming(signs: Sequence[npt.NDArray[np.uint64]], query: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint16]:
    """Count differing bits between the sign bits of vectors and those of a query.

    Args:
        signs: Pieces of shape (words, ?), of a few thousand vectors each, to fit in the processor's cache. Stored word
            by word, neighbours are compared at once, in two thirds of the time; that layout takes longer to make.
        query: Shape (words, 1).

    Returns:
        Shape (n,), over all pieces in their order.
    """
    distances = np.empty(sum(piece.shape[1] for piece in signs), dtype=np.uint16)
    each_word = np.ones(len(query), dtype=np.float32)
    first = 0
    for piece in signs:
        after = first + piece.shape[1]
        differing = np.bitwise_count(piece ^ query)
        if differing.flags.c_contiguous:
            differing.sum(axis=0, dtype=np.uint16, out=distances[first:after])
        else:
            distances[first:after] = each_word @ differing.astype(np.float32)
        first = after
    return distances


def sign_products(signs: Sequence[npt.NDArray[np.uint64]], places: npt.NDArray[np.int64], query: Floats) -> Floats:
    """Sum a query's values where a vector's bit is set: nearer to its cosine than the number of differing bits.

    Args:
        signs: As for `hamming`.
        places: Positions of the vectors, ascending, shape (m,).
        query: Shape (dim,).

    Returns:
        Shape (m,).
    """
    ends = np.cumsum([piece.shape[1] for piece in signs])
    cuts = np.searchsorted(places, ends).tolist()
    chosen = [
        piece[:, places[start:stop] - (end - piece.shape[1])].T
        for piece, end, start, stop in zip(signs, ends.tolist(), [0, *cuts], cuts, strict=False)
        if stop > start
    ]
    bits = np.unpackbits(np.concatenate(chosen).view(np.uint8), axis=1, count=len(query), bitorder="little")
    return score_rows(bits.view(np.int8), query, np.ones(len(bits), dtype=np.float32))[0]
