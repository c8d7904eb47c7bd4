"""Computing missing vectors, for every command that does so."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from qmd.cli.engines import describe, engine_settings, open_engines
from qmd.cli.progress import ProgressLine
from qmd.cli.session import Session, out, say, warn
from qmd.config.paths import Locations
from qmd.config.settings import Config
from qmd.errors import ModelError
from qmd.quick_dataclasses import dataclass
from qmd.workspace.locks import embed_lock

if TYPE_CHECKING:
    from qmd.indexing.embed import EmbedReport
    from qmd.inference import Engines, EngineSettings
    from qmd.server.service import EmbedderFacts
    from qmd.store import IndexWriter


@dataclass(frozen=True, slots=True)
class EmbedRequest:
    """What to embed and for how long."""

    collections: Sequence[str] | None = None
    force: bool = False
    timeout_s: float | None = None
    allow_gpu: bool = True
    cut_declarations: bool = True
    """False: source files are cut as plain text."""


def embed_index(
    session: Session, locations: Locations, config: Config, writer: IndexWriter, request: EmbedRequest
) -> None:
    """Bring the vectors up to date and print what was done.

    Raises:
        ModelError: There is no usable embedding model.
    """
    with embed_lock(locations.database) as is_ours:
        if not is_ours:
            out("Another embed process is already running. Skipping.\n")
            return
        _embed(session, locations, config, writer, request)


def _embed(session: Session, locations: Locations, config: Config, writer: IndexWriter, request: EmbedRequest) -> None:
    from qmd.indexing.stamps import forget_outdated_chunks

    settings = engine_settings(session, locations, allow_gpu=request.allow_gpu, config=config)
    embedding = _Embedding(session, locations, settings)
    facts = embedding.describe()
    if facts.description is None or facts.fingerprint is None:
        # The first note is the failure. Another model would fill the index with vectors of its own.
        raise ModelError(
            facts.notes[0] if facts.notes else "there is no embedding model", "search by words works; see: qmd doctor"
        )
    for note in facts.notes:
        warn(note)
    if request.force:
        out("Force re-indexing: clearing all vectors...\n")
        writer.clear_vectors(request.collections)
    forget_outdated_chunks(writer, facts.fingerprint)
    n_contents, _ = writer.count_pending(facts.fingerprint, request.collections)
    if not n_contents:
        out("✓ All content hashes already have embeddings.\n")
        return
    out(f"Model: {describe(facts.description)}\n\n")
    with ProgressLine("Embedding") as line:
        report = embedding.run(writer, request, line.update)
    reused = f" ({report.reused} reused)" if report.reused else ""
    out(
        f"✓ Done! Embedded {report.chunks} chunks{reused} from {report.documents} documents"
        f" in {_duration(report.elapsed_s)}\n"
    )
    for warning in report.warnings:
        warn(warning)
    if report.stopped:
        say("stopped at the time limit; run 'qmd embed' again to go on")


class _Embedding:
    """The work of the embedding model: done by the warm worker where there is one, else by this process."""

    def __init__(self, session: Session, locations: Locations, settings: EngineSettings) -> None:
        self._session = session
        self._locations = locations
        self._settings = settings
        self._engines: Engines | None = None

    def describe(self) -> EmbedderFacts:
        """Which model it is."""
        from qmd.server.client import describe_with_daemon
        from qmd.server.service import EmbedderFacts

        facts = describe_with_daemon(self._locations, self._settings, self._session.environ)
        if facts is not None:
            return facts
        self._engines = open_engines(self._settings, ["embed"])
        embedder = self._engines.embedder
        if embedder is None:
            return EmbedderFacts(None, None, self._engines.notes)
        return EmbedderFacts(embedder.description, embedder.fingerprint, self._engines.notes)

    def run(self, writer: IndexWriter, request: EmbedRequest, on_progress: Callable[[int, int], None]) -> EmbedReport:
        """Compute what is missing.

        Raises:
            ModelError: There is no embedding model any more.
        """
        from qmd.indexing.embed import embed_pending
        from qmd.server.client import embed_with_daemon

        deadline = None if request.timeout_s is None else time.monotonic() + request.timeout_s
        if self._engines is None and request.cut_declarations:
            report = embed_with_daemon(
                self._locations,
                self._settings,
                request.collections,
                request.timeout_s,
                self._session.environ,
                on_progress,
            )
            if report is not None:
                return report
        if self._engines is None:
            self._engines = open_engines(self._settings, ["embed"])
        if self._engines.embedder is None:
            raise ModelError("there is no embedding model", "see: qmd doctor")
        return embed_pending(
            writer,
            self._engines.embedder,
            collections=request.collections,
            on_progress=on_progress,
            should_stop=lambda: deadline is not None and time.monotonic() > deadline,
            cut_declarations=request.cut_declarations,
        )


def _duration(seconds: float) -> str:
    if seconds < 10:
        return f"{seconds:.1f}s"
    return f"{seconds:.0f}s" if seconds < 120 else f"{int(seconds) // 60}m {int(seconds) % 60}s"
