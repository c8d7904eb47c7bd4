"""`index`, `update`, `embed` and `cleanup`: commands that change the index."""

from __future__ import annotations

import shlex
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated

from msgspec import Struct
from typer import Argument, Option

from qmd.cli.invocation import Invocation
from qmd.cli.options import ChunkStrategy, Collections, Index, NoGpu, NoIgnore, RareOption
from qmd.cli.output import confirm, out, say, warn
from qmd.config.paths import expand_home
from qmd.errors import ModelError, NotFoundError, UsageError
from qmd.escapes import message_line
from qmd.file_names import folded_home, to_disk, to_text
from qmd.masks import CODE, HISTORY, OWN_PATTERNS, PROSE
from qmd.records import Collection
from qmd.render.columns import count
from qmd.status import BINARY, COUNTED, NO_READER

if TYPE_CHECKING:
    from qmd.app.index import Index as OpenIndex
    from qmd.app.records import EmbedOptions, Part
    from qmd.app.updating import Update
    from qmd.config.paths import Locations
    from qmd.indexing.update import UpdateReport

Verify = Annotated[bool, Option("--verify", help="Read unchanged files again as well, and check the whole index.")]
Pull = Annotated[bool, Option("--pull", help="First run 'git pull' in git checkouts.")]

_WARNINGS_SHOWN = 10
_COUNTING_S = 2.0


class FolderOptions(Struct, frozen=True):
    """Options for the collections of the named folders."""

    name: Annotated[str | None, Option("--name", metavar="NAME", help="Name of the new collection.")] = None
    glob: Annotated[
        str | None, Option("--glob", "--mask", metavar="GLOB", help="Files to index [default: all prose].")
    ] = None
    all: Annotated[bool, Option("--all", help="Index files of every kind, also code and data.")] = False
    separate: Annotated[
        bool, RareOption("--separate", help="Add a second collection for a known folder, with --name.")
    ] = False
    no_ignore: NoIgnore = False

    def mask(self, paths: Sequence[Path] | None) -> str | None:
        """Return the chosen mask, or None for the default.

        Raises:
            UsageError: `--all` is given without a folder, or with a mask.
        """
        if self.all and (self.glob or not paths):
            raise UsageError("--all needs a folder, and no --glob", "qmd index ~/notes --all")
        return "**/*" if self.all else self.glob


def index(
    invocation: Invocation,
    paths: Annotated[list[Path] | None, Argument(metavar="[PATH]…", help="Folders or single files.")] = None,
    folder: FolderOptions = FolderOptions(),
    no_embed: Annotated[bool, Option("--no-embed", help="Index words only; compute no vectors.")] = False,
    verify: Verify = False,
    chunk_strategy: ChunkStrategy = "auto",
    yes: Annotated[bool, Option("--yes", help="Index a whole disk or home folder without asking.")] = False,
    no_gpu: NoGpu = False,
    index: Index = None,
) -> int:
    mask = folder.mask(paths)
    locations = invocation.locate(index)
    absolute = [resolve_existing(invocation, path) for path in paths or ()]
    with invocation.open(locations, allow_gpu=not no_gpu) as opened:
        known = [one.path.resolve() for one in opened.collections()]
        for path in () if yes else absolute:
            if path not in known and covers_all_collections(path, locations.home.resolve()):
                _confirm_all(path, mask or PROSE)
        flags = {"gitignore": not folder.no_ignore, "separate": folder.separate, "chooses_mask": True}
        parts = opened.ensure_collections(absolute, name=folder.name, pattern=mask, **flags)
        names = [part.collection for part in parts] if paths else None
        with opened.updating(names, verify=verify) as update:
            if not update.collections:
                raise NotFoundError("there is nothing to index yet", "name a folder: qmd index ~/notes")
            status = _update_all(invocation, update, parts)
            may_embed = not no_embed and (not status or update.pending() > 0)
        if may_embed:
            _embed_if_possible(invocation, opened, locations, names, chunk_strategy == "auto")
    return status


def _update_all(invocation: Invocation, update: Update, parts: Sequence[Part]) -> int:
    """Update the collections, or their named parts; return the exit status."""
    reports = []
    for collection in update.collections:
        named = dict.fromkeys(part.below for part in parts if part.collection == collection.name)
        # `""` is the whole collection.
        for below in named if named and "" not in named else ("",):
            reports.append(_update_one(invocation, update, collection, below, is_named=bool(parts)))
    return NotFoundError.exit_code * (None in reports)


def _embed_if_possible(
    invocation: Invocation, opened: OpenIndex, locations: Locations, names: Sequence[str] | None, cut_declarations: bool
) -> None:
    """Compute the vectors; without a model this is a warning where an index of words only is allowed."""
    from qmd.app.engines import is_words_only
    from qmd.cli.embedding import embed_index

    try:
        embed_index(invocation, opened, locations, names, cut_declarations=cut_declarations)
    except ModelError as exc:
        if not (is_words_only() or opened.engine_settings().by_collection):
            raise
        warn(f"no vectors: {exc.message}")
        say("to search by words: qmd search")


