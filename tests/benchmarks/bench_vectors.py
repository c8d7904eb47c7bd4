"""Vectors of an index: insert, size, first and later scans, a small scope, recall, on real and on hard embeddings.

    python tests/benchmarks/bench_vectors.py --sizes 10000 100000 [--real INDEX.sqlite] [--keep FOLDER]

Vectors come in documents of ten. `mixed` ones are made of the real vectors of an index (weighted means of two of them
with noise), or without one of sixty-four directions with noise; `words` are sums of twenty random word vectors with
a common part, the hardest case for sign bits: near ones differ little. Recall is that of the ten best documents against
exact cosines of the vectors as they were given. A cold search runs in its own process, after the file was read by
another, and starts when its modules are imported. Every figure is of this machine and this run.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from qmd.records import Collection, IndexTerms, Scope
from qmd.store.opening import open_reader, open_writer
from qmd.store.records import ChunkRecord, NewDocument, pack_text

DIM = 384
PER_DOCUMENT = 10
BATCH = 10_000
QUERIES = 50
FINGERPRINT = "0123456789abcdef"
SMALL = Scope(collections=("small",))
"""A collection with a hundredth of the documents."""

Vectors = npt.NDArray[np.float32]


def unit(vectors: Vectors) -> Vectors:
    """Scale rows to length one."""
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), dtype=np.float32)


class Source:
    """Vectors of one kind, in any number, and queries near them."""

    def __init__(self, kind: str, real: Vectors | None) -> None:
        self._kind = kind
        rng = np.random.default_rng(7)
        self._words = rng.standard_normal((20_000, DIM)).astype(np.float32) + 0.3
        self._real = real if real is not None else unit(rng.standard_normal((64, DIM)).astype(np.float32))
        self._noise = 0.3 if real is not None else 0.9

    def draw(self, rng: np.random.Generator, count: int, *, is_query: bool = False) -> Vectors:
        """Return `count` unit vectors, shape (count, DIM)."""
        if self._kind == "words":
            words = np.minimum(rng.zipf(1.3, (count, 5 if is_query else 20)) - 1, len(self._words) - 1)
            return unit(self._words[words].sum(axis=1))
        left, right = (self._real[rng.integers(0, len(self._real), count)] for _ in range(2))
        share = rng.uniform(0.5, 1.0, (count, 1)).astype(np.float32)
        noise = rng.standard_normal((count, DIM)).astype(np.float32) * np.float32(self._noise / DIM**0.5)
        return unit(share * left + (1 - share) * right + noise)

    def batches(self, size: int) -> Iterator[Vectors]:
        """Yield all vectors of an index of that size."""
        for number in range(0, size, BATCH):
            yield self.draw(np.random.default_rng(number), min(BATCH, size - number))

    def queries(self) -> Vectors:
        """Return the queries, shape (QUERIES, DIM)."""
        return self.draw(np.random.default_rng(999_999_999), QUERIES, is_query=True)


def fill(index: Path, source: Source, size: int) -> dict[str, float]:
    """Create the index; return the processor seconds and the bytes of the vectors alone."""
    spent = 0.0
    with open_writer(index) as writer:
        folders = [Collection(name, Path("/nowhere"), "**/*.md") for name in ("small", "large")]
        writer.mirror_config(folders, None, "bench")
        n_documents = size // PER_DOCUMENT
        for number in range(0, n_documents, BATCH):
            part = range(number, min(number + BATCH, n_documents))
            for remainder in (True, False):
                chosen = [document(one) for one in part if (one % 100 == 0) is remainder]
                writer.put_documents("small" if remainder else "large", chosen)
        before = writer.status(None).size_bytes
        for number, vectors in enumerate(source.batches(size)):
            keys = [key(number * BATCH + row) for row in range(len(vectors))]
            chunks: dict[str, list[ChunkRecord]] = {}
            for row, one in enumerate(keys):
                owner = content_hash((number * BATCH + row) // PER_DOCUMENT)
                records = chunks.setdefault(owner, [])
                records.append(ChunkRecord(len(records), 10 * len(records), 10 * len(records) + 10, one))
            begun = time.process_time()
            writer.put_vectors(FINGERPRINT, DIM, dict(zip(keys, vectors, strict=True)))
            spent += time.process_time() - begun
            writer.put_chunks(FINGERPRINT, DIM, chunks)
        after = writer.status(None).size_bytes
    return {"insert_s": spent, "bytes": (after - before) / size}


def document(number: int) -> NewDocument:
    """Return a document with hardly any full text."""
    terms = IndexTerms(title="x", headings="", path="", body="", extra="")
    day = "2026-01-01T00:00:00Z"
    hash_ = content_hash(number)
    return NewDocument(f"{number}.md", str(number), hash_, 1, pack_text(str(number)), terms, "{}", 1, 1, day, day)


def content_hash(number: int) -> str:
    """Return the hash of a document's text."""
    return f"{number:064x}"


def key(number: int) -> bytes:
    """Return the key of a vector."""
    return number.to_bytes(16, "big")


