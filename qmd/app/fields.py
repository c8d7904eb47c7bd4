"""Front-matter fields of the notes, for filters."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from msgspec import Struct

from qmd.conditions import folded, type_of, values_of
from qmd.errors import NotFoundError, nearest_name
from qmd.records import StoredDocument


class Field(Struct, frozen=True):
    """Front-matter field: the number of notes that have it, and of each type and value."""

    field: str
    notes: int
    types: dict[str, int]
    distinct: int
    values: dict[str, int]
    """The 20 most frequent where several fields are listed."""


def list_fields(documents: Iterable[StoredDocument], asked: str | None) -> tuple[Field, ...]:
    """Return every field, or the one asked for; the most frequent fields and values come first."""
    types, values = defaultdict[str, Counter[str]](Counter), defaultdict[str, Counter[str]](Counter)
    notes: Counter[str] = Counter()
    for document in documents:
        for name in document.metadata:
            found = set(values_of(document.metadata, name))
            notes[name] += 1
            types[name].update({type_of(one) for one in found})
            values[name].update(folded(one) if isinstance(one, bool) else str(one) for one in found)
    if asked is not None and asked.lower() not in notes:
        hint = f"did you mean '{near}'? " if (near := nearest_name(asked, notes)) else ""
        raise NotFoundError(f"no note has the field '{asked}'", f"{hint}every field: qmd collection metadata")
    return tuple(
        Field(name, count, dict(types[name]), len(values[name]), _first(values[name], None if asked else 20))
        for name, count in _first(notes, None).items()
        if asked is None or name == asked.lower()
    )


def _first(counts: Counter[str], most: int | None) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:most])
