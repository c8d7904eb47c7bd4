"""The words of an index, which LanceDB does not tell: what a prefix stands for, and what is spelled like a word.

Words are added and never taken away: each is asked of the full text before it is believed.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable

from qmd.analysis.distance import LONG_WORD, edit_distance
from qmd.analysis.scripts import without_accents
from qmd.plugins.lance.tables import OpenTables, Row, Tables, literal

_WORD = re.compile(r"[^\W_]+")

_LONGEST = 64
"""Letters of a word that is kept; longer ones are codes that nobody types."""

PREFIX_WORDS = 200
"""Words that a prefix stands for, at most: the shortest ones."""


def add_words(tables: OpenTables, texts: Iterable[str]) -> None:
    """Add the words of new documents."""
    found: set[str] = set()
    for text in texts:
        found.update(_WORD.findall(text.lower()))
    if tables.words is None:
        tables.words = {row["word"] for row in tables.select("words", ("word",))}
    new = sorted(word for word in found - tables.words if len(word) <= _LONGEST)
    tables.words.update(new)
    tables.add("words", [{"key": without_accents(word), "word": word} for word in new])


def expand_prefix(tables: Tables, prefix: str) -> list[str]:
    """Words of the index that begin so, the shortest first."""
    key = without_accents(prefix.lower())
    rows = tables.select("words", ("key", "word"), f"starts_with(key, {literal(key)})")
    rows.sort(key=lambda row: (len(row["key"]), row["word"]))
    return [row["word"] for row in rows[:PREFIX_WORDS]]


def similar_words(tables: Tables, term: str) -> list[tuple[int, str]]:
    """(edits, word) of words one edit away from `term`; where there is none, two edits, for a long one."""
    key = without_accents(term.lower())
    if len(key) < 3 or not _WORD.fullmatch(key):
        return []
    allowed = 1 if len(key) < LONG_WORD else 2
    found = _near(tables, key, [key[0]], allowed)
    if not found and key.isascii():
        # The first letter is seldom wrong. Each of these beginnings is shared by few words.
        letters = string.ascii_lowercase
        starts = {key[1::-1], key[1:3], *(c + key[1:3] for c in letters), *(c + key[:2] for c in letters)}
        found = _near(tables, key, starts, 1)
    return found


def _near(tables: Tables, key: str, starts: Iterable[str], allowed: int) -> list[tuple[int, str]]:
    begins = " OR ".join(f"starts_with(key, {literal(start)})" for start in sorted(starts))
    where = f"length(key) BETWEEN {len(key) - allowed} AND {len(key) + allowed} AND ({begins})"
    letters = frozenset(key)
    found = []
    for row in tables.select("words", ("key", "word"), where):
        if _is_near(row, letters, len(key), allowed):
            distance = edit_distance(key, row["key"], allowed)
            if distance <= allowed:
                found.append((distance, str(row["word"])))
    return sorted(found)


def _is_near(row: Row, letters: frozenset[str], length: int, allowed: int) -> bool:
    """Whether a word can be near, by its letters alone; numbered codes are as many as words and mean nothing near."""
    word = row["key"]
    if any(map(str.isdigit, word)):
        return any(map(str.isdigit, letters))
    return len(letters.union(word)) - len(letters) <= allowed
