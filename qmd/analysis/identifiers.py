"""Identifiers and names that a letters-and-digits tokenizer cannot see: camelCase parts, `C++`, `C#`, `.NET`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

_SYMBOLS: tuple[tuple[str, str, Mapping[str, str]], ...] = (
    # In code a lower-case `c++` is an increment: it counts only where prose would have it.
    (
        "+",
        r"\+\+(?<=([Ccg])\+\+)(?:(?<!c\+\+)(?![\w+])|(?=[\s.,?!:]|\Z))(?<![\w+$]...)",
        {"C": "cplusplus", "c": "cplusplus", "g": "gplusplus"},
    ),
    ("#", r"#(?<=([CcFf])#)(?<![\w#]..)(?![\w#])", {"C": "csharp", "c": "csharp", "F": "fsharp", "f": "fsharp"}),
    (".", r"(\.)(?:NET(?<!\.....)|net(?<![\w.]....))\b", {".": "dotnet"}),
)
"""(required substring, pattern, term by its group). Lookbehinds follow the symbols: a pattern that begins with a
literal is searched at memory speed."""

_PART = r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+"
_PLURAL_ACRONYM = r"[A-Z]{2,}s\Z"
_CAMEL_WORD = re.compile(r"[a-z0-9][A-Z]|[A-Z]{2}[a-z]")

# Letter classes of ASCII bytes: lower case → a, upper case → A, digits → 0, everything else (underscore included, which
# the tokenizer splits at) → space. A pattern over the mapped bytes that begins with a literal runs at memory speed; a
# character class over the text takes ten times as long.
_CLASSES = bytes(
    ord("a" if 97 <= b <= 122 else "A" if 65 <= b <= 90 else "0" if 48 <= b <= 57 else " ") for b in range(256)
)
_CAPITAL = rb"A(?:(?<= A)A++a|(?<=aA))[aA0]*+"
"""A capital that begins a word with others (`HTMLParser`) or follows a small letter, and the word to its end."""


@lru_cache(maxsize=1 << 16)
def identifier_parts(word: str) -> tuple[str, ...]:
    """Return the lower-case parts of a camelCase word (`getUserName` → get, user, name); empty if fewer than two."""
    if _CAMEL_WORD.search(word) is None or re.match(_PLURAL_ACRONYM, word):
        return ()
    parts = tuple(part.lower() for part in re.findall(_PART, word))
    return parts if len(parts) > 1 else ()


def symbol_terms(text: str) -> list[str]:
    """Return terms for names that differ by symbols alone (`C++` → cplusplus), in a fixed order, each once."""
    # Looking for one character is much cheaper, and most texts have no `+`.
    named = [(set(re.findall(pattern, text)), terms) for sign, pattern, terms in _SYMBOLS if sign in text]
    return list(dict.fromkeys(term for names, terms in named for name, term in terms.items() if name in names))


def camel_words(text: str) -> Iterable[str]:
    """Return the distinct camelCase words of `text`, sorted."""
    raw = f" {text} ".encode("utf-8", "replace")
    classes = raw.translate(_CLASSES)
    places = re.finditer(_CAPITAL, classes)
    found = {raw[classes.rfind(b" ", 0, match.start()) + 1 : match.end()] for match in places}
    return [word.decode("ascii") for word in sorted(found)]
