# ruff: noqa: E501 - one option a line reads as a table
"""`qmd watch`: keep the index up to date while files change."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

from typer import Option

from qmd.cli.invocation import Invocation
from qmd.cli.options import Collections, Index, NoGpu
from qmd.cli.output import say, warn
from qmd.environment import give_way
from qmd.errors import ConfigError, NotFoundError
from qmd.plugins.watch.file_events import SystemEvents
from qmd.plugins.watch.watching import DEFAULT_INTERVAL_S, Snapshot, Watcher

if TYPE_CHECKING:
    from qmd.app.index import Index as OpenIndex
    from qmd.records import Collection

_STOP_TIMEOUT_S = 5.0

_EMBED_SLICE_S = 5.0
"""Vectors are computed for so long at a time; then files are looked at again."""


def watch(
    invocation: Invocation,
    collection: Collections = None,
    interval: Annotated[float, Option("--interval", metavar="S", min=0.2, help="Seconds between checks where the system reports no changes.")] = DEFAULT_INTERVAL_S,
    embed: Annotated[bool, Option("--embed/--no-embed", help="Also compute vectors for changed files.")] = True,
    no_gpu: NoGpu = False,
    index: Index = None,
) -> int:  # fmt: skip
    """Refresh the index as files change, until interrupted; commands of 'collection update-cmd' are not run."""
    locations = invocation.locate(index)
    with invocation.serve(locations, allow_gpu=not no_gpu, is_attended=True) as opened:
        for name in collection or ():
            opened.collection(name)
        if not opened.collections():
            raise NotFoundError("nothing to watch: there is no collection", "qmd collection add FOLDER")
        actions = WatchedIndex(opened, names=tuple(collection or ()), computes_vectors=embed)
        watcher = _make_watcher(actions)
        give_way()
        _stop_on_signals(watcher)
        say(f"watching {', '.join(watched.name for watched in actions.collections())}; stop with Ctrl-C")
        watcher.run(interval)
        watcher.close()
    say("stopped")
    return 0


def _stop_on_signals(watcher: Watcher) -> None:
    """Let the first Ctrl-C or SIGTERM end the watch after what is being written, and a second one at once.

    An interrupt that is raised wherever the program happens to be gets lost: native packages turn one that comes
    while they are imported into an `ImportError`.
    """

    def stop(number: int, frame: object) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        watcher.stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        # A background job of a shell must go on ignoring what it was started to ignore.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, stop)


@contextmanager
def watching_beside(index: OpenIndex) -> Iterator[None]:
    """Watch all collections of a server's index while the block runs; the server itself computes their vectors."""
    watcher = _make_watcher(WatchedIndex(index, computes_vectors=False))
    thread = threading.Thread(target=watcher.run, args=(DEFAULT_INTERVAL_S,), name="watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        watcher.stop()
        thread.join(_STOP_TIMEOUT_S)
        watcher.close()


def _make_watcher(actions: WatchedIndex) -> Watcher:
    """A watcher that hears what the system reports and tells its troubles on stderr."""
    return Watcher(actions, warn, SystemEvents(say))


class WatchedIndex:
    """How the watcher looks and refreshes. The index is open only while it is written, so others get their turn.

    Args:
        index: What is kept up to date.
        names: Collections to watch; empty = all.
        computes_vectors: Whether the vectors of what changed are computed as well.
    """

    def __init__(self, index: OpenIndex, *, names: tuple[str, ...] = (), computes_vectors: bool = True) -> None:
        self._index = index
        self._names = names
        self._computes_vectors = computes_vectors
        self._is_stopped = False
        self._collections: tuple[Collection, ...] | None = None
        self._config_failure: str | None = None

    def collections(self) -> Sequence[Collection]:
        """See `WatchActions`; a file that is being edited may be broken for a while, and what it said still holds."""
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
        """See `WatchActions`."""
        from qmd.ingest.scan import scan_collection

        return {entry.path: (entry.size_bytes, entry.mtime_ns) for entry in scan_collection(collection).files}

    def refresh(self, collection: Collection) -> None:
        """See `WatchActions`."""
        with self._index.updating([collection.name]) as update:
            report = update.run(collection)
        for warning in report.warnings:
            warn(warning)
        if report.new or report.updated or report.removed:
            say(f"{collection.name}: {report.new} new, {report.updated} updated, {report.removed} removed")

    def embed(self, collection: Collection) -> bool:
        """See `WatchActions`."""
        if not self._computes_vectors:
            return False
        report = self._index.embed(
            [collection.name], timeout_s=_EMBED_SLICE_S, resumes=True, should_stop=lambda: self._is_stopped
        )
        if report.embedded:
            say(f"{collection.name}: {report.embedded} vectors computed")
        return report.stopped

    def stop(self) -> None:
        """See `WatchActions`."""
        self._is_stopped = True
