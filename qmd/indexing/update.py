"""Files of a collection → documents and terms in the index, reading only what changed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from qmd import __version__
from qmd.analysis import ANALYSIS_VERSION
from qmd.chunking.languages import suffix_of
from qmd.indexing.stamps import Stamp, analysis_stamp, stamp_analysis
from qmd.ingest.scan import scan_collection
from qmd.quick_dataclasses import dataclass, field
from qmd.records import Collection, FileEntry, LeftOutFile
from qmd.store import IndexWriter
from qmd.store.documents import KnownFile, NewDocument

if TYPE_CHECKING:
    from qmd.indexing.reading import FileReading

COMMIT_BYTES = 16 * 1024 * 1024
"""Text per transaction: larger ones hold more in memory without being faster."""

COMMIT_S = 1.0
"""Longest time that one transaction keeps other writers waiting, in seconds."""


@dataclass(frozen=True, slots=True)
class UpdateReport:
    """What an update did to one collection."""

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


@dataclass(slots=True)
class _Outcome:
    """What happened so far, and the paths whose rows must go."""

    new: int = 0
    updated: int = 0
    unchanged: int = 0
    n_bytes: int = 0
    left_out: list[LeftOutFile] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    stale: list[str] = field(default_factory=list)
    plain: set[str] = field(default_factory=set)
    """Endings of source files whose declarations could not be told."""
    outdated: Callable[[str], bool] = lambda _: False
    """Whether a path's terms are to be written again even for an equal text."""

    def leave_out(self, file: LeftOutFile) -> None:
        """Count a file that was not even read."""
        self.left_out.append(file)
        self.warnings.append(file.reason)


def update_collection(
    writer: IndexWriter,
    collection: Collection,
    *,
    verify: bool = False,
    on_progress: Callable[[int, int], None] | None = None,
) -> UpdateReport:
    """Make the index equal to the collection's files; interrupted at any point, the next call completes it.

    Args:
        writer: The index.
        collection: Name, folder and mask.
        verify: Read every file, even those whose size and time are known.
        on_progress: Gets (files done, files to read) after every few files.

    Raises:
        NotFoundError: The folder does not exist or cannot be read as a whole; the index stays as it is.
        BusyError: Another process kept the index longer than the time-out.
    """
    started = time.monotonic()
    scan = scan_collection(collection)
    known = writer.known_files(collection.name)
    stamp = analysis_stamp(writer, collection.name)
    outcome = _Outcome(plain=set(stamp.still_plain(ANALYSIS_VERSION)), outdated=stamp.outdated(ANALYSIS_VERSION))
    for one in scan.skipped:
        outcome.leave_out(LeftOutFile(collection.name, one.path, f"'{one.path}' skipped: {one.detail or one.reason}"))
    left_out = {one.path: one for one in writer.left_out(collection.name) if one.program == __version__}
    changed = list(scan.files) if verify else _changed(scan.files, known, left_out, outcome)
    _take(writer, collection.name, changed, known, stamp, outcome, on_progress)
    present = {entry.path for entry in scan.files}
    gone = [path for path in known if path not in present and not scan.is_undecided(path)]
    # Last, so that a renamed file finds its text still in place.
    removed = writer.remove_documents(collection.name, [*gone, *outcome.stale])
    writer.put_left_out(collection.name, outcome.left_out)
    writer.mark_updated(collection.name)
    stamp_analysis(writer, collection.name, outcome.plain)
    return UpdateReport(
        collection=collection.name,
        new=outcome.new,
        updated=outcome.updated,
        unchanged=outcome.unchanged,
        removed=removed,
        skipped=tuple((one.path, one.reason) for one in outcome.left_out),
        # A missing grammar is one piece of news, however many files it concerns.
        warnings=tuple(dict.fromkeys(outcome.warnings)),
        n_bytes=outcome.n_bytes,
        ignored_files=scan.ignored_files,
        elapsed_s=time.monotonic() - started,
    )


