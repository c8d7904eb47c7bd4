"""`qmd watch`: keep the index up to date while files change."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from qmd.cli.declare import Option
from qmd.cli.options import Collections, Index, NoGpu
from qmd.cli.session import Session, apply_trust, open_current_writer, require_collection, say, warn
from qmd.errors import ModelError, NotFoundError

if TYPE_CHECKING:
    from qmd.config.paths import Locations
    from qmd.config.settings import Config
    from qmd.inference import Engines, EngineSettings
    from qmd.records import Collection
    from qmd.server.pools import Role
    from qmd.server.watch import Snapshot
    from qmd.store import IndexWriter


def watch(
    session: Session,
    collection: Collections = None,
    interval: Annotated[float, Option("--interval", metavar="S", min=0.2, help="Seconds between two looks.")] = 1.5,
    embed: Annotated[bool, Option("--embed/--no-embed", help="Also compute the vectors of what changed.")] = True,
    no_gpu: NoGpu = False,
    index: Index = None,
) -> int:  # fmt: skip
    """Refresh the index as files change, until interrupted; commands of 'collection update-cmd' are not run."""
    from qmd.config.settings import load_config
    from qmd.server.watch import Watcher

    locations = session.locate(index)
    config = load_config(locations)
    for name in collection or ():
        require_collection(config, name)
    if not config.collections:
        raise NotFoundError("nothing to watch: there is no collection", "qmd collection add FOLDER")
    actions = _Actions(session, locations, tuple(collection or ()), embed, not no_gpu)
    say(f"watching {', '.join(watched.name for watched in actions.collections())}; stop with Ctrl-C")
    with contextlib.suppress(KeyboardInterrupt):
        Watcher(actions, warn).run(interval)
    say("stopped")
    return 0


class _Actions:
    """How the watcher looks and refreshes. The index is open only while it is written, so others get their turn."""

    def __init__(
        self, session: Session, locations: Locations, names: tuple[str, ...], embeds: bool, allow_gpu: bool
    ) -> None:
        from qmd.server.pools import EnginePool, parse_model_ttl

        self._session = session
        self._locations = locations
        self._names = names
        self._embeds = embeds
        self._allow_gpu = allow_gpu
        self._configs: tuple[Config, Config] | None = None
        self._engines = EnginePool(_load, parse_model_ttl(session.environ.get("QMD_MODEL_TTL")))

    def collections(self) -> Sequence[Collection]:
        self._engines.unload_if_idle()
        _, trusted = self._current_configs()
        return [c for c in trusted.collections if not self._names or c.name in self._names]

    def snapshot(self, collection: Collection) -> Snapshot:
        from qmd.ingest import scan_collection

        return {entry.path: (entry.size_bytes, entry.mtime_ns) for entry in scan_collection(collection).files}

    def refresh(self, collection: Collection) -> None:
        from qmd.indexing import update_collection

        # The whole configuration, not the trusted part: collections that it lacks would be deleted.
        config, _ = self._current_configs()
        with open_current_writer(self._locations, config) as writer:
            report = update_collection(writer, collection, on_warning=warn)
            if report.new or report.updated or report.removed:
                say(f"{collection.name}: {report.new} new, {report.updated} updated, {report.removed} removed")
            if self._embeds:
                self._embed(writer, collection)

    def _embed(self, writer: IndexWriter, collection: Collection) -> None:
        from qmd.cli.engines import engine_settings
        from qmd.indexing import embed_pending

        _, trusted = self._current_configs()
        settings = engine_settings(self._session, self._locations, allow_gpu=self._allow_gpu, config=trusted)
        with self._engines.engines(settings, frozenset({"embed"})) as engines:
            if engines.embedder is None:
                raise ModelError(f"vectors are not computed: {'; '.join(engines.notes) or 'no embedding model'}")
            report = embed_pending(writer, engines.embedder, collections=[collection.name])
        if report.embedded:
            say(f"{collection.name}: {report.embedded} vectors computed")

    def _current_configs(self) -> tuple[Config, Config]:
        """The configuration as it is now, and the part of it that is trusted."""
        from qmd.config.settings import config_digest, load_config

        if self._configs is None or self._configs[0].digest != config_digest(self._locations):
            config = load_config(self._locations)
            self._configs = (config, apply_trust(self._session, self._locations, config))
        return self._configs


def _load(settings: EngineSettings, roles: frozenset[Role]) -> Engines:
    from qmd.inference import load_engines

    return load_engines(settings, roles)
