"""What notes are called, and when two names are the same: what people type, links and file names must meet."""

from __future__ import annotations

import re
from functools import lru_cache

from qmd.analysis.scripts import normalize, without_accents
from qmd.names import file_name, is_telling
from qmd.records import Document

_BETWEEN = re.compile(r"[^\w+#&@]+|_+")


@lru_cache(maxsize=1_000)
def name_key(name: str) -> str:
    """A name in the form in which two are equal: case, accents, hyphens, punctuation and emoji do not matter.

    `+` and `#` do (`C++`, `C#`), but for the sign of a tag. A name of nothing but signs stands for itself.
    """
    key = " ".join(_BETWEEN.sub(" ", without_accents(normalize(name))).split()).lower().lstrip("#")
    return key or name.strip()


def note_names(document: Document) -> tuple[str, ...]:
    """Title, file name where it says something, and aliases; of equal names the first."""
    file = file_name(document.path)
    named: dict[str, str] = {}
    for name in (document.title, *([file] if is_telling(file) else ()), *document.aliases):
        named.setdefault(name_key(name), name)
    return tuple(named.values())
