"""Pooling of token vectors into one vector a text. Pure functions that know no model."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from qmd.inference.records import Pooling, Vectors


def pool(token_vectors: Vectors, pooling: Pooling, *, skip: int = 0, dim: int | None = None) -> Vectors:
    """Return one L2-normalised vector of one text.

    Args:
        token_vectors: Shape (n_tokens, width), n_tokens >= 1, no padding. A single row passes unchanged with any
            pooling, so a vector that a graph has pooled itself can be passed.
        skip: Leading tokens (those of a prompt) that do not count; the last token always does.
        dim: Values kept before normalising, for models trained to be cut; None keeps all.

    Returns:
        Shape (dim,), or (width,) if `dim` is None.
    """
    start = min(skip, len(token_vectors) - 1)
    pooled = _POOLINGS[pooling](token_vectors, start)[:dim]
    result: Vectors = pooled / max(float(np.linalg.norm(pooled)), 1e-12)
    return result


def _weighted_mean(vectors: Vectors, start: int) -> Vectors:
    """Return the mean in which the n-th token of the text counts n times."""
    weights = np.arange(start + 1, len(vectors) + 1, dtype=np.float32)
    result: Vectors = weights @ vectors[start:] / weights.sum()
    return result


_POOLINGS: Mapping[Pooling, Callable[[Vectors, int], Vectors]] = {
    "mean": lambda vectors, start: vectors[start:].mean(axis=0),
    "first": lambda vectors, start: vectors[start],
    "last": lambda vectors, _: vectors[-1],
    "max": lambda vectors, start: vectors[start:].max(axis=0),
    # Normalising removes the factor by which this differs from the mean.
    "mean_sqrt_len": lambda vectors, start: vectors[start:].mean(axis=0),
    "weighted_mean": _weighted_mean,
    "none": lambda vectors, _: vectors[0],
}
"""(token vectors, index of the first token that counts) → vector. `none` is for graphs that pool."""
