"""Quality and time of answers while an index has none, some and all of its vectors.

    python tests/benchmarks/bench_first_answers.py FOLDER… [--index-dir DIR] [--queries N]

Folders are BEIR collections; indexes with all vectors are those of bench_quality.py, made where they are missing.
Copies without vectors, or with some of them, answer the queries: by words alone, by stored vectors (as with a spent
budget), and as `qmd query` does. No vectors of these answers are stored, so each is a first one, except those of the
hundred queries asked before. Vectors come from the complete index, so that quality does not depend on the machine; the
time of ten queries is processor time with the model at work, without reranking.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
import numpy.typing as npt

from qmd.indexing.embed import chunk_key
from qmd.indexing.precomputed import PrecomputedChunks
from qmd.inference.base import Embedder, Engines
from qmd.inference.loader import load_engines
from qmd.inference.settings import EngineSettings
from qmd.retrieval.pipeline import search
from qmd.retrieval.query import parse_query
from qmd.retrieval.request import SearchRequest
from qmd.store.base import IndexReader, IndexWriter
from qmd.store.opening import open_writer
from tests.benchmarks.corpus_index import entry_id, index_corpus
from tests.benchmarks.judged import Qrels, read_beir
from tests.benchmarks.metrics import average, ndcg_at

OPTIONS = SearchRequest(limit=10, rerank=False, expand=False, folds_copies=False)
WORDS = SearchRequest(mode="lexical", limit=10, folds_copies=False)
HABITS = 100
"""Queries that were asked before."""

TIMED = 10


class RecalledEmbedder:
    """Embedder that looks up its documents' vectors in an index."""

    def __init__(self, embedder: Embedder, full: IndexReader) -> None:
        self._full = full
        self.description = embedder.description
        self.dim = embedder.dim
        self.fingerprint = embedder.fingerprint
        self.max_tokens = embedder.max_tokens
        self.scale = embedder.scale
        self.token_starts = embedder.token_starts
        self.embed_queries = embedder.embed_queries
        self.embeds = embedder.embeds
        self.query_trust = embedder.query_trust

    def embed_documents(
        self, texts: Sequence[str], on_progress: Callable[[int], None] | None = None
    ) -> npt.NDArray[np.float32]:
        """Return the stored vectors of texts that are all in the index."""
        keys = [chunk_key(text) for text in texts]
        vectors = self._full.vectors(self.fingerprint, keys)
        return np.stack([vectors[key] for key in keys])


def main(argv: Sequence[str] | None = None) -> int:
    """Print a table for each folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--index-dir", type=Path, default=Path(".bench"))
    parser.add_argument("--queries", type=int, default=100, help="at most this many judged queries per folder")
    options = parser.parse_args(argv)
    settings = EngineSettings(models_dir=Path("no-full-tier"), embed="built-in", rerank="built-in")
    engines = load_engines(settings, frozenset({"embed"}))
    for folder in options.folders:
        measure(folder, options.index_dir, options.queries, engines)
    return 0


def measure(folder: Path, index_dir: Path, n_queries: int, engines: Engines) -> None:
    """Print a line per state of the index of one folder."""
    embedder = engines.embedder
    assert embedder is not None
    judged = read_beir(folder)
    names = list(judged.queries)
    random.Random(0).shuffle(names)
    asked = {name: judged.queries[name] for name in names[:n_queries]}
    # With too few others, some of the queries were asked before.
    habits = [judged.queries[name] for name in (names[n_queries:] + names)[:HABITS]]
    complete = index_dir / f"{folder.name}.sqlite"
    index_corpus(folder, complete, embedder)
    print(f"\n{folder.name}, {len(asked)} queries: with vectors, nDCG@10 of words, index, query; time")
    with tempfile.TemporaryDirectory() as place, open_writer(complete) as full:
        recalled = Engines(RecalledEmbedder(embedder, full), None, None)
        words = Path(place) / "words.sqlite"
        index_corpus(folder, words)
        for label, share in (("no vectors", 0.0), ("after 100 queries", 0.0), ("a quarter", 0.25), ("half", 0.5)):
            path = Path(place) / f"{label}.sqlite"
            shutil.copy(words, path)
            with open_writer(path) as writer:
                take_over(full, writer, embedder, share)
                if label.startswith("after"):
                    for text in habits:
                        answer(writer, recalled, text, keeps=True)
                report(label, writer, engines, recalled, asked, judged.qrels)
        report("all", full, engines, recalled, asked, judged.qrels)


def take_over(full: IndexWriter, writer: IndexWriter, embedder: Embedder, share: float) -> None:
    """Give an index the vectors of a random share of its texts, looked up in another one."""
    waiting = list(writer.pending(embedder.fingerprint))
    random.Random(1).shuffle(waiting)
    for content in waiting[: round(share * len(waiting))]:
        ahead = PrecomputedChunks(embedder)
        chunks = [chunk for chunk, _ in ahead.cut(content)]
        ahead.keep(content, chunks, full.vectors(embedder.fingerprint, [chunk.key for chunk in chunks]))
        ahead.store(writer)


def report(
    label: str, reader: IndexWriter, engines: Engines, recalled: Engines, queries: Mapping[str, str], qrels: Qrels
) -> None:
    """Print one line: nDCG@10 three ways, and the cost of a query."""

    def quality(ask: Callable[[str], list[str]]) -> float:
        return average([ndcg_at(ask(text), qrels[name], 10) for name, text in queries.items()])

    by_words = quality(lambda text: ids(reader, engines, text, WORDS))
    as_it_is = quality(lambda text: ids(reader, engines, text, OPTIONS))
    supplied = quality(lambda text: answer(reader, recalled, text))
    timed = list(queries.values())[:TIMED]
    begun = time.process_time()
    for text in timed:
        answer(reader, engines, text)
    spent_ms = (time.process_time() - begun) / len(timed) * 1000
    embedder = engines.embedder
    pending = reader.vector_coverage(embedder.fingerprint).pending if embedder is not None else 0
    known = 1 - pending / max(reader.count_documents(), 1)
    print(f"  {label:18} {known:4.0%}  {by_words:.4f}  {as_it_is:.4f}  {supplied:.4f}  {spent_ms:6.0f} ms", flush=True)


def ids(reader: IndexReader, engines: Engines, text: str, options: SearchRequest) -> list[str]:
    """Return the first documents without computing any vector."""
    return [entry_id(hit.document) for hit in search(reader, engines, parse_query(text), options).hits]


def answer(reader: IndexWriter, engines: Engines, text: str, *, keeps: bool = False) -> list[str]:
    """Return the first documents as `qmd query` finds them; with `keeps` its vectors are stored."""
    opened: list[PrecomputedChunks] = []

    def open_source(embedder: Embedder) -> PrecomputedChunks:
        opened.append(PrecomputedChunks(embedder))
        return opened[-1]

    found = search(reader, engines, parse_query(text), OPTIONS, open_source=open_source)
    for ahead in opened:
        if keeps:
            ahead.store(reader)
    return [entry_id(hit.document) for hit in found.hits]


if __name__ == "__main__":
    sys.exit(main())
