"""Rows of the list: hits, connected notes, matching lines and filters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from qmd.escapes import one_line, visible
from qmd.file_names import file_name
from qmd.ingest.markdown import MAX_HEADING_CHARACTERS, plain_text
from qmd.ingest.outline import kind_of
from qmd.render.columns import elide_path
from qmd.retrieval.calibration import strength
from qmd.retrieval.query_filters import filter_text

if TYPE_CHECKING:
    from textual.content import Content

    from qmd.app.records import DocumentText, NoteLinks, RelatedNotes
    from qmd.plugins.browse.preview import Find
    from qmd.records import Collection, Hit, StoredDocument

_DATES = ("after:today", "after:last-week", "after:last-month", "after:last-year")
_MOST_TAGS = 200
_MOST_LINES = 1_000
_COLOURS = {"strong": "$success", "likely": "$primary", "weak": "$foreground-disabled", None: "$foreground-muted"}


class Note(Struct, frozen=True):
    """Note in the list, and the line to show."""

    document: StoredDocument
    line: int = 1
    trail: tuple[str, ...] = ()
    """Headings above the line."""
    detail: str = ""
    """Its day, or its connection with another note."""
    relevance: float | None = None
    text: str = ""
    """Text of the line in a list of lines."""
    spans: tuple[tuple[int, int], ...] = ()
    """Matches in `text`."""

    @property
    def key(self) -> str:
        """Identity in the list."""
        return f"{self.document.uri}:{self.line}" if self.text else self.document.uri

    @property
    def place(self) -> str:
        """Readable location."""
        return f"{self.document.collection}/{self.document.path}:{self.line}"


class Filter(Struct, frozen=True):
    """Filter to choose."""

    key: str
    """Text to type."""
    count: int | None = None
    """Number of notes that match."""
    query: str = ""
    """Query of a saved search."""


Row = Note | Filter


def hit_notes(hits: Sequence[Hit]) -> list[Row]:
    """Return a row for each hit."""
    return [
        Note(one.document, one.passage.line, one.passage.heading_trail, one.document.date or "", one.relevance)
        for one in hits
    ]


def latest_notes(hits: Sequence[Hit]) -> list[Row]:
    """Return rows for the latest notes, each with its day, for an empty query."""
    return [Note(one.document, detail=one.document.day) for one in hits]


def matching_lines(note: Note, found: DocumentText, find: Find) -> list[Row]:
    """Return the lines of a note that match, and its found line, without markdown."""
    rows: list[Row] = []
    is_markdown = kind_of(note.document.path).is_markdown
    for number, line in enumerate(found.text.split("\n"), start=1):
        if number == note.line or find(line):
            text = visible(plain_text(line) if is_markdown else line[:MAX_HEADING_CHARACTERS].strip())
            rows += [Note(note.document, number, text=text, spans=tuple(find(text)))] if text else []
            if len(rows) == _MOST_LINES:
                break
    return rows


def connected_notes(links: NoteLinks, related: RelatedNotes) -> list[Row]:
    """Return the notes that a note links to, that link to it, and that are related, each once."""
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
    """Return filters by collection, date and tag, the most common tags first."""
    counts = Counter(tag for document in documents for tag in document.tags if '"' not in tag and one_line(tag) == tag)
    tags = [Filter(filter_text("tag", tag), n) for tag, n in counts.most_common(_MOST_TAGS)]
    sizes = Counter(document.collection for document in documents)
    named = [Filter(filter_text("collection", one.name), sizes[one.name]) for one in collections]
    return [*named, *(Filter(date) for date in _DATES), *tags]


def draw_row(row: Row, width: int, *, is_low: bool = False) -> Content:
    """Draw a row in `width` columns: two lines for a note unless `is_low`, one for others."""
    from textual.content import Content

    if isinstance(row, Filter):
        more = row.query or ("" if row.count is None else str(row.count))
        return Content.assemble(one_line(row.key), (f"  {one_line(more)}", "$foreground-muted"))
    if row.text:
        line = Content(row.text)
        for start, end in row.spans:
            line = line.stylize("bold $warning", start, end)
        return Content.assemble((f"{row.line:>6}  ", "$foreground-muted"), line)
    name = Content.assemble(
        ("● ", _COLOURS[None if row.relevance is None else strength(row.relevance)]),
        (one_line(row.document.title or file_name(row.document.path)), "bold"),
        (one_line("".join(f" › {one}" for one in row.trail)), "$foreground-muted"),
    )
    detail = Content.styled(one_line(f"  {row.detail}".rstrip()), "$foreground-muted")
    where = f"{row.place.rpartition('/')[0]}/" if is_low else row.place
    room = max((width // 2 if is_low else width) - detail.cell_length - 2, 0)
    place = Content.styled(f"  {elide_path(one_line(where), room)}", "$foreground-muted")
    if not is_low:
        return Content.assemble(name, "\n", place, detail)
    return Content.assemble(
        name.truncate(max(width - place.cell_length - detail.cell_length, 1), ellipsis=True, pad=True), place, detail
    )
