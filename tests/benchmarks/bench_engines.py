"""SQLite's engine and LanceDB's compared: time to index, to search and to bring up to date, and size.

    python -m tests.benchmarks.bench_engines --documents 10000
    python -m tests.benchmarks.bench_engines --documents 10000 --engines lance --at s3://bucket/prefix
    python -m tests.benchmarks.bench_engines --tree FOLDER... --files 48000 --vectors 1000000 --real VECTORS.npy \\
        [--engines sqlite lance s3] [--kills 4] [--keep FOLDER]

Texts are random words with frequencies as in a language, three vectors each. Each engine runs in a process of its own;
times are the median of several, wall and processor, in milliseconds unless the name has seconds.

With `--tree` the program's own commands run on a copy of the markdown in folders: one machine writes (its own HOME),
another searches. `s3` is LanceDB at a server that counts requests (`pip install 'moto[server]'`); searches are measured
once more while each request takes 20 ms. Vectors are those of `bench_vectors`, spread over the texts. In the end the
answers to the same questions are compared. With `--kills` a second index is made that way, by writers that are killed,
while four machines search it, and compared with the first.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from qmd.batching import batches
from qmd.records import IndexTerms, LexicalTerm, Scope
from qmd.retrieval.query import read_query
from qmd.retrieval.request import SearchRequest
from qmd.store.base import IndexReader, IndexWriter
from qmd.store.opening import open_reader, open_writer
from qmd.store.records import ChunkRecord, NewDocument, pack_text
from tests.benchmarks.commands_at_size import run_commands

DIM = 384
_CHUNKS = 3
_WORDS = 250
_AT_ONCE = 2_000
_TIMES = 7
_MODEL = "random"


def main() -> None:
    """Measure in processes of their own and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=10_000)
    parser.add_argument("--engines", nargs="*", default=["sqlite", "lance"], choices=["sqlite", "lance", "s3"])
    parser.add_argument("--at", help="address for LanceDB; a new folder without")
    parser.add_argument("--tree", type=Path, nargs="+", metavar="FOLDER")
    parser.add_argument("--files", type=int)
    parser.add_argument("--vectors", type=int, default=0)
    parser.add_argument("--real", type=Path, help="vectors of real texts, a .npy file of shape (n, 384)")
    parser.add_argument(
        "--kills", type=int, default=0, help="number of times to kill a writer of LanceDB's at its work"
    )
    parser.add_argument("--keep", type=Path, help="empty folder for all files, which stay")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.tree:
        with tempfile.TemporaryDirectory() as folder:
            run_commands(arguments, (arguments.keep or Path(folder)).resolve())
        return
    if arguments.one:
        print(json.dumps(_measure(Path(arguments.one), arguments.at, arguments.documents)))
        return
    rows: dict[str, dict[str, str]] = {}
    for engine in arguments.engines:
        with tempfile.TemporaryDirectory() as folder:
            address = (arguments.at or f"lance:{folder}/tables") if engine == "lance" else None
            command = [sys.executable, "-m", "tests.benchmarks.bench_engines", "--one", f"{folder}/index.sqlite"]
            command += ["--documents", str(arguments.documents), *(["--at", address] if address else [])]
            rows[engine] = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    print(f"| {arguments.documents:,} documents | {' | '.join(rows)} |\n|---|{'---|' * len(rows)}")
    for name in next(iter(rows.values())):
        print(f"| {name} | {' | '.join(found[name] for found in rows.values())} |")


