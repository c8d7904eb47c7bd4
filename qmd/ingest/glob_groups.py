"""Globs with groups, `@(a|b)`, `?(…)`, `*(…)`, `+(…)` and `!(…)`, matched by following all readings at once.

A glob becomes an automaton without empty steps. Its states are the characters of the glob. It reads a path once, from
its end to its start, with all possible states as the bits of one number: nothing is tried twice.

Source: Glushkov, Russian Mathematical Surveys 16(5), 1961.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from enum import Enum
from functools import reduce
from operator import or_

from msgspec import Struct


class Wildcard(Enum):
    """Wildcards for more than one character."""

    CHARS = "*"
    """Any number of characters of one segment."""
    SEGMENTS = "**/"
    """Any number of whole segments."""
    REST = "**"
    """One character or more, to the end."""


class Group(Struct, frozen=True):
    """`KIND(a|b)`, where KIND is one of `@?*+!`; no other group contains a negated one."""

    kind: str
    alternatives: tuple[tuple[Token, ...], ...]


Token = str | Wildcard | Group
"""A string is the regular expression of exactly one character."""

_AS_GROUPS = {
    Wildcard.CHARS: Group("*", (("[^/]",),)),
    Wildcard.SEGMENTS: Group("*", ((Wildcard.CHARS, "/"),)),
    Wildcard.REST: Group("+", ((".",),)),
}
_START = 1
"""State before anything is read; state n + 1 has read the character n of the glob."""

_PART_SIZE = 30
"""Cost of the way along the path, in characters of a glob."""

_MAX_STEPS = 2_000
"""Maximum number of remembered steps; paths have much in common."""


class GroupMatcher:
    """Matcher of one glob."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._parts: list[tuple[_Automaton, bool]] = []
        """Parts from the end of the glob to its start, cut at its negated groups, which are separate parts (True)."""
        plain: list[Token] = []
        for token in tokens:
            if isinstance(token, Group) and token.kind == "!":
                self._parts += [(_Automaton(plain), False), (_Automaton([Group("@", token.alternatives)]), True)]
                plain = []
            else:
                plain.append(token)
        self._parts.append((_Automaton(plain), False))
        self._parts.reverse()
        self.size = sum(one.size for one, _ in self._parts)
        """Upper bound of the time for a path, as a proportion."""

    def matches(self, path: str) -> bool:
        """Return whether the glob selects `path`."""
        # For each place in the path, the last one first: whether the part of the glob that was read fits from there on.
        fits = [True] + [False] * len(path)
        for automaton, is_negated in self._parts:
            found = list(automaton.starts(path, fits))
            if is_negated:
                # The text after the group decides too: `!(draft).md` must not match `draft` + `.md`, but may match
                # `drafts.md`.
                for n, char in enumerate(reversed(path), start=1):
                    fits[n] = fits[n] or (fits[n - 1] and char != "/")
                found = [may and not does for may, does in zip(fits, found, strict=True)]
            fits = found
        return fits[-1]


class _Automaton:
    """States of tokens and their possible successors, read from the end."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._characters: list[re.Pattern[str]] = []
        self._next = [0]
        self._reading: dict[str, int] = {}
        """States that read a character."""
        self._steps: dict[tuple[int, str], int] = {}
        is_empty, self._next[0], self._final = self._sequence(tokens)
        self._final |= _START * is_empty
        self.size = _PART_SIZE + len(self._characters)

    def starts(self, path: str, ends: Sequence[bool]) -> Iterator[bool]:
        """Yield for each place in `path`, the last first, whether the tokens may start there and end in `ends`."""
        states = 0
        for n, may_end in enumerate(ends):
            if n and states:
                step = states, path[-n]
                states = self._steps[step] if step in self._steps else self._step(*step)
            states |= _START * may_end
            yield states & self._final != 0

    def _step(self, states: int, char: str) -> int:
        if char not in self._reading:
            self._reading[char] = sum(2 << n for n, one in enumerate(self._characters) if one.match(char))
        if len(self._steps) >= _MAX_STEPS:
            self._steps.clear()
        taken = self._reading[char] & reduce(or_, map(self._next.__getitem__, _numbers(states)), 0)
        self._steps[states, char] = taken
        return taken

    def _sequence(self, tokens: Sequence[Token]) -> tuple[bool, int, int]:
        """Return (whether the tokens may be empty, states that may come first, states that may come last)."""
        is_empty, first, last = True, 0, 0
        for token in reversed(tokens):
            may_lack, its_first, its_last = self._token(token)
            self._link(last, its_first)
            first |= its_first * is_empty
            last = its_last | last * may_lack
            is_empty = is_empty and may_lack
        return is_empty, first, last

    def _token(self, token: Token) -> tuple[bool, int, int]:
        if isinstance(token, str):
            self._characters.append(re.compile(token, re.DOTALL))
            self._next.append(0)
            state = 1 << len(self._characters)
            return False, state, state
        group = _AS_GROUPS[token] if isinstance(token, Wildcard) else token
        is_empty, first, last = group.kind in "?*", 0, 0
        for alternative in group.alternatives:
            may_lack, its_first, its_last = self._sequence(alternative)
            is_empty, first, last = is_empty or may_lack, first | its_first, last | its_last
        if group.kind in "*+":
            self._link(last, first)
        return is_empty, first, last

    def _link(self, states: int, following: int) -> None:
        for number in _numbers(states):
            self._next[number] |= following


def _numbers(states: int) -> list[int]:
    return [number for number, state in enumerate(reversed(f"{states:b}")) if state == "1"]
