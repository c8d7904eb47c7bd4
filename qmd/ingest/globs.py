"""File masks: comma lists, braces, `**`, character classes and extended globs, compiled to one regular expression."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise

from qmd.errors import UsageError

_MAX_ALTERNATIVES = 2_000
"""Brace alternatives of one mask; a few nested ranges would otherwise grow without bound."""

_MAX_NEGATIONS = 4
"""Each `!(…)` doubles the expression behind it."""

_RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)\Z|([A-Za-z])\.\.([A-Za-z])\Z")


def split_mask(mask: str) -> tuple[str, ...]:
    """Parts of a mask at its commas outside `{}` and `[]`, trimmed, empty parts dropped."""
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


def expand_braces(pattern: str) -> tuple[str, ...]:
    """Every alternative of `{a,b}` and `{1..3}`, nested ones included; unbalanced braces stay literal.

    Raises:
        UsageError: If there are more than 2,000 alternatives.
    """
    done: list[str] = []
    todo = [pattern]
    while todo:
        current = todo.pop()
        found = _first_brace(current)
        if found is None:
            done.append(current)
        else:
            start, end, options = found
            todo.extend(current[:start] + option + current[end:] for option in reversed(options))
        if len(done) + len(todo) > _MAX_ALTERNATIVES:
            raise UsageError(
                f"mask '{pattern}' has more than {_MAX_ALTERNATIVES} brace alternatives", "shorten the braces, or use *"
            )
    return tuple(done)


def _first_brace(pattern: str) -> tuple[int, int, list[str]] | None:
    """(start, end, options) of the first balanced brace that has a comma or a range."""
    start = pattern.find("{")
    while start >= 0:
        depth = 0
        cuts = [start]
        for i in range(start, len(pattern)):
            char = pattern[i]
            if char == "{":
                depth += 1
            elif char == "," and depth == 1:
                cuts.append(i)
            elif char == "}":
                depth -= 1
                if depth == 0:
                    cuts.append(i)
                    options = [pattern[a + 1 : b] for a, b in pairwise(cuts)]
                    expanded = options if len(options) > 1 else _range(options[0])
                    if expanded:
                        return start, i + 1, expanded
                    break
        start = pattern.find("{", start + 1)
    return None


def _range(text: str) -> list[str]:
    match = _RANGE.match(text)
    if match is None:
        return []
    if match[1] is not None:
        low, high = int(match[1]), int(match[2])
        if abs(high - low) > _MAX_ALTERNATIVES:
            raise UsageError(f"range '{{{text}}}' is too long", "use * in its place")
        step = 1 if high >= low else -1
        return [str(n) for n in range(low, high + step, step)]
    low, high = ord(match[3]), ord(match[4])
    step = 1 if high >= low else -1
    return [chr(n) for n in range(low, high + step, step)]


def compile_globs(patterns: Iterable[str]) -> re.Pattern[str] | None:
    """One expression that matches (with `fullmatch`) what any of `patterns` matches; None when there are none.

    Patterns are relative to the collection, case-sensitive, `/` between segments; a leading `./` or `/` is dropped.
    """
    sources = []
    for pattern in patterns:
        if pattern.count("!(") > _MAX_NEGATIONS:
            raise UsageError(
                f"mask '{pattern}' has more than {_MAX_NEGATIONS} negated groups", "use a !glob part instead"
            )
        for alternative in expand_braces(pattern):
            trimmed = alternative.removeprefix("./").lstrip("/")
            if trimmed:
                sources.append(_translate(trimmed))
    return re.compile("|".join(dict.fromkeys(sources)), re.DOTALL) if sources else None


def literal_segments(patterns: Iterable[str]) -> frozenset[str]:
    """Path segments that the patterns spell out, without wildcards (`docs`, `build` of `docs/build/*.md`)."""
    found: set[str] = set()
    for pattern in patterns:
        for alternative in expand_braces(pattern):
            found.update(segment for segment in alternative.split("/")[:-1] if not re.search(r"[*?\[\]()!+@]", segment))
    return frozenset(found)


_EXTENDED_END = {"@": "", "?": "?", "*": "*", "+": "+"}


def _translate(pattern: str) -> str:
    """Regular expression source of one brace-free glob."""
    out: list[str] = []
    i = 0
    n = len(pattern)
    closers: list[str] = []
    while i < n:
        char = pattern[i]
        at_segment = i == 0 or pattern[i - 1] == "/"
        if at_segment and pattern.startswith("**/", i):
            out.append("(?:[^/]+/)*")
            i += 3
        elif at_segment and pattern[i:] == "**":
            out.append(".+")
            i += 2
        elif char == "!" and not closers and (end := _closing(pattern, i + 1)) is not None:
            # What follows decides too: `!(draft).md` must not take `draft` + `.md`, but may take `drafts.md`.
            inner, rest = _translate(f"@{pattern[i + 1 : end + 1]}"), _translate(pattern[end + 1 :])
            out.append(f"(?!{inner}{rest}\\Z)[^/]*{rest}")
            return "".join(out)
        elif char in _EXTENDED_END and _closing(pattern, i + 1) is not None:
            out.append("(?:")
            closers.append(")" + _EXTENDED_END[char])
            i += 2
        elif char == ")" and closers:
            out.append(closers.pop())
            i += 1
        elif char == "|" and closers:
            out.append("|")
            i += 1
        elif char == "*":
            while pattern.startswith("*", i):
                i += 1
            out.append("[^/]*")
        elif char == "?":
            out.append("[^/]")
            i += 1
        elif char == "[":
            source, i = _character_class(pattern, i)
            out.append(source)
        elif char == "\\" and i + 1 < n:
            out.append(re.escape(pattern[i + 1]))
            i += 2
        else:
            out.append(re.escape(char))
            i += 1
    # The bracket that seemed to close a group was inside a character class: close it here.
    out.extend(reversed(closers))
    return "".join(out)


def _closing(pattern: str, start: int) -> int | None:
    """Index of the bracket that closes the `(` at `start`; None when there is none, or `start` is something else."""
    if not pattern.startswith("(", start):
        return None
    depth = 0
    for i in range(start, len(pattern)):
        depth += {"(": 1, ")": -1}.get(pattern[i], 0)
        if depth == 0:
            return i
    return None


def _character_class(pattern: str, start: int) -> tuple[str, int]:
    """(source, next index) for `[…]` at `start`; an unclosed or impossible class is a literal bracket."""
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
        re.compile(source)
    except re.error:
        return re.escape("["), start + 1
    return source, end + 1
