"""Speed of the engines on stand-ins of the real models' size: decode, rerank, embed, load; as ratios in one run.

    python tests/benchmarks/bench_inference.py FOLDER [--layers 28] [--threads 1] [--full] [--llama] [--results FILE]

FOLDER has the stand-ins of `models/build_standins.py`; those missing are built (about 7 GB and ten minutes). Weights
are random, so no figure is about quality. Times are processor time per thread, the best of `--repeat`, because
other work on the machine hardly touches it; the results file also has wall time. `--llama` adds llama.cpp
on GGUF stand-ins of the same size where `llama_cpp` can be imported (see `llama_peer.py`). `--full` is the whole grid:
10 and 30 passages of 100, 300 and 700 tokens, which takes an hour and a half on two cores.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import importlib.util
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from qmd.inference.base import EngineDescription  # noqa: E402
from qmd.inference.engines.embedder import load_embedder  # noqa: E402
from qmd.inference.models.catalogue import JINA_ZH  # noqa: E402
from qmd.inference.records import ModelFile, ModelFormat  # noqa: E402
from qmd.inference.runtime.sessions import Session, open_session  # noqa: E402
from qmd.inference.settings import EngineSettings  # noqa: E402
from qmd.plugins.fastembed.catalogue import fastembed_record  # noqa: E402
from qmd.plugins.fastembed.embedders import load_fastembed_embedder  # noqa: E402
from qmd.plugins.qwen.chat_tokens import load_chat_tokenizer  # noqa: E402
from qmd.plugins.qwen.cross_encoder import SharedPrefixRunner  # noqa: E402
from qmd.plugins.qwen.decoder_signature import read_signature  # noqa: E402
from qmd.plugins.qwen.decoding import Decoder  # noqa: E402
from qmd.plugins.qwen.expansion import ExpanderOptions, ExpansionPrompt, QwenExpander  # noqa: E402
from qmd.plugins.qwen.grammar import LineGrammar  # noqa: E402
from qmd.plugins.qwen.output_head import OutputHead  # noqa: E402
from qmd.plugins.qwen.rerank_runs import BatchRunner, PassageRunner  # noqa: E402
from tests.inference.tiny_tokenizer import write_tokenizer  # noqa: E402

PROMPT, NEW = 100, 30
PREFIX, SUFFIX = 75, 9
"""Tokens of the reranker's prompt before and after the passage."""
BATCH_TOKENS = 4096
PARTS = ("decode", "expand", "rerank", "embed", "load")
DECODERS = {"decoder-cpu-int4": "q4", "decoder-q4f16": "q4f16", "decoder-q4": "q4", "decoder-q8": "q8"}
"""The published file for a CPU, the one for CUDA, and forms of our own."""
RERANKERS = {f"reranker-{form}": form for form in ("fp32", "fp16", "q8", "i16w8", "i16w16")}


@dataclass(frozen=True)
class Row:
    """A measurement; `tokens_s` are tokens per second of processor time per thread."""

    part: str
    model: str
    mode: str
    case: str
    tokens_s: float
    cpu_s: float
    wall_s: float
    worst_error: float | None = None
    """Largest difference of scores from the first form's, in standard deviations of its scores."""
    correlation: float | None = None


@dataclass(frozen=True)
class Plan:
    """Parts to measure, and how."""

    folder: Path
    threads: int
    repeat: int
    passages: Sequence[int]
    lengths: Sequence[int]
    limit_s: float
    """Cells predicted to take longer are skipped."""
    skipped: Sequence[str] = ()
    """Rerankers, and ways to run one, to skip."""
    allow_gpu: bool = False
    """Run formats meant for CUDA there where it works; rates are then of wall time."""

    def measure(self, part: str, model: str, mode: str, case: str, tokens: int, work: Callable[[], object]) -> Row:
        """Return the best of a few runs."""
        best = (float("inf"), float("inf"))
        for _ in range(self.repeat):
            wall, cpu = time.perf_counter(), time.process_time()
            work()
            spent = time.process_time() - cpu, time.perf_counter() - wall
            best = min(best, spent, key=lambda pair: pair[1] if self.allow_gpu else pair[0])
            if spent[1] > self.limit_s / 2:
                break
        spent_s = best[1] if self.allow_gpu else best[0] / self.threads
        row = Row(part, model, mode, case, tokens / spent_s, best[0], best[1])
        print(f"{part:7} {model:16} {mode:9} {case:9} {row.tokens_s:8.1f} tok/s  {row.wall_s:7.2f} s wall", flush=True)
        return row


