"""`open`, `links` and `related`: what is done with one note."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from qmd.cli import completion
from qmd.cli.invocation import Invocation
from qmd.cli.options import Collections, Index, Json, Limit, positive_number
from qmd.cli.output import out, warn
from qmd.render.text import json_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from qmd.records import StoredDocument

_MOST_DIGITS = 4
"""Of a number that means a hit; a docid has six, and a longer name of digits is a note's."""

_RELATED = 10

_Target = Annotated[
    list[str] | None,
    Argument(
        metavar="<note>",
        help="Name, path, address or #docid, or the number of a hit; :LINE goes to a line.",
        autocompletion=completion.documents,
    ),
]
_Print = Annotated[bool, Option("--print", help="Print the command that would run instead.")]


def open_note(invocation: Invocation, note: _Target = None, print_only: _Print = False, index: Index = None) -> int:
    """Open a note where it can be edited."""
    from qmd.app.disk_paths import recall_hit
    from qmd.app.launching import launch, plan_opening

    reference = " ".join(note or ())
    if not reference:
        raise invocation.missing_argument()
    locations = invocation.locate(index)
    line = None
    if reference.isascii() and reference.isdigit() and len(reference) <= _MOST_DIGITS:
        reference, line = recall_hit(locations, int(reference))
    with invocation.open(locations) as opened:
        found = opened.get(reference, max_lines=1)
        plan = plan_opening(opened, found.document, line or found.first_line, invocation.environ)
    if print_only:
        out(f"{plan}\n")
    else:
        launch(plan)
    return 0


Note = Annotated[
    list[str] | None, Argument(help="Name, path, address or #docid of a note.", autocompletion=completion.documents)
]


def links(invocation: Invocation, note: Note = None, json: Json = False, index: Index = None) -> int:
    """List the links in a note and to it."""
    reference = " ".join(note or ())
    if not reference:
        raise invocation.missing_argument()
    locations = invocation.locate(index)
    with invocation.open(locations) as opened:
        found = opened.links(reference)
        if invocation.screen and not json:
            from qmd.render.links import draw_links

            others = [one.document for one in (*found.outgoing, *found.incoming) if one.document is not None]
            links = opened.openers([(one, 1) for one in (found.document, *others)])
            invocation.page(draw_links(invocation.screen, found, links, locations.index_name))
            return 0

    from qmd.render.links import links_object, render_links

    name_of = _name_in(locations.index_name)
    out(json_text(links_object(found, name_of)) if json else render_links(found, name_of))
    return 0


def related(
    invocation: Invocation,
    note: Note = None,
    n: Limit = None,
    collection: Collections = None,
    json: Json = False,
    index: Index = None,
) -> int:
    """List the notes nearest to a note."""
    reference = " ".join(note or ())
    if not reference:
        raise invocation.missing_argument()
    locations = invocation.locate(index)
    with invocation.open(locations) as opened:
        found = opened.related(reference, limit=positive_number(n, "-n", _RELATED), collections=collection or None)
        if invocation.screen and not json:
            links = opened.openers([(one, 1) for one in (found.document, *(note.document for note in found.notes))])

    for warning in found.warnings:
        warn(warning)
    if invocation.screen and not json:
        from qmd.render.links import draw_related

        invocation.page(draw_related(invocation.screen, found, links, locations.index_name))
        return 0
    from qmd.render.links import related_rows, render_related

    name_of = _name_in(locations.index_name)
    out(json_text(related_rows(found.notes, name_of)) if json else render_related(found, name_of))
    return 0


def _name_in(index_name: str) -> Callable[[StoredDocument], str]:
    """What a document of an index is called."""
    from qmd.render.formats import file_identifier

    return lambda document: file_identifier(document.uri, index_name)
