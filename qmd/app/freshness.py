"""What a search does for the index: it indexes changed files first, and keeps vectors that it had to compute.

A look compares the times of the folders and files that the index knows with those on disk: no file is opened, no mask
and no ignore file applied, so a thousand notes cost five milliseconds. What has changed is brought up to date as by
`qmd update`, without commands and vectors, as long as it is little and nobody else is writing. Vectors of the best
candidates are stored once the answer is there. The other ways to keep an index fresh, by command, by a
server while nobody asks it anything and by `qmd watch`, are in `app/updating`.
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

from qmd.errors import QmdError
from qmd.file_names import to_disk
from qmd.files import is_recent, renew_mark
from qmd.records import Scope
from qmd.switches import is_off

if TYPE_CHECKING:
    from qmd.app.configuration import Configuration
    from qmd.config.paths import Locations
    from qmd.indexing.precomputed import PrecomputedChunks
    from qmd.inference.base import Embedder
    from qmd.records import Collection
    from qmd.store.base import IndexReader

_SWITCH = "QMD_AUTO_UPDATE"

_LOOK_S = 0.05
"""What a search may lose to looking: enough for some twenty thousand files on a local disk."""

_REST_S = 3.0
"""For so long a process believes what it saw."""

_LARGE_REST_S = 600.0
"""For so long only the folders of an index are looked at after the time was too short for its files."""

_FEW_FILES = 2_000
"""An index of no more has its files looked at every time, however long that took."""

_MOST_FILES = 20_000
"""A collection of more is not scanned as a whole while a search waits."""

_Changed = tuple["Collection", str]
"""A collection, and the file or folder of it that holds all that has changed."""


class Freshness(Struct, frozen=True):
    """How the index stands to the files of the collections that are searched."""

    refreshed: int = 0
    """Changed files that were indexed."""
    is_known: bool = False
    """Whether nothing else has changed."""
    warnings: tuple[str, ...] = ()


class _UnknownStateError(QmdError):
    """It cannot be told whether the files of a collection have changed."""


class Refresher:
    """Looks at the folders of an index before it is searched.

    Args:
        configuration: Says whether that is wanted, and what the folders hold.
        locations: Where the index lies. Outside of the folder of a project's own one nothing is looked at, as the index
            may have come with the project; and one at an address, which others use as well, no search changes.
        environ: `QMD_AUTO_UPDATE=0` switches it off.
    """

    def __init__(self, configuration: Configuration, locations: Locations, environ: Mapping[str, str]) -> None:
        self._configuration = configuration
        self._project_root = locations.project_root
        self._is_off = locations.address is not None or is_off(environ.get(_SWITCH))
        self._fresh_at: dict[str, float] = {}
        self._lock = threading.Lock()

    def may_write(self) -> bool:
        """Whether a search may change the index: not where that is switched off, or somebody else's configuration."""
        try:
            return not self._is_off and self._configuration.auto_update() and bool(self._configuration.trusted())
        except (QmdError, OSError):
            return False

    def refresh(self, reader: IndexReader, names: Sequence[str] | None) -> Freshness:
        """Index what has changed in the collections of these names, None for all.

        Nothing that goes wrong here keeps a search from answering with what is there.
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
        """The collections in which something has changed, each with the part that holds it, and whether that is all."""
        mark = reader.path.with_name(f".{reader.path.name}.large")
        is_large = is_recent(mark, _LARGE_REST_S)
        changed: list[_Changed] = []
        is_known, end = not is_large, time.monotonic() + _LOOK_S
        for collection in collections:
            try:
                if self._project_root is not None and not collection.path.is_relative_to(self._project_root):
                    raise _UnknownStateError("what lies outside of a project is not looked at")
                below = changed_part(reader, collection, end, only_folders=is_large)
            except TimeoutError:
                # A busy disk holds up a look at few files as well, but hardly the next one.
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
        """Bring a part of a collection up to date, unless that takes long or its configuration is not trusted."""
        # Outside of a project all is trusted, and the file need not be parsed: the index holds a copy of it.
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
            # Another process is writing, the index cannot be written, or the folder has just gone.
            return Freshness()
        self._fresh_at[collection.name] = time.monotonic()
        return Freshness(report.new + report.updated + report.removed, is_known=True)


def changed_part(reader: IndexReader, collection: Collection, end: float, *, only_folders: bool) -> str | None:
    """The file or folder of a collection that holds all that has changed since it was indexed; None when nothing has.

    Args:
        reader: The index.
        collection: As the index has it.
        end: When to give up, by the monotonic clock.
        only_folders: Notice only what was added, removed, renamed or replaced.

    Raises:
        TimeoutError: It takes longer.
        _UnknownStateError: The collection was not indexed by this version yet, or its folder is away.
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
    """Those of some paths whose size, unless that is None, or time is another than recorded."""
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
            # What cannot be looked at today may be as it was.
            continue
        else:
            if found.st_mtime_ns != mtime_ns or (size_bytes is not None and found.st_size != size_bytes):
                differing.append(path)
    return differing


class QueryTimeVectors:
    """Cuts texts that a search finds without vectors, and keeps the vectors that it computes of them."""

    def __init__(self) -> None:
        self._precomputed: PrecomputedChunks | None = None

    def open(self, embedder: Embedder) -> PrecomputedChunks:
        """Texts are cut for this model."""
        # Parsers and splitters take 60 ms to import, which an index with all of its vectors does without.
        from qmd.indexing.precomputed import PrecomputedChunks

        self._precomputed = PrecomputedChunks(embedder)
        return self._precomputed

    @property
    def has_new(self) -> bool:
        """Whether there is anything to store."""
        return self._precomputed is not None and self._precomputed.has_vectors

    def store(self, database: Path) -> None:
        """Store what was computed, unless another process is writing or the index cannot be written.

        The answer is there: it neither waits nor fails, and a later search or run computes these vectors again.
        """
        from qmd.store.opening import open_writer

        if self._precomputed is None:
            return
        try:
            with open_writer(database, busy_timeout_ms=0) as writer:
                self._precomputed.store(writer)
        except (QmdError, OSError):
            return
