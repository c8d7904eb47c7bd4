"""Estimated and true time left, at five points of an embedding run.

    python tests/benchmarks/bench_progress.py                        simulated runs, a second
    python tests/benchmarks/bench_progress.py --index COPY.sqlite    and a real run over the texts of an index

The real run forgets the vectors of the index and computes them again, on one thread: give it a copy. It is timed in
processor time, so other work on the machine has no effect; the order is that of the program (newest first) or by path,
which also shows the cost of the order.

Simulated runs have a clock of their own. Texts cost what they cost the built-in model; `all` is the plain rate over
everything that was done, for comparison with what the program shows.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from unittest import mock

from qmd.indexing import embed
from qmd.inference.loader import load_engines
from qmd.inference.settings import EngineSettings
from qmd.progress import Pace, Progress
from qmd.store.opening import open_writer
from qmd.store.records import PendingContent

POINTS = (0.10, 0.25, 0.50, 0.75, 0.90)
N_TEXTS = 20_000

Text = tuple[int, float]
"""(characters, seconds)."""


def texts(kind: str) -> list[Text]:
    """Return a run of one kind, in order."""
    rng = random.Random(14)
    lengths = [min(1_200, max(40, round(rng.lognormvariate(6.1, 0.6)))) for _ in range(N_TEXTS)]
    if kind == "short texts first":
        lengths.sort()
    if kind == "long texts first":
        lengths.sort(reverse=True)
    costs = [(length, 0.003 + 38e-6 * length) for length in lengths]
    if kind == "resumed: the first 300 are there":
        return [(length, 0.0 if number < 300 else cost) for number, (length, cost) in enumerate(costs)]
    if kind == "nine in ten are there":
        return [(length, cost if rng.random() < 0.1 else 0.0) for length, cost in costs]
    if kind == "the first third is not read":
        return [(length, 0.0 if number < N_TEXTS // 3 else cost) for number, (length, cost) in enumerate(costs)]
    if kind == "half as fast from the middle on":
        return [(length, cost * (1 + (number > N_TEXTS // 2))) for number, (length, cost) in enumerate(costs)]
    return costs


KINDS = (
    "all alike",
    "short texts first",
    "long texts first",
    "resumed: the first 300 are there",
    "nine in ten are there",
    "the first third is not read",
    "half as fast from the middle on",
)


def simulate(work: Sequence[Text]) -> Iterator[tuple[Progress, float]]:
    """Return each state as the program shows it, with the seconds left at the rate over everything."""
    now = 0.0
    pace = Pace(sum(length for length, _ in work), clock=lambda: now)
    pace.at(0)
    done = 0
    for length, cost in work:
        now += cost
        done += length
        progress = pace.at(done)
        yield progress, (progress.total - done) * now / done


def measure(index: Path, by_path: bool) -> tuple[list[Progress], int]:
    """Return the states of a real run, and the number of computed chunks."""
    engines = load_engines(EngineSettings(models_dir=index.parent / "models", threads=1), frozenset({"embed"}))
    assert engines.embedder is not None
    states: list[Progress] = []
    with open_writer(index) as writer:
        writer.keep_models({})
        pending = writer.pending

        def sorted_pending(fingerprint: str, collections: Sequence[str] | None = None) -> Iterator[PendingContent]:
            return iter(sorted(pending(fingerprint, collections), key=lambda content: content.path))

        order: Callable[..., object] = sorted_pending if by_path else pending
        # The program measures in wall time.
        with (
            mock.patch.object(embed, "Pace", partial(Pace, clock=time.process_time)),
            mock.patch.object(writer, "pending", order),
        ):
            report = embed.embed_pending(writer, engines.embedder, on_progress=states.append)
    return states, report.embedded


def row(states: Sequence[tuple[Progress, float | None]]) -> str:
    """Return the estimated / true seconds left at each point."""
    end = states[-1][0].elapsed_s
    cells = []
    for point in POINTS:
        progress, left = next(state for state in states if state[0].elapsed_s >= point * end)
        truth = end - progress.elapsed_s
        cells.append(
            "       -      " if left is None else f"{left:5.0f} {truth:5.0f} {100 * (left / truth - 1):+5.0f} %"
        )
    return " | ".join(cells)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--index", type=Path, help="copy of an index to re-embed")
    parser.add_argument("--by-path", action="store_true", help="in the order of paths instead of the newest first")
    arguments = parser.parse_args()
    print(f"{'seconds left: shown, true, off by, at':<40} | " + " | ".join(f"{point:>17.0%}" for point in POINTS))
    for kind in KINDS:
        states = list(simulate(texts(kind)))
        print(f"{kind:<40} | {row([(progress, progress.left_s) for progress, _ in states])}")
        print(f"{'  all':<40} | {row(states)}")
    if arguments.index is not None:
        measured, chunks = measure(arguments.index, arguments.by_path)
        name = f"{arguments.index.stem}, {chunks} chunks, {measured[-1].elapsed_s:.1f} s"
        print(f"{name:<40} | {row([(progress, progress.left_s) for progress in measured])}")


if __name__ == "__main__":
    main()
