"""Figures that need a GPU, as one table: expected, measured, time, memory, difference from the CPU.

    python tests/benchmarks/bench_cuda.py [--layers 28] [--texts 4096] [--queries 20] [--dry]

For a machine with CUDA; without one it prints a line and ends. Nothing is downloaded: decoder and reranker are
stand-ins of the full set's size with random weights, built first, the embedder is the built-in one. `--dry` runs every
part on the CPU with tiny graphs, to test the script only.
"""

from __future__ import annotations

import argparse
import gc
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "models")]

import qmd  # noqa: E402
from qmd.inference.engines.bulk_embedding import SAME_VECTORS  # noqa: E402
from qmd.inference.engines.embedder import load_embedder  # noqa: E402
from qmd.inference.engines.encoder_graph import BatchRuns  # noqa: E402
from qmd.inference.loader import load_engines  # noqa: E402
from qmd.inference.models.builtin import MINILM, locate_builtin  # noqa: E402
from qmd.inference.models.catalogue import QWEN_EXPANDER  # noqa: E402
from qmd.inference.runtime.gpu_memory import GpuUse, driver_version, load_driver, memory_now  # noqa: E402
from qmd.inference.runtime.sessions import cuda_verdict, import_runtime, open_session  # noqa: E402
from qmd.inference.settings import EngineSettings  # noqa: E402
from qmd.plugins.qwen.decoding import Decoder  # noqa: E402
from tests.inference.exported_graphs import PublishedWriter  # noqa: E402
from tests.inference.tiny_models import SHAPE, random_weights, write_model  # noqa: E402
from tests.inference.tiny_tokenizer import write_tokenizer  # noqa: E402

NO_DEVICE = "no CUDA device: nothing was run"
MEMORY_MIB = 6000
QUERY_MS, INDEX_CHUNKS = 150, 100_000
ALIKE = 0.99
"""Correlation with the CPU's logits from which they count as the same: half precision has 0.999 and more."""
QUERIES = ("where do engines run", "how is an index kept equal to its files", "what does doctor say of a model")
DECODER, LAST_ONLY, RERANKER = "decoder", "last", "reranker"


@dataclass(frozen=True)
class Row:
    """A point of the table; `passes` is None where there is nothing to check."""

    point: str
    asked: str
    got: str
    time: str = "-"
    memory: str = "-"
    equality: str = "-"
    passes: bool | None = None


@dataclass(frozen=True)
class Plan:
    """Parts to run, and their sizes."""

    folder: Path
    is_dry: bool = False
    """Run nothing on the device."""
    is_tiny: bool = False
    layers: int = 28
    texts: int = 4096
    queries: int = 20
    steps: int = 600

    def decoder(self, name: str = DECODER, *, on_cpu: bool = False, in_place: bool = True) -> Decoder:
        """Open a stand-in, on the device by default where there is one."""
        path = self.folder / name / QWEN_EXPANDER.formats[0].weights.path
        allow_gpu = not (self.is_dry or on_cpu)
        return Decoder(open_session(path, format="q4f16", allow_gpu=allow_gpu, gpu=GpuUse("expand")), in_place=in_place)

    def tokens(self, n: int) -> list[int]:
        """Return tokens of the stand-ins' vocabulary, always the same."""
        most = SHAPE.vocab if self.is_tiny else 150_000
        return [int(token) for token in np.random.default_rng(0).integers(5, most, n)]

    @property
    def provider(self) -> str:
        """Return the provider of the engines."""
        return "cpu" if self.is_dry else "cuda"


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; return 1 if a point fails."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--layers", type=int, default=28)
    parser.add_argument("--texts", type=int, default=4096)
    parser.add_argument("--queries", type=int, default=20)
    parser.add_argument("--dry", action="store_true", help="every part on the CPU, with tiny graphs")
    arguments = parser.parse_args(argv)
    hindrance = None if arguments.dry else cuda_verdict()
    if hindrance is not None:
        print(f"{NO_DEVICE} ({hindrance.reason})")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        sizes = {"layers": arguments.layers, "texts": arguments.texts, "queries": arguments.queries}
        dry = {"is_tiny": True, "texts": 120, "queries": 3, "steps": 60}
        plan = Plan(Path(folder), arguments.dry, **(dry if arguments.dry else sizes))
        started = time.perf_counter()
        build(plan)
        print(
            f"{platform.machine()}, {os.cpu_count()} CPUs; stand-ins built in {time.perf_counter() - started:.0f} s\n"
        )
        rows = list(measure(plan))
    if plan.is_dry:
        print("\ndry: all of it ran on the CPU, with tiny graphs")
    return 1 if any(row.passes is False for row in rows) else 0


