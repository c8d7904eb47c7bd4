"""Runs a target's cases in a child process and watches it from outside: a hang or a death is a finding, not an end.

    python -m tests.robustness.fuzz [--target files] [--cases 100000] [--seed 7] [--keep FOLDER] [--corpus FOLDER]
    python -m tests.robustness.fuzz --target files --seed 7 --case 4711     # one case again, in this process

A case is made from the seed and its number alone, so those two reproduce it. Without `--target` all targets run.
"""

from __future__ import annotations

import argparse
import os
import random
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.processes import ROOT, processor_time_s
from tests.robustness.generators import real_files
from tests.robustness.report import Row, print_table
from tests.robustness.targets import TARGETS, Target

SILENCE_S = 10.0
"""Processor time that a case may take. A busy machine gives a child little of it, so that load alone fails no case."""

WALL_FACTOR = 10
"""A case that waits, and takes no processor time, may take so many times that long."""

START_S = 60.0
MEMORY_BYTES = 4 << 30
"""Address space of a child; what needs more is a finding."""

Problem = tuple[int, str]
"""The number of a case, and what became of it."""


def case_of(target: Target, seed: int, number: int, real: Sequence[bytes]) -> bytes:
    """The case of that number."""
    return target.make(random.Random(f"{target.name}:{seed}:{number}"), real)


@dataclass(frozen=True, slots=True)
class Job:
    """A run of consecutive cases of one target."""

    target: Target
    seed: int
    corpus: Path | None
    silence_s: float = SILENCE_S

    def real(self) -> list[bytes]:
        """Real files to mutate: qmd's own documents and sources, or those of a folder."""
        return real_files([self.corpus] if self.corpus else [ROOT / "docs", ROOT / "qmd", ROOT / "tests"])

    def command(self, first: int, last: int) -> list[str]:
        """The child that runs cases `first` … `last - 1`."""
        words = [sys.executable, "-m", "tests.robustness.fuzz", "--serve", self.target.name, str(first), str(last)]
        words += ["--seed", str(self.seed)]
        return words if self.corpus is None else [*words, "--corpus", str(self.corpus)]


def serve(job: Job, first: int, last: int) -> None:
    """Run cases, and write a line before each and after those that fail: what the child does."""
    if sys.platform == "linux":
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    # Nothing that a library prints may get between the lines.
    lines = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    real = job.real()
    folder = tempfile.TemporaryDirectory(dir=_memory_folder(), ignore_cleanup_errors=True)
    with folder as name, job.target.open(Path(name).resolve()) as check:
        for number in range(first, last):
            case = case_of(job.target, job.seed, number, real)
            lines.write(f"{number}\n")
            try:
                check(case)
            except Exception as exc:
                said = " ".join(str(exc).split())[:300]
                lines.write(f"failed {type(exc).__name__}: {said}\n")
    lines.write("done\n")


def problems_of(job: Job, n_cases: int, row: Row) -> Iterator[Problem]:
    """Run all cases, with a new child after each that hung or died."""
    first = 0
    while first < n_cases:
        environ = {**os.environ, "PYTHONPATH": str(ROOT)}
        with tempfile.TemporaryFile() as errors:
            child = subprocess.Popen(
                job.command(first, n_cases), cwd=ROOT, env=environ, stdout=subprocess.PIPE, stderr=errors
            )
            try:
                current = yield from _watch(job, child, first, row)
            finally:
                child.kill()
                child.communicate()
            if current is None:
                return
            if current < first:
                errors.seek(0)
                raise RuntimeError(f"the fuzzer does not start: {errors.read()[-2000:].decode(errors='replace')}")
        first = current + 1


def _watch(job: Job, child: subprocess.Popen[bytes], first: int, row: Row) -> Generator[Problem, None, int | None]:
    """What fails; returns the case that ended the child, or None when all are done."""
    assert child.stdout is not None
    current, buffered, since, told = first - 1, b"", time.monotonic(), time.monotonic()
    heard, spent_s = since, 0.0
    while True:
        limit = START_S if current < first else job.silence_s
        ready, _, _ = select.select([child.stdout], [], [], limit / 2)
        piece = os.read(child.stdout.fileno(), 1 << 16) if ready else b""
        if ready and not piece:
            yield current, f"died with status {child.wait()}"
            return current
        now, now_spent_s = time.monotonic(), processor_time_s(child.pid)
        if piece:
            heard, spent_s = now, now_spent_s
        elif now_spent_s - spent_s >= limit or now - heard >= WALL_FACTOR * limit:
            yield current, f"no end after {now_spent_s - spent_s:.1f} s of work in {now - heard:.1f} s"
            return current
        buffered += piece
        *complete, buffered = buffered.split(b"\n")
        for line in complete:
            if line == b"done":
                return None
            if line.isdigit():
                current = int(line)
                row.tries += 1
            else:
                yield current, line.decode(errors="replace").removeprefix("failed ")
        if time.monotonic() - told > 5:
            told = time.monotonic()
            rate = (current - first + 1) / (told - since)
            print(
                f"{row.name}: case {current:,}, {rate:.0f}/s, {len(row.failures)} failures", file=sys.stderr, flush=True
            )


def run(job: Job, n_cases: int, keep: Path | None = None) -> Row:
    """Try so many cases of a target; failing inputs are written into `keep`."""
    row = Row(f"fuzz: {job.target.name}")
    begun = time.monotonic()
    real = job.real()
    for number, what in problems_of(job, n_cases, row):
        row.fail(f"case {number} (seed {job.seed}): {what}")
        if keep is not None:
            keep.mkdir(parents=True, exist_ok=True)
            (keep / f"{job.target.name}-{job.seed}-{number}").write_bytes(case_of(job.target, job.seed, number, real))
    row.note = f"{row.tries / max(time.monotonic() - begun, 1e-3):.0f}/s"
    return row


def try_one(job: Job, number: int) -> None:
    """One case in this process, its exception let through."""
    case = case_of(job.target, job.seed, number, job.real())
    print(case)
    with tempfile.TemporaryDirectory() as folder, job.target.open(Path(folder).resolve()) as check:
        check(case)


def _memory_folder() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the command line, run, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--target", choices=sorted(TARGETS))
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--silence", type=float, default=SILENCE_S, help="seconds of work that one case may take")
    parser.add_argument("--keep", type=Path, help="folder for the inputs that fail")
    parser.add_argument("--corpus", type=Path, help="folder of real files to mutate, instead of qmd's own")
    parser.add_argument("--case", type=int)
    parser.add_argument("--serve", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.serve:
        name, first, last = options.serve
        serve(Job(TARGETS[name], options.seed, options.corpus), int(first), int(last))
        return 0
    chosen = [TARGETS[options.target]] if options.target else list(TARGETS.values())
    jobs = [Job(target, options.seed, options.corpus, options.silence) for target in chosen]
    if options.case is not None:
        try_one(jobs[0], options.case)
        return 0
    return print_table([run(job, options.cases, options.keep) for job in jobs])


if __name__ == "__main__":
    sys.exit(main())
