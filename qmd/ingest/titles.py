"""The title of a note."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct

from qmd.file_names import OF_THE_FOLDER, file_name, is_common, is_telling
from qmd.ingest.markdown import MAX_HEADING_CHARACTERS, Structure, plain_text
from qmd.records import Heading, MetadataValue

_ORG_TITLE = re.compile(r"^#\+TITLE:[ \t]*(\S[^\n]*)", re.M | re.I)


class Title(Struct, frozen=True):
    """A note's title and what it was taken from; `file` for its name or its folder's."""

    text: str
    source: Literal["front matter", "heading", "file"]


def title_of(
    path: str, text: str, structure: Structure, headings: Sequence[Heading], metadata: Mapping[str, MetadataValue]
) -> Title:
    """The title: front matter, else a heading of level 1 that stands above the whole text, else the file's name.

    A file name that says nothing (`index`, `3f9a01c2`, `12`) gives way to the first heading of level 1 or 2, and that
    of an index to its folder's name. Whether a heading names many notes alike only the index knows.
    """
    named = metadata.get("title")
    if isinstance(named, (str, int, float)) and not isinstance(named, bool) and str(named).strip():
        return Title(plain_text(" ".join(str(named).split())), "front matter")
    if structure == "org":
        match = _ORG_TITLE.search(text)
        if match:
            return Title(match[1].strip()[:MAX_HEADING_CHARACTERS], "heading")
    name = file_name(path)
    heading = _top_heading(headings) if structure != "plain" else None
    if heading is None and structure != "plain" and not is_telling(name):
        heading = next((h.text for h in headings if h.level <= 2 and not is_common(h.text)), None)
    if heading is not None:
        return Title(heading, "heading")
    folder = path.rpartition("/")[0].rpartition("/")[2]
    return Title(folder if folder and name.casefold() in OF_THE_FOLDER else name, "file")


def _top_heading(headings: Sequence[Heading]) -> str | None:
    """The text's one heading of level 1, where no other precedes it; several of them are the parts of a text."""
    if not headings or headings[0].level != 1 or is_common(headings[0].text):
        return None
    return headings[0].text if all(heading.level > 1 for heading in headings[1:]) else None