def _measure(path: Path, address: str | None, n_documents: int) -> dict[str, str]:
    random = np.random.default_rng(1)
    vectors = random.standard_normal((n_documents * _CHUNKS, DIM)).astype(np.float32) + random.standard_normal(DIM)
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    found: dict[str, str] = {}
    documents = list(_documents(n_documents))
    with open_writer(path, address) as writer:
        found["index, s"] = _seconds(lambda: _put_texts(writer, documents))
        found["vectors in, s"] = _seconds(lambda: _put_vectors(writer, documents, vectors))
        found["size, MB"] = f"{writer.status(None).size_bytes / 1e6:.0f}"
    with open_reader(path, address) as reader:
        words = [_terms(f"word{n}", f"word{n * 7}") for n in (30, 300, 3_000, 9_000)]
        scope = read_query(SearchRequest("", filter="status:s3")).scope
        found["open and first search"] = _times(lambda: _open_and_search(path, address, words[0]), 3)
        found["search by words"] = _times(lambda: [reader.search_lexical(one, 20, Scope()) for one in words], n=4)
        found["… in a tenth"] = _times(lambda: [reader.search_lexical(one, 20, scope) for one in words], n=4)
        found["search by vector"] = _times(lambda: reader.search_dense(vectors[7], 20, Scope(), _MODEL))
        found["… in a tenth"] = (
            found["… in a tenth"] + "; vector " + _times(lambda: reader.search_dense(vectors[7], 20, scope, _MODEL))
        )
        found["frequencies of two words"] = _times(lambda: [reader.document_frequencies(one) for one in words], n=4)
        found["coverage"] = _times(lambda: reader.vector_coverage(_MODEL))
        found["documents and texts of 20"] = _times(lambda: _fetch(reader, documents))
        truth = set(np.argsort(-(vectors @ vectors[7]).reshape(-1, _CHUNKS).max(axis=1), kind="stable")[:20].tolist())
        nearest = {one.document_id - 1 for one in reader.search_dense(vectors[7], 20, Scope(), _MODEL)}
        found["recall@20"] = f"{len(truth & nearest) / 20:.2f}"
    with open_writer(path, address) as writer:
        changed = list(_documents(max(n_documents // 100, 1), seed=2))
        found["1 % changed, s"] = _seconds(lambda: _put_texts(writer, changed))
        found["nothing changed, s"] = _seconds(lambda: _put_texts(writer, []))
        found["cleanup, s"] = _seconds(lambda: writer.cleanup())
        found["size after it, MB"] = f"{writer.status(None).size_bytes / 1e6:.0f}"
    return found


def _documents(n_documents: int, seed: int = 1) -> Iterator[NewDocument]:
    random = np.random.default_rng(seed)
    for number in range(n_documents):
        text = " ".join(f"word{one}" for one in (random.zipf(1.3, _WORDS) % 50_000).tolist()) + f" n{seed}x{number}"
        path = f"folder{number % 100}/note {number}.md"
        when = f"20{number % 25:02}-01-01T00:00:00.000Z"
        yield NewDocument(
            path=path, title=f"note {number}", hash=hashlib.sha256(text.encode()).hexdigest(), n_chars=len(text),
            doc=pack_text(text), terms=IndexTerms(f"note {number}", "", path, text, ""),
            metadata_json=json.dumps({"status": f"s{number % 10}"}), size_bytes=len(text), mtime_ns=seed,
            created_at=when, modified_at=when,
        )  # fmt: skip


def _put_texts(writer: IndexWriter, documents: list[NewDocument]) -> None:
    for part in batches(documents, _AT_ONCE):
        writer.put_documents("n", part)
    writer.mark_updated("n")


def _put_vectors(writer: IndexWriter, documents: list[NewDocument], vectors: npt.NDArray[np.float32]) -> None:
    keys = [number.to_bytes(16, "big") for number in range(len(vectors))]
    for first in range(0, len(documents), _AT_ONCE):
        part = range(first, min(first + _AT_ONCE, len(documents)))
        rows = range(part.start * _CHUNKS, part.stop * _CHUNKS)
        writer.put_vectors(_MODEL, DIM, {keys[row]: vectors[row] for row in rows})
        chunks = {
            documents[one].hash: [ChunkRecord(seq, 0, 9, keys[one * _CHUNKS + seq]) for seq in range(_CHUNKS)]
            for one in part
        }
        writer.put_chunks(_MODEL, DIM, chunks)


def _open_and_search(path: Path, address: str | None, terms: list[LexicalTerm]) -> None:
    with open_reader(path, address) as reader:
        found = reader.search_lexical(terms, 20, Scope())
        reader.documents([one.document_id for one in found])


def _fetch(reader: IndexReader, documents: list[NewDocument]) -> None:
    reader.texts([one.hash for one in documents[:20]])
    reader.documents(range(1, 21))


def _terms(*words: str) -> list[LexicalTerm]:
    return [LexicalTerm(word, f'"{word}"') for word in words]


def _seconds(run: Callable[[], object]) -> str:
    began, began_cpu = time.perf_counter(), time.process_time()
    run()
    return f"{time.perf_counter() - began:.1f} ({time.process_time() - began_cpu:.1f} cpu)"


def _times(run: Callable[[], object], times: int = _TIMES, n: int = 1) -> str:
    """Return the median wall and processor time of one of the `n` parts of a call, in milliseconds."""
    wall, cpu = [], []
    for _ in range(times):
        began, began_cpu = time.perf_counter(), time.process_time()
        run()
        wall.append((time.perf_counter() - began) * 1000 / n)
        cpu.append((time.process_time() - began_cpu) * 1000 / n)
    return f"{statistics.median(wall):.1f} ({statistics.median(cpu):.1f} cpu)"


if __name__ == "__main__":
    main()
