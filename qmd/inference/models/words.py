"""What the built-in model's vocabulary knows for a word, so that a word is told from a typing error."""

from __future__ import annotations

import unicodedata
from functools import cache

from qmd.inference.models.weights import locate_builtin

_ENDINGS = (
    ("s", ""),
    ("es", ""),
    ("ies", "y"),
    ("ed", ""),
    ("ed", "e"),
    ("ied", "y"),
    ("ing", ""),
    ("ing", "e"),
    ("ly", ""),
    ("ily", "y"),
    ("er", ""),
    ("er", "e"),
    ("ness", ""),
    ("iness", "y"),
)
"""English endings, and what the word without them ends with instead."""

_SHORTEST_BASE = 4
"""Letters of a word that may have an ending: of shorter ones too many are pieces, and `cas` + `ed` is no word."""


def is_word(text: str) -> bool:
    """Whether a word is whole in the vocabulary (30,000 entries, nearly all English), or an inflection of such a word.

    Costs about half a millisecond for each form that is looked for, and loads no tokenizer.
    """
    letters = unicodedata.normalize("NFD", text.casefold())
    bare = "".join(letter for letter in letters if not unicodedata.combining(letter))
    return bare.isalnum() and any(f'"{form}":'.encode() in _tokenizer() for form in _base_forms(bare))


def _base_forms(word: str) -> list[str]:
    """The word, and what it may be an inflection of."""
    forms = [word]
    for ending, replacement in _ENDINGS:
        base = word.removesuffix(ending)
        if base != word and len(base + replacement) >= _SHORTEST_BASE:
            forms.append(base + replacement)
            if base[-1] == base[-2]:
                forms.append(base[:-1])
    return list(dict.fromkeys(forms))


@cache
def _tokenizer() -> bytes:
    """The file as it is: searching its 0.5 MB takes a fraction of the time of parsing it."""
    return (locate_builtin() / "tokenizer.json").read_bytes()
