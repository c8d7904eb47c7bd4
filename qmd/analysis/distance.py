"""Edit distances between spellings."""

from __future__ import annotations

import string
from os.path import commonprefix

LONG_WORD = 8
"""Shortest word that may have two typing errors; two edits turn a shorter word into many others."""


def edit_distance(left: str, right: str, limit: int) -> int:
    """Return the edits (insert, delete, substitute, swap of neighbours) between two words, at most `limit + 1`."""
    if abs(len(left) - len(right)) > limit:
        return limit + 1
    # Both ends first: the names of a folder share most letters, and there may be a hundred thousand.
    for _ in range(2):
        n_equal = len(commonprefix((left, right)))  # noqa: RUF071 - of letters
        left, right = left[n_equal:][::-1], right[n_equal:][::-1]
    # An edit changes two letters at most.
    if len({*left} ^ {*right}) > 2 * limit:
        return limit + 1
    return min(_distances(left, right, limit)[-1], limit + 1)


def front_distance(left: str, right: str, limit: int) -> int:
    """Return the edits between `left` and the nearest beginning of `right`, at most `limit + 1`."""
    return min(*_distances(left, right[: len(left) + limit], limit), limit + 1)


def other_starts(word: str) -> set[str]:
    """Return word beginnings with another first letter that become a beginning of `word` by one edit.

    The first letter is seldom wrong, so these are for when nothing else is near. Each is shared by few words.
    """
    letters = string.ascii_lowercase
    return {word[1::-1], word[1:3], *(one + word[1:3] for one in letters), *(one + word[:2] for one in letters)}


def _distances(left: str, right: str, limit: int) -> list[int]:
    """Return the edits between `left` and each beginning of `right`, the empty one first; inexact above `limit`."""
    before: list[int] = []
    above = list(range(len(right) + 1))
    for i, a in enumerate(left, start=1):
        current = [i] + [limit + 1] * len(right)
        for j in range(max(i - limit, 1), min(i + limit, len(right)) + 1):
            cost = min(above[j] + 1, current[j - 1] + 1, above[j - 1] + (a != right[j - 1]))
            if i > 1 and j > 1 and a == right[j - 2] and left[i - 2] == right[j - 1]:
                cost = min(cost, before[j - 2] + 1)
            current[j] = cost
        if min(current) > limit:
            return current
        before, above = above, current
    return above
