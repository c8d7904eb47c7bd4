"""Computing missing vectors, for every command that does so."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from qmd.cli.engines import describe, load
from qmd.cli.locks import embed_lock
from qmd.cli.progress import ProgressLine
from qmd.cli.session import Session, out, say, warn
from qmd.config.paths import Locations
from qmd.config.settings import Config
from qmd.errors import ModelError

if TYPE_CHECKING:
    from qmd.store import IndexWriter


@dataclass(frozen=True, slots=True)
class EmbedRequest:
    """What to embed and for how long."""

    collections: Sequence[str] | None = None
    force: bool = False
    timeout_s: float | None = None
    allow_gpu: bool = True


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
    from qmd.indexing import embed_pending

    engines = load(session, locations, ["embed"], allow_gpu=request.allow_gpu, config=config)
    for note in engines.notes:
        warn(note)
    embedder = engines.embedder
    if embedder is None:
        raise ModelError("there is no embedding model", "see: qmd doctor")
    if request.force:
        out("Force re-indexing: clearing all vectors...\n")
        writer.clear_vectors(request.collections)
    n_contents, _ = writer.count_pending(embedder.fingerprint, request.collections)
    if not n_contents:
        out("✓ All content hashes already have embeddings.\n")
        return
    out(f"Model: {describe(embedder.description)}\n\n")
    deadline = None if request.timeout_s is None else time.monotonic() + request.timeout_s
    with ProgressLine("Embedding") as line:
        report = embed_pending(
            writer,
            embedder,
            collections=request.collections,
            on_progress=line.update,
            should_stop=lambda: deadline is not None and time.monotonic() > deadline,
        )
    reused = f" ({report.reused} reused)" if report.reused else ""
    out(
        f"✓ Done! Embedded {report.chunks} chunks{reused} from {report.documents} documents"
        f" in {_duration(report.elapsed_s)}\n"
    )
    if report.stopped:
        say("stopped at the time limit; run 'qmd embed' again to go on")


def _duration(seconds: float) -> str:
    if seconds < 10:
        return f"{seconds:.1f}s"
    return f"{seconds:.0f}s" if seconds < 120 else f"{int(seconds) // 60}m {int(seconds) % 60}s"
