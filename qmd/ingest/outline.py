"""Structure of a text as far as a search needs it: front matter, headings and fenced code."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from msgspec import Struct, field

from qmd.file_names import suffix_of
from qmd.ingest.markdown import FrontMatter, Span, find_headings
from qmd.plugins import KINDS, Kind, find, load
from qmd.records import Heading, Link

UNKNOWN = Kind(KINDS[""].outline)
"""Kind of a file whose ending has no row: plain text until a row is installed."""


class Outline(Struct, frozen=True):
    """Parts of a text."""

    front: FrontMatter = field(default_factory=FrontMatter)
    headings: tuple[Heading, ...] = ()
    fences: tuple[Span, ...] = ()
    """Code between its marks, which is no prose."""
    title: str | None = None
    """Title in the text outside its front matter and headings."""
    links: tuple[Link, ...] = ()
    """Links that are not markdown."""
    labels: tuple[str, ...] = ()
    """Names of places in it, as link targets."""


def kind_of(path: str) -> Kind:
    """Return the kind of a file by the ending of its name; `UNKNOWN` if no row has it."""
    return find(KINDS, suffix_of(path)) or UNKNOWN


def read_outline(kind: Kind, text: str) -> Outline:
    """Return the outline of a text of this kind."""
    # `tests/plugins/test_hooks.py` checks the signature that each row names.
    return cast("Callable[[str], Outline]", load(kind.outline))(text)


def outline_passage(kind: Kind, text: str) -> Outline:
    """Return the outline of a part of a text, in which nothing is front matter."""
    return Outline(FrontMatter(), *find_headings(text)) if kind.is_markdown else read_outline(kind, text)


def outline_text(text: str) -> Outline:
    """Return the outline of a text without marks of its own, in which `#` may be a comment."""
    return Outline()


def outline_markdown(text: str) -> Outline:
    """Return the outline of markdown."""
    # The first page property of Logseq has its mark within these characters.
    if not text.startswith(("---", "+++")) and ":: " not in text[:100]:
        return Outline(FrontMatter(), *find_headings(text))
    from qmd.ingest.frontmatter import read_front_matter

    front = read_front_matter(text)
    return Outline(front, *find_headings(text, front.body_offset))
