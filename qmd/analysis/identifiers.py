"""Identifiers and names that a letters-and-digits tokenizer cannot see: camelCase parts, `C++`, `C#`, `.NET`."""

from __future__ import annotations

import re
from collections.abc import Iterable

_SYMBOLS: tuple[tuple[str, str, re.Pattern[str]], ...] = (
    # In code `c++` in lower case is an increment: it counts only where prose would have it.
    ("++", "cplusplus", re.compile(r"(?<![\w+$])(?:C\+\+|c\+\+(?=[\s.,?!:]|\Z))(?![\w+])")),
    ("++", "gplusplus", re.compile(r"(?<![\w+$])g\+\+(?![\w+])", re.IGNORECASE)),
    ("C#", "csharp", re.compile(r"(?<![\w#])C#(?![\w#])")),
    ("c#", "csharp", re.compile(r"(?<![\w#])c#(?![\w#])")),
    ("F#", "fsharp", re.compile(r"(?<![\w#])F#(?![\w#])")),
    ("f#", "fsharp", re.compile(r"(?<![\w#])f#(?![\w#])")),
    (".NET", "dotnet", re.compile(r"(?<!\.)\.NET\b")),
    (".net", "dotnet", re.compile(r"(?<![\w.])\.net\b")),
)
"""(what must occur for the pattern to be worth a try, term, pattern)."""

_PART = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")
_PLURAL_ACRONYM = re.compile(r"[A-Z]{2,}s\Z")
_CAMEL_WORD = re.compile(r"[a-z0-9][A-Z]|[A-Z]{2}[a-z]")

# Letter classes of ASCII bytes: lower case → a, upper case → A, digits → 0, everything else (underscore included, which
# the tokenizer splits at) → space. Searching the mapped bytes for the literal `aA` runs at memory speed; a character
# class pattern over the text takes ten times as long.
_CLASSES = bytes(
    0x61 if 0x61 <= b <= 0x7A else 0x41 if 0x41 <= b <= 0x5A else 0x30 if 0x30 <= b <= 0x39 else 0x20 for b in range(256)
)
_LOWER_UPPER = re.compile(rb"aA")
_ACRONYM_WORD = re.compile(rb"AAa")


def identifier_parts(word: str) -> tuple[str, ...]:
    """Lower-case parts of a camelCase word (`getUserName` → get, user, name); empty when it has fewer than two."""
    if _CAMEL_WORD.search(word) is None or _PLURAL_ACRONYM.match(word):
        return ()
    parts = tuple(part.lower() for part in _PART.findall(word))
    return parts if len(parts) > 1 else ()


def symbol_terms(text: str) -> list[str]:
    """Terms for names that are told apart by symbols alone (`C++` → cplusplus), in a fixed order, each once."""
    found = [term for needle, term, pattern in _SYMBOLS if needle in text and pattern.search(text)]
    return list(dict.fromkeys(found))


def camel_words(text: str) -> Iterable[str]:
    """Distinct camelCase words of `text`, in order of first use."""
    raw = text.encode("utf-8", "replace")
    classes = raw.translate(_CLASSES)
    found: dict[bytes, None] = {}
    for pattern in (_LOWER_UPPER, _ACRONYM_WORD):
        end = 0
        for match in pattern.finditer(classes):
            at = match.start()
            if at < end:
                continue
            end = classes.find(b" ", at)
            if end < 0:
                end = len(classes)
            found[raw[classes.rfind(b" ", 0, at) + 1 : end]] = None
    return [word.decode("ascii") for word in found]
