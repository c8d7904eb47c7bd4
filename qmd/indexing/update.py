"""Update the documents and terms of a collection in the index from its files, reading only changed ones."""

from __future__ import annotations

import shlex
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING

from msgspec import Struct, field

from qmd import __version__
from qmd.addresses import is_below
from qmd.analysis import ANALYSIS_VERSION, SIMILAR_VERSION
from qmd.errors import NotFoundError, QmdError, UnindexableFileError
from qmd.escapes import message_line
from qmd.file_names import suffix_of, to_text
from qmd.files import folder_identity
from qmd.indexing.stamps import Stamp, analysed_otherwise, stamp_analysis
from qmd.ingest.scan import ScanResult, scan_collection
from qmd.records import Collection, FileEntry
from qmd.status import COUNTED, INDEXED, SkippedFile
from qmd.store.base import IndexWriter
from qmd.store.records import KnownFile, NewDocument, OtherFiles
from qmd.times import UNKNOWN_TIME_NS, file_time_text, settled_time

if TYPE_CHECKING:
    from qmd.indexing.reading import FileReading

COMMIT_BYTES = 16 * 1024 * 1024
"""Text per transaction: larger ones take more memory without being faster."""

COMMIT_S = 1.0
"""Longest time that one transaction keeps other writers waiting, in seconds."""

QUICK_FILES = 200
QUICK_BYTES = 2 * 1024 * 1024
"""Amount that is read, analysed and written in about half a second."""


class UpdateReport(Struct, frozen=True):
    """Report of an update of one collection."""

    collection: str
    new: int
    updated: int
    unchanged: int
    removed: int
    skipped: tuple[tuple[str, str], ...]
    """(path, reason) of every file that the mask selects but that could not be indexed."""
    warnings: tuple[str, ...]
    n_bytes: int
    """Size of the files that were read."""
    ignored_files: int
    elapsed_s: float
    git_ignored: tuple[str, ...] = ()
    """Files that the mask selects but git ignores, and ignored folders, with a `/` at the end."""
    kinds: Counter[str] = Counter()
    """Ending → number of notes; only of a collection's first update."""

    @property
    def is_empty(self) -> bool:
        """Whether the mask selects nothing at all."""
        return not (self.new or self.updated or self.unchanged or self.skipped)


class TooManyChangesError(QmdError):
    """More changes than a search may index by itself; the index is unchanged."""

    code = "too_many_changes"


