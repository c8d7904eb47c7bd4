"""Verdicts by models with different scales of cosines, each over its own index of the same notes.

    python -m tests.benchmarks.bench_scale FIXTURE MODEL=INDEX ... [--elsewhere FIXTURE ...]

FIXTURE has questions about the notes (see `qmd bench`); every third one of `--elsewhere` is asked as well and has no
answer. MODEL is a name as in QMD_EMBED_MODEL; `narrow` is the built-in one with a direction that all vectors share, so
that a cosine c becomes .8 + .2 c, over a built-in INDEX. Prints per model its scale, the mean best, third and 100th
cosine of the answerable questions on the built-in model's scale, the right first hits that are good, the wrong first
hits that are good, and the refused questions without an answer here and of elsewhere; then the same without a scale.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from qmd.indexing.copy import begin_copy, copy_index
from qmd.indexing.scales import measure_scale, store_scale
from qmd.inference.base import Embedder, Engines
from qmd.inference.loader import load_engines
from qmd.inference.records import MINILM_SCALE, CosineScale
from qmd.inference.settings import EngineSettings
from qmd.plugins.bench.fixture import read_fixture, same_file
from qmd.records import Scope
from qmd.retrieval.calibration import GOOD, relevance
from qmd.store.base import IndexReader
from qmd.store.opening import open_reader, open_writer
from tests.benchmarks.relevance_evidence import observe

SHARE = 0.8


class NarrowEmbedder:
    """An embedder whose vectors share a direction."""

    def __init__(self, inner: Embedder) -> None:
        self._inner = inner
        self.description, self.dim, self.max_tokens = inner.description, inner.dim + 1, inner.max_tokens
        self.token_starts, self.embeds, self.query_trust = inner.token_starts, inner.embeds, inner.query_trust
        self.scale: CosineScale | None = None
        self.fingerprint = "0" * 16

    def embed_documents(
        self, texts: Sequence[str], on_progress: Callable[[int], None] | None = None
    ) -> npt.NDArray[np.float32]:
        return narrowed(self._inner.embed_documents(texts, on_progress))

    def embed_queries(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        return narrowed(self._inner.embed_queries(texts))


def narrowed(vectors: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return vectors of shape (n, dim) with one more value, of unit length as before."""
    common = np.full((len(vectors), 1), np.sqrt(SHARE), dtype=np.float32)
    return np.hstack([vectors * np.float32(np.sqrt(1 - SHARE)), common])


def narrow_index(source: IndexReader, path: Path, embedder: NarrowEmbedder) -> None:
    """Write a copy of an index of the built-in model with narrowed vectors and their scale."""
    [model] = source.models()
    with open_writer(path, takes_unfinished=True) as writer:
        begin_copy(writer, "source", "narrow")
        copy_index(source, writer)
        for part in source.all_vectors(model.fingerprint):
            rows = narrowed(np.stack(list(part.values())))
            writer.put_vectors(embedder.fingerprint, embedder.dim, dict(zip(part, rows, strict=True)))
        for contents in source.chunk_sets(model.fingerprint):
            writer.put_chunks(embedder.fingerprint, embedder.dim, contents)
        store_scale(writer, embedder)


def main(argv: Sequence[str] | None = None) -> int:
    """Print two lines per model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("fixture", type=Path)
    parser.add_argument("models", nargs="+", metavar="MODEL=INDEX")
    parser.add_argument("--elsewhere", nargs="*", type=Path, default=[])
    options = parser.parse_args(argv)
    cases = [(one.query, one.expected_files) for one in read_fixture(options.fixture).cases.values()]
    others = [one.query for path in options.elsewhere for one in list(read_fixture(path).cases.values())[::3]]
    for name, _, index in (one.partition("=") for one in options.models):
        model = "built-in" if name == "narrow" else name
        engines = load_engines(EngineSettings(Path("no-full-tier"), embed=model), ["embed", "rerank"])
        assert engines.embedder is not None
        with tempfile.TemporaryDirectory() as folder, open_reader(Path(index)) as reader:
            if name != "narrow":
                show(name, reader, engines, cases, others)
                continue
            embedder = NarrowEmbedder(engines.embedder)
            narrow_index(reader, Path(folder) / "narrow.sqlite", embedder)
            with open_reader(Path(folder) / "narrow.sqlite") as changed:
                show(name, changed, Engines(embedder, engines.reranker), cases, others)
    return 0


def show(
    name: str,
    reader: IndexReader,
    engines: Engines,
    cases: Sequence[tuple[str, Sequence[str]]],
    others: Sequence[str],
) -> None:
    """Ask everything with the mapping and without."""
    embedder = engines.embedder
    assert embedder is not None
    own = embedder.scale or measure_scale(embedder)
    for label, scale in ((name, own), (f"{name}, raw", MINILM_SCALE)):
        embedder.scale = scale  # type: ignore[misc]
        counts = {key: [0, 0] for key in ("kept", "wrong called good", "refused", "elsewhere refused")}
        for text, files in [*cases, *((text, None) for text in others)]:
            found = observe(reader, engines, text, "hybrid")
            is_good = bool(found) and relevance(found[0][1]) >= GOOD
            is_right = bool(found) and any(same_file(found[0][0].path, one) for one in files or ())
            wrong = "elsewhere refused" if files is None else "wrong called good" if files else "refused"
            key = "kept" if is_right else wrong
            counts[key][0] += is_good if key in ("kept", "wrong called good") else not is_good
            counts[key][1] += 1
        vectors = embedder.embed_queries([text for text, files in cases if files])
        tops = [reader.search_dense(one, 100, Scope(), embedder.fingerprint) for one in vectors]
        means = [np.mean([scale.mapped(top[rank].score) for top in tops]) for rank in (0, 2, len(tops[0]) - 1)]
        shown = ", ".join(f"{key} {done} of {total}" for key, (done, total) in counts.items())
        print(f"{label}: {scale.best:.3f} {scale.third:.3f}; best, 3rd, last {means[0]:.2f} {means[1]:.2f}", end=" ")
        print(f"{means[2]:.2f}; {shown}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