def open_standin(plan: Plan, name: str, format: str) -> Session:
    """Open a stand-in where the plan allows it to run."""
    path = plan.folder / name / "model.onnx"
    session = open_session(path, format=format, threads=plan.threads, allow_gpu=plan.allow_gpu)
    if plan.allow_gpu:
        nodes = dict(session.nodes_by_provider())
        print(f"{name} ({format}): asked {session.preferred}, got {session.got}, nodes {nodes}")
    return session


def bench_decode(plan: Plan) -> Iterator[Row]:
    """Measure prefill, then steps: key-value tensors fed from numpy, bound, and three branches as one batch.

    `rows`: bound, with the logits of two thirds of the vocabulary, computed apart, as for a query in Latin letters.
    """
    for name, format in DECODERS.items():
        session = open_standin(plan, name, format)
        yield from _naive_with(plan, name, session)
        yield from _decode_with(plan, name, session, "bound", "3 branches")
        del session
        gc.collect()
        if format in ("q4", "q8"):
            yield from _decode_with(plan, name, open_apart(plan, name, format), "rows", "3 branches, rows")
            gc.collect()


def open_apart(plan: Plan, name: str, format: str) -> Session:
    """Open a decoder without its last product, which waits for the choice of rows."""
    path = plan.folder / name / "model.onnx"
    head = OutputHead(path, plan.threads)
    return replace(
        open_session(path, format=format, threads=plan.threads, graph=head.graph, options=head.options), head=head
    )


