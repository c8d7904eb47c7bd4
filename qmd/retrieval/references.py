"""References to documents: split the text of a reference into name, lines, heading and place."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

_RANGE = r"(?s)(?P<name>.+?)(?::|#L)(?P<start>\d{1,15})(?::(?P<count>\d{1,15})|-L?(?P<end>\d{1,15}))?\Z"
_WIKI_LINK = r"!?\[\[([^\[\]]+)\]\]\Z"
_PLACE = (
    r"(?si)(?P<name>.+?):(?P<place>p(?:age)?[ =]?\d{1,9}|(?:slide|cell|turn) ?\d{1,9}|\d{1,3}:\d\d:\d\d"
    r"|[^:]{1,100}![$a-z]{1,5}\d{1,7}(?::[$a-z]{1,5}\d{1,7})?)\Z"
)
_MAX_SIGNS = 4


class ParsedReference(Struct, frozen=True):
    """A reading of a reference: the name in it, and the part of the document."""

    name: str
    start: int | None = None
    count: int | None = None
    heading: str = ""
    """`Heading`, `Heading#Subheading`, `^block` or a place; empty without."""
    place: str = ""
    """Form of the place in `heading`, as in `Kind`: the name is that of a file with such places."""
    by: Literal["any", "path", "file", "title"] = "any"
    """Kind of name: any, an exact path, a file's name or path, or a title."""


def read_reference(reference: str) -> Iterator[ParsedReference]:
    """Yield the readings of a reference, the likeliest first.

    A file may be called `notes:12`, `C#.md` or `[[a]]`, or end in a space, so the whole reference comes first; then a
    name with lines, a heading or a place after it. A link is `[[note|shown]]`; Dendron writes `[[shown|note]]`, which
    applies where only that side is the name of a file, or where nothing has the other name.
    """
    wanted = reference.strip()
    given = parse_line_range(wanted)
    linked = re.match(_WIKI_LINK, given.name)
    for name in dict.fromkeys((reference, wanted)):
        yield ParsedReference(name, by="path" if linked else "any")
    if linked is None:
        yield from (given, *_split_heading(ParsedReference(wanted)), *_split_place(wanted))
        return
    yield replace(given, name=linked[1].strip(), by="path")
    sides = [replace(given, name=side) for side in _split_link(linked[1])]
    for by in ("file", "title"):
        for side in sides:
            yield from (replace(one, by=by) for one in (side, *_split_heading(side)))


def parse_line_range(reference: str) -> ParsedReference:
    """Split `notes/a.md:10:5`, `:10-14` or `#L10-L14` into name, first line 10 and count 5; line 0 is line 1."""
    match = re.match(_RANGE, reference)
    if match is None or match["name"].endswith(":") or match["name"].lower() in ("qmd", "#"):
        return ParsedReference(reference)
    start = max(int(match["start"]), 1)
    if match["end"] is not None:
        first, last = sorted((start, max(int(match["end"]), 1)))
        return ParsedReference(match["name"], first, last - first + 1)
    return ParsedReference(match["name"], start, None if match["count"] is None else int(match["count"]))


def bare_name(reference: str) -> str:
    """Return the document's name in a reference: without lines, brackets and heading."""
    name = parse_line_range(reference.strip()).name
    linked = re.match(_WIKI_LINK, name)
    name = next(iter(_split_link(linked[1])), "") if linked else name
    return [name, *(part.name for part in _split_heading(ParsedReference(name)))][-1]


def form_of_place(place: str) -> str:
    """Return the form of a place, as in `Kind`."""
    return "!" if "!" in place else re.sub(r"[\d\s=]", "", place.lower()).replace("page", "p")


def _split_place(reference: str) -> Iterator[ParsedReference]:
    """Yield name and place of `report.pdf:p12`, `talk.srt:00:12:40`, `book.xlsx:Sheet1!A1:F40`."""
    match = re.match(_PLACE, reference)
    if match is not None:
        yield ParsedReference(match["name"], heading=match["place"], place=form_of_place(match["place"]))


def _split_link(linked: str) -> list[str]:
    """Return both sides of a link's bar, each once; a note of another Dendron vault with and without the vault."""
    left, _, right = linked.partition("|")
    # In a table the bar is escaped.
    sides = [left.removesuffix("\\").strip(), right.strip()]
    places = [side.removeprefix("dendron://") for side in sides]
    notes = [place.partition("/")[2] for place in places if place not in sides]
    return [side for side in dict.fromkeys((*places, *notes)) if side]


def _split_heading(whole: ParsedReference) -> Iterator[ParsedReference]:
    """Yield name and heading for each of the first `#` that may separate them, the longest name first."""
    for sign in reversed([*islice(re.finditer(r"(?<!\A)#(?!#)", whole.name), _MAX_SIGNS)]):
        name, heading = whole.name[: sign.start()].strip(), whole.name[sign.end() :].strip()
        if name and heading:
            yield replace(whole, name=name, heading=heading)
