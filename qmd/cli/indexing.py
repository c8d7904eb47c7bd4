"""`index`, `update`, `embed` and `cleanup`: the commands that change the index."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from qmd.cli.options import ChunkStrategy, Collections, Index, NoGpu, cuts_declarations
from qmd.cli.progress import ProgressLine
from qmd.cli.session import Session, apply_trust, open_current_writer, out, say, warn
from qmd.config.paths import expand_home
from qmd.config.settings import DEFAULT_PATTERN, Config, load_config
from qmd.errors import NotFoundError, UsageError
from qmd.names import to_text
from qmd.workspace import mend
from qmd.workspace.collections import require_collection

if TYPE_CHECKING:
    from collections.abc import Sequence

    from qmd.config.paths import Locations
    from qmd.indexing import UpdateReport
    from qmd.records import Collection
    from qmd.store import IndexWriter

Glob = Annotated[str | None, Option("--glob", "--mask", metavar="GLOB", help="Which files [default: **/*.md].")]
Verify = Annotated[bool, Option("--verify", help="Read all files, also unchanged ones, and all of the index.")]
Pull = Annotated[bool, Option("--pull", help="First run 'git pull' where a folder is a git checkout.")]

_WARNINGS_SHOWN = 10


def index(
    session: Session,
    paths: Annotated[list[Path] | None, Argument(metavar="[PATH]…", help="Folders or single files.")] = None,
    name: Annotated[str | None, Option("--name", metavar="NAME", help="Name of the new collection.")] = None,
    glob: Glob = None,
    no_embed: Annotated[bool, Option("--no-embed", help="Words only, no vectors.")] = False,
    verify: Verify = False,
    chunk_strategy: ChunkStrategy = None,
    no_gpu: NoGpu = False,
    index: Index = None,
) -> int:
    """Make folders searchable, or refresh all."""
    from qmd.cli.embedding import EmbedRequest, embed_index

    cut_declarations = cuts_declarations(chunk_strategy)
    locations = session.locate(index)
    wanted = _collections_for(session, locations, paths or (), name, glob)
    config = apply_trust(session, locations, load_config(locations))
    chosen = [c for c in config.collections if not paths or c.name in wanted]
    if not chosen:
        raise NotFoundError("there is nothing to index yet", "name a folder: qmd index ~/notes")
    mend(locations, warn, always=verify)
    with open_current_writer(locations, config) as writer:
        failures = [_refresh(writer, collection, verify) for collection in chosen]
        if not no_embed:
            names = [c.name for c in chosen] if paths else None
            request = EmbedRequest(names, allow_gpu=not no_gpu, cut_declarations=cut_declarations)
            embed_index(session, locations, config, writer, request)
    return NotFoundError.exit_code if any(failures) else 0


def _collections_for(
    session: Session, locations: Locations, paths: Sequence[Path], name: str | None, glob: str | None
) -> list[str]:
    """Names of the collections at `paths`, the new ones written to the configuration."""
    from qmd.config.edits import add_collection
    from qmd.workspace.collections import check_name

    if name and len(paths) > 1:
        raise UsageError("--name fits one path only", "index the paths one by one")
    absolute = [(session.cwd / expand_home(path)).resolve() for path in paths]
    for given, path in zip(paths, absolute, strict=True):
        if not path.exists():
            shown = to_text(given)
            raise NotFoundError(f"path '{shown}' does not exist", "name an existing folder or file: qmd index ~/notes")
    names = []
    for path in absolute:
        while (known := _known_at(config := load_config(locations), path, name, glob)) is None:
            new = name or free_name(config, path)
            check_name(new)
            if config.collection(new) is not None:
                raise UsageError(f"collection '{new}' already exists", "choose another with --name")
            # Refused when another process has taken the name since; then the next turn chooses another.
            with suppress(UsageError):
                add_collection(locations, new, path, glob or DEFAULT_PATTERN)
                remember_trust(locations)
        names.append(known)
    return names


def _known_at(config: Config, path: Path, name: str | None, glob: str | None) -> str | None:
    """The collection that already has this path (and name and mask, where given)."""
    for one in config.collections:
        if one.path.resolve() == path and glob in (None, one.pattern) and name in (None, one.name):
            return one.name
    return None


def free_name(config: Config, path: Path) -> str:
    """A name for a collection at `path`: its last part, with the parent's or a number where that is taken."""
    base = to_text(path.stem if path.is_file() else path.name) or "root"
    if config.collection(base) is None:
        return base
    candidate, number = f"{to_text(path.parent.name) or 'root'}-{base}", 2
    while config.collection(candidate) is not None:
        candidate, number = f"{base}-{number}", number + 1
    return candidate


def remember_trust(locations: Locations) -> None:
    """Who adds to a project's configuration by hand trusts what it now holds."""
    from qmd.config.trust import gated_items, record_trust

    items = gated_items(load_config(locations), locations)
    if items:
        record_trust(items, locations)


def _refresh(writer: IndexWriter, collection: Collection, verify: bool) -> bool:
    """Update one collection and print its line; True when its folder cannot be read."""
    try:
        report = run_update(writer, collection, verify=verify)
    except NotFoundError as exc:
        warn(exc.message)
        if exc.hint:
            say(f"hint: {exc.hint}")
        return True
    out(f"{collection.name}: {change_summary(report)}  ({to_text(collection.path)}, {collection.pattern})\n")
    return False