def latin_share() -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return as many of 151,936 tokens as Qwen3 has for text in Latin letters, the first ones and some of the
    others."""
    share = np.arange(151_936) < 100_000
    share[100_000:151_643:45] = True
    return share


def _naive_with(plan: Plan, name: str, session: Session) -> Iterator[Row]:
    prompt = np.random.default_rng(0).integers(5, 150_000, PROMPT).tolist()
    naive = NaiveLoop(session)
    yield plan.measure("decode", name, "naive", "prefill", PROMPT, lambda: naive.read(prompt))
    yield plan.measure("decode", name, "naive", "step", NEW, lambda: naive.steps(NEW))


def _decode_with(plan: Plan, name: str, session: Session, mode: str, batched: str) -> Iterator[Row]:
    prompt = np.random.default_rng(0).integers(5, 150_000, PROMPT).tolist()
    context = Decoder(session).open_context(PROMPT + NEW + 8)
    if session.head is not None:
        session.head.choose(latin_share())
    empty = context.checkpoint()

    def prefill() -> None:
        context.restore(empty)
        context.append([prompt])

    yield plan.measure("decode", name, mode, "prefill", PROMPT, prefill)
    prefill()
    after_prompt = context.checkpoint()

    def steps() -> None:
        context.restore(after_prompt)
        for _ in range(NEW):
            context.append([[7]])

    yield plan.measure("decode", name, mode, "step", NEW, steps)
    context.restore(after_prompt)

    def branches() -> None:
        rows, _ = context.fork([[7], [8], [9]], NEW + 2)
        for _ in range(NEW):
            rows.append([[7], [8], [9]])

    yield plan.measure("decode", name, batched, "step", 3 * NEW, branches)


def bench_expand(plan: Plan) -> Iterator[Row]:
    """Measure an expansion with every budget used, 108 tokens: its lines one after the other, and as one batch.

    Each with all logits, and (`rows`) with those that a query in Latin letters needs. They take turns.
    """
    once = dataclasses.replace(plan, repeat=1)
    for name in ("decoder-cpu-int4", "decoder-q4"):
        write_tokenizer(plan.folder / name)
        works: dict[str, Callable[[], object]] = {}
        for kind, open_one in {"": open_standin, " rows": open_apart}.items():
            decoder = Decoder(open_one(plan, name, DECODERS[name]))
            for mode in ("sequential", "batched"):
                works[mode + kind] = partial(_expander(plan.folder / name, decoder, mode).expand, "how to mend")
        best: dict[str, Row] = {}
        n_tokens = sum(branch.max_tokens for branch in ExpanderOptions().branches)
        for _ in range(plan.repeat + 1):
            for mode, work in works.items():
                row = once.measure("expand", name, mode, "4 lines", n_tokens, work)
                best[mode] = max(row, best.get(mode, row), key=lambda one: one.tokens_s)
        yield from best.values()
        del decoder, works, work
        gc.collect()


def _expander(folder: Path, decoder: Decoder, mode: str) -> QwenExpander:
    """Return an expander with a vocabulary as large as Qwen3's, whose lines never end before their budget."""
    tokenizer = load_chat_tokenizer(folder)
    description = EngineDescription("expand", folder.name, DECODERS[folder.name], "full", "cpu")
    # As many letters, tokens here, as the real ones have tokens of Qwen3.
    prompt = ExpansionPrompt("h" * 80, "", "f" * 10)
    options = ExpanderOptions(mode=mode)  # type: ignore[arg-type]
    expander = QwenExpander(decoder, tokenizer, description, options, prompt=prompt)
    known = tokenizer.token_bytes()
    others = ["w" if is_latin else "中" for is_latin in latin_share()[len(known) : 151_643]]
    spellings = [*known, *(f" {word}{index}".encode() for index, word in enumerate(others))]
    expander._grammar, expander._spellings = LineGrammar(spellings, tokenizer.end_ids), spellings
    expander._grammar._open[sorted(expander._grammar.end_ids)] = False
    return expander


