# ruff: noqa: E501 - one option a line reads as a table
"""`qmd watch`: keep the index up to date while files change."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from typer import Option

from qmd.cli.options import Collections, Index, NoGpu
from qmd.cli.session import Session, apply_trust, open_current_writer, say, warn
from qmd.errors import ConfigError, NotFoundError
from qmd.workspace.collections import require_collection
from qmd.workspace.locks import embed_lock

if TYPE_CHECKING:
    from qmd.config.paths import Locations
    from qmd.config.settings import Config
    from qmd.records import Collection
    from qmd.server.service import SearchService
    from qmd.server.watch import Snapshot, Watcher

_EMBED_SLICE_S = 5.0
"""Vectors are computed for so long at a time; then files are looked at again."""


def watch(
    session: Session,
    collection: Collections = None,
    interval: Annotated[float, Option("--interval", metavar="S", min=0.2, help="Seconds between two looks where the system reports no changes.")] = 1.5,
    embed: Annotated[bool, Option("--embed/--no-embed", help="Also compute the vectors of what changed.")] = True,
    no_gpu: NoGpu = False,
    index: Index = None,
) -> int:  # fmt: skip
    """Refresh the index as files change, until interrupted; commands of 'collection update-cmd' are not run."""
    from qmd.config.settings import load_config
    from qmd.server.service import open_service

    locations = session.locate(index)
    config = load_config(locations)
    for name in collection or ():
        require_collection(config, name)
    if not config.collections:
        raise NotFoundError("nothing to watch: there is no collection", "qmd collection add FOLDER")
    service = open_service(locations, session.environ) if embed else None
    actions = WatchedIndex(session, locations, service, names=tuple(collection or ()), allow_gpu=not no_gpu)
    watcher = make_watcher(actions)
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


def make_watcher(actions: WatchedIndex) -> Watcher:
    """A watcher that hears what the system reports and tells its troubles on stderr."""
    from qmd.server.file_events import SystemEvents
    from qmd.server.watch import Watcher

    return Watcher(actions, warn, events=SystemEvents(say))


class WatchedIndex:
    """How the watcher looks and refreshes. The index is open only while it is written, so others get their turn.

    Args:
        session: The command.
        locations: The index.
        service: Computes vectors; None leaves them out.
        names: Collections to watch; empty = all.
        allow_gpu: Whether models may run there.
    """

    def __init__(
        self,
        session: Session,
        locations: Locations,
        service: SearchService | None,
        *,
        names: tuple[str, ...] = (),
        allow_gpu: bool = True,
    ) -> None:
        self._session = session
        self._locations = locations
        self._service = service
        self._names = names
        self._allow_gpu = allow_gpu
        self._is_stopped = False
        self._configs: tuple[Config, Config] | None = None
        self._config_failure: str | None = None

    def collections(self) -> Sequence[Collection]:
        """See `WatchActions`."""
        if self._service is not None:
            self._service.release_idle()
        _, trusted = self._current_configs()
        return [c for c in trusted.collections if not self._names or c.name in self._names]

    def snapshot(self, collection: Collection) -> Snapshot:
        """See `WatchActions`."""
        from qmd.ingest import scan_collection

        return {entry.path: (entry.size_bytes, entry.mtime_ns) for entry in scan_collection(collection).files}

    def refresh(self, collection: Collection) -> None:
        """See `WatchActions`."""
        from qmd.indexing import update_collection

        # The whole configuration, not the trusted part: collections that it lacks would be deleted.
        config, _ = self._current_configs()
        with open_current_writer(self._locations, config) as writer:
            report = update_collection(writer, collection, on_warning=warn)
        if report.new or report.updated or report.removed:
            say(f"{collection.name}: {report.new} new, {report.updated} updated, {report.removed} removed")

    def embed(self, collection: Collection) -> bool:
        """See `WatchActions`."""
        from qmd.cli.engines import engine_settings

        if self._service is None:
            return False
        _, trusted = self._current_configs()
        settings = engine_settings(self._session, self._locations, allow_gpu=self._allow_gpu, config=trusted)
        end = time.monotonic() + _EMBED_SLICE_S
        with embed_lock(self._locations.database) as is_ours:
            if not is_ours:
                # A run of 'qmd embed' does the same work.
                return True
            report = self._service.embed(
                settings, [collection.name], should_stop=lambda: self._is_stopped or time.monotonic() > end
            )
        if report.embedded:
            say(f"{collection.name}: {report.embedded} vectors computed")
        return report.stopped

    def stop(self) -> None:
        """See `WatchActions`."""
        self._is_stopped = True

    def _current_configs(self) -> tuple[Config, Config]:
        """The configuration as it is now, and the part of it that is trusted."""
        from qmd.config.settings import config_digest, load_config

        try:
            if self._configs is None or self._configs[0].digest != config_digest(self._locations):
                config = load_config(self._locations)
                self._configs = (config, apply_trust(self._session, self._locations, config))
        except ConfigError as exc:
            # A file that is being edited may be broken for a while; what it said before still holds.
            if self._configs is None:
                raise
            if exc.message != self._config_failure:
                warn(exc.message)
            self._config_failure = exc.message
            return self._configs
        self._config_failure = None
        return self._configs
