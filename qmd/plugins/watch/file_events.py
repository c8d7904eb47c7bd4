"""Changes below the folders of collections as the operating system reports them.

A report only says where to look; what changed is found by looking. So a lost, late or needless report does no harm, and
where the system reports nothing (network file systems, too many folders) the watcher goes on looking by itself.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from qmd.file_names import escape_bytes
from qmd.records import Collection

_STEP_MS = 100
"""How often the listener gathers reports: short beside the time for which files must rest."""

_END_TIMEOUT_S = 5.0
_IGNORE_FILES = frozenset({".gitignore", ".qmdignore"})


class SystemEvents:
    """Hears what inotify, FSEvents or ReadDirectoryChangesW report.

    Args:
        say: Gets a line when the system refuses to report.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._roots: Mapping[str, frozenset[str]] = {}
        self._stop = threading.Event()
        self._listener: threading.Thread | None = None
        self._is_woken = False
        self._changed: set[str] = set()
        self._news = threading.Condition()

    def follow(self, collections: Sequence[Collection]) -> None:
        """Listen to these collections from now on; costs nothing when they are the same as before.

        Folders that are away are skipped until they are back.
        """
        roots = roots_of(collections)
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
        """Names of collections in which something changed since the last call; empty when the time is over first."""
        with self._news:
            self._news.wait_for(lambda: self._changed or self._is_woken, timeout_s)
            changed = frozenset(self._changed)
            self._changed.clear()
        return changed

    def wake(self) -> None:
        """End a `wait` that is going on; later ones return at once. A signal handler may call it."""
        with self._news:
            self._is_woken = True
            self._news.notify_all()

    def close(self) -> None:
        """Stop listening, and wait for its end: a thread that is inside native code may abort an interpreter's end."""
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
                # The watcher has its own polling, which knows what the collections ignore.
                force_polling=False,
                ignore_permission_denied=True,
            )
            for report in reports:
                self._announce(collections_at((path for _, path in report), roots))
        except (ImportError, OSError, RuntimeError) as error:
            if not stop.is_set():
                self._say(f"the system does not report changes ({error}): checking for them instead")

    def _announce(self, names: frozenset[str]) -> None:
        if names:
            with self._news:
                self._changed |= names
                self._news.notify_all()


def roots_of(collections: Sequence[Collection]) -> Mapping[str, frozenset[str]]:
    """Real path of each folder that is there → names of the collections in it."""
    roots: dict[str, frozenset[str]] = {}
    for collection in collections:
        if collection.path.exists():
            root = os.path.realpath(collection.path)
            # The listener takes text alone; a folder whose name is none is looked at by the watcher itself.
            if escape_bytes(root) != root:
                continue
            roots[root] = roots.get(root, frozenset()) | {collection.name}
    return roots


def collections_at(paths: Iterable[str], roots: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """Names of the collections that some of these paths may concern.

    Files and folders whose name starts with a dot are no news (they are never indexed, and an index may lie in one),
    except for the files that say what to ignore.
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
