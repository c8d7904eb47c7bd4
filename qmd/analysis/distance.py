"""How far two spellings are apart."""

from __future__ import annotations

import string

LONG_WORD = 8
"""Letters from which a word may have two typing errors; two edits make any shorter word into many others."""


def edit_distance(left: str, right: str, limit: int) -> int:
    """Edits (insert, delete, substitute, swap of neighbours) between two words, or `limit + 1` when there are more."""
    if abs(len(left) - len(right)) > limit:
        return limit + 1
    return min(_distances(left, right, limit)[-1], limit + 1)


def front_distance(left: str, right: str, limit: int) -> int:
    """Edits between `left` and the beginning of `right` that is nearest to it, or `limit + 1` when there are more."""
    return min(*_distances(left, right[: len(left) + limit], limit), limit + 1)


def other_starts(word: str) -> set[str]:
    """Beginnings of words whose first letter is not that of `word` and of which one edit makes `word`.

    The first letter is seldom wrong, so these are for when nothing else is near. Each is shared by few words.
    """
    letters = string.ascii_lowercase
    return {word[1::-1], word[1:3], *(one + word[1:3] for one in letters), *(one + word[:2] for one in letters)}


def _distances(left: str, right: str, limit: int) -> list[int]:
    """Edits between `left` and each beginning of `right`, the empty one first; all of them too many beyond `limit`."""
    before: list[int] = []
    above = list(range(len(right) + 1))
    for i, a in enumerate(left, start=1):
        current = [i]
        for j, b in enumerate(right, start=1):
            cost = min(above[j] + 1, current[j - 1] + 1, above[j - 1] + (a != b))
            if i > 1 and j > 1 and a == right[j - 2] and left[i - 2] == b:
                cost = min(cost, before[j - 2] + 1)
            current.append(cost)
        if min(current) > limit:
            return current
        before, above = above, current
    return above
