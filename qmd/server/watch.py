"""Keeps an index equal to its folders while it runs, by looking at sizes and times every second or two.

Looking instead of listening works on every file system (network, containers, synchronised folders) and cannot miss an
event; for ten thousand files one look takes a fraction of a second.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from qmd.errors import BusyError, QmdError
from qmd.records import Collection

Snapshot = Mapping[str, tuple[int, int]]
"""Path → (size, mtime) of every file of a collection."""

DEFAULT_INTERVAL_S = 1.5
DEBOUNCE_S = 0.8
"""Files must rest this long before they are read: editors write in several steps, and synchronisers in many."""

MAX_DELAY_S = 10.0
"""A collection that never rests is refreshed all the same after this long."""

_IDLE_SHARE = 10
"""Looking takes at most one part in so many of the time, however many files there are."""


class WatchActions(Protocol):
    """What the watcher does not know: files, the index, models."""

    def collections(self) -> Sequence[Collection]:
        """The collections as configured now."""
        ...

    def snapshot(self, collection: Collection) -> Snapshot:
        """Sizes and times of its files; raises `QmdError` when its folder is away."""
        ...

    def refresh(self, collection: Collection) -> None:
        """Bring the index up to date with its files."""
        ...


@dataclass
class _Watched:
    """One collection: what was indexed, what was seen last, and since when it differs and rests."""

    indexed: Snapshot | None = None
    seen: Snapshot | None = None
    changed_at: float | None = None
    rests_since: float = 0.0
    failure: str | None = None


@dataclass
class Watcher:
    """Looks at every collection in turn and refreshes those that changed and came to rest.

    Args:
        actions: How to look and refresh.
        say: Gets one line for everything that goes wrong, once until it changes.
        clock: Monotonic seconds.
    """

    actions: WatchActions
    say: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    _state: dict[str, _Watched] = field(default_factory=dict)

    def look(self) -> bool:
        """One round; True if some change still waits to come to rest."""
        waits = False
        collections = self.actions.collections()
        for name in self._state.keys() - {collection.name for collection in collections}:
            del self._state[name]
        for collection in collections:
            state = self._state.setdefault(collection.name, _Watched())
            try:
                waits |= self._look_at(collection, state)
                state.failure = None
            except QmdError as error:
                self._report(collection, state, error)
                waits |= isinstance(error, BusyError)
        return waits

    def run(self, interval_s: float, sleep: Callable[[float], None] = time.sleep) -> None:
        """Look for ever."""
        while True:
            started = self.clock()
            waits = self.look()
            took_s = self.clock() - started
            pause_s = min(interval_s, DEBOUNCE_S) if waits else interval_s
            sleep(max(pause_s, took_s * _IDLE_SHARE))

    def _look_at(self, collection: Collection, state: _Watched) -> bool:
        snapshot = self.actions.snapshot(collection)
        now = self.clock()
        if state.seen != snapshot:
            state.rests_since = now
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
        self.actions.refresh(collection)
        # What was seen before the refresh, not after it: a file written meanwhile must count as changed.
        state.indexed = snapshot
        state.changed_at = None

    def _report(self, collection: Collection, state: _Watched, error: QmdError) -> None:
        if error.message != state.failure:
            self.say(f"{collection.name}: {error.message}")
        state.failure = error.message
