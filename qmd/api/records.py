"""Answers that only the Python API gives; all others are in `qmd.records` and `qmd.indexing`."""

from __future__ import annotations

from qmd.quick_dataclasses import dataclass
from qmd.records import StoredDocument


@dataclass(frozen=True, slots=True)
class DocumentText:
    """A document with its text, or the lines of it that were asked for."""

    document: StoredDocument
    context: str | None
    """The user's notes on its path."""
    text: str
    first_line: int = 1
    """Number of the first line of `text` in the file."""


@dataclass(frozen=True, slots=True)
class SkippedDocument:
    """A document that a pattern names but whose text was left out."""

    document: StoredDocument
    reason: str


@dataclass(frozen=True, slots=True)
class DocumentTexts:
    """What a pattern names, in order."""

    documents: tuple[DocumentText, ...]
    skipped: tuple[SkippedDocument, ...] = ()
    problems: tuple[str, ...] = ()
    """One line for each part of the pattern that names nothing, or too much."""


@dataclass(frozen=True, slots=True)
class ContextNote:
    """A note on the documents below a path; collection and prefix are empty for the note on everything."""

    collection: str
    prefix: str
    text: str


@dataclass(frozen=True, slots=True)
class IndexHealth:
    """Whether the index needs work."""

    documents: int
    pending_documents: int
    """Texts without vectors of the model that was used last; `Store.embed` computes them."""
    days_since_update: int | None
    """Whole days since the last completed update; None before the first."""