class NaiveLoop:
    """Plain loop: every step takes all key-value tensors as arrays and returns them one token longer."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._signature = read_signature(session)
        self._past: dict[str, Any] = {}
        self._length = 0

    def read(self, ids: Sequence[int]) -> None:
        """Start again with a prompt."""
        shape = (1, self._signature.kv_heads, 0, self._signature.head_size)
        self._past = {name: np.zeros(shape, self._signature.kv_dtype) for name in self._signature.past}
        self._length = 0
        self._step(ids)

    def steps(self, count: int) -> None:
        """Generate more tokens after the prompt, one at a time."""
        past, length = self._past, self._length
        for _ in range(count):
            self._step([7])
        self._past, self._length = past, length

    def _step(self, ids: Sequence[int]) -> None:
        self._length += len(ids)
        feeds = {"input_ids": np.array([ids], np.int64), "attention_mask": np.ones((1, self._length), np.int64)}
        if self._signature.has_positions:
            feeds["position_ids"] = np.arange(self._length - len(ids), self._length)[None]
        outputs = self._session.run([self._signature.logits, *self._signature.present], {**feeds, **self._past})
        self._past = dict(zip(self._signature.past, outputs[1:], strict=True))
        outputs[0][0, -1].argmax()


def rerank_prompts(n: int, length: int) -> tuple[list[int], list[list[int]]]:
    """Return a shared prefix, and endings with passages of about `length` tokens (normal, a quarter's deviation)."""
    rng = np.random.default_rng(length)
    lengths = np.clip(length * (1 + 0.25 * rng.standard_normal(n)), 16, 1.6 * length).astype(int)
    ids = iter(rng.integers(5, 150_000, PREFIX + int(lengths.sum()) + n * SUFFIX).tolist())
    prefix = [next(ids) for _ in range(PREFIX)]
    return prefix, [[next(ids) for _ in range(size + SUFFIX)] for size in lengths]


def bench_rerank(plan: Plan) -> Iterator[Row]:
    """Measure each form one prompt at a time, batched, and with a shared prefix. Tokens count the prefix for every
    passage.

    Scores are compared with those of the first form, which has all of the weights. With ten passages the correlation is
    a better measure than the worst error.
    """
    expected: dict[str, npt.NDArray[np.float32]] = {}
    for name, format in RERANKERS.items():
        if name in plan.skipped:
            continue
        session = open_standin(plan, name, format)
        signature = read_signature(session)
        runners: dict[str, PassageRunner] = {
            "serial": BatchRunner(session, signature, 0, batch_tokens=0),
            "batched": BatchRunner(session, signature, 0, batch_tokens=BATCH_TOKENS),
        }
        if signature.layers:
            runners["prefix"] = SharedPrefixRunner(Decoder(session))
        for mode, runner in runners.items():
            if mode in plan.skipped:
                continue
            # Two short prompts of unequal length try padding in the graph, outside the measured time.
            _score(runner, [5] * 8, [[6] * 8, [7] * 9], np.zeros(2, np.float32))
            yield from _rerank_with(plan, name, mode, runner, expected)
        del session, runners, runner
        gc.collect()


def _rerank_with(
    plan: Plan, name: str, mode: str, runner: PassageRunner, expected: dict[str, npt.NDArray[np.float32]]
) -> Iterator[Row]:
    rate = 0.0
    for length in plan.lengths:
        for n in plan.passages:
            prefix, endings = rerank_prompts(n, length)
            tokens = sum(len(prefix) + len(ending) for ending in endings)
            if rate and tokens / rate > plan.limit_s:
                print(f"rerank  {name} {mode} {n}x{length}: left out, would take {tokens / rate:.0f} s", flush=True)
                continue
            got = np.zeros(n, np.float32)
            work = partial(_score, runner, prefix, endings, got)
            row = plan.measure("rerank", name, mode, f"{n}x{length}", tokens, work)
            rate = row.tokens_s
            exact = expected.setdefault(row.case, got)
            worst = float(np.abs(got - exact).max() / exact.std())
            row = dataclasses.replace(row, worst_error=worst, correlation=float(np.corrcoef(got, exact)[0, 1]))
            print(f"        worst error of a score {worst:.4f} sd, correlation {row.correlation:.5f}", flush=True)
            yield row


def _score(runner: PassageRunner, prefix: list[int], endings: list[list[int]], scores: npt.NDArray[np.float32]) -> None:
    for indexes, logits in runner.run(prefix, endings):
        scores[indexes] = logits[:, 0]


def bench_embed(plan: Plan) -> Iterator[Row]:
    """Embed texts of mixed length (log-normal, median 200 tokens): ours; fastembed by default, one by one, and run by
    qmd."""
    rng = np.random.default_rng(0)
    lengths = np.clip(np.exp(rng.normal(5.3, 0.7, 12)), 20, 900).astype(int)
    texts = [" ".join(f"w{word}" for word in rng.integers(5, 61_000, size)) for size in lengths]
    for name, file in (("int8", "model_quantized.onnx"), ("fp32", "model.onnx")):
        yield from _embed_with(plan, name, file, texts, int(lengths.sum()))
        gc.collect()


def _embed_with(plan: Plan, name: str, file: str, texts: list[str], tokens: int) -> Iterator[Row]:
    folder, case = plan.folder / "encoder", f"{len(texts)} texts"
    foreign = open_fastembed(folder, name, file, plan.threads)
    yield plan.measure("embed", name, "fastembed", case, tokens, lambda: list(foreign.embed(texts)))
    one_by_one = partial(foreign.embed, texts, batch_size=1)
    yield plan.measure("embed", name, "fastembed 1", case, tokens, lambda: list(one_by_one()))
    known = fastembed_record(f"fastembed:standin/{name}")
    settings = EngineSettings(folder, threads=plan.threads, allow_gpu=False)
    here = load_fastembed_embedder(folder, known, settings)
    yield plan.measure("embed", name, "fastembed qmd", case, tokens, lambda: here.embed_documents(texts))
    record = replace(JINA_ZH, formats=(ModelFormat(name, ModelFile(file), "cpu"),), context=1024)
    ours = load_embedder(folder, record, threads=plan.threads, allow_gpu=False)
    yield plan.measure("embed", name, "ours", case, tokens, lambda: ours.embed_documents(texts))


def open_fastembed(folder: Path, name: str, file: str, threads: int) -> Any:
    """Open the same file through fastembed, on the CPU."""
    from fastembed import TextEmbedding
    from fastembed.common.model_description import ModelSource, PoolingType

    TextEmbedding.add_custom_model(
        model=f"standin/{name}",
        pooling=PoolingType.MEAN,
        normalization=True,
        sources=ModelSource(hf=f"standin/{name}"),
        dim=768,
        model_file=file,
    )
    return TextEmbedding(
        f"standin/{name}", specific_model_path=str(folder), providers=["CPUExecutionProvider"], threads=threads
    )


def bench_load(plan: Plan) -> Iterator[dict[str, Any]]:
    """Measure load time and memory of each model in its own process, its files in the page cache."""
    for name, format in {**DECODERS, **RERANKERS, "encoder": "int8"}.items():
        command = [sys.executable, __file__, str(plan.folder), "--load", name, format, "--threads", str(plan.threads)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        row = json.loads(done.stdout.splitlines()[-1])
        print(f"load    {name:16} {row['load_s']:6.2f} s  {row['rss_mib']} MiB, peak {row['peak_mib']} MiB", flush=True)
        yield row


def load_once(plan: Plan, name: str, format: str) -> None:
    """Load one model, run 64 tokens, print one JSON line."""
    import onnxruntime  # noqa: F401  imported before the clock starts

    started = time.perf_counter()
    if name == "encoder":
        record = replace(JINA_ZH, formats=(ModelFormat("int8", ModelFile("model_quantized.onnx"), "cpu"),))
        embedder = load_embedder(plan.folder / name, record, threads=plan.threads, allow_gpu=False)
        load_s = time.perf_counter() - started
        embedder.embed_queries([" ".join(f"w{word}" for word in range(5, 69))])
    else:
        session = open_standin(plan, name, format)
        load_s = time.perf_counter() - started
        list(BatchRunner(session, read_signature(session), 0, batch_tokens=0).run([5], [list(range(5, 68))]))
    status = Path("/proc/self/status")
    lines = dict(line.split(":", 1) for line in status.read_text().splitlines()) if status.exists() else {}
    held = (
        {key: int(lines[name].split()[0]) >> 10 for key, name in (("rss_mib", "VmRSS"), ("peak_mib", "VmHWM"))}
        if (lines)
        else {"rss_mib": None, "peak_mib": None}
    )
    print(json.dumps({"model": name, "load_s": load_s, **held}))


def summary(rows: Sequence[Row]) -> str:
    """Return tokens per second as markdown tables, models and modes against cases; ratios are to the first row of a
    table."""
    lines = []
    for part in dict.fromkeys(row.part for row in rows):
        inside = [row for row in rows if row.part == part]
        cases = list(dict.fromkeys(row.case for row in inside))
        lines += [f"\n### {part} (tokens per second of processor time per thread)\n"]
        lines += [f"| model | mode | {' | '.join(cases)} |", f"|---|---|{'---:|' * len(cases)}"]
        base = {case: next((row.tokens_s for row in inside if row.case == case), None) for case in cases}
        for key in dict.fromkeys((row.model, row.mode) for row in inside):
            cells = {row.case: row for row in inside if (row.model, row.mode) == key}
            shown = [
                f"{cells[case].tokens_s:.1f} ({cells[case].tokens_s / base[case]:.2f}x)"  # type: ignore[operator]
                + (f" {error:.4f} sd" if (error := cells[case].worst_error) is not None else "")
                if case in cells
                else "–"
                for case in cases
            ]
            lines.append(f"| {key[0]} | {key[1]} | {' | '.join(shown)} |")
    return "\n".join(lines)


def machine() -> dict[str, Any]:
    """Return the machine and versions of the figures."""
    import onnxruntime

    cpu = Path("/proc/cpuinfo")
    text = cpu.read_text() if cpu.exists() else ""
    flags = {flag for line in text.splitlines() if line.startswith("flags") for flag in line.split()}
    return {
        "cpu": next((line.split(":", 1)[1].strip() for line in text.splitlines() if "model name" in line), None),
        "cores": os.cpu_count(),
        "instructions": sorted(flags & {"avx2", "avx512f", "avx512_vnni", "avx_vnni", "amx_int8"}),
        "platform": platform.platform(),
        "onnxruntime": onnxruntime.__version__,
        "numpy": np.__version__,
        "load_average": os.getloadavg() if hasattr(os, "getloadavg") else None,
    }


def run(plan: Plan, parts: Sequence[str], *, llama: bool, layers: int, results: Path | None) -> None:
    """Measure, print, save after every part."""
    rows: list[Row] = []
    content: dict[str, Any] = {"machine": machine(), "layers": layers, "threads": plan.threads, "load": []}
    measures = {"decode": bench_decode, "expand": bench_expand, "rerank": bench_rerank, "embed": bench_embed}

    def save() -> None:
        if results is not None:
            results.write_text(json.dumps({**content, "rows": [asdict(row) for row in rows]}, indent=1), "utf-8")

    if llama:
        # First: later rows are ratios to it.
        from tests.benchmarks.llama_peer import bench_llama

        rows.extend(bench_llama(plan, [part for part in parts if part in ("decode", "rerank")], layers))
        save()
    for part in parts:
        if part == "load":
            content["load"] = list(bench_load(plan))
        else:
            rows.extend(measures[part](plan))
        save()
    print(summary(rows))


def build_missing(folder: Path, layers: int, parts: Sequence[str]) -> None:
    """Build the stand-ins that the parts need."""
    spec = importlib.util.spec_from_file_location("build_standins", ROOT / "models" / "build_standins.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    wanted = {
        "decode": list(DECODERS),
        "expand": ["decoder-cpu-int4", "decoder-q4"],
        "rerank": list(RERANKERS),
        "embed": ["encoder"],
    }
    names = [name for part in parts for name in wanted.get(part, [*DECODERS, *RERANKERS, "encoder"])]
    module.build(folder, list(dict.fromkeys(names)), layers)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--layers", type=int, default=28, help="of the decoders; 28 is the real number")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--part", action="append", choices=PARTS, help="may be repeated; all by default")
    parser.add_argument("--passages", default="4", help="comma-separated")
    parser.add_argument("--lengths", default="100,300", help="comma-separated, in tokens")
    parser.add_argument("--full", action="store_true", help="10 and 30 passages of 100, 300 and 700 tokens")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds that one cell may take")
    parser.add_argument(
        "--skip",
        action="append",
        default=[],
        choices=[*RERANKERS, "serial", "batched"],
        help="a reranker, or a way to run it, to skip",
    )
    parser.add_argument("--gpu", action="store_true", help="let formats meant for CUDA run there")
    parser.add_argument("--llama", action="store_true", help="compare with llama.cpp")
    parser.add_argument("--results", type=Path)
    parser.add_argument("--load", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    passages, lengths = ("10,30", "100,300,700") if arguments.full else (arguments.passages, arguments.lengths)
    plan = Plan(
        arguments.folder,
        arguments.threads,
        arguments.repeat,
        [int(n) for n in passages.split(",")],
        [int(n) for n in lengths.split(",")],
        arguments.limit,
        arguments.skip,
        arguments.gpu,
    )
    if arguments.load:
        load_once(plan, *arguments.load)
        return
    parts = arguments.part or list(PARTS)
    build_missing(arguments.folder, arguments.layers, parts)
    run(plan, parts, llama=arguments.llama, layers=arguments.layers, results=arguments.results)


if __name__ == "__main__":
    main()
