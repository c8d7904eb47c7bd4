"""What a GPU gives: its memory, the rate of embedding in bulk, a query cold and warm, and a run out of memory.

    python tests/benchmarks/bench_cuda.py [--texts 4096] [--queries 20] [--no-cpu]

One command for a machine with CUDA; without one it says so and ends with status 1. The texts are this project's manual,
cut into sentences and repeated with a number. Models are those that `qmd` would use here: the built-in ones, or what
was pulled or is named by QMD_EMBED_MODEL, QMD_RERANK_MODEL and QMD_GENERATE_MODEL (for the size of the full set, the
stand-ins of `models/build_standins.py`). A cold query is a process of its own, a warm one comes to an open index.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

import qmd  # noqa: E402
from qmd.cli.app import main as qmd_main  # noqa: E402
from qmd.inference.engines.bulk_embedding import BulkEmbedder  # noqa: E402
from qmd.inference.engines.encoder_graph import BATCH_TOKENS, BatchRuns  # noqa: E402
from qmd.inference.loader import load_engines  # noqa: E402
from qmd.inference.models.builtin import locate_builtin  # noqa: E402
from qmd.inference.runtime.gpu_memory import GpuUse, memory_now  # noqa: E402
from qmd.inference.runtime.sessions import cuda_verdict, open_session  # noqa: E402
from qmd.inference.settings import EngineSettings  # noqa: E402

CPU_TEXTS = 256
QUERIES = ("where do engines run", "how is an index kept equal to its files", "what does doctor say of a model")


def main(argv: Sequence[str] | None = None) -> int:
    """Print every part; status 1 without CUDA."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--texts", type=int, default=4096)
    parser.add_argument("--queries", type=int, default=20)
    parser.add_argument("--no-cpu", action="store_true", help="leave out the rate of the CPU")
    arguments = parser.parse_args(argv)
    hindrance = cuda_verdict()
    if hindrance is not None:
        print(f"CUDA is not used: {hindrance.reason}", file=sys.stderr)
        return 1
    show_memory("before")
    embed_in_bulk(manual(arguments.texts), with_cpu=not arguments.no_cpu)
    run_out_of_memory()
    with tempfile.TemporaryDirectory() as folder:
        query(Path(folder), arguments.queries)
    show_memory("after")
    print("\nqmd doctor")
    return qmd_main(["doctor"])


def show_memory(when: str) -> None:
    """The device's memory, that of other programs included."""
    memory = memory_now(0)
    if memory is not None:
        print(f"GPU memory {when}: {memory.used_bytes >> 20} of {memory.total_bytes >> 20} MiB in use")


def manual(n_texts: int) -> list[str]:
    """Sentences and paragraphs of the manual, none twice."""
    pages = "\n\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").glob("*.md")))
    parts = [part.strip() for part in re.split(r"\n\n|(?<=[.!?]) ", pages) if 15 < len(part) <= 1200]
    return [f"{parts[index % len(parts)]} {index // len(parts)}" for index in range(n_texts)]


def embed_in_bulk(texts: list[str], *, with_cpu: bool) -> None:
    """Texts a second on both devices, and how far their vectors agree."""
    embedder = load_engines(EngineSettings(Path("/nonexistent"), embed="built-in"), ["embed"]).embedder
    assert isinstance(embedder, BulkEmbedder)
    started = time.perf_counter()
    agreement = embedder.open_now(texts[:64])
    print(f"CUDA opened and compared in {time.perf_counter() - started:.2f} s; mean cosine to the CPU: {agreement}")
    if agreement is None:
        print(f"not used: {embedder.description.note}")
        return
    show_memory("with the embedder")
    for turn in ("first", "second"):
        started = time.perf_counter()
        vectors = embedder.embed_documents(texts)
        elapsed = time.perf_counter() - started
        print(f"GPU, {turn} time: {len(texts) / elapsed:.0f} texts/s, {elapsed:.2f} s for {len(texts)}")
    if with_cpu:
        started = time.perf_counter()
        on_cpu = embedder.inner.embed_documents(texts[:CPU_TEXTS])
        print(f"CPU: {CPU_TEXTS / (time.perf_counter() - started):.0f} texts/s")
        cosines = (on_cpu * vectors[:CPU_TEXTS]).sum(axis=1)
        print(f"cosine of both: mean {cosines.mean():.5f}, lowest {cosines.min():.5f}")


def run_out_of_memory() -> None:
    """Batches of 16,384 tokens under ever smaller limits: halved, then the session itself no longer fits."""
    path = locate_builtin() / "model_batches.onnx"
    ids = [[101, *range(2000, 2254), 102]] * 128
    for limit_mib in (4000, 1000, 400, 20):
        use = GpuUse("embed", all_roles_mib=limit_mib, needs_fp32=True)
        session = open_session(path, format="fp32", fuse=False, gpu=use)
        share = (use.limit_bytes() or 0) >> 20
        if session.got == "cpu":
            print(f"limit {share} MiB: {session.note}")
            continue
        runs = BatchRuns(session)
        try:
            n_done = sum(1 for _ in runs.run(ids))
            print(f"limit {share} MiB: {n_done} texts in batches of {runs.batch_tokens} tokens (asked: {BATCH_TOKENS})")
        except qmd.ModelError as exc:
            print(f"limit {share} MiB: {exc.message}; {exc.hint}")


def query(folder: Path, n_queries: int) -> None:
    """Milliseconds of a query in a new process, and to an index that is open."""
    database = folder / "index.sqlite"
    environ = {**os.environ, "INDEX_PATH": str(database), "QMD_CONFIG_DIR": str(folder), "QMD_DAEMON": "0"}
    qmd_command = [sys.executable, "-m", "qmd"]
    subprocess.run([*qmd_command, "index", str(ROOT / "docs")], env=environ, cwd=ROOT, check=True, capture_output=True)
    cold = []
    for text in QUERIES:
        started = time.perf_counter()
        subprocess.run([*qmd_command, "query", text], env=environ, cwd=ROOT, check=True, capture_output=True)
        cold.append(1000 * (time.perf_counter() - started))
    print(f"cold query: {', '.join(f'{ms:.0f}' for ms in cold)} ms")
    with qmd.open_index(str(database)) as index:
        index.search(QUERIES[0])
        warm = []
        for number in range(n_queries):
            started = time.perf_counter()
            # Never the same twice: nothing may come from a cache.
            response = index.search(f"{QUERIES[number % len(QUERIES)]} {number}")
            warm.append(1000 * (time.perf_counter() - started))
    print(f"warm query: median {statistics.median(warm):.0f} ms, slowest {max(warm):.0f} ms (target: 150 ms)")
    print(f"models: {', '.join(response.models)}; warnings: {list(response.warnings)}")


if __name__ == "__main__":
    sys.exit(main())