def build(plan: Plan) -> None:
    """Write the stand-ins: a decoder as it is published, one with logits of the last token only, a reranker."""
    from build_standins import RandomWeights, qwen_forms, qwen_shape

    forms = qwen_forms()
    graphs = {
        f"{DECODER}/{QWEN_EXPANDER.formats[0].weights.path}": forms["decoder-q4f16"],
        f"{LAST_ONLY}/{QWEN_EXPANDER.formats[0].weights.path}": replace(forms["decoder-q4f16"], last_only=True),
        f"{RERANKER}/model.onnx": forms["reranker-fp16"],
    }
    for name, form in graphs.items():
        path = plan.folder / name
        if plan.is_tiny:
            write_model(path, form, random_weights())
        else:
            path.parent.mkdir(parents=True)
            shape = qwen_shape(plan.layers)
            PublishedWriter(path, shape, form, RandomWeights(shape, form), external=True).write()
        write_tokenizer(plan.folder / Path(name).parts[0])


def measure(plan: Plan) -> Iterator[Row]:
    """Measure every point in order and print it; a point that raises is a failed row."""
    print(
        "| point | asked | got | time | memory | equal to the CPU | passes |\n|---|---|---|---|---|---|---|", flush=True
    )
    for name, show in POINTS.items():
        before = used_mib()
        try:
            row = show(plan)
        except Exception as exc:  # the next point needs the same, minutes on the device
            row = Row(name, "", f"failed: {type(exc).__name__}: {' '.join(str(exc).split())[:200]}", passes=False)
        gc.collect()
        after = used_mib()
        if row.memory == "-" and before is not None and after is not None:
            row = Row(name, row.asked, row.got, row.time, f"{after - before:+d} MiB", row.equality, row.passes)
        is_shown = row.passes is False or not plan.is_dry or name not in ONLY_ON_A_DEVICE
        mark = {True: "yes", False: "NO", None: "-"}[row.passes if is_shown else None]
        cells = (row.point, row.asked, row.got, row.time, row.memory, row.equality, mark)
        print(f"| {' | '.join(cells)} |", flush=True)
        yield row


def used_mib() -> int | None:
    """Return the device's memory in use, with that of other programs; None without a device."""
    memory = memory_now(0)
    return None if memory is None else (memory.total_bytes - memory.free_bytes) >> 20


def timed(work: Callable[[], object], repeat: int = 5) -> float:
    """Return the milliseconds of the best of some runs, after a warm-up."""
    work()
    spent = []
    for _ in range(repeat):
        started = time.perf_counter()
        work()
        spent.append(1000 * (time.perf_counter() - started))
    return min(spent)


def alike(ours: Any, theirs: Any) -> tuple[str, bool]:
    """Compare two arrays of logits, (rows, vocabulary): agreement in words, and whether they are alike."""
    pairs = list(zip(ours, theirs, strict=True))
    least = min(float(np.corrcoef(one, other)[0, 1]) for one, other in pairs)
    same = sum(int(one.argmax()) == int(other.argmax()) for one, other in pairs)
    return f"correlation {least:.5f}, likeliest token {same} of {len(pairs)}", least >= ALIKE


def manual(n_texts: int) -> list[str]:
    """Return sentences and paragraphs of the manual, each once."""
    pages = "\n\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").glob("*.md")))
    found = (part.strip() for part in re.split(r"\n\n|(?<=[.!?]) ", pages))
    parts = list(dict.fromkeys(part for part in found if 15 < len(part) <= 1200))
    return [f"{parts[index % len(parts)]} {index // len(parts)}" for index in range(n_texts)]


def show_libraries(plan: Plan) -> Row:
    """Show the installed NVIDIA wheels, and the libraries in the process once CUDA has run."""
    runtime = import_runtime()
    wheels = {one.name: one.version for one in metadata.distributions() if (one.name or "").startswith("nvidia-")}
    maps: list[str] = []
    with suppress(OSError):
        maps = Path("/proc/self/maps").read_text("utf-8").splitlines()
    loaded = sorted({Path(line.split()[-1]).name for line in maps if re.search(r"/lib(cu|nv)\w+\.so", line)})
    got = f"wheels: {', '.join(f'{name} {version}' for name, version in sorted(wheels.items())) or 'none'}; "
    got += f"loaded: {', '.join(loaded) or 'none'}"
    asked = f"ONNX Runtime {runtime.__version__} for CUDA {getattr(runtime, 'cuda_version', None) or 'none'}"
    return Row("wheels and libraries", asked, got, passes=plan.is_dry or any("cublas" in name for name in loaded))


