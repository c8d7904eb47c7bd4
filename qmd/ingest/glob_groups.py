"""Globs with groups, `@(a|b)`, `?(…)`, `*(…)`, `+(…)` and `!(…)`, matched by following all readings at once.

A glob becomes a graph whose nodes stand between two tokens. Of every node it is asked from which places of the path on
the rest of the glob fits; the answer is a set of places, and one pass from the end of the glob to its start finds them
all. A (node, place) pair is looked at once, so the work is at most the product of the two lengths.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Sequence
from enum import Enum

from msgspec import Struct


class Many(Enum):
    """Wildcards for more than one character."""

    CHARS = "*"
    """Any number of characters of one segment."""
    SEGMENTS = "**/"
    """Any number of whole segments."""
    REST = "**"
    """One character or more, to the end."""


class Group(Struct, frozen=True):
    """`KIND(a|b)`, where KIND is one of `@?*+!`."""

    kind: str
    alternatives: tuple[tuple[Token, ...], ...]


Token = str | Many | Group
"""A string is the regular expression of exactly one character."""

_Places = int
"""A set of places in a path: bit n stands for the place before the last n characters."""


class GroupMatcher:
    """One glob."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._parts: list[_Graph] = []
        """From the end of the glob to its start, cut at its negated groups, which are parts of their own."""
        plain: list[Token] = []
        for token in tokens:
            if isinstance(token, Group) and token.kind == "!":
                self._parts += [_Graph(plain), _Graph([Group("@", token.alternatives)], is_negated=True)]
                plain = []
            else:
                plain.append(token)
        self._parts.append(_Graph(plain))
        self._parts.reverse()

    def matches(self, path: str) -> bool:
        """Whether the glob selects `path`."""
        text = _Text(path)
        places: _Places = 1
        for part in self._parts:
            found = part.starts(text, places)
            # What follows a negated group decides too: `!(draft).md` must not take `draft` + `.md`, but may take
            # `drafts.md`.
            places = text.within_segment(places) & ~found if part.is_negated else found
        return bool(places >> len(path) & 1)


class _Text:
    """A path, as the sets of places at which something stands."""

    def __init__(self, path: str) -> None:
        self._at: dict[str, _Places] = {}
        for n, char in enumerate(reversed(path), start=1):
            self._at[char] = self._at.get(char, 0) | 1 << n
        self._of: dict[str, _Places] = {}
        self._everywhere = (2 << len(path)) - 1
        self._in_segment = self._everywhere & ~self._at.get("/", 0) & ~1

    def before(self, one: str, places: _Places) -> _Places:
        """Where a character that fits the expression `one` stands right before one of `places`."""
        if one not in self._of:
            fits = re.compile(one, re.DOTALL).match
            self._of[one] = sum(at for char, at in self._at.items() if fits(char))
        return places << 1 & self._of[one]

    def within_segment(self, places: _Places) -> _Places:
        """`places` and all from which one of them is reached without passing a `/`."""
        start = places << 1 & self._in_segment
        # The carry of the sum runs through a row of ones: from each start to the border of its segment.
        return places | start | (self._in_segment + start ^ self._in_segment) & self._in_segment

    def earlier(self, places: _Places) -> _Places:
        """All places before the last of `places`."""
        return self._everywhere & ~((places & -places) * 2 - 1) if places else 0


_Step = str | Many | None
"""What stands between two nodes; None for nothing."""


class _Graph:
    """Tokens as nodes, numbered from the end of the glob, and steps between them."""

    def __init__(self, tokens: Sequence[Token], *, is_negated: bool = False) -> None:
        self.is_negated = is_negated
        self._into: list[list[tuple[_Step, int]]] = [[]]
        """Node → the steps that end at it, with the nodes where they start."""
        self._first = self._sequence(tokens, 0)

    def _sequence(self, tokens: Sequence[Token], after: int) -> int:
        """The node before `tokens`, which lead to the node `after`."""
        for token in reversed(tokens):
            after = self._group(token, after) if isinstance(token, Group) else self._simple(token, after)
        return after

    def _simple(self, token: str | Many, after: int) -> int:
        if token is not Many.SEGMENTS:
            return self._node((token, after))
        node = self._node((None, after))
        slash = self._node(("/", node))
        self._into[slash].append((Many.CHARS, node))
        return node

    def _group(self, group: Group, after: int) -> int:
        # A loop ends where it starts: after one round comes what follows, or another round.
        end = self._node((None, after)) if group.kind in "*+" else after
        starts = [self._sequence(alternative, end) for alternative in group.alternatives]
        node = self._node(*((None, start) for start in starts), *([(None, after)] if group.kind in "?*" else []))
        if end != after:
            self._into[node].append((None, end))
        return node

    def _node(self, *steps: tuple[_Step, int]) -> int:
        """A new node from which each of `steps` leads to another one."""
        number = len(self._into)
        self._into.append([])
        for step, to in steps:
            self._into[to].append((step, number))
        return number

    def starts(self, text: _Text, ends: _Places) -> _Places:
        """Where the glob may start so that it ends at one of `ends`."""
        known = [0] * len(self._into)
        fresh = [0] * len(self._into)
        fresh[0] = ends
        # Nodes near the end first: what they lead to is then complete before it is passed on.
        todo = [0]
        while todo:
            node = heapq.heappop(todo)
            places, fresh[node] = fresh[node], 0
            known[node] |= places
            for step, source in self._into[node]:
                new = _take(text, step, places) & ~known[source] & ~fresh[source]
                if new:
                    if not fresh[source]:
                        heapq.heappush(todo, source)
                    fresh[source] |= new
        return known[self._first]


def _take(text: _Text, step: _Step, places: _Places) -> _Places:
    """Places from which `step` leads to one of `places`."""
    if step is None:
        return places
    if step is Many.CHARS:
        return text.within_segment(places)
    if step is Many.REST:
        return text.earlier(places)
    return text.before(str(step), places)