def ask(index: Path, source: Source) -> dict[str, object]:
    """Search in this process; return milliseconds of the first, the second and the later queries, and the hits."""
    queries = source.queries()
    times, found = [], []
    begun = time.perf_counter()
    with open_reader(index) as reader:
        for query in queries:
            hits = reader.search_dense(query, 10, Scope(), FINGERPRINT)
            times.append((time.perf_counter() - begun) * 1000)
            documents = reader.documents([hit.document_id for hit in hits])
            found.append([int(documents[hit.document_id].title) for hit in hits])
            begun = time.perf_counter()
        deep = []
        for query in queries[:10]:
            begun = time.perf_counter()
            reader.search_dense(query, 100, Scope(), FINGERPRINT)
            deep.append((time.perf_counter() - begun) * 1000)
    return {"cold": times[0], "second": times[1], "warm": float(np.median(times[10:])), "found": found, "deep": deep}


def ask_scoped(index: Path, source: Source) -> dict[str, object]:
    """Do the same within the small collection."""
    times = []
    begun = time.perf_counter()
    with open_reader(index) as reader:
        for query in source.queries()[:10]:
            reader.search_dense(query, 10, SMALL, FINGERPRINT)
            times.append((time.perf_counter() - begun) * 1000)
            begun = time.perf_counter()
    return {"cold": times[0], "warm": float(np.median(times[2:]))}


def nearest(source: Source, size: int) -> list[set[int]]:
    """Return the ten nearest documents of every query by exact cosines."""
    queries = source.queries()
    best = np.full((QUERIES, 0), 0.0, dtype=np.float32)
    owners = np.full((QUERIES, 0), 0)
    for number, vectors in enumerate(source.batches(size)):
        scores = (queries @ vectors.T).reshape(QUERIES, -1, PER_DOCUMENT).max(axis=2)
        numbers = np.arange(scores.shape[1]) + number * BATCH // PER_DOCUMENT
        best = np.hstack([best, scores])
        owners = np.hstack([owners, np.broadcast_to(numbers, scores.shape)])
        order = np.argsort(-best, axis=1)[:, :10]
        best, owners = np.take_along_axis(best, order, 1), np.take_along_axis(owners, order, 1)
    return [set(row.tolist()) for row in owners]


def real_vectors(index: Path | None) -> Vectors | None:
    """Return the vectors of a given index, shape (n, DIM)."""
    return None if index is None else np.load(index)


def in_process(arguments: list[str]) -> dict[str, object]:
    """Run this file again; return its answer."""
    command = [sys.executable, __file__, *arguments]
    environment = {**os.environ, "PYTHONPATH": os.environ.get("PYTHONPATH") or str(Path(__file__).parents[2])}
    finished = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    answer: dict[str, object] = json.loads(finished.stdout.splitlines()[-1])
    return answer


def main() -> None:
    """Run the benchmark and print a row for each size and kind."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--kinds", nargs="+", default=["mixed", "words"])
    parser.add_argument("--real", type=Path, help="vectors of real texts, a .npy file of shape (n, 384)")
    parser.add_argument("--keep", type=Path, help="folder in which the indexes stay")
    parser.add_argument("--ask", choices=["all", "small"], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.ask:
        source = Source(arguments.kinds[0], real_vectors(arguments.real))
        print(json.dumps((ask if arguments.ask == "all" else ask_scoped)(arguments.keep, source)))
        return
    print("vectors kind    insert/s  bytes | cold ms  second  warm k=10  k=100 | scoped cold  warm | recall@10")
    with tempfile.TemporaryDirectory() as folder:
        for size in arguments.sizes:
            for kind in arguments.kinds:
                run(arguments, arguments.keep or Path(folder), kind, size)


def run(arguments: argparse.Namespace, folder: Path, kind: str, size: int) -> None:
    """Return one row of the table."""
    source = Source(kind, real_vectors(arguments.real))
    index = folder / f"{kind}-{size}.sqlite"
    made = {"insert_s": float("nan"), "bytes": float("nan")} if index.exists() else fill(index, source, size)
    options = ["--kinds", kind, "--keep", str(index)] + (["--real", str(arguments.real)] if arguments.real else [])
    in_process(["--ask", "all", *options])
    everything = in_process(["--ask", "all", *options])
    small = in_process(["--ask", "small", *options])
    found, deep = everything["found"], everything["deep"]
    assert isinstance(found, list) and isinstance(deep, list)
    recall = np.mean([len(set(one) & best) / 10 for one, best in zip(found, nearest(source, size), strict=True)])
    print(
        f"{size:7} {kind:6} {size / made['insert_s']:9.0f} {made['bytes']:6.0f} |"
        f" {everything['cold']:7.1f} {everything['second']:7.1f} {everything['warm']:10.1f} {np.median(deep):6.1f} |"
        f" {small['cold']:11.1f} {small['warm']:5.1f} | {recall:.3f}",
        flush=True,
    )


if __name__ == "__main__":
    main()