def show_driver(plan: Plan) -> Row:
    """Compare the driver's CUDA with that of the runtime."""
    driver, wanted = load_driver(), str(getattr(import_runtime(), "cuda_version", "")).partition(".")[0]
    version = driver and driver_version(driver)
    memory = memory_now(0)
    got = "no driver" if not version else f"driver for CUDA {version[0]}.{version[1]}"
    got += "" if memory is None else f", {memory.total_bytes >> 20} MiB"
    passes = plan.is_dry or bool(version and wanted.isdecimal() and version[0] >= int(wanted))
    return Row("driver", f"CUDA {wanted or '-'} or newer", got, passes=passes)


def show_three_engines(plan: Plan) -> Row:
    """Run three engines within `QMD_GPU_MEMORY`, and measure the device's memory, key-value tensors included."""
    settings = EngineSettings(
        plan.folder,
        embed="built-in",
        rerank=str(plan.folder / RERANKER),
        expand=str(plan.folder / DECODER),
        allow_gpu=not plan.is_dry,
        env={"QMD_GPU_MEMORY": str(MEMORY_MIB)},
    )
    before, started, texts = used_mib(), time.perf_counter(), manual(40 if plan.is_dry else 600)
    engines = load_engines(settings, ["embed", "rerank", "expand"])
    assert engines.embedder is not None and engines.reranker is not None and engines.expander is not None
    loaded_s = time.perf_counter() - started
    for _ in range(6):  # past the patience of the embedder
        engines.embedder.embed_documents(texts)
    engines.reranker.score(QUERIES[0], texts[:10])
    engines.expander.expand(QUERIES[0])
    used = used_mib()
    places = {one.role: one.provider for one in (engines.embedder.description, engines.reranker.description)}
    places["expand"] = engines.expander.description.provider
    grown = None if used is None or before is None else used - before
    notes = [one.description.note for one in (engines.embedder, engines.reranker, engines.expander)]
    got = ", ".join(f"{role} on {place}" for role, place in places.items())
    got += "".join(f"; {note}" for note in (*notes, *engines.notes) if note)
    passes = set(places.values()) == {plan.provider} and (grown is None or grown <= MEMORY_MIB)
    memory = "-" if grown is None else f"{grown:+d} MiB"
    return Row("three engines", f"{MEMORY_MIB} MiB", got, f"load {loaded_s:.1f} s", memory, passes=passes)


def show_branches(plan: Plan) -> Row:
    """Run four branches as one batch: the decision of the probe, and their logits compared with the CPU's."""
    found = []
    times: list[float] = []
    refusals: list[str | None] = []
    for on_cpu in (False, True):
        decoder = plan.decoder(on_cpu=on_cpu)
        context = decoder.open_context(128)
        context.append([plan.tokens(40)])
        rows, first = context.fork([[7], [8], [9], [10]], 40)
        found.append(np.concatenate([first, rows.append([[11], [12], [13], [14]])]))
        times.append(timed(lambda rows=rows: rows.append([[11]] * 4)))  # type: ignore[misc]
        refusals.append(decoder.branches_refusal)
    words, is_alike = alike(*found)
    got = "taken" if refusals[0] is None else f"refused: {refusals[0]}"
    return Row(
        "branches in one batch", "taken", got, f"{times[0]:.1f} ms a step", "-", words, is_alike and not refusals[0]
    )


def show_step(plan: Plan) -> Row:
    """Time one token a step after a prompt of 100."""
    found = []
    for on_cpu in (False, True):
        context = plan.decoder(on_cpu=on_cpu).open_context(256)
        context.append([plan.tokens(100)])
        found.append(np.concatenate([context.append([[token]]) for token in plan.tokens(20)]))
        if not on_cpu:
            spent = timed(lambda context=context: context.append([[7]]), 30)  # type: ignore[misc]
    words, is_alike = alike(*found)
    return Row("decode step", "3 to 5 ms", f"{1000 / spent:.0f} tokens/s", f"{spent:.2f} ms", "-", words, is_alike)


