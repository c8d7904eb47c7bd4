"""Computation of missing vectors, with progress."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Unpack

from qmd.cli.output import flush_result, out, say, warn
from qmd.errors import AlreadyEmbeddingError
from qmd.plugins import hooks
from qmd.render.text import describe_engine

if TYPE_CHECKING:
    from qmd.app.index import Index
    from qmd.app.records import EmbeddingStart, EmbedOptions
    from qmd.cli.invocation import Invocation
    from qmd.cli.progress import ProgressLine
    from qmd.config.paths import Locations
    from qmd.progress import Progress

_FIRST_MEASURED_S = 1.5
_FIRST_STATES = 20
"""Time and number of states after which the first estimate is reliable; after `_SLOW_S` in any case."""

_SLOW_S = 5.0
_LONG_S = 20.0
"""Longer runs are announced."""

_MANY = 5_000
"""Larger runs are also announced in pipes and logs."""

_ALREADY = "Another embed process is already running. Skipping.\n"


def embed_index(
    invocation: Invocation,
    index: Index,
    locations: Locations,
    collections: Sequence[str] | None,
    **options: Unpack[EmbedOptions],
) -> None:
    """Compute missing vectors and print a summary.

    Raises:
        KeyboardInterrupt: Ctrl-C; its message has the progress.
        ModelError: There is no usable embedding model.
    """
    n_pending = 0

    def start(known: EmbeddingStart) -> None:
        nonlocal n_pending
        n_pending = known.pending
        line.clear()
        if options.get("force"):
            out("Force re-indexing: searches use the present vectors until the new ones are complete\n")
        # Programs parse the sentence of tobi/qmd.
        nothing = (
            "✓ Vectors are up to date.\n" if invocation.screen else "✓ All content hashes already have embeddings.\n"
        )
        out(f"Model: {describe_engine(known.model)}\n\n" if n_pending else nothing)
        flush_result()

    line = invocation.progress("Vectors", "bytes")
    continuation = _describe_continuation(invocation, index, locations, force=bool(options.get("force")))
    shown = EmbeddingProgress(line, continuation, lambda: n_pending)
    try:
        with line:
            report = index.embed(collections, on_start=start, on_progress=shown.update, **options)
    except AlreadyEmbeddingError:
        other = index.status().holder
        if other is None or other.task.computes:
            out(_ALREADY)
        raise
    except KeyboardInterrupt as exc:
        raise KeyboardInterrupt(
            f"the work done so far is kept ({shown.percent} %), and queries work; {continuation}"
        ) from exc
    if not n_pending:
        return
    reused = f" ({invocation.figure(report.reused)} reused)" if report.reused else ""
    out(
        f"✓ Done! Embedded {_counted(invocation, report.chunks, 'chunk')}{reused} from"
        f" {_counted(invocation, report.documents, 'document')} in {_duration(report.elapsed_s)}\n"
    )
    for warning in report.warnings:
        warn(warning)
    if report.stopped:
        say("stopped at the time limit; run 'qmd embed' again to continue")


def _describe_continuation(invocation: Invocation, index: Index, locations: Locations, *, force: bool) -> str:
    """Return how an interrupted run continues; a server computes only missing vectors."""
    serves = index.embeds_in_background and not force
    pid = hooks.serving_process(locations, invocation.environ) if serves else None
    return "run 'qmd embed' to continue" if pid is None else f"the server (process {pid}) continues when it is idle"


class EmbeddingProgress:
    """Progress line of a run, with one announcement of a long run."""

    def __init__(self, line: ProgressLine, continuation: str, count_pending: Callable[[], int]) -> None:
        self._line = line
        self._count_pending = count_pending
        self._continuation = continuation
        self._is_announced = False
        self._n_states = 0
        self.percent = 0

    def update(self, progress: Progress) -> None:
        """Show a state, and announce a long run once its length can be estimated."""
        self.percent = progress.percent
        self._n_states += 1
        is_measured = progress.elapsed_s >= (_FIRST_MEASURED_S if self._n_states >= _FIRST_STATES else _SLOW_S)
        if not self._is_announced and is_measured and progress.left_s is not None:
            self._is_announced = True
            if progress.left_s > _LONG_S:
                n_texts = self._count_pending()
                of_many = f" of {n_texts:,} notes" if n_texts > _MANY else ""
                self._line.say(
                    f"Searches and queries work now. Vectors{of_many} take about {_rough_duration(progress.left_s)}.",
                    f"Ctrl-C is safe: {self._continuation}.",
                    to_programs=bool(of_many),
                )
        self._line.show(progress)


def _rough_duration(seconds: float) -> str:
    """Format the first estimate of a duration."""
    minutes = round(seconds / 60)
    if minutes < 2:
        return "a minute"
    return f"{minutes} minutes" if minutes < 90 else f"{max(2, round(minutes / 60))} hours"


def _counted(invocation: Invocation, number: int, noun: str) -> str:
    return f"{invocation.figure(number)} {noun}{'' if number == 1 else 's'}"


def _duration(seconds: float) -> str:
    if seconds < 10:
        return f"{seconds:.1f}s"
    return f"{seconds:.0f}s" if seconds < 120 else f"{int(seconds) // 60}m {int(seconds) % 60}s"
