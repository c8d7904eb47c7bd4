"""What the index holds, drawn for a terminal; the forms that programs read are in `qmd.render.listings`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from qmd.app.records import ContextNote, Listing
from qmd.names import to_disk
from qmd.records import Collection
from qmd.render.columns import (
    Elided,
    columns,
    count,
    elide_path,
    facts,
    folded_home,
    heading,
    indented,
    mark,
    next_steps,
    shown,
    state,
)
from qmd.render.drawing import NARROWEST, Screen, draw, paint
from qmd.render.listings import StatusReport, listing_time
from qmd.render.terminal import Styled, hyperlink, join_styled, visible, visible_name
from qmd.render.text import human_size, relative_time
from qmd.status import CollectionStatus

if TYPE_CHECKING:
    from datetime import datetime

    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

_LEFT_OUT_SHOWN = 10
_FIRST_STEP = ("qmd index ~/notes", "make a folder searchable")


def draw_collection_names(
    screen: Screen,
    collections: Sequence[Collection],
    counts: Mapping[str, CollectionStatus],
    now: datetime,
    home: Path,
    index_name: str = "index",
) -> Styled:
    """`ls` without an argument."""
    if not collections:
        return _nothing_yet(screen, index_name)
    steps = [(f"qmd ls {quote(collections[0].name)}", "list the files of a collection")]
    return draw(screen, _collection_table(collections, counts, now, home), *next_steps(steps, index_name))


def draw_collections(
    screen: Screen,
    collections: Sequence[Collection],
    counts: Mapping[str, CollectionStatus],
    now: datetime,
    home: Path,
    index_name: str = "index",
) -> Styled:
    """`collection list`."""
    if not collections:
        return _nothing_yet(screen, index_name)
    steps = [(f"qmd collection show {quote(collections[0].name)}", "all settings of a collection")]
    missing = [one for one in collections if not one.path.exists()]
    steps += [(f"qmd collection remove {quote(one.name)}", "its folder is gone") for one in missing]
    table = _collection_table(collections, counts, now, home, masks=True)
    return draw(screen, table, *next_steps(steps, index_name))


def _nothing_yet(screen: Screen, index_name: str) -> Styled:
    return draw(screen, shown("Nothing is indexed yet."), *next_steps([_FIRST_STEP], index_name))


def _collection_table(
    collections: Sequence[Collection],
    counts: Mapping[str, CollectionStatus],
    now: datetime,
    home: Path,
    *,
    masks: bool = False,
) -> Table:
    heads = ("Collection", "Files", "Updated", "Folder", *(("Files taken",) if masks else ()))
    table = columns(*heads, right=("Files",), fold=("Collection", "Folder", "Files taken"))
    for one in collections:
        found = counts.get(one.name)
        name = Elided(one.name, style="title")
        updated = relative_time(found.updated_at if found else None, now)
        row: list[RenderableType] = [name, f"{found.documents if found else 0:,}", updated, _folder(one.path, home)]
        if masks:
            row.append(shown(_mask(one)))
        table.add_row(*row)
        if not one.include_by_default:
            table.add_row(shown("only when named", "faint"))
    return table


def _mask(collection: Collection) -> str:
    without = f", not {', '.join(collection.ignore)}" if collection.ignore else ""
    return collection.pattern + without + _also(collection)


def _also(collection: Collection) -> str:
    return "" if collection.gitignore else ", also what git ignores"


def _folder(path: Path, home: Path) -> RenderableType:
    if not path.exists():
        return shown(f"{folded_home(path, home)} (missing)", "bad")
    # On macOS a folder with an ending is a program.
    return Elided(folded_home(path, home), path.as_uri() if path.is_dir() and not path.suffix else None)


def draw_collection(
    screen: Screen,
    collection: Collection,
    status: CollectionStatus | None,
    now: datetime,
    home: Path,
    index_name: str = "index",
) -> Styled:
    """`collection show`."""
    files = count(status.documents if status else 0, "file")
    rows: list[tuple[str, RenderableType]] = [
        ("Folder", _folder(collection.path, home)),
        ("Files taken", shown(collection.pattern + _also(collection))),
        ("Indexed", shown(f"{files}, updated {relative_time(status.updated_at if status else None, now)}")),
        ("Searched", shown("by default" if collection.include_by_default else "only when named: -c NAME")),
    ]
    if collection.ignore:
        rows.append(("Left out", shown(", ".join(collection.ignore))))
    if collection.update_command:
        rows.append(("Updated by", shown(collection.update_command, "command")))
    if collection.context:
        rows.append(("Contexts", _context_table(collection.context)))
    steps = [] if collection.context else [_context_step(collection.name)]
    steps.append((f"qmd ls {quote(collection.name)}", "its files"))
    return draw(screen, heading(collection.name), indented(facts(rows)), *next_steps(steps, index_name))


def _context_step(name: str) -> tuple[str, str]:
    return f"qmd context add {quote(f'qmd://{name}/')} 'what is there'", "results show it"


def _context_table(notes: Mapping[str, str]) -> Table:
    from rich.text import Text

    table = columns("", " ", fold=("", " "))
    for prefix, text in notes.items():
        table.add_row(Elided(prefix or "/", style="path"), Text(visible(text)))
    return table


def draw_files(
    screen: Screen, found: Listing, folder: Path | None, link: Callable[[str, int], str], now: datetime
) -> Styled:
    """`ls` of a collection: size, time and path of each file, which is a link to it where `folder` is known."""
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
        folders, separator, name = elide_path(visible_name(one.path), width).rpartition("/")
        shown_path = join_styled([paint(screen, folders + separator, "path"), name])
        if below is not None and screen.colours and (target := link(below + to_disk(one.path), 1)):
            shown_path = hyperlink(shown_path, target)
        before = paint(screen, f"{changed:<{time_width}}  ", "faint")
        lines += [f"{size:>{size_width}}  ", before, shown_path, "\n"]
    return join_styled([draw(screen, heading(place, f"{count(len(documents), 'file')}, {total}"), ""), *lines])


def draw_contexts(screen: Screen, notes: Sequence[ContextNote], index_name: str = "index") -> Styled:
    """`context list`."""
    if not notes:
        step = ("qmd context add qmd://NAME/ 'what is there'", "results show it, which helps people and agents")
        return draw(screen, shown("There are no contexts yet."), *next_steps([step], index_name))
    parts: list[RenderableType] = []
    for name in dict.fromkeys(note.collection for note in notes):
        own = {note.prefix: note.text for note in notes if note.collection == name}
        parts += [*([""] if parts else []), heading(name or "Everything"), indented(_context_table(own))]
    return draw(screen, *parts)


# --- status ---------------------------------------------------------------------------------------


def draw_status(screen: Screen, report: StatusReport, now: datetime, home: Path, index_name: str = "index") -> Styled:
    """`status`: what there is, whether it is complete, and what to do next."""
    index = report.index
    rows: list[tuple[str, RenderableType]] = [
        ("Index", _index_file(report, home)),
        ("Words", _words(report, now)),
        ("Vectors", _vectors(report, now)),
    ]
    if report.daemon_pid is not None:
        rows.append(("Server", shown(f"running, process {report.daemon_pid}")))
    parts: list[RenderableType] = [facts(rows)]
    if report.collections:
        counts = {one.name: one for one in index.collections}
        parts += ["", _status_table(report, counts, now, home)]
    if index.left_out:
        parts += ["", heading("Left out", count(len(index.left_out), "file"))]
        parts.append(indented(_left_out(report)))
    return draw(screen, *parts, *next_steps(_status_steps(report), index_name))


def _index_file(report: StatusReport, home: Path) -> RenderableType:
    index = report.index
    path = index.address or folded_home(index.path, home)
    table = columns("", " ", fold=("",))
    table.add_row(Elided(path), shown(human_size(report.index.size_bytes), "faint"))
    return table


def _words(report: StatusReport, now: datetime) -> Text:
    index = report.index
    if not index.documents:
        return state("warning", "nothing is indexed yet")
    return state("good", f"{count(index.documents, 'file')}, updated {relative_time(index.updated_at, now)}")


def _vectors(report: StatusReport, now: datetime) -> Text:
    index = report.index
    if not index.documents:
        return state("faint", "none yet")
    run = index.holder
    if run is not None:
        began = relative_time(run.started_at, now)
        what = f"being computed: {run.state}" if run.computes else f"in use for {run.work} the index"
        return state("warning", f"{what} ({run.who}, began {began})")
    if not index.pending_documents:
        return state("good", f"complete, {count(index.chunks, 'passage')}")
    if not index.vectors:
        return state("warning", "none yet: words are searchable, meaning is not")
    return state("warning", f"{count(index.pending_documents, 'text')} without, of {index.documents:,}")


def _status_table(
    report: StatusReport, counts: Mapping[str, CollectionStatus], now: datetime, home: Path
) -> RenderableType:
    heads = ("Collection", "Files", "Updated", "Contexts", "Folder")
    table = columns(*heads, right=("Files", "Contexts"), fold=("Collection", "Folder"))
    for one in report.collections:
        found = counts.get(one.name)
        table.add_row(
            Elided(one.name, style="title"),
            f"{found.documents if found else 0:,}",
            relative_time(found.updated_at if found else None, now),
            f"{len(one.context)}" if one.context else shown("–", "faint"),
            _folder(one.path, home),
        )
    return table


def _left_out(report: StatusReport) -> Table:
    table = columns("", " ", "  ", fold=(" ", "  "))
    for one in report.index.left_out[:_LEFT_OUT_SHOWN]:
        table.add_row(mark("warning"), shown(one.collection), shown(one.reason))
    n_more = len(report.index.left_out) - _LEFT_OUT_SHOWN
    if n_more > 0:
        table.add_row("", shown(f"and {n_more:,} more", "faint"), shown("qmd status --json", "command"))
    return table


def _status_steps(report: StatusReport) -> list[tuple[str, str]]:
    index = report.index
    if not index.documents:
        return [_FIRST_STEP if not report.collections else ("qmd update", "read the files of the collections")]
    is_waiting = index.pending_documents and index.embedding is None
    steps = [("qmd embed", "compute the missing vectors")] if is_waiting else []
    bare = [one.name for one in report.collections if not one.context]
    if bare:
        steps.append(_context_step(bare[0]))
    return steps or [('qmd query "how do I …"', "ask your notes")]
