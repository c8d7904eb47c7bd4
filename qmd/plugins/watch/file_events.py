"""Change events of the operating system for the folders of collections.

An event only triggers a check, which finds the changes. So a lost, late or needless event does no harm, and where the
system reports nothing (network file systems, too many folders) the watcher checks by itself.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from qmd.file_names import escape_bytes
from qmd.records import Collection

_STEP_MS = 100
"""Interval in which the listener collects events; much shorter than `DEBOUNCE_S`."""

_END_TIMEOUT_S = 5.0
_IGNORE_FILES = frozenset({".gitignore", ".qmdignore"})


class SystemEvents:
    """Listener for events of inotify, FSEvents or ReadDirectoryChangesW.

    Args:
        say: Gets a line when the system refuses to report events.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._roots: Mapping[str, frozenset[str]] = {}
        self._stop = threading.Event()
        self._listener: threading.Thread | None = None
        self._is_woken = False
        self._changed: set[str] = set()
        self._condition = threading.Condition()

    def follow(self, collections: Sequence[Collection]) -> None:
        """Listen to these collections from now on; do nothing if their folders are the same as before.

        Missing folders are skipped until they are back.
        """
        roots = find_roots(collections)
        if roots == self._roots:
            return
        self.close()
        self._roots, self._stop = roots, threading.Event()
        if roots:
            self._listener = threading.Thread(
                target=self._listen, args=(roots, self._stop), name="file-events", daemon=True
            )
            self._listener.start()

    def wait(self, timeout_s: float) -> frozenset[str]:
        """Wait for events; return the names of collections with events since the last call, or none on timeout."""
        with self._condition:
            self._condition.wait_for(lambda: self._changed or self._is_woken, timeout_s)
            changed = frozenset(self._changed)
            self._changed.clear()
        return changed

    def wake(self) -> None:
        """End the current `wait`; later ones return at once. A signal handler may call this."""
        with self._condition:
            self._is_woken = True
            self._condition.notify_all()

    def close(self) -> None:
        """Stop listening and join the thread: in native code it could abort the interpreter's shutdown."""
        self._stop.set()
        self._roots = {}
        if self._listener is not None:
            self._listener.join(_END_TIMEOUT_S)
            self._listener = None

    def _listen(self, roots: Mapping[str, frozenset[str]], stop: threading.Event) -> None:
        try:
            from watchfiles import watch

            reports = watch(
                *roots,
                watch_filter=None,
                debounce=2 * _STEP_MS,
                step=_STEP_MS,
                stop_event=stop,
                # The watcher's own polling respects the collections' ignore rules.
                force_polling=False,
                ignore_permission_denied=True,
            )
            for report in reports:
                self._notify(find_collections((path for _, path in report), roots))
        except (ImportError, OSError, RuntimeError) as error:
            if not stop.is_set():
                self._say(f"the system does not report changes ({error}): checking for them instead")

    def _notify(self, names: frozenset[str]) -> None:
        if names:
            with self._condition:
                self._changed |= names
                self._condition.notify_all()


def find_roots(collections: Sequence[Collection]) -> Mapping[str, frozenset[str]]:
    """Return the real path of each existing folder → names of its collections."""
    roots: dict[str, frozenset[str]] = {}
    for collection in collections:
        if collection.path.exists():
            root = os.path.realpath(collection.path)
            # The listener needs text; the watcher checks a folder whose name is not text by itself.
            if escape_bytes(root) != root:
                continue
            roots[root] = roots.get(root, frozenset()) | {collection.name}
    return roots


def find_collections(paths: Iterable[str], roots: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """Return the names of the collections to which some of these paths belong.

    Paths with hidden names are skipped (they are never indexed, and the index may be in one), except ignore files.
    """
    found: set[str] = set()
    for path in paths:
        for root, names in roots.items():
            if names <= found or not (path == root or path.startswith(root.rstrip(os.sep) + os.sep)):
                continue
            inside = Path(path).parts[len(Path(root).parts) :]
            hidden = [part for part in inside if part.startswith(".")]
            if not hidden or (len(hidden) == 1 and inside[-1] in _IGNORE_FILES):
                found |= names
    return frozenset(found)
