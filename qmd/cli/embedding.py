"""Computing missing vectors, for every command that does so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Unpack

from qmd.app.updating import AlreadyEmbeddingError
from qmd.cli.output import out, say, warn
from qmd.cli.progress import ProgressLine

if TYPE_CHECKING:
    from qmd.app.index import Index
    from qmd.app.records import EmbeddingStart, EmbedOptions
    from qmd.inference.base import EngineDescription


def embed_index(index: Index, collections: Sequence[str] | None, **options: Unpack[EmbedOptions]) -> None:
    """Bring the vectors up to date and print what was done.

    Raises:
        ModelError: There is no usable embedding model.
    """
    n_pending = 0

    def start(known: EmbeddingStart) -> None:
        nonlocal n_pending
        n_pending = known.pending
        if options.get("force"):
            out("Force re-indexing: clearing all vectors...\n")
        out(f"Model: {describe(known.model)}\n\n" if n_pending else "✓ All content hashes already have embeddings.\n")

    line = ProgressLine("Embedding")
    try:
        with line:
            report = index.embed(collections, on_start=start, on_progress=line.update, **options)
    except AlreadyEmbeddingError:
        out("Another embed process is already running. Skipping.\n")
        return
    if not n_pending:
        return
    reused = f" ({report.reused} reused)" if report.reused else ""
    out(
        f"✓ Done! Embedded {report.chunks} chunks{reused} from {report.documents} documents"
        f" in {_duration(report.elapsed_s)}\n"
    )
    for warning in report.warnings:
        warn(warning)
    if report.stopped:
        say("stopped at the time limit; run 'qmd embed' again to continue")


def describe(description: EngineDescription) -> str:
    """A model in one phrase: `all-MiniLM-L6-v2 int8 (built-in, cpu)`."""
    return f"{description.model} {description.format} ({description.tier}, {description.provider})"


def _duration(seconds: float) -> str:
    if seconds < 10:
        return f"{seconds:.1f}s"
    return f"{seconds:.0f}s" if seconds < 120 else f"{int(seconds) // 60}m {int(seconds) % 60}s"
