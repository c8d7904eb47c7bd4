"""`collection`, `context` and `status`: folders, their descriptions, and the state of the index."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from qmd.cli import completion
from qmd.cli.invocation import Invocation
from qmd.cli.options import Index, Json, NoIgnore
from qmd.cli.output import out, say
from qmd.config.paths import expand_home
from qmd.errors import QmdError, UsageError
from qmd.escapes import LONG_CHARS, address_line, message_line, one_line
from qmd.file_names import to_text
from qmd.masks import DEFAULT_PATTERN

if TYPE_CHECKING:
    from qmd.config.paths import Locations

_Name = Argument(help="Name of the collection.", autocompletion=completion.collections)
Name = Annotated[str, _Name]
_Mask = Option("--glob", "--mask", metavar="GLOB", help="Files to index.")


def list_collections(invocation: Invocation, json: Json = False, index: Index = None) -> int:
    from qmd.render.listings import collections_json, render_collections
    from qmd.times import utc_now

    locations = invocation.locate(index)
    with invocation.open(locations) as opened:
        known = opened.collections()
        counts = opened.status().collections
    if json:
        out(collections_json(known, counts))
    elif invocation.screen:
        from qmd.render.tables import draw_collections

        places = (locations.home, locations.index_name)
        invocation.page(draw_collections(invocation.screen, known, counts, utc_now(), *places, masks=True))
    else:
        out(render_collections(known, counts, utc_now()))
    return 0


def add(
    invocation: Invocation,
    path: Annotated[str, Argument(help="Folder; '.' is this one.")],
    name: Annotated[str | None, Option("--name", metavar="NAME", help="Name [default: the folder's].")] = None,
    mask: Annotated[str, _Mask] = DEFAULT_PATTERN,
    no_ignore: NoIgnore = False,
    index: Index = None,
) -> int:
    from qmd.cli.indexing import change_summary, embed_advice, report_skipped, run_update

    folder = _existing_folder(invocation, path)
    chosen = name or folder.name or "root"
    with invocation.open(invocation.locate(index)) as opened:
        opened.add_collection(chosen, folder, pattern=mask, gitignore=not no_ignore)
        out(f"Creating collection '{chosen}'...\nCollection: {one_line(to_text(folder), LONG_CHARS)} ({mask})\n\n")
        with opened.updating([chosen]) as update:
            report = run_update(invocation, update, update.collections[0])
            n_pending = update.pending()
            report_skipped(update, update.collections[0], report, is_named=True)
    if not report.new + report.unchanged + report.updated:
        out("No files found matching pattern.\n\n")
    out(f"Indexed: {change_summary(report)}\n\n")
    out(embed_advice(invocation, n_pending))
    out(f"✓ Collection '{chosen}' created successfully\n")
    return 0


def _existing_folder(invocation: Invocation, path: str) -> Path:
    # PWD keeps the name of a folder that the user reached through a link.
    given = invocation.environ.get("PWD") or str(invocation.cwd) if path == "." else expand_home(path)
    resolved = (invocation.cwd / given).resolve()
    places = (f"  Received: {path}", f"  Resolved: {to_text(resolved)}")
    if not resolved.exists():
        hint = "Provide an existing directory and run 'qmd collection add <path>' again."
        raise QmdError("Collection path does not exist.", hint, details=places)
    if not resolved.is_dir():
        hint = f"to index a single file: qmd index {path}"
        raise QmdError("Collection path is not a directory.", hint, details=places)
    return resolved


def show(invocation: Invocation, name: Name, index: Index = None) -> int:
    locations = invocation.locate(index)
    with invocation.open(locations) as opened:
        collection = opened.collection(name)
        counts = opened.status().collections if invocation.screen else ()
    if invocation.screen:
        from qmd.render.tables import draw_collection
        from qmd.times import utc_now

        invocation.page(draw_collection(invocation.screen, collection, counts, utc_now()))
    else:
        from qmd.render.listings import render_collection

        out(render_collection(collection))
    return 0


def metadata(
    invocation: Invocation,
    name: Annotated[str | None, _Name] = None,
    field: Annotated[str | None, Argument(help="Show the values of this field.")] = None,
    json: Json = False,
    index: Index = None,
) -> int:
    from msgspec import to_builtins

    from qmd.render.drawing import Screen
    from qmd.render.tables import draw_fields
    from qmd.render.text import json_text

    with invocation.open(invocation.locate(index)) as opened:
        fields = opened.fields(name, field)
    if json:
        out(json_text(to_builtins(fields)))
    else:
        invocation.page(draw_fields(invocation.screen or Screen(), fields))
    return 0


def rename(
    invocation: Invocation,
    old: Annotated[str, Argument(help="Current name.", autocompletion=completion.collections)],
    new: Annotated[str, Argument(help="New name.")],
    index: Index = None,
) -> int:
    with invocation.open(invocation.locate(index)) as opened:
        opened.rename_collection(old, new)
    out(f"✓ Renamed collection '{old}' to '{new}'\n  Virtual paths updated: qmd://{old}/ → qmd://{new}/\n")
    return 0


def change(
    invocation: Invocation,
    name: Name,
    path: Annotated[Path | None, Option("--path", metavar="PATH", help="Its folder, after a move.")] = None,
    mask: Annotated[str | None, _Mask] = None,
    new: Annotated[str | None, Option("--name", metavar="NAME", help="New name.")] = None,
    index: Index = None,
) -> int:
    from qmd.cli.indexing import resolve_existing

    if path is None and not mask and new is None:
        raise invocation.missing("path, glob or name")
    place = path and resolve_existing(invocation, path)
    with invocation.open(invocation.locate(index)) as opened:
        lines = opened.set_collection(name, path=place, pattern=mask, new_name=new)
    out("".join(f"{message_line(line)}\n" for line in lines))
    if path or mask:
        say("next: qmd index")
    return 0


def remove(invocation: Invocation, name: Name, index: Index = None) -> int:
    with invocation.open(invocation.locate(index)) as opened:
        folder = opened.collection(name).path
        n_documents = opened.remove_collection(name)
    if invocation.screen:
        from qmd.render.columns import count

        out(f"Removed '{name}' from the index ({count(n_documents, 'note')}). The files stay.\n")
        return 0
    out(f"✓ Removed collection '{name}'\n  Deleted {n_documents} documents\n")
    say(f"the files in {to_text(folder)} stay")
    return 0


def include(invocation: Invocation, name: Name, index: Index = None) -> int:
    return _set_included(invocation, name, index, True)


def exclude(invocation: Invocation, name: Name, index: Index = None) -> int:
    return _set_included(invocation, name, index, False)


def _set_included(invocation: Invocation, name: str, index: str | None, included: bool) -> int:
    with invocation.open(invocation.locate(index)) as opened:
        opened.set_included(name, included)
    out(f"✓ Collection '{name}' {'included in' if included else 'excluded from'} default queries\n")
    return 0


def update_command(
    invocation: Invocation,
    name: Name,
    words: Annotated[list[str] | None, Argument(metavar="[COMMAND]…", help="Without a command: clear it.")] = None,
    index: Index = None,
) -> int:
    command = " ".join(words or ())
    with invocation.open(invocation.locate(index)) as opened:
        opened.set_update_command(name, command)
    out(f"✓ Set update command for '{name}': {command}\n" if command else f"✓ Cleared update command for '{name}'\n")
    return 0


OneCollection = Annotated[
    str | None,
    Option(
        "-c",
        "--collection",
        metavar="NAME",
        help="The path is inside this collection.",
        autocompletion=completion.collections,
    ),
]


def add_context(
    invocation: Invocation,
    words: Annotated[list[str], Argument(metavar='[PATH] "TEXT"', help="Path and text.")],
    collection: OneCollection = None,
    index: Index = None,
) -> int:
    path, text = (words[0], " ".join(words[1:])) if len(words) > 1 else (".", words[0])
    if not text.strip():
        raise UsageError("the text of the context is empty", "qmd context add /path 'describe the folder'")
    with invocation.open(invocation.locate(index)) as opened:
        if path == "/" and collection is None:
            opened.set_global_context(text)
            out(f"✓ Set global context\nContext: {text}\n")
            return 0
        name, prefix = opened.locate_path(path, collection)
        opened.add_context(name, prefix, text)
    out(f"✓ Added context for: {_address(name, prefix)}\nContext: {text}\n")
    return 0


def remove_context(
    invocation: Invocation,
    path: Annotated[str, Argument(help="Path of the context; '/' is the global one.")],
    collection: OneCollection = None,
    index: Index = None,
) -> int:
    with invocation.open(invocation.locate(index)) as opened:
        if path == "/" and collection is None:
            opened.set_global_context(None)
            out("✓ Removed global context\n")
            return 0
        name, prefix = opened.locate_path(path, collection)
        opened.remove_context(name, prefix)
    out(f"✓ Removed context for: {_address(name, prefix)}\n")
    return 0


def list_contexts(invocation: Invocation, index: Index = None) -> int:
    from qmd.render.listings import render_contexts

    with invocation.open(invocation.locate(index)) as opened:
        notes = opened.contexts()
    invocation.page(render_contexts(notes))
    return 0


def check_contexts(invocation: Invocation, index: Index = None) -> int:
    with invocation.open(invocation.locate(index)) as opened:
        places = opened.paths_without_context()
    lines = [
        f"{address_line(f'qmd://{name}/{folder}')}/ has no context of its own"
        if folder
        else f"qmd://{name}/ has no context"
        for name, folder in places
    ]
    tip = '\nTo add one: qmd context add qmd://<collection>/<folder> "describe the folder"'
    lines.append(tip if lines else "✓ Every collection and top-level folder has a context")
    out("\n".join(lines) + "\n")
    return 0


def _address(name: str, prefix: str) -> str:
    return f"qmd://{name}/{prefix}" if prefix else f"qmd://{name}/ (collection root)"


def status(
    invocation: Invocation,
    json: Json = False,
    problems: Annotated[
        bool, Option("--problems", help="List files that could not be read completely, and why.")
    ] = False,
    index: Index = None,
) -> int:
    from qmd.render.listings import StatusReport, render_problems, render_status, status_json
    from qmd.times import utc_now

    locations = invocation.locate(index)
    with invocation.open(locations) as opened:
        counts, collections = opened.status(), opened.indexed_collections()
    if problems:
        out(render_problems(counts.problems, as_json=json))
        return 0
    report = StatusReport(counts, collections, _daemon_pid(locations))
    if json:
        out(status_json(report))
    elif invocation.screen:
        from qmd.render.tables import draw_status

        invocation.page(draw_status(invocation.screen, report, utc_now(), locations.home, locations.index_name))
    else:
        out(render_status(report, utc_now()))
    return 0


def _daemon_pid(locations: Locations) -> int | None:
    """Return the process of a running `qmd mcp --http`; without a pid file its module is not imported."""
    if not any(locations.cache.glob("mcp*.pid")):
        return None
    from qmd.plugins import hooks

    return hooks.server_of(locations)