def _changed(
    entries: Sequence[FileEntry],
    known: Mapping[str, KnownFile],
    left_out: Mapping[str, LeftOutFile],
    outcome: _Outcome,
) -> list[FileEntry]:
    """The files that are to be read; the others are counted as unchanged, or as left out once more."""
    changed = []
    for entry in entries:
        if outcome.outdated(entry.path):
            changed.append(entry)
        elif _is_known(entry, known.get(entry.path)):
            outcome.unchanged += 1
        elif _is_known(entry, left_out.get(entry.path)):
            outcome.leave_out(left_out[entry.path])
        else:
            changed.append(entry)
    return changed


def _take(
    writer: IndexWriter,
    collection: str,
    changed: Sequence[FileEntry],
    known: Mapping[str, KnownFile],
    stamp: Stamp,
    outcome: _Outcome,
    on_progress: Callable[[int, int], None] | None,
) -> None:
    """Read the changed files and write what they hold, a transaction at a time."""
    # A killed run's files need not be analysed again. But while an older version's are being replaced, only the end of
    # the run may say that this version made them all.
    stamps_early = not known or stamp.is_current(ANALYSIS_VERSION)
    stamped: set[str] | None = None
    done = 0
    for batch in _in_transactions(writer, _readings(changed)):
        _write_batch(writer, collection, batch, known, outcome)
        if stamps_early and outcome.plain != stamped:
            stamped = set(outcome.plain)
            stamp_analysis(writer, collection, stamped)
        done += len(batch)
        if on_progress:
            on_progress(done, len(changed))


def _readings(entries: Sequence[FileEntry]) -> Iterator[list[FileReading]]:
    if not entries:
        return iter(())
    # Imported here, because most updates find nothing to read and should end before parsers are loaded.
    from qmd.indexing.read_ahead import read_ahead

    return read_ahead(entries)


def _is_known(entry: FileEntry, known: KnownFile | LeftOutFile | None) -> bool:
    return known is not None and (known.size_bytes, known.mtime_ns) == (entry.size_bytes, entry.mtime_ns)


def _in_transactions(writer: IndexWriter, batches: Iterator[list[FileReading]]) -> Iterator[list[FileReading]]:
    """The same batches, each handed out inside a transaction that ends after enough bytes or enough time."""
    batch = next(batches, None)
    while batch is not None:
        n_bytes, begun = 0, time.monotonic()
        with writer.transaction():
            while batch is not None and n_bytes < COMMIT_BYTES and time.monotonic() - begun < COMMIT_S:
                yield batch
                n_bytes += sum(read.entry.size_bytes for read in batch)
                batch = next(batches, None)


def _write_batch(
    writer: IndexWriter,
    collection: str,
    batch: Sequence[FileReading],
    known: Mapping[str, KnownFile],
    outcome: _Outcome,
) -> None:
    documents: list[NewDocument] = []
    for read in batch:
        before = known.get(read.entry.path)
        outcome.n_bytes += read.entry.size_bytes
        outcome.warnings.extend(read.warnings)
        if read.is_plain:
            outcome.plain.add(suffix_of(read.entry.path))
        if read.failure is not None:
            # Permissions may change and leave size and time as they are.
            known_time = -1 if read.failure.code == "unreadable" else read.mtime_ns
            size = read.entry.size_bytes
            outcome.left_out.append(
                LeftOutFile(collection, read.entry.path, read.failure.message, size, known_time, __version__)
            )
            # What cannot be read today may be as it was; what has become binary or too large is not.
            if read.failure.code != "unreadable" and before is not None:
                outcome.stale.append(read.entry.path)
        elif read.document is not None and before is not None and before.hash == read.document.hash:
            outcome.unchanged += 1
            if outcome.outdated(read.entry.path):
                documents.append(read.document)
                continue
            stamp = (read.document.size_bytes, read.document.mtime_ns)
            if stamp != (before.size_bytes, before.mtime_ns):
                writer.touch(before.document_id, *stamp, read.document.modified_at)
        elif read.document is not None:
            outcome.new += before is None
            outcome.updated += before is not None
            documents.append(read.document)
    if documents:
        writer.put_documents(collection, documents)
