"""Pooling, against definitions written out."""

import numpy as np
import pytest

from qmd.inference.engines.pooling import pool
from qmd.inference.records import Pooling

ROWS = np.array([[3.0, 4.0], [1.0, 0.0], [0.0, 5.0]], np.float32)
POOLINGS: tuple[Pooling, ...] = ("mean", "first", "last", "max", "mean_sqrt_len", "weighted_mean")


@pytest.mark.parametrize(
    ("pooling", "direction"),
    [
        ("mean", [4 / 3, 9 / 3]),
        ("first", [3.0, 4.0]),
        ("last", [0.0, 5.0]),
        ("max", [3.0, 5.0]),
        ("mean_sqrt_len", [4 / 3**0.5, 9 / 3**0.5]),
        ("weighted_mean", [(3 + 2 * 1) / 6, (4 + 3 * 5) / 6]),
    ],
)
def test_each_pooling_is_what_its_name_says(pooling: Pooling, direction: list[float]) -> None:
    assert np.allclose(pool(ROWS, pooling), np.array(direction) / np.linalg.norm(direction), atol=1e-6)


MEANS = {"mean": [0.5, 2.5], "first": [1.0, 0.0], "last": [0.0, 5.0], "max": [1.0, 5.0]}


@pytest.mark.parametrize(("pooling", "direction"), [*MEANS.items(), ("weighted_mean", [2 * 1 / 5, 3 * 5 / 5])])
def test_skipped_tokens_do_not_count_and_others_keep_their_weights(pooling: Pooling, direction: list[float]) -> None:
    assert np.allclose(pool(ROWS, pooling, skip=1), np.array(direction) / np.linalg.norm(direction), atol=1e-6)


def test_a_text_cut_inside_its_prompt_still_has_a_vector() -> None:
    assert np.allclose(pool(ROWS, "mean", skip=9), [0.0, 1.0])


def test_a_vector_is_cut_before_it_is_normalised() -> None:
    assert np.allclose(pool(ROWS, "first", dim=1), [1.0])


@pytest.mark.parametrize("pooling", [*POOLINGS, "none"])
def test_one_row_is_its_own_pooled_vector(pooling: Pooling) -> None:
    assert np.allclose(pool(ROWS[:1], pooling), [0.6, 0.8])
