"""Compare the models that `qmd models import` makes of GGUF files with llama.cpp itself, token by token.

    pip install llama-cpp-python gguf     # the first is a source package: a compiler, cmake and twenty minutes
    python -m tests.benchmarks.check_gguf

Small networks of the three layouts that tobi/qmd fetches (and Qwen3-Embedding), with random weights, in the number
formats that llama.cpp's own quantiser makes. Random weights show every difference of arithmetic, for no answer is
robust.
"""

from __future__ import annotations

import ctypes
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gguf
import llama_cpp
import numpy as np
import numpy.typing as npt

from qmd.inference.engines.embedder import load_embedder
from qmd.inference.runtime.sessions import open_session
from qmd.inference.runtime.tokenization import read_tokenizer
from qmd.inference.settings import EngineSettings
from qmd.plugins.models.formats.graph_writer import Qwen3Shape
from qmd.plugins.models.formats.importing import ImportReport, import_weights
from qmd.plugins.models.formats.networks import read_network
from qmd.plugins.qwen.cross_encoder import load_cross_encoder
from qmd.plugins.qwen.decoding import Decoder
from tests.inference.tiny_models import reference_logits
from tests.plugins.models.encoder_files import PIECES, WORD_PIECES, write_encoder
from tests.plugins.models.gguf_files import (
    FFN,
    HEAD_SIZE,
    HEADS,
    HIDDEN,
    KV_HEADS,
    LAYERS,
    VOCAB,
    write_gemma,
    write_qwen3,
)

FORMATS = {"F16": 1, "Q8_0": 7, "Q4_0": 2, "Q4_1": 3, "Q5_0": 8, "Q5_1": 9, "Q4_K_M": 15, "Q5_K_M": 17, "Q6_K": 18}
"""Values of `llama_ftype`."""
PROMPT, STEPS = 12, 32
TEXTS = (
    "the search for the other thing",
    "yes no lex: vec: <|im_start|>user\nthe the<|im_end|>\n",
    "Ünïcödé, 世界 你好 1234567 !? 🙂👩‍👩‍👧 \t tabs\n\n\n  and   spaces  ",
    "it's they'RE we'll  I'd\r\nnew line",
    "<think>\n\n</think>",
    "",
)
Floats = npt.NDArray[np.float32]
SHAPE = Qwen3Shape(
    layers=LAYERS, hidden=HIDDEN, heads=HEADS, kv_heads=KV_HEADS, head_size=HEAD_SIZE, ffn=FFN, vocab=VOCAB
)


class Llama:
    """Model open in llama.cpp, one sequence of tokens at a time."""

    def __init__(self, path: Path, pooling: int | None = None) -> None:
        parameters = llama_cpp.llama_model_default_params()
        # Its AMX kernels, built by gcc 12, crash.
        parameters.use_extra_bufts = False
        self._model = llama_cpp.llama_model_load_from_file(str(path).encode(), parameters)
        if not self._model:
            raise SystemExit(f"llama.cpp cannot load {path}")
        self._vocab = llama_cpp.llama_model_get_vocab(self._model)
        settings = llama_cpp.llama_context_default_params()
        settings.n_ctx = settings.n_batch = settings.n_ubatch = 1024
        settings.n_threads = settings.n_threads_batch = 1
        settings.embeddings = pooling is not None
        if pooling is not None:
            settings.pooling_type = pooling
        self._context = llama_cpp.llama_init_from_model(self._model, settings)
        self._past = 0

    def tokens(self, text: str, *, specials: bool) -> list[int]:
        raw = text.encode()
        room = (llama_cpp.llama_token * (len(raw) + 16))()
        n = llama_cpp.llama_tokenize(self._vocab, raw, len(raw), room, len(room), specials, True)
        return list(room[:n])

    def read(self, ids: Sequence[int]) -> None:
        batch = llama_cpp.llama_batch_init(len(ids), 0, 1)
        batch.n_tokens = len(ids)
        for index, token in enumerate(ids):
            batch.token[index], batch.pos[index] = token, self._past + index
            batch.n_seq_id[index], batch.seq_id[index][0], batch.logits[index] = 1, 0, 1
        assert llama_cpp.llama_decode(self._context, batch) == 0
        llama_cpp.llama_batch_free(batch)
        self._past += len(ids)

    def logits(self, width: int) -> Floats:
        """Return the logits of the last token."""
        return np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(self._context, -1), (width,)).copy()

    def pooled(self, ids: Sequence[int], width: int) -> Floats:
        memory = llama_cpp.llama_get_memory(self._context)
        if memory:
            llama_cpp.llama_memory_clear(memory, True)
        self._past = 0
        self.read(ids)
        return np.ctypeslib.as_array(llama_cpp.llama_get_embeddings_seq(self._context, 0), (width,)).copy()