class _Update(Struct):
    """State of an update: the index's records before it, the counts since, and paths whose rows must be deleted."""

    writer: IndexWriter
    collection: str
    known: Mapping[str, KnownFile]
    outdated: Callable[[str], bool] | None
    """Tests whether a path's terms are written again even for an equal text; None if no path needs it."""
    program: str
    """Version of the program, which a mask of prose extends: another mask may include what it skips."""
    plain: set[str]
    """Endings of source files whose declarations are unknown."""
    skipped_before: dict[str, SkippedFile]
    """Files that the last update skipped or could not read completely, by path, and this one has not read yet."""
    new: int = 0
    updated: int = 0
    unchanged: int = 0
    n_bytes: int = 0
    left_out: list[SkippedFile] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    losses: list[SkippedFile] = field(default_factory=list)
    """Unread parts of documents that are indexed."""
    stale: list[str] = field(default_factory=list)
    settled: list[tuple[int, FileEntry]] = field(default_factory=list)

    def skip_file(self, file: SkippedFile) -> None:
        """Count a file that is not indexed."""
        self.left_out.append(file)
        if file.message not in COUNTED:
            self.warnings.append(file.reason)

    def put_skipped(self) -> None:
        """Store the skipped files, and those indexed without a part, so that they are not read again."""
        self.writer.put_skipped(self.collection, [*self.skipped_before.values(), *self.losses, *self.left_out])

    def changed(self, entries: Sequence[FileEntry]) -> list[FileEntry]:
        """Return the files to be read; count the others as unchanged, or as skipped again."""
        left_out = {path: one for path, one in self.skipped_before.items() if one.program == self.program}
        losses = {path: one for path, one in self.skipped_before.items() if one.is_indexed}
        changed = []
        for entry in entries:
            if self.outdated is not None and self.outdated(entry.path):
                changed.append(entry)
            elif _is_known(entry, known := self.known.get(entry.path)) or self._is_equal(entry, known):
                self.unchanged += 1
                if entry.path in losses:
                    self.losses.append(losses[entry.path])
            elif _is_known(entry, left_out.get(entry.path)):
                self.skip_file(left_out[entry.path])
            else:
                changed.append(entry)
        return changed

    def missing(self, scan: ScanResult) -> list[str]:
        """Return the paths of files that no longer exist; count those that cannot be examined as skipped."""
        for one in scan.skipped:
            reason = f"'{one.path}' skipped: {one.detail or one.reason}"
            self.skip_file(SkippedFile(self.collection, one.path, reason))
        present = {entry.path for entry in scan.files}
        return [path for path in self.known if path not in present and not scan.is_undecided(path)]

    def _is_equal(self, entry: FileEntry, known: KnownFile | None) -> bool:
        """Return whether a file is unchanged that may have changed in the tick of its reading, as few may."""
        if known is None or (known.mtime_ns, known.size_bytes) != (UNKNOWN_TIME_NS, entry.size_bytes):
            return False
        from qmd.ingest.document import read_hash
        from qmd.ingest.outline import kind_of

        if (kind := kind_of(entry.path)).is_converted:
            return False
        read_at_ns = time.time_ns()
        with suppress(UnindexableFileError):
            if read_hash(entry, kind) == known.hash:
                # No later update reads it again, unless this one comes within the tick as well.
                if settled_time(entry.mtime_ns, read_at_ns) == entry.mtime_ns:
                    self.settled.append((known.document_id, entry))
                return True
        return False

    def take(
        self, changed: Sequence[FileEntry], *, stamps_early: bool, on_progress: Callable[[int, int], None] | None
    ) -> None:
        """Read the changed files and write their contents, a transaction at a time.

        Args:
            changed: The files.
            stamps_early: Whether this version may be stamped before the end, so that files analysed by a killed run
                need not be analysed again.
            on_progress: Receives (files done, files to read).
        """
        if not changed:
            return
        # Imported here, because most updates find nothing to read and should end before parsers are loaded.
        from qmd.indexing.read_ahead import read_ahead

        stamped: set[str] | None = None
        done, n_losses = 0, len(self.losses)
        # With the skipped files, so that a run that follows a killed one knows them.
        for batch in _in_transactions(self.writer, read_ahead(changed), self.put_skipped):
            self._write(batch)
            self.losses += self._losses_of(batch)
            if stamps_early and self.plain != stamped:
                stamped = set(self.plain)
                stamp_analysis(self.writer, self.collection, stamped)
            done += len(batch)
            if on_progress:
                on_progress(done, len(changed))
        if lost := self.losses[n_losses:]:
            self.warnings.append(summarize_losses(lost))

    def report(self, scan: ScanResult, removed: int, elapsed_s: float) -> UpdateReport:
        skipped = {one.path for one in self.left_out}
        suffixes = (suffix_of(one.path) for one in scan.files if one.path not in skipped)
        return UpdateReport(
            collection=self.collection,
            new=self.new,
            updated=self.updated,
            unchanged=self.unchanged,
            removed=removed,
            skipped=tuple((one.path, one.reason) for one in self.left_out),
            # A missing grammar is one warning for any number of files.
            warnings=tuple(dict.fromkeys(map(message_line, self.warnings))),
            n_bytes=self.n_bytes,
            ignored_files=scan.ignored_files,
            elapsed_s=elapsed_s,
            git_ignored=scan.git_ignored,
            kinds=Counter(() if self.known else suffixes),
        )

    def _losses_of(self, batch: Sequence[FileReading]) -> list[SkippedFile]:
        lossy = [read for read in batch if read.losses]
        if not lossy:
            return []
        from qmd.ingest.exclusion import template_places

        # Templates need no repair.
        places = template_places(batch[0].entry.folder)
        return [
            SkippedFile(self.collection, one.entry.path, "; ".join(one.losses), 0, 0, INDEXED, one.unread_line)
            for one in lossy
            if not one.entry.path.startswith(places)
        ]

    def _write(self, batch: Sequence[FileReading]) -> None:
        documents: list[NewDocument] = []
        for read in batch:
            path, size_bytes = read.entry.path, read.entry.size_bytes
            before = self.known.get(path)
            self.skipped_before.pop(path, None)
            self.n_bytes += size_bytes
            if read.is_plain:
                self.plain.add(suffix_of(path))
            if read.failure is not None:
                # Permissions may change without changing size and time.
                is_unreadable = read.failure == "unreadable"
                mtime_ns = UNKNOWN_TIME_NS if is_unreadable else read.mtime_ns
                (message,) = read.warnings
                self.skip_file(SkippedFile(self.collection, path, message, size_bytes, mtime_ns, self.program))
                # An unreadable file may be as it was; one that has become binary or too large is not.
                if not is_unreadable and before is not None:
                    self.stale.append(path)
                continue
            self.warnings.extend(read.warnings)
            if read.document is not None and before is not None and before.hash == read.document.hash:
                self.unchanged += 1
                if self.outdated is not None and self.outdated(path):
                    documents.append(read.document)
                elif (size_bytes, read.mtime_ns) != (before.size_bytes, before.mtime_ns):
                    self.writer.touch(before.document_id, size_bytes, read.mtime_ns, read.document.modified_at)
            elif read.document is not None:
                self.new += before is None
                self.updated += before is not None
                documents.append(read.document)
        if documents:
            self.writer.put_documents(self.collection, documents)


