"""Collections, files and status, drawn for a terminal; `qmd.render.listings` has the forms for programs."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from qmd.app.records import Listing
from qmd.escapes import one_line
from qmd.file_names import folded_home, to_disk
from qmd.records import Collection
from qmd.render.columns import (
    ElidedText,
    count,
    elide_path,
    facts,
    heading,
    in_index,
    indented,
    mark,
    shown,
    state,
    tabulate,
)
from qmd.render.drawing import NARROWEST, Screen, draw, paint
from qmd.render.listings import StatusReport, collection_facts, counts_of, listing_time, mask
from qmd.render.terminal import Styled, hyperlink, join_styled
from qmd.render.text import human_size, relative_time
from qmd.status import CollectionStatus, fact_lines

if TYPE_CHECKING:
    from datetime import datetime

    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

    from qmd.app.fields import Field

_SKIPPED_SHOWN = 3
_CELL = 60
_FIRST_STEP = "qmd index ~/notes"


def draw_collections(
    screen: Screen,
    collections: Sequence[Collection],
    counts: Sequence[CollectionStatus],
    now: datetime,
    home: Path,
    index_name: str = "index",
    *,
    masks: bool = False,
) -> Styled:
    """Draw `ls` without an argument or, with the masks, `collection list`."""
    if not collections:
        return draw(screen, _missing("nothing is indexed yet", _FIRST_STEP, index_name))
    rows: list[Sequence[RenderableType]] = []
    for one in collections:
        rows.append([*_indexed(one, counts, now), "", _folder(one.path, home), shown(mask(one)) if masks else ""])
        if not one.include_by_default:
            rows.append([shown("only when named", "faint")])
    return draw(screen, _collection_table(rows))


def _indexed(one: Collection, counts: Sequence[CollectionStatus], now: datetime) -> list[RenderableType]:
    """Return the name of a collection, its number of files and the time of its update."""
    n_files, updated_at = counts_of(one, counts)
    return [ElidedText(one.name, style="title"), f"{n_files:,}", relative_time(updated_at, now)]


def _collection_table(rows: Sequence[Sequence[RenderableType]]) -> Table:
    heads = ("Collection", "Files", "Updated", "Contexts", "Folder", "Files taken")
    return tabulate(heads, rows, right=("Files", "Contexts"), fold=("Collection", "Folder", "Files taken"))


def _folder(path: Path, home: Path) -> RenderableType:
    if not path.exists():
        return shown(f"{folded_home(path, home)} (missing)", "bad")
    # On macOS a folder with a suffix is an application.
    return ElidedText(folded_home(path, home), path.as_uri() if path.is_dir() and not path.suffix else None)


def draw_collection(
    screen: Screen,
    collection: Collection,
    counts: Sequence[CollectionStatus],
    now: datetime,
) -> Styled:
    """Draw `collection show`: settings, contexts and number of files."""
    n_files, updated_at = counts_of(collection, counts)
    rows: list[tuple[str, RenderableType]] = [(name, shown(value)) for name, value in collection_facts(collection)]
    if collection.context:
        notes = [(ElidedText(prefix or "/", style="path"), shown(text)) for prefix, text in collection.context.items()]
        rows[-1] = ("Contexts", tabulate(("", " "), notes, fold=("", " ")))
    rows.append(("Indexed", shown(f"{count(n_files, 'file')}, updated {relative_time(updated_at, now)}")))
    return draw(screen, heading(collection.name), indented(facts(rows)))


def draw_files(
    screen: Screen, found: Listing, folder: Path | None, link: Callable[[str, int], str], now: datetime
) -> Styled:
    """Draw `ls` of a collection: size, time and path of each file, with a link to it if `folder` is known."""
    documents = found.documents
    place = f"{found.collection}/{found.prefix}"
    below = f"{folder if folder.is_dir() else folder.parent}{os.sep}" if folder is not None else None
    total = human_size(sum(document.size for document in documents))
    sizes = [human_size(one.size) for one in documents]
    times = [listing_time(one.modified_at, now) for one in documents]
    size_width, time_width = (max(map(len, column)) for column in (("Size", *sizes), ("Changed", *times)))
    width = max(screen.width, NARROWEST) - size_width - time_width - 4
    lines: list[str] = [paint(screen, f"{'Size':>{size_width}}  {'Changed':<{time_width}}  File", "faint"), "\n"]
    for size, changed, one in zip(sizes, times, documents, strict=True):
        folders, separator, name = elide_path(one_line(one.path), width).rpartition("/")
        shown_path = join_styled([paint(screen, folders + separator, "path"), name])
        if below is not None and screen.colours and (target := link(below + to_disk(one.path), 1)):
            shown_path = hyperlink(shown_path, target)
        before = paint(screen, f"{changed:<{time_width}}  ", "faint")
        lines += [f"{size:>{size_width}}  ", before, shown_path, "\n"]
    return join_styled([draw(screen, heading(place, f"{count(len(documents), 'file')}, {total}"), ""), *lines])


def draw_fields(screen: Screen, fields: Sequence[Field]) -> Styled:
    """Draw `collection metadata`: fields with types, notes and first values, or the values of one field."""
    if len(fields) == 1:
        rows = ((ElidedText(value, is_path=False), f"{notes:,}") for value, notes in fields[0].values.items())
        return draw(screen, tabulate(("Value", "Notes"), rows, ("Notes",), ("Value",)))
    cells = ((one.field, ", ".join(one.types), f"{one.notes:,}", ", ".join(one.values)) for one in fields)
    drawn = ([shown(cell if len(cell) <= _CELL else f"{cell[:_CELL]}…") for cell in row] for row in cells)
    return draw(screen, tabulate(("Field", "Type", "Notes", "Values"), drawn, ("Notes",), ("Values",)))


def draw_status(screen: Screen, report: StatusReport, now: datetime, home: Path, index_name: str = "index") -> Styled:
    """Draw `status`: the state of the index, and the command for each missing part."""
    index = report.index
    place = index.address or folded_home(index.path, home)
    rows: list[tuple[str, RenderableType]] = [
        ("Index", tabulate(("", " "), [(ElidedText(place), shown(human_size(index.size_bytes), "faint"))], fold=("",))),
        ("Words", _words(report, now, index_name)),
        ("Vectors", _vectors(report, now, index_name)),
    ]
    for label, value in fact_lines(index):
        is_problem = label == "Problems"
        rows.append((label, _missing(value, "qmd status --problems", index_name) if is_problem else shown(value)))
    if report.daemon_pid is not None:
        rows.append(("Server", shown(f"running, process {report.daemon_pid}")))
    parts: list[RenderableType] = [facts(rows)]
    if report.collections:
        known = [
            [
                *_indexed(one, index.collections, now),
                f"{len(one.context)}" if one.context else shown("–", "faint"),
                _folder(one.path, home),
            ]
            for one in report.collections
        ]
        parts += ["", _collection_table(known)]
    if index.left_out:
        parts += ["", heading("Skipped", count(len(index.left_out), "file"))]
        parts.append(indented(_skipped_files(report)))
    return draw(screen, *parts)


def _words(report: StatusReport, now: datetime, index_name: str) -> Text:
    index = report.index
    if not index.documents:
        return _missing("nothing is indexed yet", "qmd update" if report.collections else _FIRST_STEP, index_name)
    return state("good", f"{count(index.documents, 'file')}, updated {relative_time(index.updated_at, now)}")


def _vectors(report: StatusReport, now: datetime, index_name: str) -> Text:
    index = report.index
    if not index.documents:
        return state("faint", "none yet")
    run = index.holder
    if run is not None:
        began = relative_time(run.started_at, now)
        what = f"being computed: {run.state}" if run.task.computes else f"in use for {run.task.work} the index"
        return state("warning", f"{what} ({run.who}, began {began})")
    if not index.pending_documents:
        return state("good", f"complete, {count(index.chunks, 'passage')}")
    if not index.vectors:
        return _missing("none yet", "qmd embed", index_name)
    return _missing(
        f"{count(index.pending_documents, 'text')} without, of {index.documents:,}", "qmd embed", index_name
    )


def _missing(text: str, command: str, index_name: str) -> Text:
    """Return a warning and the command that resolves it."""
    return state("warning", f"{text}: ").append_text(shown(in_index(command, index_name), "command"))


def _skipped_files(report: StatusReport) -> Table:
    files = report.index.left_out
    rows: list[Sequence[RenderableType]] = []
    for one in files[:_SKIPPED_SHOWN]:
        rows.append((mark("warning"), shown(one.collection), ElidedText(one.reason, is_path=False)))
    if len(files) > _SKIPPED_SHOWN:
        more = shown(f"and {len(files) - _SKIPPED_SHOWN:,} more", "faint")
        rows.append((shown(""), more, shown("qmd status --problems", "command")))
    return tabulate(("", " ", "  "), rows, fold=(" ", "  "))
