"""Computing missing vectors, for every command that does so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Unpack

from qmd.app.updating import AlreadyEmbeddingError
from qmd.cli.output import out, say, warn
from qmd.pace import duration_text

if TYPE_CHECKING:
    from qmd.app.index import Index
    from qmd.app.records import EmbeddingStart, EmbedOptions
    from qmd.cli.invocation import Invocation
    from qmd.cli.progress import ProgressLine
    from qmd.inference.base import EngineDescription
    from qmd.pace import Progress

_FIRST_MEASURED_S = 1.0
_LONG_S = 20.0
"""Runs that take longer are announced to whoever waits for them."""


def embed_index(
    invocation: Invocation, index: Index, collections: Sequence[str] | None, **options: Unpack[EmbedOptions]
) -> None:
    """Bring the vectors up to date and print what was done.

    Raises:
        KeyboardInterrupt: Ctrl-C; says how much is done.
        ModelError: There is no usable embedding model.
    """
    n_pending = 0

    def start(known: EmbeddingStart) -> None:
        nonlocal n_pending
        n_pending = known.pending
        if options.get("force"):
            out("Force re-indexing: clearing all vectors...\n")
        out(f"Model: {describe(known.model)}\n\n" if n_pending else "✓ All content hashes already have embeddings.\n")

    try:
        with invocation.progress("Vectors", "bytes") as line:
            shown = _Shown(line)
            report = index.embed(collections, on_start=start, on_progress=shown.update, **options)
    except AlreadyEmbeddingError:
        out("Another embed process is already running. Skipping.\n")
        run = index.status().embedding
        if run is not None:
            say(f"it is {run.state}; see: qmd status")
        return
    except KeyboardInterrupt as exc:
        done = f"{shown.percent} % of the vectors are done and kept" if shown.percent else "what is done is kept"
        raise KeyboardInterrupt(f"{done}; run 'qmd embed' to go on") from exc
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
        say("stopped at the time limit; run 'qmd embed' again to go on")


class _Shown:
    """What a person is shown of a run: its state, and once, when it is going to be long, what that means for them."""

    def __init__(self, line: ProgressLine) -> None:
        self._line = line
        self._is_announced = False
        self.percent = 0

    def update(self, progress: Progress) -> None:
        self.percent = progress.percent
        if not self._is_announced and progress.left_s is not None and progress.elapsed_s >= _FIRST_MEASURED_S:
            self._is_announced = True
            if progress.left_s > _LONG_S:
                self._line.say(
                    f"Words are searchable now. Vectors take about {_spoken(progress.left_s)};"
                    " Ctrl-C is safe, run 'qmd embed' to go on.\n"
                )
        self._line.show(progress)


def _spoken(seconds: float) -> str:
    """A time in whole minutes, which is all that a first guess can tell."""
    minutes = round(seconds / 60)
    if minutes < 2:
        return "a minute"
    return f"{minutes} minutes" if minutes < 60 else duration_text(60 * minutes)


def describe(description: EngineDescription) -> str:
    """A model in one phrase: `all-MiniLM-L6-v2 int8 (built-in, cpu)`."""
    return f"{description.model} {description.format} ({description.tier}, {description.provider})"


def _duration(seconds: float) -> str:
    if seconds < 10:
        return f"{seconds:.1f}s"
    return f"{seconds:.0f}s" if seconds < 120 else f"{int(seconds) // 60}m {int(seconds) % 60}s"