def _refuse_mass_change(
    name: str, changed: Sequence[FileEntry], gone: Sequence[str], left_out: Sequence[SkippedFile], *, is_emptied: bool
) -> None:
    """Refuse changes that take long, and a folder that has become empty: its disk may not be mounted.

    Files of `left_out` that every update tries again are no change.

    Raises:
        TooManyChangesError: The update needs a command of the user.
    """
    from qmd.ingest.outline import kind_of

    retried = {one.path for one in left_out if one.mtime_ns == UNKNOWN_TIME_NS}
    news = [entry for entry in changed if entry.path not in retried]
    kinds = [kind_of(entry.path) for entry in news]
    # Converting one file takes up to a second.
    n_converted = sum(bool(kind.needs) for kind in kinds)
    n_bytes = sum(kind.bytes_read(entry.size_bytes) for kind, entry in zip(kinds, news, strict=True))
    n_changes = len(news) + len(gone)
    if is_emptied:
        raise TooManyChangesError(f"the folder of '{name}' has none of its files any more", "if so, run: qmd update")
    if n_changes > QUICK_FILES or n_converted > 1 or n_bytes > QUICK_BYTES:
        noun = "file waits" if n_changes == 1 else "files wait"
        raise TooManyChangesError(f"{n_changes:,} changed {noun} in '{name}'", "to take up all: qmd index")


def _identify(writer: IndexWriter, collection: Collection, *, is_emptied: bool) -> str | None:
    """Return the identity of a folder; refuse to empty a collection whose disk may not be mounted there."""
    identity, name, place = folder_identity(collection.path), collection.name, to_text(collection.path)
    if is_emptied and writer.facts().get(f"folder:{name}", identity) != identity:
        state = f"folder '{place}' of collection '{name}' is empty, and not the one that was indexed: its notes stay"
        again = shlex.join(["qmd", "collection", "set", name, "--path", place])
        raise NotFoundError(f"{state} in the index", f"attach its disk; if it is really empty: {again}")
    return identity