def show_prompt(plan: Plan) -> Row:
    """Time a prompt of 100 in two runs and in one, next to a graph that gives logits of the last token only."""
    prompt, spent, found = plan.tokens(100), {}, []
    for name in (DECODER, LAST_ONLY):
        context = plan.decoder(name).open_context(128)
        empty = context.checkpoint()
        for in_two in (True, False):

            def read(context: Any = context, empty: Any = empty) -> Any:
                context.restore(empty)
                return context.append([prompt])

            context.reads_in_two = in_two
            spent[name, in_two] = timed(read)
            found.append(read())
    words, is_alike = alike(np.concatenate(found), np.concatenate([found[0]] * 4))
    got = ", ".join(f"{name} in {'two' if in_two else 'one'} {ms:.1f} ms" for (name, in_two), ms in spent.items())
    time_ = f"{spent[DECODER, True]:.1f} ms"
    return Row(
        "prompt in two runs", "no slower than last-only", got, time_, "-", f"{words} (among themselves)", is_alike
    )


def show_shared_buffer(plan: Plan) -> Row:
    """Compare GroupQueryAttention in its own tensors with growing tensors, over many steps."""
    in_place, growing = plan.decoder(), plan.decoder(in_place=False)
    contexts = [decoder.open_context(plan.steps + 16) for decoder in (in_place, growing)]
    started = time.perf_counter()
    rows = [[context.append([[token]])[0] for context in contexts] for token in plan.tokens(plan.steps)]
    words, is_alike = alike([one for one, _ in rows], [other for _, other in rows])
    got = "in place" if in_place.in_place else "not in place"
    time_ = f"{1000 * (time.perf_counter() - started) / plan.steps:.1f} ms for both"
    passes = is_alike and in_place.in_place
    return Row(
        "shared key-value buffer", f"{plan.steps} tokens alike", got, time_, "-", f"{words} (to growing)", passes
    )


def show_embedding(plan: Plan) -> Row:
    """Compare the built-in model's twin for CUDA without TF32 with the CPU's vectors: cosine and rate."""
    embedder, texts = load_embedder(locate_builtin(), MINILM, allow_gpu=False), manual(plan.texts)
    use = GpuUse("embed", needs_fp32=True)
    path = locate_builtin() / "model_batches.onnx"
    session = open_session(path, format="fp32", fuse=False, allow_gpu=not plan.is_dry, gpu=use)
    runs = BatchRuns(session)
    started = time.perf_counter()
    vectors = embedder.embed_documents(texts, runs=runs)
    rate = len(texts) / (time.perf_counter() - started)
    n = min(256, len(texts))
    cosines = (embedder.embed_documents(texts[:n]) * vectors[:n]).sum(axis=1)
    equality = f"cosine {cosines.mean():.5f}, lowest {cosines.min():.5f}"
    passes = bool(cosines.mean() >= SAME_VECTORS) and session.got == plan.provider
    return Row("TF32 off", f"cosine {SAME_VECTORS}", f"on {session.got}", f"{rate:.0f} texts/s", "-", equality, passes)


TAKEN = """
import sys
from tests.benchmarks.bench_cuda import take_memory
held = take_memory()
print(len(held), flush=True)
sys.stdin.readline()
"""
ASKED_TWICE = """
import sys
from qmd.inference.runtime.sessions import cuda_verdict
def ask():
    verdict = cuda_verdict()
    print("works" if verdict is None else verdict.reason, flush=True)
ask()
sys.stdin.readline()
ask()
"""


def show_verdict(plan: Plan) -> Row:
    """Ask for CUDA in a process while the device's memory is taken, and again once it is free."""
    # A process of its own, because an arena keeps its memory.
    with talking_to(TAKEN) as (_, let_go):
        started = time.perf_counter()
        with talking_to(ASKED_TWICE) as (first, ask_again):
            spent = time.perf_counter() - started
            let_go()
            second = ask_again()
    got = f"memory taken: {first}; free again: {second}"
    return Row("verdict of a process", "the first one, kept", got, f"{spent:.1f} s", passes=first == second)


@contextmanager
def talking_to(program: str) -> Iterator[tuple[str, Callable[[], str]]]:
    """Yield the first line that a Python program prints, and a function that sends it a line and returns the next."""
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None and child.stdout is not None
        written, read = child.stdin, child.stdout

        def go_on() -> str:
            written.write("\n")
            written.flush()
            return read.readline().strip()

        yield read.readline().strip(), go_on


