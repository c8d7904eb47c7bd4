"""`collection …`: which folders are searched."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from qmd.cli import completion
from qmd.cli.options import Index, Json
from qmd.cli.session import Session, current_config, open_current_writer, out
from qmd.config.paths import expand_home
from qmd.config.settings import DEFAULT_PATTERN, load_config
from qmd.errors import NotFoundError, QmdError
from qmd.names import to_text
from qmd.workspace.collections import require_collection

if TYPE_CHECKING:
    from collections.abc import Mapping

    from qmd.config.paths import Locations
    from qmd.config.settings import Config
    from qmd.records import CollectionStatus

Name = Annotated[str | None, Argument(help="Name of the collection.", autocompletion=completion.collections)]
Mask = Annotated[str, Option("--mask", "--glob", metavar="GLOB", help="Which files.")]


def list_collections(session: Session, json: Json = False, index: Index = None) -> int:
    """List the collections."""
    from datetime import UTC, datetime

    from qmd.render.listings import collections_json, render_collections

    locations = session.locate(index)
    known = current_config(locations).collections
    counts = collection_counts(locations)
    out(collections_json(known, counts) if json else render_collections(known, counts, datetime.now(UTC)))
    return 0


def collection_counts(locations: Locations) -> Mapping[str, CollectionStatus]:
    """Counts by collection; empty before anything is indexed."""
    if not locations.database.exists():
        return {}
    from qmd.store import open_reader

    try:
        with open_reader(locations.database) as reader:
            return {count.name: count for count in reader.status(None).collections}
    except NotFoundError:
        # The place is another program's, and there is nothing beside it yet.
        return {}


def add(
    session: Session,
    path: Annotated[str | None, Argument(help="Folder; '.' is this one.")] = None,
    name: Annotated[str | None, Option("--name", metavar="NAME", help="Name [default: the folder's].")] = None,
    mask: Mask = DEFAULT_PATTERN,
    index: Index = None,
) -> int:
    """Add a folder and index its words."""
    from qmd.cli.indexing import change_summary, embed_advice, remember_trust, run_update
    from qmd.config.edits import add_collection
    from qmd.workspace.collections import check_name

    if not path:
        raise session.missing_argument()
    locations = session.locate(index)
    folder = _existing_folder(session, path)
    config = load_config(locations)
    chosen = name or folder.name or "root"
    check_name(chosen)
    _refuse_duplicate(config, chosen, folder, mask)
    config = add_collection(locations, chosen, folder, mask)
    remember_trust(locations)
    out(f"Creating collection '{chosen}'...\nCollection: {to_text(folder)} ({mask})\n\n")
    with open_current_writer(locations, config) as writer:
        report = run_update(writer, require_collection(config, chosen))
        n_pending = writer.status(None).pending_documents
    if not report.new + report.unchanged + report.updated:
        out("No files found matching pattern.\n\n")
    out(f"Indexed: {change_summary(report)}\n\n")
    out(embed_advice(n_pending))
    out(f"✓ Collection '{chosen}' created successfully\n")
    return 0


def _existing_folder(session: Session, path: str) -> Path:
    # The shell's idea of the current folder keeps the name by which the user reached it.
    given = session.environ.get("PWD") or str(session.cwd) if path == "." else expand_home(path)
    resolved = (session.cwd / given).resolve()
    if not resolved.exists():
        raise QmdError(
            f"Collection path does not exist.\n  Received: {path}\n  Resolved: {to_text(resolved)}",
            "Provide an existing directory and run 'qmd collection add <path>' again.",
        )
    if not resolved.is_dir():
        raise QmdError(
            f"Collection path is not a directory.\n  Received: {path}\n  Resolved: {to_text(resolved)}",
            f"for a single file run: qmd index {path}",
        )
    return resolved


def _refuse_duplicate(config: Config, name: str, folder: Path, mask: str) -> None:
    if config.collection(name) is not None:
        raise QmdError(f"Collection '{name}' already exists.", "Use a different name with --name <name>")
    for one in config.collections:
        if one.path.resolve() == folder and one.pattern == mask:
            raise QmdError(
                f"A collection already exists for this path and pattern: {one.name} (qmd://{one.name}/)",
                "Use 'qmd update' to re-index it, or remove it first with 'qmd collection remove'",
            )


def show(session: Session, name: Name = None, index: Index = None) -> int:
    """Show one collection."""
    from qmd.render.listings import render_collection

    if not name:
        raise session.missing_argument()
    out(render_collection(require_collection(current_config(session.locate(index)), name)))
    return 0


def rename(
    session: Session,
    old: Annotated[str | None, Argument(help="Present name.", autocompletion=completion.collections)] = None,
    new: Annotated[str | None, Argument(help="New name.")] = None,
    index: Index = None,
) -> int:
    """Rename a collection."""
    from qmd.workspace.collections import rename_collection

    if not old or not new:
        raise session.missing_argument()
    locations = session.locate(index)
    config = load_config(locations)
    require_collection(config, old)
    with open_current_writer(locations, config) as writer:
        config = rename_collection(writer, locations, config, old, new)
    mirror_to_index(locations, config)
    out(f"✓ Renamed collection '{old}' to '{new}'\n  Virtual paths updated: qmd://{old}/ → qmd://{new}/\n")
    return 0


def remove(session: Session, name: Name = None, index: Index = None) -> int:
    """Forget a collection; its files stay."""
    from qmd.workspace.collections import remove_collection

    if not name:
        raise session.missing_argument()
    locations = session.locate(index)
    config = load_config(locations)
    require_collection(config, name)
    with open_current_writer(locations, config) as writer:
        n_documents, config = remove_collection(writer, locations, config, name)
    mirror_to_index(locations, config)
    out(f"✓ Removed collection '{name}'\n  Deleted {n_documents} documents\n")
    return 0


def include(session: Session, name: Name = None, index: Index = None) -> int:
    """Search a collection when none is named."""
    _set_included(session, name, index, True)
    out(f"✓ Collection '{name}' included in default queries\n")
    return 0


def exclude(session: Session, name: Name = None, index: Index = None) -> int:
    """Search a collection only when it is named."""
    _set_included(session, name, index, False)
    out(f"✓ Collection '{name}' excluded from default queries\n")
    return 0


def _set_included(session: Session, name: str | None, index: str | None, included: bool) -> None:
    from qmd.config.edits import set_included

    if not name:
        raise session.missing_argument()
    locations = session.locate(index)
    require_collection(load_config(locations), name)
    mirror_to_index(locations, set_included(locations, name, included))


def update_command(
    session: Session,
    name: Name = None,
    words: Annotated[list[str] | None, Argument(metavar="[COMMAND]…", help="None clears it.")] = None,
    index: Index = None,
) -> int:
    """Set or clear the command that 'update' runs first."""
    from qmd.cli.indexing import remember_trust
    from qmd.config.edits import set_update_command

    if not name:
        raise session.missing_argument()
    locations = session.locate(index)
    require_collection(load_config(locations), name)
    command = " ".join(words or ())
    mirror_to_index(locations, set_update_command(locations, name, command))
    remember_trust(locations)
    out(f"✓ Set update command for '{name}': {command}\n" if command else f"✓ Cleared update command for '{name}'\n")
    return 0


def mirror_to_index(locations: Locations, config: Config) -> None:
    """Bring an existing index's copy of the configuration up to date."""
    if locations.database.exists():
        open_current_writer(locations, config).close()
