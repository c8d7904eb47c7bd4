"""The program's own commands on an index of each engine; see `bench_engines`."""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np

import qmd
from qmd.app.index import Index
from qmd.batching import batches
from qmd.config.paths import locate
from qmd.store.opening import open_writer
from qmd.store.records import ChunkRecord
from tests.benchmarks.bench_indexing import change, copy_tree
from tests.benchmarks.bench_vectors import DIM, Source, real_vectors
from tests.benchmarks.compare_with_original import Done, Program, our_program, run
from tests.benchmarks.counted_s3 import BUCKET, CountedS3, counted_s3
from tests.robustness.comparison import differing, tables_of

QUESTIONS = 60
DELAY_MS = 20
_PER_COMMIT = 2_000
_TIMES = 3

PRICES: Mapping[str, float] = {"PUT": 5e-6, "LIST": 5e-6, "GET": 4e-7, "HEAD": 4e-7}
"""US dollars a request: S3 Standard in us-east-1. Deletes are free, and so are bytes within the region."""


class Bench:
    """One engine: the writing machine, a reading machine, and the figures."""

    def __init__(self, engine: str, home: Path, server: CountedS3 | None) -> None:
        self.home, self.server = home, server
        self._place = {"lance": f"lance:{home}/", "s3": f"s3://{BUCKET}/"}.get(engine)
        self.found: dict[str, str] = {}
        self.writer = self.machine("writer")
        self.reader = self.machine("reader") if self._place else self.writer

    def machine(self, name: str, index: str = "tables") -> Program:
        """Return the program on its own machine."""
        home = self.home / name
        home.mkdir(exist_ok=True)
        program = our_program(home)
        own = {"INDEX_PATH": f"{self._place}{index}"} if self._place else {}
        return replace(program, env={**program.env, **own, **(self.server.env if self.server else {})})

    def step(self, name: str, program: Program, *argv: str, times: int = 1) -> Done:
        """Run a command a number of times; return the last run."""
        runs, counts = [], Counter[str]()
        for _ in range(times):
            _ = self.server and self.server.counts()
            runs.append(done := run(program, argv, Path.home()))
            counts = self.server.counts() if self.server else counts
            if done.status:
                raise SystemExit(f"{' '.join(argv)} failed with {done.status}: {done.err}")
        wall, cpu = (statistics.median(getattr(one, part) for one in runs) for part in ("wall_s", "cpu_s"))
        self.record(name, f"{wall:.3g} s ({cpu:.3g} cpu), {max(one.peak_mb for one in runs):.0f} MB{_bill(counts)}")
        return runs[-1]

    def record(self, name: str, value: str) -> None:
        """Record a figure."""
        print(f"  {name}: {value}", file=sys.stderr, flush=True)
        self.found[name] = value


def run_commands(arguments: argparse.Namespace, home: Path) -> None:
    """Measure all engines and print a table."""
    files = copy_tree(arguments.tree, home / "docs", arguments.files)
    questions = _questions(files)
    (home / "questions.json").write_text(json.dumps(questions))
    benches: dict[str, Bench] = {}
    answers: dict[str, dict[str, list[list[str]]]] = {}
    with ExitStack() as stack:
        for number, engine in enumerate(arguments.engines):
            print(engine, file=sys.stderr)
            (home / engine).mkdir()
            server = stack.enter_context(counted_s3()) if engine == "s3" else None
            bench = benches[engine] = Bench(engine, home / engine, server)
            answers[engine] = _measure(bench, home, files, arguments, number)
    rows = list(dict.fromkeys(name for bench in benches.values() for name in bench.found))
    print(
        f"| {len(files):,} files, {arguments.vectors:,} vectors | {' | '.join(benches)} |\n|---|{'---|' * len(benches)}"
    )
    for name in rows:
        print(f"| {name} | {' | '.join(bench.found.get(name, '') for bench in benches.values())} |")
    first = next(iter(answers))
    for engine in answers:
        for kind, lists in answers[engine].items():
            print(f"{kind}, {engine} next to {first}: {_agreement(answers[first][kind], lists)}")


