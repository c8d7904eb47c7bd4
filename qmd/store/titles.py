"""The title shown where many notes have the same heading."""

from __future__ import annotations

from qmd.names import file_name, is_telling

MANY_NOTES = 3
"""Notes of one collection that make their common heading no title; two may well be drafts of one another."""


def settled_title(path: str, heading: str, *, is_shared: bool) -> str:
    """The file's name for a heading that many notes of a collection have, the heading where few have it."""
    name = file_name(path)
    return name if is_shared and is_telling(name) else heading