def update_collection(
    writer: IndexWriter,
    collection: Collection,
    *,
    below: str = "",
    verify: bool = False,
    only_if_quick: bool = False,
    on_progress: Callable[[int, int], None] | None = None,
) -> UpdateReport:
    """Make the index equal to the collection's files; after an interruption, the next call completes it.

    Args:
        writer: The index.
        collection: Name, folder and mask.
        below: Only this folder or file of the collection; all of it if another version of the program made it.
        verify: Read every file, even those whose size and time are known.
        only_if_quick: Do nothing if the changes take longer than half a second, or no file is left.
        on_progress: Receives (files done, files to read) after every few files.

    Raises:
        NotFoundError: The folder is missing, unreadable, or another empty one; the index stays as it is.
        BusyError: Another process kept the index longer than the timeout.
        TooManyChangesError: It is not quick.
    """
    started = time.monotonic()
    name = collection.name
    stamp = Stamp.parse(writer.version_stamp(f"analysis:{name}"))
    # `SIMILAR_VERSION` saw the same files as plain text.
    plain = stamp.still_plain(max(stamp.version, SIMILAR_VERSION))
    by_text = islice(analysed_otherwise(writer, name, stamp), QUICK_FILES + 1 if only_if_quick else None)
    outdated = stamp.outdated(ANALYSIS_VERSION, by_text)
    is_current = outdated is None
    below = below if is_current else ""
    scan = scan_collection(collection, below)
    known = writer.known_files(name, below)
    left_out = writer.left_out(name)
    program = __version__ + " for prose" * any(entry.is_prose for entry in scan.files[:1])
    update = _Update(writer, name, known, outdated, program, set(plain), {one.path: one for one in left_out})
    gone = update.missing(scan)
    changed = scan.files if verify else update.changed(scan.files)
    is_emptied = bool(gone) and not below and not scan.files
    if only_if_quick:
        _refuse_mass_change(name, changed, gone, left_out, is_emptied=is_emptied)
    identity = _identify(writer, collection, is_emptied=is_emptied)
    # While an older version's documents are being replaced, only the end may stamp that this version made them all.
    update.take(changed, stamps_early=not known or is_current, on_progress=on_progress)
    update.skipped_before = {one.path: one for one in left_out if not is_below(one.path, below)}
    # In one commit: each costs a version of every table it changes, on an object store several requests.
    with writer.transaction():
        # Last, so that a renamed file finds its text still in the index.
        removed = writer.remove_documents(name, [*gone, *update.stale])
        for document_id, entry in update.settled:
            writer.touch(document_id, entry.size_bytes, entry.mtime_ns, file_time_text(entry.mtime_ns))
        writer.settle(name)
        update.put_skipped()
        writer.record_folders(name, scan.folders, below)
        writer.set_facts({f"folder:{name}": identity})
        others = OtherFiles.of(writer.facts(), name)
        if not below and others.counts != scan.others:
            writer.set_facts(OtherFiles(scan.others, others.reported).as_facts(name))
        _choose_first_model(writer, name)
        writer.mark_updated(name)
        stamp_analysis(writer, name, update.plain)
    return update.report(scan, removed, time.monotonic() - started)


def _choose_first_model(writer: IndexWriter, name: str) -> None:
    if writer.facts().get(f"updated_at:{name}") is None:
        from qmd.indexing.model_choices import choose_models

        choose_models(writer, (name,), force=True)


def summarize_losses(losses: Sequence[SkippedFile]) -> str:
    """Return the line for documents that are indexed without a part; it names the first of several."""
    if len(losses) == 1:
        return f"'{losses[0].path}': {losses[0].reason}"
    count = f"{len(losses):,} notes are indexed without what could not be read"
    return f"{count} ({losses[0].as_grep_line}, …); all of them: qmd status --problems"


def _is_known(entry: FileEntry, known: KnownFile | SkippedFile | None) -> bool:
    if known is None or known.mtime_ns == UNKNOWN_TIME_NS:
        return False
    return (known.mtime_ns, known.size_bytes) == (entry.mtime_ns, entry.size_bytes)


def _in_transactions(
    writer: IndexWriter, batches: Iterator[list[FileReading]], end: Callable[[], None]
) -> Iterator[list[FileReading]]:
    """Yield the batches, each inside a transaction that ends, with `end`, after enough bytes or time."""
    batch = next(batches, None)
    while batch is not None:
        n_bytes, begun = 0, time.monotonic()
        with writer.transaction():
            while batch is not None and n_bytes < COMMIT_BYTES and time.monotonic() - begun < COMMIT_S:
                yield batch
                n_bytes += sum(read.document.n_chars for read in batch if read.document is not None)
                batch = next(batches, None)
            end()
