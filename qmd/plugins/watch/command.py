# ruff: noqa: E501 - one option a line reads as a table
"""`qmd watch`: keep the index up to date while files change."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

from typer import Option

from qmd.cli.invocation import Invocation
from qmd.cli.options import Collections, Index, NoGpu
from qmd.cli.output import say, warn
from qmd.errors import NotFoundError
from qmd.plugins.watch.file_events import SystemEvents
from qmd.plugins.watch.watching import DEFAULT_INTERVAL_S, WatchedIndex, Watcher
from qmd.process import lower_process_priority

if TYPE_CHECKING:
    from qmd.app.index import Index as OpenIndex

_STOP_TIMEOUT_S = 5.0


def watch(
    invocation: Invocation,
    collection: Collections = None,
    interval: Annotated[float, Option("--interval", metavar="S", min=0.2, help="Seconds between checks where the system reports no changes.")] = DEFAULT_INTERVAL_S,
    embed: Annotated[bool, Option("--embed/--no-embed", help="Also compute vectors for changed files.")] = True,
    no_gpu: NoGpu = False,
    index: Index = None,
) -> int:  # fmt: skip
    """Update the index as files change, until interrupted; do not run commands of 'collection update-cmd'."""
    locations = invocation.locate(index)
    with invocation.serve(locations, allow_gpu=not no_gpu, is_attended=True) as opened:
        for name in collection or ():
            opened.collection(name)
        if not opened.collections():
            raise NotFoundError("nothing to watch: there is no collection", "qmd collection add FOLDER")
        watched = WatchedIndex(opened, names=tuple(collection or ()), computes_vectors=embed)
        watcher = _make_watcher(watched)
        lower_process_priority()
        _stop_on_signals(watcher)
        say(f"watching {', '.join(one.name for one in watched.collections())}; stop with Ctrl-C")
        watcher.run(interval)
        watcher.close()
    say("stopped")
    return 0


def _stop_on_signals(watcher: Watcher) -> None:
    """Let the first Ctrl-C or SIGTERM end the watch after the current write, and a second one at once.

    A `KeyboardInterrupt` at any point could get lost: native packages turn one during their import into an
    `ImportError`.
    """

    def stop(number: int, frame: object) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        watcher.stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        # A background job of a shell must not handle signals that the shell ignores for it.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, stop)


@contextmanager
def watch_in_background(index: OpenIndex) -> Iterator[None]:
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


def _make_watcher(index: WatchedIndex) -> Watcher:
    """Build a watcher that uses the system's events and reports errors on stderr."""
    return Watcher(index, warn, SystemEvents(say))