def _measure(
    bench: Bench, home: Path, files: Sequence[Path], arguments: argparse.Namespace, number: int
) -> dict[str, list[list[str]]]:
    first = bench.step("first index", bench.writer, "index", str(home / "docs"), "--no-embed")
    if arguments.vectors:
        more = (str(arguments.real.resolve()),) if arguments.real else ()
        bench.step("vectors in", _again(bench.writer), "fill", str(arguments.vectors), *more)
    bench.step("cleanup", bench.writer, "cleanup")
    words = json.loads((home / "questions.json").read_text())
    kinds = ["lexical", *(["dense"] if arguments.vectors else [])]
    answers = {}
    for delay in (0, DELAY_MS) if bench.server else (0,):
        late = f", requests take {delay} ms" if delay else ""
        if bench.server:
            bench.server.answer_after(delay)
        bench.step(f"status{late}", bench.reader, "status", times=_TIMES)
        bench.step(f"search, cold{late}", bench.reader, "search", words[0], times=_TIMES)
        if arguments.vectors:
            bench.step(f"vsearch, cold{late}", bench.reader, "vsearch", words[0], times=_TIMES)
        for kind in kinds:
            _ = bench.server and bench.server.counts()
            done = run(_again(bench.reader), ("ask", kind, str(home / "questions.json")), Path.home())
            if done.status:
                raise SystemExit(done.err)
            figures = json.loads(done.out)
            counts = bench.server.counts() if bench.server else Counter[str]()
            bill = _bill(Counter({one: n / QUESTIONS for one, n in counts.items()}))
            bench.record(
                f"{kind}, warm{late}",
                f"{figures['wall']:.0f} ms ({figures['cpu']:.0f} cpu), {done.peak_mb:.0f} MB{bill}",
            )
            answers[kind] = figures["found"]
    if bench.server:
        bench.server.answer_after(0)
    bench.step("nothing changed", bench.writer, "update")
    change(files, number)
    bench.step("1 % changed", bench.writer, "update")
    bench.step("search after it", bench.reader, "search", words[0])
    status = bench.step("status after it", bench.reader, "status")
    bench.record("size", " ".join(re.findall(r"(?i)size\W+([\d.,]+ ?\w+)", status.out)))
    if arguments.kills and bench.reader is not bench.writer:
        _kill_writers(bench, home / "docs", arguments.kills, words, first.wall_s)
    return answers


