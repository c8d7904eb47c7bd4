"""File masks: comma lists, braces, `**`, character classes and extended globs, matched in polynomial time.

Masks come from strangers (a cloned project's configuration, a tool call). A regular expression that backtracks needs
hours for `*a*a*a*a*a*b` and blocks the interpreter meanwhile. A mask without groups becomes an expression that never
gives back the match of a star; a mask with groups becomes an automaton (`qmd.ingest.glob_groups`).

wcmatch 12.0.1 has the same features and safe stars. But on a name of 255 characters it takes 57 ms for three times
`**/a/`, 3.8 s for four times and 2.2 s for `!(*a*)!(*a*)b`, and its import takes 50 ms.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Protocol

from msgspec import Struct

from qmd.errors import UsageError
from qmd.ingest.glob_groups import Group, GroupMatcher, Token, Wildcard
from qmd.masks import OWN_PATTERNS, UNWRITTEN_PATTERN

MAX_MASK_CHARS = 8_192
"""Twice the longest path of most systems; a longer mask is a mistake or an attack."""

_MAX_ALTERNATIVES = 2_000
"""Brace alternatives of one mask; without a limit, a few nested ranges would grow exponentially."""

_MAX_EXPANDED_CHARS = 100_000
"""Characters of all alternatives of one mask together: two seconds of compiling if most are stars."""

_MAX_SPREAD = 50
"""Maximum of plain globs that replace one with groups: an automaton costs about 50 µs a path, an expression 0.5 µs."""

_MAX_GROUPS_SIZE = 1_200
"""Characters of all globs with groups together, plus 30 for each and for each negated group: at worst, with
repetitions, 8 ms for a name of 255 characters. Six times the size of real masks."""

_MAX_NESTING = 50
"""Maximum depth of nested braces and groups."""

_RANGE = r"(-?[0-9]{1,9})\.\.(-?[0-9]{1,9})\Z|([A-Za-z])\.\.([A-Za-z])\Z"


class PathMatcher(Protocol):
    """Compiled masks."""

    def fullmatch(self, path: str, /) -> object | None:
        """Return an object if the masks select `path`, else None."""
        ...


def split_mask(mask: str) -> tuple[str, ...]:
    """Split a mask at its commas outside `{}` and `[]`; parts are trimmed, empty ones dropped."""
    parts: list[str] = []
    start = 0
    depth = 0
    for i, char in enumerate(mask):
        if char in "{[":
            depth += 1
        elif char in "}]":
            depth = max(0, depth - 1)
        elif char == "," and depth == 0:
            parts.append(mask[start:i])
            start = i + 1
    parts.append(mask[start:])
    return tuple(part for part in (p.strip() for p in parts) if part)


def parse_mask(mask: str) -> tuple[list[str], list[str]]:
    """Return the globs of a mask that select files, and those after a `!` that exclude some of them again.

    An empty mask selects markdown; a mask of exclusions selects every other file.
    """
    parts = [portable(part) for part in split_mask(mask)]
    excluded = [part for part in parts if part.startswith("!") and not part.startswith("!(")]
    wanted = [part for part in parts if part not in excluded]
    return wanted or (["**"] if excluded else [UNWRITTEN_PATTERN]), [part[1:] for part in excluded]


def portable(glob: str) -> str:
    """Return a glob with `/` between its segments, also on a system whose users write a backslash."""
    return glob.replace("\\", "/") if os.sep == "\\" else glob


def compile_globs(patterns: Iterable[str]) -> PathMatcher:
    """Return one matcher for all `patterns`; it matches nothing when there are none.

    Patterns are relative to the collection, with `/` between segments, and case-sensitive except `OWN_PATTERNS`; a
    leading `./` or `/` is dropped.

    Raises:
        UsageError: A pattern is too long, nests too deep or has too many alternatives or groups.
    """
    sources: dict[str, None] = {}
    groups: list[GroupMatcher] = []
    for pattern in patterns:
        if pattern in OWN_PATTERNS:
            # One expression for all endings is thirty times as fast as one for each.
            sources[rf".*\.(?i:{pattern[6:-1].replace(',', '|')})\Z"] = None
            continue
        for alternative in expand_braces(pattern):
            trimmed = _relative(alternative)
            if not trimmed:
                continue
            tokens = _Parser(trimmed).sequence(0, len(trimmed), 0)
            plain = _without_groups(tokens)
            if plain is None:
                groups.append(GroupMatcher(tokens))
            else:
                sources.update(dict.fromkeys(map(_expression, plain)))
    if sum(group.size for group in groups) > _MAX_GROUPS_SIZE:
        raise UsageError(f"mask '{pattern[:40]}…' has too many or too long groups", "use * or {a,b} instead")
    expression = re.compile("|".join(sources) or "(?!)", re.DOTALL)
    return _Masks(expression, tuple(groups)) if groups else expression


class _Masks(Struct, frozen=True):
    """Masks of which some have groups."""

    expression: re.Pattern[str]
    groups: tuple[GroupMatcher, ...]

    def fullmatch(self, path: str) -> object | None:
        return self.expression.fullmatch(path) or any(group.matches(path) for group in self.groups) or None


def literal_segments(patterns: Iterable[str]) -> frozenset[str]:
    """Return path segments in the patterns without wildcards (`docs`, `build` of `docs/build/*.md`)."""
    found: set[str] = set()
    for pattern in patterns:
        for alternative in expand_braces(pattern):
            found.update(filter(_is_literal, alternative.split("/")[:-1]))
    return frozenset(found)


def literal_paths(patterns: Iterable[str]) -> frozenset[str]:
    """Return paths in the patterns without wildcards (`MEMORY.md`, `a.md` and `b.md` of `{a,b}.md`)."""
    alternatives = (one for pattern in patterns for one in expand_braces(pattern))
    return frozenset(filter(_is_literal, map(_relative, alternatives)))


def _is_literal(glob: str) -> bool:
    return re.search(r"[*?\[\]()!+@\\]", glob) is None


def _relative(glob: str) -> str:
    return glob.removeprefix("./").lstrip("/")


def expand_braces(pattern: str) -> tuple[str, ...]:
    """Return every alternative of `{a,b}` and `{1..3}`, nested ones included; unbalanced braces stay literal.

    Raises:
        UsageError: If the pattern is too long, nests too deep or has more than 2,000 alternatives.
    """
    if len(pattern) > MAX_MASK_CHARS:
        raise UsageError(f"mask '{pattern[:40]}…' is longer than {MAX_MASK_CHARS} characters", "use * for a list")
    if "{" not in pattern:
        return (pattern,)
    return tuple(_Braces(pattern).expand(0, len(pattern), 0))


class _Braces:
    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._closing = _pairs(pattern, "{}")

    def expand(self, start: int, end: int, depth: int) -> list[str]:
        """Return the alternatives of a part of the pattern."""
        if depth > _MAX_NESTING:
            raise UsageError(f"braces nest deeper than {_MAX_NESTING} in mask '{self._pattern[:40]}…'")
        found = [""]
        literal_from = i = start
        while i < end:
            close = self._closing.get(i)
            options = None if close is None else self._options(i, close, depth)
            if options is None or close is None:
                i = _behind(self._pattern, i, classes=False)
                continue
            found = self._joined(found, [self._pattern[literal_from:i] + option for option in options])
            literal_from = i = close + 1
        return self._joined(found, [self._pattern[literal_from:end]])

    def _options(self, start: int, close: int, depth: int) -> list[str] | None:
        """Return the options of the brace from `start` to `close`; None when it has neither a comma nor a range."""
        parts = _parts(self._pattern, self._closing, start + 1, close, ",")
        if len(parts) == 1:
            return _range(self._pattern[start + 1 : close])
        return [option for part in parts for option in self.expand(*part, depth + 1)]

    def _joined(self, heads: list[str], tails: list[str]) -> list[str]:
        n_chars = sum(map(len, heads)) * len(tails) + sum(map(len, tails)) * len(heads)
        if len(heads) * len(tails) > _MAX_ALTERNATIVES or n_chars > _MAX_EXPANDED_CHARS:
            raise UsageError(
                f"mask '{self._pattern}' has more than {_MAX_ALTERNATIVES} brace alternatives",
                "shorten the braces, or use *",
            )
        return [head + tail for head in heads for tail in tails]


def _pairs(pattern: str, brackets: str) -> dict[int, int]:
    """Return index of an opening bracket → index of its closing one, without escaped and unbalanced ones."""
    pairs: dict[int, int] = {}
    todo: list[int] = []
    i = 0
    while i < len(pattern):
        if pattern[i] == brackets[0]:
            todo.append(i)
        elif pattern[i] == brackets[1] and todo:
            pairs[todo.pop()] = i
        i = _behind(pattern, i, classes=brackets == "()")
    return pairs


def _parts(pattern: str, closing: Mapping[int, int], start: int, end: int, separator: str) -> list[tuple[int, int]]:
    """Return the spans of `pattern[start:end]` between separators outside brackets."""
    cuts = [start - 1]
    i = start
    while i < end:
        if pattern[i] == separator:
            cuts.append(i)
        i = closing[i] + 1 if i in closing else _behind(pattern, i, classes=separator == "|")
    return [(a + 1, b) for a, b in pairwise([*cuts, end])]


def _behind(pattern: str, i: int, *, classes: bool) -> int:
    """Return the index after the character at `i`, with the character that it escapes, or after the class there."""
    if pattern[i] == "\\":
        return i + 2
    return _character_class(pattern, i)[1] if pattern[i] == "[" and classes else i + 1


def _range(text: str) -> list[str] | None:
    match = re.match(_RANGE, text)
    if match is None:
        return None
    is_number = match[1] is not None
    low, high = (int(match[1]), int(match[2])) if is_number else (ord(match[3]), ord(match[4]))
    if abs(high - low) > _MAX_ALTERNATIVES:
        raise UsageError(f"range '{{{text}}}' is too long", "use * instead")
    step = 1 if high >= low else -1
    return [str(n) if is_number else chr(n) for n in range(low, high + step, step)]


_WILDCARDS: Mapping[str, Token] = {"*": Wildcard.CHARS, "?": "[^/]"}


class _Parser:
    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._closing = _pairs(pattern, "()")

    def sequence(self, start: int, end: int, depth: int) -> list[Token]:
        """Return the tokens of a part of the glob."""
        if depth > _MAX_NESTING:
            raise UsageError(f"groups nest deeper than {_MAX_NESTING} in mask '{self._pattern[:40]}…'")
        found: list[Token] = []
        i = start
        while i < end:
            token, i = self._token(i, end, depth)
            if not (token is Wildcard.CHARS and found and found[-1] is token):
                found.append(token)
        return found

    def _token(self, i: int, end: int, depth: int) -> tuple[Token, int]:
        """Return the token at `i` and the index after it."""
        pattern, char = self._pattern, self._pattern[i]
        at_segment = i == 0 or pattern[i - 1] == "/"
        if at_segment and pattern.startswith("**/", i):
            return Wildcard.SEGMENTS, i + 3
        if at_segment and pattern[i:] == "**":
            return Wildcard.REST, i + 2
        # The text after a negated group decides its match, which is unknown inside another group.
        if char in "@?*+" or (char == "!" and depth == 0):
            close = self._closing.get(i + 1, end)
            if close < end:
                parts = _parts(pattern, self._closing, i + 2, close, "|")
                return Group(char, tuple(tuple(self.sequence(*part, depth + 1)) for part in parts)), close + 1
        if char == "[":
            return _character_class(pattern, i)
        if char == "\\" and i + 1 < end:
            return re.escape(pattern[i + 1]), i + 2
        return _WILDCARDS.get(char) or re.escape(char), i + 1


def _character_class(pattern: str, start: int) -> tuple[str, int]:
    """Return (source, next index) for `[…]` at `start`; an unclosed or impossible class is a literal bracket."""
    end = start + 1
    if pattern[end : end + 1] in ("!", "^"):
        end += 1
    end = pattern.find("]", end + 1)
    body = pattern[start + 1 : end] if end > 0 else ""
    if not body or body in ("!", "^"):
        return re.escape("["), start + 1
    negated = body[0] in "!^"
    members = re.sub(r"([\\\[\]^&~|]|-(?=-))", r"\\\1", body[1:] if negated else body)
    source = f"(?!/)[{'^' if negated else ''}{members}]"
    try:
        if not body.isalnum():
            re.compile(source)
    except re.error:
        return re.escape("["), start + 1
    return source, end + 1


def _without_groups(tokens: Sequence[Token]) -> list[list[Token]] | None:
    """Return globs that together select the same as `tokens`; None when there are none, or too many."""
    found: list[list[Token]] = [[]]
    for token in tokens:
        options: Sequence[Sequence[Token]] = [(token,)]
        if isinstance(token, Group):
            options = [*token.alternatives, *([()] if token.kind == "?" else [])]
            is_nested = any(isinstance(inner, Group) for option in options for inner in option)
            if token.kind not in "@?" or is_nested or len(found) * len(options) > _MAX_SPREAD:
                return None
        found = [[*head, *option] for head in found for option in options]
    return found


def _expression(tokens: Sequence[Token]) -> str:
    """Return the source of a regular expression that matches without exponential backtracking.

    The tokens between two `**/` are a fixed number of segments, and those between two stars of a segment a fixed number
    of characters. At the first match of such a block, the next star can still reach every later place. So the first
    match is final (`(?>…)`), and only the last star has to try several.
    """
    first, *between = _split(tokens, Wildcard.SEGMENTS)
    if not between:
        return _segments(first) + r"\Z"
    middle = "".join(f"(?>(?:[^/]*/)*?{_segments(block)})" for block in between[:-1] if block)
    return f"{_segments(first)}{middle}(?:[^/]*/)*{_segments(between[-1])}\\Z"


def _segments(tokens: Sequence[Token]) -> str:
    return "/".join(map(_segment, _split(tokens, "/")))


def _segment(tokens: Sequence[Token]) -> str:
    runs = [
        "".join(".+" if token is Wildcard.REST else str(token) for token in run)
        for run in _split(tokens, Wildcard.CHARS)
    ]
    if len(runs) == 1:
        return runs[0]
    return runs[0] + "".join(f"(?>[^/]*?{run})" for run in runs[1:-1]) + f"[^/]*{runs[-1]}"


def _split(tokens: Sequence[Token], at: Token) -> list[list[Token]]:
    parts: list[list[Token]] = [[]]
    for token in tokens:
        if token == at:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts
