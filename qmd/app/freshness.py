"""Index maintenance by a search: it indexes changed files first, and stores vectors that it computed.

The check compares the times of known folders and files with those on disk: it opens no file and applies no mask or
ignore file, so a thousand notes cost five milliseconds. Changed files are indexed as by `qmd update`, without commands
and vectors, as long as they are few and no other process writes. Vectors of the best candidates are stored after the
answer. `app/updating` has the other ways to keep an index fresh: commands, idle servers and `qmd watch`.
"""

from __future__ import annotations

import os
import posixpath
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from qmd.errors import QmdError
from qmd.file_names import to_disk, to_text
from qmd.files import is_recent, renew_mark
from qmd.records import Scope
from qmd.switches import is_off

if TYPE_CHECKING:
    from qmd.app.configuration import Configuration
    from qmd.config.paths import Locations
    from qmd.indexing.precomputed import PrecomputedChunks
    from qmd.inference.base import Embedder
    from qmd.records import Collection, SearchResponse
    from qmd.store.base import IndexReader

_LOOK_S = 0.05
"""Seconds of a search for this check: enough for some twenty thousand files on a local disk."""

_REST_S = 3.0
"""Seconds for which a process relies on its last check."""

_LARGE_REST_S = 600.0
"""Seconds for which only folders are checked after the time was too short for the files."""

_FEW_FILES = 2_000
"""Files up to which an index is checked completely every time, regardless of the time that took."""

_MOST_FILES = 20_000
"""Files above which a collection is not scanned completely while a search waits."""


class Freshness(Struct, frozen=True):
    """State of the index compared with the files of the searched collections."""

    refreshed: int = 0
    """Changed files that were indexed."""
    is_known: bool = False
    """Whether nothing else has changed."""
    warnings: tuple[str, ...] = ()


class _UnknownStateError(QmdError):
    """State of a collection whose changes are unknown."""


class Refresher:
    """Check of the folders of an index before it is searched.

    Args:
        configuration: Whether this is wanted, and the collections.
        locations: Location of the index. For a project, only files inside its folder are checked, as the index may have
            come with the project; an index at an address, which others use as well, is never changed by a search.
        environ: `QMD_AUTO_UPDATE=0` switches it off.
    """

    def __init__(self, configuration: Configuration, locations: Locations, environ: Mapping[str, str]) -> None:
        self._configuration = configuration
        self._project_root = locations.project_root
        self._is_remote = locations.address is not None
        self._is_off = self._is_remote or is_off(environ.get("QMD_AUTO_UPDATE"))
        self._fresh_at: dict[str, float] = {}
        self._lock = threading.Lock()

    def may_write(self) -> bool:
        """Return whether a search may change the index: it is not switched off, and the configuration is the user's."""
        try:
            return not self._is_off and self._configuration.auto_update() and bool(self._configuration.trusted())
        except (QmdError, OSError):
            return False

    def refresh(self, reader: IndexReader, names: Sequence[str] | None) -> Freshness:
        """Index changed files in the collections of these names, None for all.

        An error here never prevents the search.
        """
        if self._is_off or not self._lock.acquire(blocking=False):
            return Freshness()
        try:
            if not self._configuration.auto_update():
                return Freshness()
            chosen = [one for one in reader.collections() if names is None or one.name in names]
            rested_at = time.monotonic() - _REST_S
            return self._refresh(reader, [one for one in chosen if self._fresh_at.get(one.name, -inf) <= rested_at])
        except (QmdError, OSError):
            return Freshness()
        finally:
            self._lock.release()

    def missing_folders(self, reader: IndexReader) -> Mapping[str, Path]:
        """Return name → folder of collections with a missing one; none of an address, which has those of others."""
        root, known = self._project_root, () if self._is_remote else reader.collections()
        own = {one.name: one.path for one in known if root is None or one.path.is_relative_to(root)}
        return {name: path for name, path in own.items() if not os.path.exists(path)}  # noqa: PTH110 - `Path` may raise

    def _refresh(self, reader: IndexReader, collections: Sequence[Collection]) -> Freshness:
        changed, is_known = self._look(reader, collections)
        states = [self._update(reader, collection, below) for collection, below in changed]
        return Freshness(
            sum(one.refreshed for one in states),
            is_known and all(one.is_known for one in states),
            tuple(warning for one in states for warning in one.warnings),
        )

    def _look(
        self, reader: IndexReader, collections: Sequence[Collection]
    ) -> tuple[list[tuple[Collection, str]], bool]:
        """Return the changed part of each changed collection, and whether these are all changes."""
        mark = reader.path.with_name(f".{reader.path.name}.large")
        is_large = is_recent(mark, _LARGE_REST_S)
        changed: list[tuple[Collection, str]] = []
        is_known, end = not is_large, time.monotonic() + _LOOK_S
        for collection in collections:
            try:
                if self._project_root is not None and not collection.path.is_relative_to(self._project_root):
                    raise _UnknownStateError("what lies outside of a project is not looked at")
                below = changed_part(reader, collection, end, only_folders=is_large)
            except TimeoutError:
                # A busy disk delays a check of few files as well, but rarely the next one.
                if reader.count_documents() > _FEW_FILES:
                    renew_mark(mark)
                return changed, False
            except _UnknownStateError:
                is_known = False
                continue
            if below is None:
                self._fresh_at[collection.name] = time.monotonic()
            else:
                changed.append((collection, below))
        return changed, is_known

    def _update(self, reader: IndexReader, collection: Collection, below: str) -> Freshness:
        """Update a part of a collection, unless that takes long or its configuration is not trusted."""
        # Outside a project everything is trusted, and the file need not be parsed: the index has a copy of it.
        if self._project_root is not None and collection not in self._configuration.trusted():
            return Freshness()
        if not below and reader.count_documents(Scope(collections=(collection.name,))) > _MOST_FILES:
            return Freshness()
        from qmd.indexing.update import TooManyChangesError, update_collection
        from qmd.store.opening import open_writer

        try:
            with open_writer(reader.path, busy_timeout_ms=0) as writer, writer.transaction():
                report = update_collection(writer, collection, below=below, only_if_quick=True)
        except TooManyChangesError as error:
            return Freshness(warnings=(f"{error.message}; {error.hint}",))
        except QmdError:
            # Another process is writing, the index cannot be written, or the folder was just removed.
            return Freshness()
        self._fresh_at[collection.name] = time.monotonic()
        return Freshness(report.new + report.updated + report.removed, is_known=True)


def mark_missing(response: SearchResponse, missing: Mapping[str, Path]) -> SearchResponse:
    """Mark the hits in missing folders, and warn of these."""
    if not missing:
        return response
    hits = tuple(replace(hit, is_missing=hit.document.collection in missing) for hit in response.hits)
    named = {one.document.collection for hit in hits for one in (hit, hit.mention, hit.continues) if one}
    warnings = [
        f"folder '{to_text(missing[name])}' of collection '{name}' is missing; if it moved: qmd index NEWPLACE"
        for name in sorted(named & missing.keys())
    ]
    return replace(response, hits=hits, warnings=(*response.warnings, *warnings))


def changed_part(reader: IndexReader, collection: Collection, end: float, *, only_folders: bool) -> str | None:
    """Return the file or folder that contains every change in a collection since it was indexed; None for no change.

    Args:
        reader: The index.
        collection: As stored in the index.
        end: Time to give up, by the monotonic clock.
        only_folders: Notice only files that were added, removed, renamed or replaced.

    Raises:
        TimeoutError: It takes longer.
        _UnknownStateError: The collection was not indexed by this version yet, or its folder is missing.
    """
    folders = reader.recorded_folders(collection.name)
    root = str(collection.path)
    if not folders or not os.path.exists(root):  # noqa: PTH110 - with a `Path` for every file a look would take twice as long
        raise _UnknownStateError(f"nothing is known of the folders of '{collection.name}'")
    is_folder = os.path.isdir(root)  # noqa: PTH112
    base = f"{root}/" if is_folder else root.removesuffix(collection.path.name)
    changed = _differing(base, ((path, None, mtime_ns) for path, mtime_ns in folders.items() if is_folder), end)
    for files in () if only_folders else reader.recorded_files(collection.name):
        changed += _differing(base, files, end)
    if changed:
        unreadable = {one.path for one in reader.left_out(collection.name) if not one.is_indexed}
        changed = [path for path in changed if path not in unreadable]
    return posixpath.commonpath(changed) if changed else None


def _differing(base: str, recorded: Iterable[tuple[str, int | None, int]], end: float) -> list[str]:
    """Return the paths whose size, unless that is None, or time differs from the record."""
    differing = []
    now, look = time.monotonic, os.stat
    for path, size_bytes, mtime_ns in recorded:
        if now() > end:
            raise TimeoutError
        try:
            found = look(base + to_disk(path))
        except (FileNotFoundError, NotADirectoryError):
            differing.append(path)
        except (OSError, ValueError):
            # A path that cannot be read now may be unchanged.
            continue
        else:
            if found.st_mtime_ns != mtime_ns or (size_bytes is not None and found.st_size != size_bytes):
                differing.append(path)
    return differing


class QueryTimeVectors:
    """Chunks and vectors of texts that a search finds without vectors."""

    def __init__(self) -> None:
        self._precomputed: list[PrecomputedChunks] = []

    def open(self, embedder: Embedder) -> PrecomputedChunks:
        """Return the source of chunks for a model."""
        # Parsers and splitters take 60 ms to import; an index with all its vectors does not need them.
        from qmd.indexing.precomputed import PrecomputedChunks

        self._precomputed.append(PrecomputedChunks(embedder))
        return self._precomputed[-1]

    @property
    def has_new(self) -> bool:
        """Whether there are vectors to store."""
        return any(one.has_vectors for one in self._precomputed)

    def store(self, database: Path) -> None:
        """Store computed vectors, unless another process is writing or the index cannot be written.

        It neither waits nor fails; a later search or run computes these vectors again.
        """
        from qmd.store.opening import open_writer

        try:
            with open_writer(database, busy_timeout_ms=0) as writer:
                for one in self._precomputed:
                    one.store(writer)
        except (QmdError, OSError):
            return