def _kill_writers(bench: Bench, docs: Path, n_kills: int, words: Sequence[str], takes_s: float) -> None:
    """Index into a second place with killed writers, next to four machines that search; the results must be equal."""
    from qmd.plugins.lance.claim import SILENT_S

    dice, answers, is_over = random.Random(5), Counter[str](), threading.Event()
    writer, readers = bench.machine("killed", "second"), [bench.machine(f"reader{n}", "second") for n in range(4)]

    def search(reader: Program) -> None:
        while not is_over.is_set():
            done = run(reader, ("search", dice.choice(words), "--json"), Path.home())
            answers["answers" if not done.status else re.sub(r"'\S+'", "…", done.err.partition("\n")[0])] += 1

    threads = [threading.Thread(target=search, args=(reader,)) for reader in readers]
    for thread in threads:
        thread.start()
    command = (*writer.command, "index", str(docs), "--no-embed")
    for number in range(n_kills):
        process = subprocess.Popen(command, env=dict(writer.env), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        # In the middle; the next writer waits until the claim of a dead one expires.
        time.sleep(takes_s * dice.uniform(0.3, 0.9) + (SILENT_S if number else 0))
        process.kill()
        process.wait()
    bench.step(f"index, killed {n_kills} times before", writer, "index", str(docs), "--no-embed")
    is_over.set()
    for thread in threads:
        thread.join()
    bench.record("meanwhile on four machines", ", ".join(f"{n} {what}" for what, n in answers.most_common()))
    os.environ.update(bench.server.env if bench.server else {})
    places = [locate(None, Path(one.env["HOME"]), dict(one.env)) for one in (bench.writer, writer)]
    undisturbed, killed = (tables_of(place, ("docs",), with_vectors=False) for place in places)
    found = differing(undisturbed, killed)
    bench.record("differs from the undisturbed one", ", ".join(found) or "nothing")


def _again(program: Program) -> Program:
    return replace(program, command=(sys.executable, "-m", "tests.benchmarks.commands_at_size"))


def _bill(counts: Counter[str]) -> str:
    if not counts:
        return ""
    requests = ", ".join(f"{counts[kind]:.3g} {kind}" for kind in (*PRICES, "DELETE") if counts[kind])
    dollars = 1000 * sum(price * counts[kind] for kind, price in PRICES.items())
    return f"; {requests}; {counts['in'] / 1e6:.3g} MB in, {counts['out'] / 1e6:.3g} out; {dollars:.2g} $ for 1,000"


def _questions(files: Sequence[Path]) -> list[str]:
    """Return queries of one to four words that are near one another in some file."""
    dice = random.Random(4)
    found: list[str] = []
    while len(found) < QUESTIONS:
        words = re.findall(r"[A-Za-z]{4,}", dice.choice(files).read_text(errors="replace"))
        if len(words) > 40:
            at = dice.randrange(len(words) - 8)
            found.append(" ".join(dict.fromkeys(dice.sample(words[at : at + 8], 1 + len(found) % 4))))
    return found


def _agreement(first: list[list[str]], second: list[list[str]]) -> str:
    shares = [len(set(a) & set(b)) / max(len(a), len(b), 1) for a, b in zip(first, second, strict=True) if a or b]
    same = sum(a[:1] == b[:1] for a, b in zip(first, second, strict=True))
    return f"{statistics.mean(shares):.3f} of the first ten in common, the first one equal for {same} of {len(first)}"


def _ask(kind: Literal["lexical", "dense"], path: Path) -> dict[str, Any]:
    """Return answers to questions, and the median of their times after the first three, in milliseconds."""
    wall: list[float] = []
    cpu: list[float] = []
    found: list[list[str]] = []
    with _open() as index:
        for text in json.loads(path.read_text()):
            began, began_cpu = time.perf_counter(), time.process_time()
            hits = index.search(text, mode=kind, limit=10).hits
            wall.append((time.perf_counter() - began) * 1000)
            cpu.append((time.process_time() - began_cpu) * 1000)
            found.append([hit.document.path for hit in hits])
    return {"wall": statistics.median(wall[3:]), "cpu": statistics.median(cpu[3:]), "found": found}


def _fill(n_vectors: int, real: Path | None) -> None:
    """Give the texts of an index vectors of the configured model, the same number to each."""
    from qmd.inference.loader import identify_embedder

    with _open() as index:
        identity = identify_embedder(index.engine_settings())
        assert identity is not None
    fingerprint, place = identity.fingerprint, os.environ["INDEX_PATH"]
    source = Source("mixed", real_vectors(real))
    is_address = re.match(r"lance:|s3:", place)
    with open_writer(Path(os.environ["HOME"], "fill") if is_address else Path(place), is_address and place) as writer:
        n_texts = writer.count_pending(fingerprint)[0]
        each = -(-n_vectors // n_texts)
        texts = iter(writer.pending(fingerprint))
        while part := list(islice(texts, max(_PER_COMMIT // each, 1))):
            chunks: dict[str, list[ChunkRecord]] = {}
            # By its text, so that each engine's has the same, whatever order it gives them in.
            dice = [np.random.default_rng(int(text.hash[:15], 16)) for text in part]
            vectors = np.concatenate([source.draw(rng, each) for rng in dice])
            keys = [rng.bytes(16) for rng in dice for _ in range(each)]
            for text, own in zip(part, batches(keys, each), strict=True):
                size = len(text.text) // each + 1
                chunks[text.hash] = [ChunkRecord(seq, seq * size, (seq + 1) * size, key) for seq, key in enumerate(own)]
            writer.put_vectors(fingerprint, DIM, dict(zip(keys, vectors, strict=True)))
            writer.put_chunks(fingerprint, DIM, chunks)


def _open() -> Index:
    return qmd.open_index(os.environ["INDEX_PATH"])


if __name__ == "__main__":
    if sys.argv[1] == "fill":
        _fill(int(sys.argv[2]), Path(sys.argv[3]) if len(sys.argv) > 3 else None)
    else:
        print(json.dumps(_ask("dense" if sys.argv[2] == "dense" else "lexical", Path(sys.argv[3]))))
