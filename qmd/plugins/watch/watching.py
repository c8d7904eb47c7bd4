"""Watcher that keeps an index equal to its folders: events of the system trigger checks, checks find the changes.

A check of sizes and times works on every file system (network, containers, synchronised folders) and misses nothing;
for ten thousand files it takes a fraction of a second. Events make checks both quicker and rarer. The watcher relies on
the events of a collection once one has arrived, and stops relying on them when one is missing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct, field

from qmd.cli.output import say, warn
from qmd.errors import AlreadyEmbeddingError, BusyError, ConfigError, QmdError
from qmd.plugins.watch.file_events import SystemEvents
from qmd.records import Collection

if TYPE_CHECKING:
    from qmd.app.index import Index

Snapshot = Mapping[str, tuple[int, int]]
"""Path → (size, mtime) of every file of a collection."""

DEFAULT_INTERVAL_S = 1.5
DEBOUNCE_S = 0.8
"""Time without changes before files are read: editors write in several steps, and synchronisers in many."""

MAX_DELAY_S = 10.0
"""Time after which a collection is updated even if its files still change."""

REPORTED_INTERVAL_S = 30.0
"""Seconds between two checks of a collection with events."""

_EMBED_SLICE_S = 5.0
"""Time for vectors between two checks of files."""

_IDLE_SHARE = 10
"""Pause after checks, as a multiple of their duration, so that they take at most a tenth of the time."""


class WatchedIndex:
    """Index operations of the watcher. The index is open only during writes, so that other processes can write.

    Args:
        names: Collections to watch; empty = all.
        computes_vectors: Also compute the vectors of changed files.
    """

    def __init__(self, index: Index, *, names: tuple[str, ...] = (), computes_vectors: bool = True) -> None:
        self._index = index
        self._names = names
        self._computes_vectors = computes_vectors
        self._is_stopped = False
        self._collections: tuple[Collection, ...] | None = None
        self._config_failure: str | None = None

    def collections(self) -> Sequence[Collection]:
        """Return the configured collections; keep the last ones while the configuration file is invalid."""
        self._index.release_idle()
        try:
            self._collections = self._index.trusted_collections()
        except ConfigError as exc:
            if self._collections is None:
                raise
            if exc.message != self._config_failure:
                warn(exc.message)
            self._config_failure = exc.message
        else:
            self._config_failure = None
        return [one for one in self._collections if not self._names or one.name in self._names]

    def snapshot(self, collection: Collection) -> Snapshot:
        """Return sizes and times of the collection's files; raise `QmdError` if its folder is missing."""
        from qmd.ingest.scan import scan_collection

        return {entry.path: (entry.size_bytes, entry.mtime_ns) for entry in scan_collection(collection).files}

    def refresh(self, collection: Collection) -> None:
        """Update the index from the collection's files, without vectors."""
        with self._index.updating([collection.name]) as update:
            report = update.run(collection)
        for warning in report.warnings:
            warn(warning)
        if report.new or report.updated or report.removed:
            say(f"{collection.name}: {report.new} new, {report.updated} updated, {report.removed} removed")

    def embed(self, collection: Collection) -> bool:
        """Compute vectors for some seconds; return True if some are still missing."""
        if not self._computes_vectors:
            return False
        report = self._index.embed(
            [collection.name], timeout_s=_EMBED_SLICE_S, resumes=True, should_stop=lambda: self._is_stopped
        )
        if report.embedded:
            say(f"{collection.name}: {report.embedded} vectors computed")
        return report.stopped

    def stop(self) -> None:
        """End `embed` as soon as what it computed is stored."""
        self._is_stopped = True


class _CollectionState(Struct):
    """State of a collection: the indexed files, the last check, and times of changes."""

    indexed: Snapshot | None = None
    seen: Snapshot | None = None
    checked_at: float = 0.0
    changed_at: float | None = None
    stable_since: float = 0.0
    is_reported: bool = False
    """An event of the system has arrived."""
    lacks_vectors: bool = False
    failure: str | None = None
    embed_failure: str | None = None


