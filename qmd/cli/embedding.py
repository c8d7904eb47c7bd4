"""Computing missing vectors, for every command that does so."""

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
"""From so long and so many texts on the first estimate holds; slow models need not get so far."""

_SLOW_S = 5.0
_LONG_S = 20.0
"""Runs that take longer are announced to whoever waits for them."""

_MANY = 5_000
"""Notes that take so long that a log says it, too."""

_ALREADY = "Another embed process is already running. Skipping.\n"


def embed_index(
    invocation: Invocation,
    index: Index,
    locations: Locations,
    collections: Sequence[str] | None,
    **options: Unpack[EmbedOptions],
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
        line.clear()
        if options.get("force"):
            out("Force re-indexing: searches use the present vectors until the new ones are complete\n")
        # What a program reads is what tobi/qmd says.
        nothing = (
            "✓ Everything is up to date.\n" if invocation.screen else "✓ All content hashes already have embeddings.\n"
        )
        out(f"Model: {describe_engine(known.model)}\n\n" if n_pending else nothing)
        flush_result()

    line = invocation.progress("Vectors", "bytes")
    how_to_go_on = _how_to_go_on(invocation, index, locations, force=bool(options.get("force")))
    shown = EmbeddingProgress(line, how_to_go_on, lambda: n_pending)
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
            f"the work done so far is kept ({shown.percent} %), and queries work; {how_to_go_on}"
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


def _how_to_go_on(invocation: Invocation, index: Index, locations: Locations, *, force: bool) -> str:
    """Who computes the vectors that an interrupted command leaves; a server only those that are missing."""
    serves = index.embeds_in_background and not force
    pid = hooks.serving_process(locations, invocation.environ) if serves else None
    return "run 'qmd embed' to continue" if pid is None else f"the server (process {pid}) continues when it is idle"


class EmbeddingProgress:
    """What a person is shown of a run: its state, and once, when it is going to be long, what that means for them."""

    def __init__(self, line: ProgressLine, how_to_go_on: str, count_pending: Callable[[], int]) -> None:
        self._line = line
        self._count_pending = count_pending
        self._how_to_go_on = how_to_go_on
        self._is_announced = False
        self._n_states = 0
        self.percent = 0

    def update(self, progress: Progress) -> None:
        """Show a state; tell of a long run as soon as its length can be told."""
        self.percent = progress.percent
        self._n_states += 1
        is_measured = progress.elapsed_s >= (_FIRST_MEASURED_S if self._n_states >= _FIRST_STATES else _SLOW_S)
        if not self._is_announced and is_measured and progress.left_s is not None:
            self._is_announced = True
            if progress.left_s > _LONG_S:
                n_texts = self._count_pending()
                of_many = f" of {n_texts:,} notes" if n_texts > _MANY else ""
                self._line.say(
                    f"Searches and queries work now. Vectors{of_many} take about {_rough_duration(progress.left_s)}.\n"
                    f"Ctrl-C is safe: {self._how_to_go_on}.\n",
                    to_programs=bool(of_many),
                )
        self._line.show(progress)


def _rough_duration(seconds: float) -> str:
    """A time as roughly as a first guess can tell it."""
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