def resolve_existing(invocation: Invocation, path: Path) -> Path:
    absolute = (invocation.cwd / expand_home(path)).resolve()
    if not absolute.exists():
        raise NotFoundError(
            f"path '{to_text(path)}' does not exist", "name an existing folder or file: qmd index ~/notes"
        )
    return absolute


def covers_all_collections(path: PurePath, home: PurePath) -> bool:
    """Return whether a folder is a whole disk, or the home folder or a parent of it; both are resolved."""
    return path == path.parent or home.is_relative_to(path)


def _confirm_all(path: Path, pattern: str) -> None:
    """Ask for permission to index a whole disk or home folder; raise `UsageError` without it."""
    from qmd.ingest.exclusion import selected_files

    end = time.monotonic() + _COUNTING_S
    n_files = len(selected_files(Collection("", path, pattern), end=end))
    more = "" if time.monotonic() < end else "more than "
    which = "files of prose" if pattern == PROSE else f"files that match {pattern}"
    found = f"'{to_text(path)}' is a whole disk or home folder; {which}: {more}{n_files:,}"
    if not confirm(f"{found}. Index them all?"):
        raise UsageError(found, f"name the folder of your notes, or: qmd index {shlex.quote(to_text(path))} --yes")


def _update_one(
    invocation: Invocation, update: Update, collection: Collection, below: str = "", *, is_named: bool
) -> UpdateReport | None:
    """Update one collection, or a part of it, and print its line; return None if its folder could not be read."""
    try:
        report = run_update(invocation, update, collection, below)
    except NotFoundError as exc:
        warn(exc.message)
        if exc.hint:
            say(f"hint: {exc.hint}")
        return None
    out(summary_line(collection, report, below))
    report_skipped(update, collection, report, below, is_named=is_named)
    return report


def run_update(invocation: Invocation, update: Update, collection: Collection, below: str = "") -> UpdateReport:
    """Update one collection, or a part of it; progress and warnings go to stderr."""
    with invocation.progress(f"Words of {collection.name}") as line:
        report = update.run(collection, line.update, below)
    for warning in report.warnings[:_WARNINGS_SHOWN]:
        warn(warning)
    if (n_more := len(report.warnings) - _WARNINGS_SHOWN) > 0:
        warn(f"and {n_more} more like these in '{collection.name}': qmd status --problems")
    if report.is_empty and not report.removed:
        from qmd.app.collections import nothing_to_index

        reason = nothing_to_index(collection, report.git_ignored, below)
        warn(reason.message)
        say(f"hint: {reason.hint}")
    return report


def report_skipped(
    update: Update, collection: Collection, report: UpdateReport, below: str = "", *, is_named: bool
) -> None:
    """Print files that git or the mask skips; only new ones, unless the collection is named."""
    if report.is_empty:
        return
    if report.git_ignored and is_named:
        from qmd.app.collections import git_ignored_line

        line = git_ignored_line(collection, report.git_ignored)
        if line is not None:
            say(line)
    kinds = Counter[str]() if below else update.unreported_file_types(collection, again=is_named)
    for line in _skipped_lines(collection, kinds, report.skipped if is_named else ()):
        say(f"{collection.name}: {line}")
    if collection.pattern == CODE and report.kinds:
        say(f"{collection.name}: there is no prose, so its source code is indexed")
    if collection.pattern == HISTORY and report.kinds:
        say(f"{collection.name}: private; searches include it only with -c {collection.name}, or in its own project")