class Watcher(Struct):
    """Loop that checks every collection, updates those whose changes have ended, and then computes their vectors.

    Args:
        say: Gets one line for each new error.
        clock: Monotonic seconds.
    """

    index: WatchedIndex
    say: Callable[[str], None]
    events: SystemEvents
    clock: Callable[[], float] = time.monotonic
    _state: dict[str, _CollectionState] = field(default_factory=dict)
    _checking_s: float = 0.0
    _is_stopped: bool = False

    def run(self, interval_s: float) -> None:
        """Check until stopped.

        Args:
            interval_s: Seconds between two checks of collections without events.
        """
        reported: frozenset[str] = frozenset()
        while not self._is_stopped:
            is_pending = self.check(reported)
            # Vectors are computed in slices, so that new text never is_pending for them.
            has_more = self.embed()
            pause_s = 0.0 if has_more else min(interval_s, DEBOUNCE_S) if is_pending else interval_s
            pause_s = max(pause_s, self._checking_s * _IDLE_SHARE)
            reported = self.events.wait(pause_s)

    def stop(self) -> None:
        """Make `run` return after the current write; any thread or signal handler may call this."""
        self._is_stopped = True
        self.index.stop()
        self.events.wake()

    def close(self) -> None:
        """Stop listening; call it after `run`."""
        self.events.close()

    def check(self, reported: frozenset[str] = frozenset()) -> bool:
        """Check all collections once; return True if the changes of some have not ended.

        Args:
            reported: Names of collections with events.
        """
        is_pending = False
        self._checking_s = 0.0
        collections = self.index.collections()
        # Before the check, so that no change falls between it and the first event.
        self.events.follow(collections)
        for name in self._state.keys() - {collection.name for collection in collections}:
            del self._state[name]
        for collection in collections:
            state = self._state.setdefault(collection.name, _CollectionState())
            is_reported = collection.name in reported
            if not (is_reported or self._is_due(state)):
                continue
            try:
                is_pending |= self._check_collection(collection, state, is_reported)
                state.failure = None
            except QmdError as error:
                state.failure = self._report_once(collection, state.failure, error)
                is_pending |= isinstance(error, BusyError)
        return is_pending

    def embed(self) -> bool:
        """Compute some of the missing vectors; return True if more are missing."""
        for collection in self.index.collections():
            state = self._state.get(collection.name)
            if state is None or not state.lacks_vectors or self._is_stopped:
                continue
            try:
                state.lacks_vectors = self.index.embed(collection)
                state.embed_failure = None
            except AlreadyEmbeddingError:
                # Another process does the same work, perhaps for hours; this one checks again at its usual pace.
                return False
            except QmdError as error:
                state.embed_failure = self._report_once(collection, state.embed_failure, error)
                # A missing model is not tried again until there is new text to embed.
                state.lacks_vectors = isinstance(error, BusyError)
                return False
        return any(state.lacks_vectors for state in self._state.values())

    def _is_due(self, state: _CollectionState) -> bool:
        if state.indexed is None or state.changed_at is not None or not state.is_reported:
            return True
        return self.clock() - state.checked_at >= REPORTED_INTERVAL_S

    def _check_collection(self, collection: Collection, state: _CollectionState, is_reported: bool) -> bool:
        started = self.clock()
        snapshot = self.index.snapshot(collection)
        now = state.checked_at = self.clock()
        self._checking_s += now - started
        if state.seen != snapshot:
            state.stable_since = now
            state.is_reported = is_reported
        elif is_reported and snapshot != state.indexed:
            state.is_reported = True
        state.seen = snapshot
        if state.indexed is None:
            # The first check applies all changes since the last watch.
            self._refresh(collection, state, snapshot)
            return False
        if snapshot == state.indexed:
            state.changed_at = None
            return False
        state.changed_at = now if state.changed_at is None else state.changed_at
        if now - state.stable_since < DEBOUNCE_S and now - state.changed_at < MAX_DELAY_S:
            return True
        self._refresh(collection, state, snapshot)
        return False

    def _refresh(self, collection: Collection, state: _CollectionState, snapshot: Snapshot) -> None:
        self.index.refresh(collection)
        # Files that changed meanwhile may be in the index or not, so they are compared once more.
        is_settled = self.index.snapshot(collection) == snapshot
        state.indexed = snapshot if is_settled else {}
        state.changed_at = None if is_settled else self.clock()
        state.lacks_vectors = True

    def _report_once(self, collection: Collection, known: str | None, error: QmdError) -> str:
        """Report an error unless it is `known`; return its message."""
        if error.message != known:
            self.say(f"{collection.name}: {error.message}")
        return error.message
