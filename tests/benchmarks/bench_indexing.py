"""Index a folder's words with tobi/qmd and with qmd: first index, nothing changed, one file in a hundred changed.

    mkdir peer && (cd peer && npm install node@22 @tobilu/qmd@2.8.3)
    python -m tests.benchmarks.bench_indexing FOLDER... --peer peer [--files 50000] [--runs 3]

Both read one copy of the markdown in the folders, in turns, and every round begins without an index. With `--files` the
copy has that number: the folders are repeated, and each repeated text gets a unique word, so that no two are equal.
Times are medians of the rounds, memory is the peak of a program and its processes (shared pages counted by share, where
the system reports it), and the index is measured with its side files after `cleanup`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from threading import Event, Thread

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.benchmarks.compare_with_original import Program, our_program, peer_program, run

SAMPLED_S = 0.1
CHANGED_ONE_IN = 100

BARS: Mapping[str, float] = {
    "first index, wall s": 0.28,
    "first index, CPU s": 0.5,
    "first index, peak MB": 0.083,
    "nothing changed, wall s": 0.1,
    "nothing changed, CPU s": 0.1,
    "1 % changed, wall s": 0.2,
    "1 % changed, CPU s": 0.2,
    "index, MB": 0.33,
}
"""Highest accepted ratio of qmd's figure to tobi/qmd's."""


def copy_tree(folders: Sequence[Path], into: Path, n_files: int | None) -> list[Path]:
    """Copy the markdown files in folders, all or a number of them; return their paths."""
    sources = [
        (folder, path)
        for folder in folders
        for path in sorted(folder.rglob("*.md"))
        if path.is_file() and path.exists()
    ]
    made: list[Path] = []
    for copy in count():
        for folder, path in sources:
            if len(made) == n_files:
                return made
            target = into / f"{folder.name}{copy or ''}" / path.relative_to(folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            mark = f"\n{_word(len(made))}\n" if copy else ""
            target.write_bytes(path.read_bytes() + mark.encode())
            # Notes are not from this very moment.
            os.utime(target, (1_700_000_000 + len(made), 1_700_000_000 + len(made)))
            made.append(target)
        if n_files is None:
            return made
    raise AssertionError("`count` never ends")


def change(files: Sequence[Path], round_: int) -> None:
    """Add a line to one file in a hundred."""
    for number, path in enumerate(files[CHANGED_ONE_IN // 2 :: CHANGED_ONE_IN]):
        with path.open("a", encoding="utf-8") as file:
            file.write(f"\n{_word(number, round_)}\n")


def _word(*numbers: int) -> str:
    return "mark" + "x".join(map(str, numbers))


@contextmanager
def watched_memory(readings: list[float]) -> Iterator[None]:
    """Add the peak MB of the processes below this one to `readings`; only on Linux."""
    is_over, most = Event(), [0]

    def watch() -> None:
        while not is_over.wait(SAMPLED_S):
            most[0] = max(most[0], sum(map(_memory_kb, _processes_below(os.getpid()))))

    thread = Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
        if most[0]:
            readings.append(most[0] / 1024)


def _processes_below(process: int) -> Iterator[int]:
    with suppress(OSError):
        for task in Path(f"/proc/{process}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                yield child
                yield from _processes_below(child)


def _memory_kb(process: int) -> int:
    with suppress(OSError):
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    return 0


def measure(program: Program, folder: Path, files: Sequence[Path], round_: int) -> dict[str, float]:
    """Run one round: the cost of each step of a program."""
    figures: dict[str, float] = {}

    def step(name: str, *argv: str) -> None:
        done = run(program, argv, folder.parent)
        if done.status:
            raise SystemExit(f"{program.name}: {' '.join(argv)} failed with {done.status}: {done.err}")
        figures[f"{name}, wall s"], figures[f"{name}, CPU s"] = done.wall_s, done.cpu_s

    shutil.rmtree(program.database.parent, ignore_errors=True)
    peak: list[float] = []
    with watched_memory(peak):
        step("first index", "collection", "add", str(folder), "--name", "docs", "--mask", "**/*.md")
    if peak:
        figures["first index, peak MB"] = peak[0]
    step("nothing changed", "update")
    change(files, round_)
    step("1 % changed", "update")
    step("cleanup", "cleanup")
    parts = program.database.parent.glob(program.database.name + "*")
    figures["index, MB"] = sum(part.stat().st_size for part in parts) / 1e6
    return figures


def main() -> None:
    """Run the rounds and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER")
    parser.add_argument("--peer", type=Path, default=Path("peer"))
    parser.add_argument("--files", type=int)
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    samples: defaultdict[str, tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
    with tempfile.TemporaryDirectory() as made:
        home = Path(made).resolve()
        peer = peer_program(arguments.peer.resolve(), home)
        if isinstance(peer, str):
            raise SystemExit(peer)
        files = copy_tree(arguments.folders, home / "docs", arguments.files)
        size_mb = sum(path.stat().st_size for path in files) / 1e6
        for round_ in range(arguments.runs):
            for side, program in enumerate((peer, our_program(home))):
                # A change for each, so that both find the same number of changed files.
                for name, value in measure(program, home / "docs", files, 2 * round_ + side).items():
                    samples[name][side].append(value)
    print(f"{len(files):,} files, {size_mb:.0f} MB\n\n| | tobi/qmd | qmd | ratio | aim |\n|---|---|---|---|---|")
    for name, pair in samples.items():
        theirs, ours = map(statistics.median, pair)
        print(f"| {name} | {theirs:.3g} | {ours:.3g} | {ours / theirs:.2f} | {BARS.get(name, '')} |")


if __name__ == "__main__":
    main()