def run_update(writer: IndexWriter, collection: Collection, *, verify: bool = False) -> UpdateReport:
    """Update one collection with progress and warnings on stderr."""
    with ProgressLine(f"Indexing {collection.name}") as line:
        from qmd.indexing import update_collection

        report = update_collection(writer, collection, verify=verify, on_progress=line.update)
    for warning in report.warnings[:_WARNINGS_SHOWN]:
        warn(warning)
    if len(report.warnings) > _WARNINGS_SHOWN:
        warn(f"and {len(report.warnings) - _WARNINGS_SHOWN} more like these in '{collection.name}'")
    return report


def embed_advice(n_pending: int) -> str:
    """The line that says how many texts wait for vectors; nothing when none does."""
    return f"Run 'qmd embed' to update embeddings ({n_pending} unique hashes need vectors)\n" if n_pending else ""


def change_summary(report: UpdateReport) -> str:
    """`3 new, 0 updated, 0 unchanged, 0 removed`."""
    return f"{report.new} new, {report.updated} updated, {report.unchanged} unchanged, {report.removed} removed"


def update(
    session: Session,
    collection: Collections = None,
    verify: Verify = False,
    pull: Pull = False,
    index: Index = None,
) -> int:
    """Refresh the words of the collections."""
    locations = session.locate(index)
    config = load_config(locations)
    for name in collection or ():
        require_collection(config, name)
    config = apply_trust(session, locations, config)
    chosen = [one for one in config.collections if not collection or one.name in collection]
    if not chosen:
        out("No collections found. Run 'qmd collection add .' to index files.\n")
        return 0
    mend(locations, warn, always=verify)
    out(f"Updating {len(chosen)} collection(s)...\n\n")
    status = 0
    with open_current_writer(locations, config) as writer:
        for number, one in enumerate(chosen, 1):
            out(f"[{number}/{len(chosen)}] {one.name} ({one.pattern})\n")
            status = _update_with_hook(session, writer, one, verify, pull) or status
        n_pending = writer.status(None).pending_documents
    out("✓ All collections updated.\n" if not status else "✗ Some collections could not be updated.\n")
    if n_pending:
        out(f"\n{embed_advice(n_pending)}")
    return status


def _update_with_hook(session: Session, writer: IndexWriter, collection: Collection, verify: bool, pull: bool) -> int:
    """Run the collection's command, then update it; a failure here does not keep the others from being updated."""
    from qmd.cli.hooks import git_pull_command, run_hook

    command = collection.update_command or (git_pull_command(collection) if pull else None)
    if command:
        status = run_hook(session, collection, command)
        if status:
            out(f"✗ Update command failed with exit code {status}\n")
            return status
    try:
        report = run_update(writer, collection, verify=verify)
    except NotFoundError as exc:
        warn(exc.message)
        return exc.exit_code
    out(f"Collection: {to_text(collection.path)} ({collection.pattern})\n\nIndexed: {change_summary(report)}\n\n")
    return 0


def embed(
    session: Session,
    force: Annotated[bool, Option("-f", "--force", help="Compute all vectors anew.")] = False,
    collection: Collections = None,
    max_docs: Annotated[str | None, Option("--max-docs-per-batch", hidden=True)] = None,
    max_megabytes: Annotated[str | None, Option("--max-batch-mb", hidden=True)] = None,
    timeout: Annotated[float | None, Option("--timeout", metavar="MIN", help="Stop after so long.")] = None,
    chunk_strategy: ChunkStrategy = None,
    no_gpu: NoGpu = False,
    index: Index = None,
) -> int:
    """Compute the vectors that are missing."""
    from qmd.cli.embedding import EmbedRequest, embed_index

    cut_declarations = cuts_declarations(chunk_strategy)
    for value, label in ((max_docs, "maxDocsPerBatch"), (max_megabytes, "maxBatchBytes")):
        # Batches are sized by measured speed; the options are only checked.
        if value is not None and not re.fullmatch("0*[1-9][0-9]*", value):
            raise UsageError(f"{label} must be a positive integer, not '{value}'")
    if timeout is not None and timeout < 0:
        raise UsageError("--timeout must be a non-negative number of minutes (0 = no limit)")
    locations = session.locate(index)
    config = load_config(locations)
    for name in collection or ():
        require_collection(config, name)
    config = apply_trust(session, locations, config)
    if not config.collections and not locations.database.exists():
        out("No collections found. Run 'qmd collection add .' to index files.\n")
        return 0
    timeout_s = timeout * 60 if timeout else None
    request = EmbedRequest(collection or None, force, timeout_s, not no_gpu, cut_declarations)
    with open_current_writer(locations, config) as writer:
        embed_index(session, locations, config, writer, request)
    return 0


def cleanup(
    session: Session,
    dry_run: Annotated[bool, Option("--dry-run", help="Only say what would go.")] = False,
    index: Index = None,
) -> int:
    """Drop what nothing uses."""
    from qmd.store import open_writer
    from qmd.workspace.locks import clean_index

    locations = session.locate(index)
    if not locations.database.exists():
        raise NotFoundError(f"no index at '{locations.database}'", "make one: qmd index PATH")
    with open_writer(locations.database) as writer, ProgressLine("Cleaning"):
        counts = dict(clean_index(writer, locations.database, dry_run=dry_run))
    n_cached = counts.pop("cached answers", 0)
    if dry_run:
        out(f"Dry run — no changes made.\n\nWould clear {n_cached} cached API responses\n")
        out("".join(f"Would remove {count} {what}\n" for what, count in counts.items() if count))
        out("Would compact FTS and vacuum the database\n")
        return 0
    out(f"✓ Cleared {n_cached} cached API responses\n")
    out("".join(f"✓ Removed {count} {what}\n" for what, count in counts.items() if count))
    out("✓ FTS compacted, database vacuumed\n")
    return 0