def quantised(path: Path, name: str) -> Path:
    """Return a copy of an F32 file in one of `FORMATS`."""
    target = path.with_name(f"{path.stem}-{name}.gguf")
    settings = llama_cpp.llama_model_quantize_default_params()
    settings.ftype = FORMATS[name]
    assert llama_cpp.llama_model_quantize(str(path).encode(), str(target).encode(), ctypes.byref(settings)) == 0
    return target


def correlation(a: Floats, b: Floats) -> float:
    return float(np.corrcoef(a.astype(np.float64), b.astype(np.float64))[0, 1])


def cosine(a: Floats, b: Floats) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def tensors_of(path: Path) -> dict[str, Floats]:
    """Return the tensors in a reranker's file, by our names."""
    network = read_network(path)
    return {name: tensor.floats() for name, tensor in network.tensors.items()} | dict(network.made)


def check_decoder(path: Path, report: ImportReport, title: str) -> None:
    """Let both read the tokens llama.cpp prefers, one after the other, and compare their choices at every step."""
    rng = np.random.default_rng(1)
    same = steps = 0
    chosen: set[int] = set()
    worst = 1.0
    margins: list[float] = []
    for _ in range(8):
        llama = Llama(path)
        session = open_session(report.folder / "model.onnx", format="q8", threads=1, allow_gpu=False)
        context = Decoder(session).open_context(256)
        ids = rng.integers(10, 250, PROMPT).tolist()
        for _ in range(STEPS):
            llama.read(ids)
            theirs, ours = llama.logits(VOCAB), np.asarray(context.append([ids]))[0]
            worst = min(worst, correlation(theirs, ours))
            steps += 1
            if theirs.argmax() == ours.argmax():
                same += 1
            else:
                top = np.sort(theirs)
                margins.append(float((top[-1] - theirs[ours.argmax()]) / theirs.std()))
            ids = [int(theirs.argmax())]
            chosen.update(ids)
    near = f", the others within {max(margins):.3f} sd of the best" if margins else ""
    print(
        f"{title:<34} same token {same}/{steps} ({len(chosen)} distinct){near}; worst correlation of logits {worst:.5f}"
    )


def check_reranker(path: Path, report: ImportReport, title: str) -> None:
    llama = Llama(path, llama_cpp.LLAMA_POOLING_TYPE_RANK)
    reranker = load_cross_encoder(report.folder, report.model.record, EngineSettings(Path(), allow_gpu=False))
    passages = ["the search", "yes the other thing", "no", "世界 the sea", "lex vec ing er", "the the the", "x y z"]
    ours = np.array(reranker.score("the search", passages), np.float32)
    prefix = reranker.prompt.prefix("the search")
    prompts = [[*prefix, *reranker.prompt.ending(passage)] for passage in passages]
    theirs = np.array([llama.pooled(ids, 2)[0] for ids in prompts])
    held = tensors_of(path)
    logits = np.array([reference_logits(held, ids, SHAPE, score=True)[0] for ids in prompts])
    exact = 1 / (1 + np.exp(-logits))
    distances = {
        "from each other": np.abs(ours - theirs).max(),
        "ours from exact arithmetic": np.abs(ours - exact).max(),
        "llama.cpp's": np.abs(theirs - exact).max(),
    }
    listed = ", ".join(f"{name} {value:.4f}" for name, value in distances.items())
    print(f"{title:<34} P(yes): {listed}; spread {np.ptp(theirs):.3f}")


