"""`links` and `related`: connections of a note."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from typer import Argument

from qmd.cli import completion
from qmd.cli.invocation import Invocation
from qmd.cli.options import Collections, Index, Json, Limit
from qmd.cli.output import out
from qmd.render.text import json_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from qmd.records import StoredDocument

_RELATED = 10

Note = Annotated[list[str], Argument(help="Name, path, link or #docid of a note.", autocompletion=completion.documents)]


def links(invocation: Invocation, note: Note, json: Json = False, index: Index = None) -> int:
    reference = " ".join(note)
    locations = invocation.locate(index)
    with invocation.open(locations) as opened:
        found = opened.links(reference, folder=invocation.cwd)
        invocation.warn_each(locations, found.warnings)
        if invocation.screen and not json:
            from qmd.render.links import draw_links

            others = [one.document for one in (*found.outgoing, *found.incoming) if one.document is not None]
            links = opened.openers([(one, 1) for one in (found.document, *others)])
            invocation.page(draw_links(invocation.screen, found, links))
            return 0

    from qmd.render.links import links_object, render_links

    name_of = _name_in(locations.index_name)
    out(json_text(links_object(found, name_of)) if json else render_links(found, name_of))
    return 0


def related(
    invocation: Invocation,
    note: Note,
    n: Limit = None,
    collection: Collections = None,
    json: Json = False,
    index: Index = None,
) -> int:
    reference = " ".join(note)
    locations = invocation.locate(index)
    with invocation.open(locations) as opened:
        found = opened.related(reference, limit=n or _RELATED, collections=collection or None, folder=invocation.cwd)
        if invocation.screen and not json:
            links = opened.openers([(one, 1) for one in (found.document, *(note.document for note in found.notes))])

    invocation.warn_each(locations, found.warnings)
    if invocation.screen and not json:
        from qmd.render.links import draw_related

        invocation.page(draw_related(invocation.screen, found, links))
        return 0
    from qmd.render.links import related_rows, render_related

    name_of = _name_in(locations.index_name)
    out(json_text(related_rows(found.notes, name_of)) if json else render_related(found, name_of))
    return 0


def _name_in(index_name: str) -> Callable[[StoredDocument], str]:
    """Return the function that names a document of an index."""
    from qmd.render.formats import file_identifier

    return lambda document: file_identifier(document.uri, index_name)
