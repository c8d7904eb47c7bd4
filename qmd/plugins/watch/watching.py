"""Keeps an index equal to its folders while it runs: the system's reports say when to look, looking says what changed.

Looking at sizes and times works on every file system (network, containers, synchronised folders) and cannot miss
anything; for ten thousand files one look takes a fraction of a second. Reports make it both quicker and rarer. They are
believed, collection by collection, once they have been seen to arrive, and no longer when one stayed away.
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
"""Files must rest this long before they are read: editors write in several steps, and synchronisers in many."""

MAX_DELAY_S = 10.0
"""A collection that never rests is refreshed all the same after this long."""

REPORTED_INTERVAL_S = 30.0
"""Seconds between two looks at a collection whose changes are reported."""

_EMBED_SLICE_S = 5.0
"""Vectors are computed for so long at a time; then files are looked at again."""

_IDLE_SHARE = 10
"""Looking takes at most one part in so many of the time, however many files there are."""


class WatchedIndex:
    """What the watcher does. The index is open only while it is written, so others get their turn.

    Args:
        names: Collections to watch; empty = all.
        computes_vectors: Whether the vectors of what changed are computed as well.
    """

    def __init__(self, index: Index, *, names: tuple[str, ...] = (), computes_vectors: bool = True) -> None:
        self._index = index
        self._names = names
        self._computes_vectors = computes_vectors
        self._is_stopped = False
        self._collections: tuple[Collection, ...] | None = None
        self._config_failure: str | None = None

    def collections(self) -> Sequence[Collection]:
        """The collections as configured now; where the file is just being edited and broken, as it was before."""
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
        """Sizes and times of its files; raises `QmdError` when its folder is away."""
        from qmd.ingest.scan import scan_collection

        return {entry.path: (entry.size_bytes, entry.mtime_ns) for entry in scan_collection(collection).files}

    def refresh(self, collection: Collection) -> None:
        """Bring the words of the index up to date with its files."""
        with self._index.updating([collection.name]) as update:
            report = update.run(collection)
        for warning in report.warnings:
            warn(warning)
        if report.new or report.updated or report.removed:
            say(f"{collection.name}: {report.new} new, {report.updated} updated, {report.removed} removed")

    def embed(self, collection: Collection) -> bool:
        """Compute vectors for some seconds; True if some are still missing."""
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


class _Watched(Struct):
    """One collection: what was indexed, what was seen last, and since when it differs and rests."""

    indexed: Snapshot | None = None
    seen: Snapshot | None = None
    looked_at: float = 0.0
    changed_at: float | None = None
    rests_since: float = 0.0
    is_reported: bool = False
    """Whether the system's reports have been seen to arrive."""
    lacks_vectors: bool = False
    failure: str | None = None
    embed_failure: str | None = None


class Watcher(Struct):
    """Looks at every collection in turn, refreshes those that changed and came to rest, then computes their vectors.

    Args:
        say: Gets one line for everything that goes wrong, once until it changes.
        clock: Monotonic seconds.
    """

    index: WatchedIndex
    say: Callable[[str], None]
    events: SystemEvents
    clock: Callable[[], float] = time.monotonic
    _state: dict[str, _Watched] = field(default_factory=dict)
    _looking_s: float = 0.0
    _is_stopped: bool = False

    def run(self, interval_s: float) -> None:
        """Look until stopped.

        Args:
            interval_s: Seconds between two looks at collections whose changes are not reported.
        """
        reported: frozenset[str] = frozenset()
        while not self._is_stopped:
            waits = self.look(reported)
            # Vectors are computed in pieces, so that new words never wait for them.
            is_behind = self.embed()
            pause_s = 0.0 if is_behind else min(interval_s, DEBOUNCE_S) if waits else interval_s
            pause_s = max(pause_s, self._looking_s * _IDLE_SHARE)
            reported = self.events.wait(pause_s)

    def stop(self) -> None:
        """Make `run` return; any thread or signal handler may call it. What is being written is finished."""
        self._is_stopped = True
        self.index.stop()
        self.events.wake()

    def close(self) -> None:
        """Stop listening; call it after `run`."""
        self.events.close()

    def look(self, reported: frozenset[str] = frozenset()) -> bool:
        """One round; True if some change still waits to come to rest.

        Args:
            reported: Names of collections in which something is said to have changed.
        """
        waits = False
        self._looking_s = 0.0
        collections = self.index.collections()
        # Before looking, so that nothing falls between a look and the first report.
        self.events.follow(collections)
        for name in self._state.keys() - {collection.name for collection in collections}:
            del self._state[name]
        for collection in collections:
            state = self._state.setdefault(collection.name, _Watched())
            is_reported = collection.name in reported
            if not (is_reported or self._is_due(state)):
                continue
            try:
                waits |= self._look_at(collection, state, is_reported)
                state.failure = None
            except QmdError as error:
                state.failure = self._tell(collection, state.failure, error)
                waits |= isinstance(error, BusyError)
        return waits

    def embed(self) -> bool:
        """Compute some vectors of the collections that lack them; True if there is more to do."""
        for collection in self.index.collections():
            state = self._state.get(collection.name)
            if state is None or not state.lacks_vectors or self._is_stopped:
                continue
            try:
                state.lacks_vectors = self.index.embed(collection)
                state.embed_failure = None
            except AlreadyEmbeddingError:
                # Another process does the same work, perhaps for hours; this one looks again at its usual pace.
                return False
            except QmdError as error:
                state.embed_failure = self._tell(collection, state.embed_failure, error)
                # A model that is missing is not tried again until there is something new to embed.
                state.lacks_vectors = isinstance(error, BusyError)
                return False
        return any(state.lacks_vectors for state in self._state.values())

    def _is_due(self, state: _Watched) -> bool:
        if state.indexed is None or state.changed_at is not None or not state.is_reported:
            return True
        return self.clock() - state.looked_at >= REPORTED_INTERVAL_S

    def _look_at(self, collection: Collection, state: _Watched, is_reported: bool) -> bool:
        started = self.clock()
        snapshot = self.index.snapshot(collection)
        now = state.looked_at = self.clock()
        self._looking_s += now - started
        if state.seen != snapshot:
            state.rests_since = now
            state.is_reported = is_reported
        elif is_reported and snapshot != state.indexed:
            state.is_reported = True
        state.seen = snapshot
        if state.indexed is None:
            # The first round makes up for everything that changed while nobody watched.
            self._refresh(collection, state, snapshot)
            return False
        if snapshot == state.indexed:
            state.changed_at = None
            return False
        state.changed_at = now if state.changed_at is None else state.changed_at
        if now - state.rests_since < DEBOUNCE_S and now - state.changed_at < MAX_DELAY_S:
            return True
        self._refresh(collection, state, snapshot)
        return False

    def _refresh(self, collection: Collection, state: _Watched, snapshot: Snapshot) -> None:
        self.index.refresh(collection)
        # What came or went meanwhile may be in the index or not, so the files are compared with it once more.
        is_settled = self.index.snapshot(collection) == snapshot
        state.indexed = snapshot if is_settled else {}
        state.changed_at = None if is_settled else self.clock()
        state.lacks_vectors = True

    def _tell(self, collection: Collection, known: str | None, error: QmdError) -> str:
        """Say what went wrong unless it is `known`; its message."""
        if error.message != known:
            self.say(f"{collection.name}: {error.message}")
        return error.message