def check_embedder(path: Path, report: ImportReport, title: str, pooling: int) -> None:
    llama = Llama(path, pooling)
    embedder = load_embedder(report.folder, report.model.record, threads=1, allow_gpu=False)
    cosines = []
    for text in ("the search", "yes the other thing in the sea", "世界 the sea", "the " * 120):
        ours = embedder.embed_documents([text])[0]
        ids = embedder.encoder.tokenizer.encode(report.model.record.document_prompt + text).ids
        cosines.append(cosine(ours, llama.pooled(ids, len(ours))))
    print(f"{title:<34} cosine {min(cosines):.6f} to {max(cosines):.6f}")


def check_tokens(path: Path, report: ImportReport, title: str) -> None:
    llama, tokenizer = Llama(path), read_tokenizer(report.folder / "tokenizer.json")
    for text in TEXTS:
        ours, theirs = tokenizer.encode(text, add_special_tokens=True).ids, llama.tokens(text, specials=True)
        if ours != theirs:
            print(f"{title:<34} {text!r}: {ours} here, {theirs} there")
            return
    print(f"{title:<34} the same tokens for {len(TEXTS)} texts")


def main() -> None:
    silent = llama_cpp.llama_log_callback(lambda *arguments: None)
    llama_cpp.llama_log_set(silent, ctypes.c_void_p(0))
    llama_cpp.llama_backend_init()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        models = folder / "models"

        def imported(path: Path, **options: Any) -> ImportReport:
            return import_weights(path, models, **options)

        for title, tied in (("Qwen3 decoder", True), ("with a head of its own", False)):
            source = folder / f"expander-{'tied' if tied else 'own-head'}.gguf"
            write_qwen3(source, "F32", tied=tied)
            for name in FORMATS if tied else ("Q8_0", "Q4_K_M"):
                path = quantised(source, name)
                check_decoder(path, imported(path), f"{title} {name}")
        check_tokens(path, imported(path), "Qwen3 tokenizer")
        write_qwen3(folder / "reranker.gguf", "F32", pooling=gguf.PoolingType.RANK, classes=True)
        for name in ("F16", "Q8_0", "Q4_K_M"):
            path = quantised(folder / "reranker.gguf", name)
            check_reranker(path, imported(path), f"Qwen3 reranker {name}")
        ends = {"tokenizer.ggml.add_eos_token": True}
        write_qwen3(folder / "embedding.gguf", "F32", pooling=gguf.PoolingType.LAST, settings=ends)
        for name in ("F16", "Q8_0", "Q4_K_M"):
            path = quantised(folder / "embedding.gguf", name)
            check_embedder(path, imported(path), f"Qwen3 embedding {name}", llama_cpp.LLAMA_POOLING_TYPE_LAST)
        check_tokens(path, imported(path), "Qwen3 embedding's tokenizer")
        write_gemma(folder / "gemma.gguf", "F32", window=32)
        for name in ("F16", "Q8_0", "Q4_K_M"):
            path = quantised(folder / "gemma.gguf", name)
            check_embedder(path, imported(path), f"EmbeddingGemma {name}", llama_cpp.LLAMA_POOLING_TYPE_MEAN)
        check_tokens(path, imported(path), "Gemma's tokenizer")
        for title, architecture, tokens in (
            ("BERT", "bert", WORD_PIECES),
            ("nomic-bert", "nomic-bert", WORD_PIECES),
            ("XLM-RoBERTa", "bert", PIECES),
        ):
            write_encoder(folder / f"{title}.gguf", architecture=architecture, tokens=tokens)
            for name in ("F16", "Q8_0", "Q4_K_M"):
                path = quantised(folder / f"{title}.gguf", name)
                report = imported(path, form="q4" if name == "Q4_K_M" else "q8")
                check_embedder(path, report, f"{title} {name}", llama_cpp.LLAMA_POOLING_TYPE_MEAN)
            check_tokens(path, imported(path), f"{title}'s tokenizer")


if __name__ == "__main__":
    main()
