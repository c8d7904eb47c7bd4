"""Edit distance."""

import pytest

from qmd.analysis.distance import edit_distance, front_distance


@pytest.mark.parametrize(
    ("left", "right", "limit", "distance"),
    [
        ("abc", "abc", 2, 0),
        ("abc", "acb", 2, 1),
        ("abc", "ab", 2, 1),
        ("abc", "xyz", 2, 3),
        ("", "ab", 2, 2),
        ("kitten", "sitting", 5, 3),
        ("kitten", "sitting", 2, 3),
        ("a", "abcdefgh", 5, 6),
    ],
)
def test_edit_distance_counts_swaps_and_stops_at_the_limit(left: str, right: str, limit: int, distance: int) -> None:
    assert edit_distance(left, right, limit) == distance


@pytest.mark.parametrize(
    ("left", "right", "limit", "distance"),
    [
        ("select", "selction", 2, 1),
        ("configur", "configuraton", 2, 0),
        ("set", "selction", 1, 1),
        ("abc", "xyzabc", 2, 3),
        ("ab", "ba", 1, 1),
    ],
)
def test_front_distance_is_that_to_the_nearest_beginning(left: str, right: str, limit: int, distance: int) -> None:
    assert front_distance(left, right, limit) == distance
