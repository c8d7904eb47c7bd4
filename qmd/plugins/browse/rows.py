"""The lines of the list: notes that answer a question or are connected with one, and filters to choose from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from qmd.names import file_name
from qmd.render.terminal import visible
from qmd.retrieval.calibration import strength
from qmd.retrieval.query_filters import filter_text

if TYPE_CHECKING:
    from textual.content import Content

    from qmd.app.records import NoteLinks, RelatedNotes
    from qmd.records import Collection, Hit, StoredDocument

_DATES = ("after:today", "after:last-week", "after:last-month", "after:last-year")
_MOST_TAGS = 200
_COLOURS = {"strong": "$success", "likely": "$primary", "weak": "$foreground-disabled", None: "$foreground-muted"}


class Note(Struct, frozen=True):
    """A note in the list, and where in it the reader should look."""

    document: StoredDocument
    line: int = 1
    trail: tuple[str, ...] = ()
    """The headings that the line stands under."""
    detail: str = ""
    """Its day, or how it is connected."""
    relevance: float | None = None

    @property
    def key(self) -> str:
        """What tells it from other lines of the list."""
        return self.document.uri

    @property
    def place(self) -> str:
        """Where it is, as people read it."""
        return f"{self.document.collection}/{self.document.path}:{self.line}"


class Filter(Struct, frozen=True):
    """A filter that may be put on."""

    key: str
    """As it is typed."""
    count: int | None = None
    """How many notes it holds for."""


Row = Note | Filter


def hit_notes(hits: Sequence[Hit]) -> list[Row]:
    """The notes that answer a question."""
    return [
        Note(one.document, one.passage.line, one.passage.heading_trail, one.document.date or "", one.relevance)
        for one in hits
    ]


def latest_notes(hits: Sequence[Hit]) -> list[Row]:
    """The notes that are there before anything is asked, each with its day."""
    return [Note(one.document, detail=one.document.day) for one in hits]


def connected_notes(links: NoteLinks, related: RelatedNotes) -> list[Row]:
    """The notes that one links to, that link to it, and that are about the same, each once."""
    notes: dict[str, Note] = {}
    named = (
        *((one.document, 1, "linked from it") for one in links.outgoing),
        *((one.document, one.link.line, "links to it") for one in links.incoming),
        *((one.document, 1, f"{one.score:.0%} alike") for one in related.notes),
    )
    for document, line, how in named:
        if document is None or document.uri == links.document.uri:
            continue
        known = notes.get(document.uri)
        detail = how if known is None else f"{known.detail} · {how}" if how not in known.detail else known.detail
        notes[document.uri] = Note(document, line if known is None else known.line, detail=detail)
    return list(notes.values())


def offered_filters(collections: Sequence[Collection], documents: Sequence[StoredDocument]) -> list[Filter]:
    """Filters by collection, date and tag that leave something over, the commonest tags first."""
    counts = Counter(tag for document in documents for tag in document.tags if '"' not in tag and visible(tag) == tag)
    tags = [Filter(filter_text("tag", tag), n) for tag, n in counts.most_common(_MOST_TAGS)]
    sizes = Counter(document.collection for document in documents)
    named = [Filter(filter_text("collection", one.name), sizes[one.name]) for one in collections]
    return [*named, *(Filter(date) for date in _DATES), *tags]


def draw_row(row: Row) -> Content:
    """A line of the list as it is shown: two lines for a note, one for a filter."""
    from textual.content import Content

    if isinstance(row, Filter):
        count = "" if row.count is None else f"  {row.count}"
        return Content.assemble(visible(row.key), (count, "$foreground-muted"))
    title = row.document.title or file_name(row.document.path)
    trail = "".join(f" › {one}" for one in row.trail)
    below = f"{row.place}  {row.detail}"
    return Content.assemble(
        ("● ", _COLOURS[None if row.relevance is None else strength(row.relevance)]),
        (_one_line(title), "bold"),
        (_one_line(trail), "$foreground-muted"),
        "\n  ",
        (_one_line(below), "$foreground-muted"),
    )


def _one_line(text: str) -> str:
    return visible(text).replace("\n", " ")
