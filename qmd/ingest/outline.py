"""How a text is laid out: its front matter, headings and fenced code. All that a search has to know of it."""

from __future__ import annotations

from msgspec import Struct

from qmd.ingest.fences import Span
from qmd.ingest.frontmatter import FrontMatter, read_front_matter
from qmd.ingest.markdown import Structure, find_headings, structure_of
from qmd.records import Heading


class Outline(Struct, frozen=True):
    """The parts of a text; of one that is no markdown the front matter is empty."""

    structure: Structure
    front: FrontMatter
    headings: tuple[Heading, ...]
    fences: tuple[Span, ...]


def read_outline(path: str, text: str) -> Outline:
    """The outline of a text in the format that its path tells."""
    structure = structure_of(path)
    front = read_front_matter(text) if structure == "markdown" else FrontMatter()
    headings, fences = find_headings(text, front.body_offset, structure)
    return Outline(structure, front, headings, fences)