def _skipped_lines(collection: Collection, kinds: Counter[str], skipped: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yield `skipped 3 files of other kinds (2 csv, 1 json), 4 templates; to include them: …`."""
    counts = Counter(reason for _, reason in skipped if reason in COUNTED and reason != NO_READER)
    if not kinds and not counts:
        return
    from qmd.app.file_types import command_for_all, kinds_text, to_read, without_reader
    from qmd.ingest.exclusion import is_unread

    unread = Counter({ending: kinds[ending] for ending in without_reader(kinds)})
    others = kinds - unread
    parts = [f"{count(others.total(), 'file')} of other kinds ({kinds_text(others, '')})"] if others else []
    parts += [count(n_files, noun) for noun, n_files in counts.items()]
    is_text = counts.keys() - {BINARY} or not all(map(is_unread, others))
    if parts:
        yield f"skipped {', '.join(parts)}" + (f"; to include them: {command_for_all(collection)}" if is_text else "")
    if unread:
        yield f"skipped {count(unread.total(), 'file')} ({kinds_text(unread, '')}){to_read(unread)}"


def embed_advice(invocation: Invocation, n_pending: int) -> str:
    """Return the line about texts without vectors; empty if all have vectors."""
    if not n_pending:
        return ""
    if invocation.screen:
        return f"{count(n_pending, 'text')} without vectors. To compute them: qmd embed\n"
    return f"Run 'qmd embed' to update embeddings ({n_pending} unique hashes need vectors)\n"


def change_summary(report: UpdateReport) -> str:
    """Return `3 new, 0 updated, 0 unchanged, 0 removed`."""
    return f"{report.new} new, {report.updated} updated, {report.unchanged} unchanged, {report.removed} removed"


def summary_line(collection: Collection, report: UpdateReport, below: str = "") -> str:
    """Return `✓ notes  2 new, 14 notes  ~/notes`; after a first update `✓ notes  14 notes (11 md, 3 pdf)  ~/notes`."""
    from qmd.app.file_types import kinds_text

    changes = {"new": report.new, "updated": report.updated, "removed": report.removed}
    shown = [] if report.kinds else [f"{n:,} {what}" for what, n in changes.items() if n]
    kinds = f" ({kinds_text(report.kinds, '')})" if report.kinds.keys() - {".md"} else ""
    words = ", ".join([*shown, count(report.new + report.updated + report.unchanged, "note") + kinds])
    name = f"{collection.name}/{below}" if below else collection.name
    place = folded_home(collection.path / to_disk(below), Path.home())
    mask = "" if collection.pattern in (*OWN_PATTERNS, HISTORY) else f"  {collection.pattern}"
    return f"✓ {message_line(f'{name}  {words}  {place}{mask}')}\n"


def update(
    invocation: Invocation,
    collection: Collections = None,
    verify: Verify = False,
    pull: Pull = False,
    index: Index = None,
) -> int:
    status, failed = 0, []
    with invocation.open(invocation.locate(index)) as opened:
        if not opened.collections():
            from qmd.render.listings import NO_COLLECTIONS

            out(NO_COLLECTIONS)
            return 0
        with opened.updating(collection, verify=verify) as update:
            for one in update.collections:
                if code := _update_with_hook(invocation, update, one, pull):
                    status = code
                    failed.append(one.name)
            n_pending = update.pending()
    if failed:
        out(f"✗ Update failed: {message_line(', '.join(failed))}\n")
    out(embed_advice(invocation, n_pending))
    return status


def _update_with_hook(invocation: Invocation, update: Update, collection: Collection, pull: bool) -> int:
    """Run the update command of a collection, then update it; return the exit status."""
    from qmd.cli.hooks import git_pull_command, run_hook

    command = collection.update_command or (git_pull_command(collection) if pull else None)
    if command:
        status = run_hook(invocation, collection, command)
        if status:
            out(f"✗ Update command failed with exit code {status}\n")
            return status
    report = _update_one(invocation, update, collection, is_named=False)
    if report is None:
        return NotFoundError.exit_code
    # Programs look for the words of tobi/qmd.
    out("" if invocation.screen else f"Indexed: {change_summary(report)}\n")
    return 0


def embed(
    invocation: Invocation,
    force: Annotated[
        bool, Option("-f", "--force", help="Compute all vectors again; searches use the old ones until then.")
    ] = False,
    collection: Collections = None,
    # Batches are sized by measured speed; these two are only checked.
    max_docs: Annotated[int | None, Option("--max-docs-per-batch", hidden=True, min=1)] = None,
    max_megabytes: Annotated[int | None, Option("--max-batch-mb", hidden=True, min=1)] = None,
    timeout: Annotated[float | None, Option("--timeout", metavar="MIN", min=0, help="Stop after MIN minutes.")] = None,
    chunk_strategy: ChunkStrategy = "auto",
    no_gpu: NoGpu = False,
    index: Index = None,
) -> int:
    from qmd.cli.embedding import embed_index

    locations = invocation.locate(index)
    options: EmbedOptions = {
        "force": force,
        "timeout_s": timeout * 60 if timeout else None,
        "cut_declarations": chunk_strategy == "auto",
    }
    with invocation.open(locations, allow_gpu=not no_gpu) as opened:
        if not opened.exists() and not opened.collections():
            from qmd.render.listings import NO_COLLECTIONS

            out(NO_COLLECTIONS)
        else:
            embed_index(invocation, opened, locations, collection or None, **options)
    return 0


def cleanup(
    invocation: Invocation,
    dry_run: Annotated[bool, Option("--dry-run", help="Only show what would be removed.")] = False,
    index: Index = None,
) -> int:
    with invocation.open(invocation.locate(index)) as opened, invocation.progress("Cleaning"):
        counts = opened.cleanup(dry_run=dry_run)
    if dry_run:
        out("Dry run — no changes made.\n\nWould clear 0 cached API responses\n")
        out("".join(f"Would remove {number} {what}\n" for what, number in counts.items() if number))
        out("Would compact FTS and vacuum the database\n")
        return 0
    out("✓ Cleared 0 cached API responses\n")
    out("".join(f"✓ Removed {number} {what}\n" for what, number in counts.items() if number))
    out("✓ FTS compacted, database vacuumed\n")
    return 0
