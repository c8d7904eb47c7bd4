"""The same text in several places is one result."""

from __future__ import annotations

from collections.abc import Iterable

from qmd.records import StoredDocument

SHORT_TEXT = 200
"""Characters up to which two equal texts are one only under one file name: two notes that were begun from one template,
and hold nothing else yet, are two notes."""


def fold_copies(documents: Iterable[StoredDocument]) -> dict[int, tuple[str, ...]]:
    """For each first document of its text, by id and in order, the addresses of those after it that hold the same text.

    An empty text is nobody's copy.
    """
    first_of: dict[tuple[str, str], int] = {}
    copies: dict[int, tuple[str, ...]] = {}
    for document in documents:
        name = "" if document.size > SHORT_TEXT else document.path.rpartition("/")[2]
        first = first_of.setdefault((document.hash, name), document.id) if document.size else document.id
        copies[first] = copies[first] + (document.uri,) if first in copies else ()
    return copies