def take_memory() -> list[Any]:
    """Fill the device with tensors until less than 200 MiB are free."""
    runtime, held = import_runtime(), []
    while (memory := memory_now(0)) is not None and memory.free_bytes > 200 << 20:
        size = min(memory.free_bytes - (150 << 20), 4 << 30)
        try:
            held.append(runtime.OrtValue.ortvalue_from_shape_and_type([size // 4], np.float32, "cuda", 0))
        except Exception:  # any error of the runtime on a full device
            break
    return held


def show_query(plan: Plan) -> Row:
    """Measure the milliseconds of a query with all three engines: in a new process, and in an open index."""
    notes = plan.folder / "notes"
    notes.mkdir()
    for page in sorted((ROOT / "docs").glob("*.md"))[: 2 if plan.is_dry else None]:
        (notes / page.name).write_bytes(page.read_bytes())
    database = plan.folder / "index.sqlite"
    chosen = {
        "INDEX_PATH": str(database),
        "QMD_CONFIG_DIR": str(plan.folder),
        "QMD_DAEMON": "0",
        "QMD_EMBED_MODEL": "built-in",
        "QMD_RERANK_MODEL": str(plan.folder / RERANKER),
        "QMD_GENERATE_MODEL": str(plan.folder / DECODER),
        **({"QMD_FORCE_CPU": "1"} if plan.is_dry else {}),
    }
    command, environ = [sys.executable, "-m", "qmd"], {**os.environ, **chosen}
    subprocess.run([*command, "index", str(notes)], env=environ, cwd=ROOT, check=True, capture_output=True)
    started = time.perf_counter()
    subprocess.run([*command, "query", QUERIES[0]], env=environ, cwd=ROOT, check=True, capture_output=True)
    cold = 1000 * (time.perf_counter() - started)
    kept, warm = dict(os.environ), []
    os.environ.update(chosen)
    try:
        with qmd.open_index(str(database)) as index:
            index.search(QUERIES[0])
            for number in range(plan.queries):
                started = time.perf_counter()
                # Different each time, so that nothing comes from a cache.
                response = index.search(f"{QUERIES[number % len(QUERIES)]} {number}")
                warm.append(1000 * (time.perf_counter() - started))
    finally:
        os.environ.clear()
        os.environ.update(kept)
    median = statistics.median(warm)
    got = f"median {median:.0f}, slowest {max(warm):.0f}, cold {cold:.0f} ms; {', '.join(response.models)}"
    got += "".join(f"; {warning}" for warning in response.warnings)
    return Row("query, warm", f"{QUERY_MS} ms", got, f"{median:.0f} ms", passes=plan.is_dry or median < QUERY_MS)


def show_index(plan: Plan) -> Row:
    """Measure vectors of 100,000 chunks, scaled from fewer, with the embedder that every command opens."""
    settings = EngineSettings(Path("/nonexistent"), embed="built-in", allow_gpu=not plan.is_dry)
    embedder = load_engines(settings, ["embed"]).embedder
    assert embedder is not None
    texts = manual(plan.texts)
    embedder.embed_documents(texts)
    started = time.perf_counter()
    embedder.embed_documents(texts)
    spent = time.perf_counter() - started
    got = f"{len(texts)} texts on {embedder.description.provider}: {len(texts) / spent:.0f} a second"
    whole = spent * INDEX_CHUNKS / len(texts)
    return Row(
        "index of 100,000 chunks",
        "vectors",
        got,
        f"{whole:.0f} s",
        passes=embedder.description.provider == plan.provider,
    )


ONLY_ON_A_DEVICE = ("wheels and libraries", "driver", "three engines", "verdict of a process", "query, warm")
POINTS: dict[str, Callable[[Plan], Row]] = {
    "wheels and libraries": show_libraries,
    "driver": show_driver,
    "three engines": show_three_engines,
    "branches in one batch": show_branches,
    "decode step": show_step,
    "prompt in two runs": show_prompt,
    "shared key-value buffer": show_shared_buffer,
    "TF32 off": show_embedding,
    "verdict of a process": show_verdict,
    "query, warm": show_query,
    "index of 100,000 chunks": show_index,
}


if __name__ == "__main__":
    sys.exit(main())
