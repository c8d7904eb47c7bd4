"""llama.cpp on GGUF stand-ins of the same size, for `bench_inference.py --llama`.

Needs `llama_cpp` (llama-cpp-python, whose source package builds with a compiler and cmake) and `gguf`. The low-level
functions are called, so that Python is not in the way. In rank mode llama.cpp computes the language-model head for
every token, although ranking does not use it: about half of its time at this size. Ratios must be read with that.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from tests.benchmarks.bench_inference import Plan, Row

VOCAB = 151_936
QUANTISATIONS = {"Q4_K_M": 15, "Q8_0": 7}
"""Values of `llama_ftype`."""


def bench_llama(plan: Plan, parts: Sequence[str], layers: int) -> Iterator[Row]:
    """Decode with Q4_K_M and Q8_0, rerank with Q8_0."""
    import llama_cpp

    # Kept in a variable: the callback must outlive the library's use of it.
    silent = llama_cpp.llama_log_callback(lambda *arguments: None)
    llama_cpp.llama_log_set(silent, ctypes.c_void_p(0))
    llama_cpp.llama_backend_init()
    if "decode" in parts:
        for quantisation in QUANTISATIONS:
            yield from _decode(plan, _gguf(plan.folder, "decoder", quantisation, layers), quantisation)
    if "rerank" in parts:
        yield from _rerank(plan, _gguf(plan.folder, "reranker", "Q8_0", layers))


def _decode(plan: Plan, path: Path, quantisation: str) -> Iterator[Row]:
    from tests.benchmarks.bench_inference import NEW, PROMPT

    model = LlamaModel(path, plan.threads, ranks=False)
    ids = np.random.default_rng(0).integers(5, 150_000, PROMPT).tolist()

    def prefill() -> None:
        model.forget()
        model.read(ids, 0)

    def steps() -> None:
        for step in range(NEW):
            model.read([7], PROMPT + step)

    name = f"llama {quantisation}"
    yield plan.measure("decode", name, "llama.cpp", "prefill", PROMPT, prefill)

    def steps_after_prompt() -> None:
        model.forget(PROMPT)
        steps()

    yield plan.measure("decode", name, "llama.cpp", "step", NEW, steps_after_prompt)
    model.close()


def _rerank(plan: Plan, path: Path) -> Iterator[Row]:
    from tests.benchmarks.bench_inference import rerank_prompts

    model = LlamaModel(path, plan.threads, ranks=True)
    rate = 0.0
    for length in plan.lengths:
        for n in plan.passages:
            prefix, endings = rerank_prompts(n, length)
            tokens = sum(len(prefix) + len(ending) for ending in endings)
            if rate and tokens / rate > plan.limit_s:
                print(f"rerank  llama Q8_0 {n}x{length}: left out, would take {tokens / rate:.0f} s")
                continue

            def score(prefix: list[int] = prefix, endings: list[list[int]] = endings) -> None:
                for ending in endings:
                    model.forget()
                    model.read([*prefix, *ending], 0)

            row = plan.measure("rerank", "llama Q8_0", "llama.cpp", f"{n}x{length}", tokens, score)
            rate = row.tokens_s
            yield row
    model.close()


class LlamaModel:
    """Model and context of llama.cpp."""

    def __init__(self, path: Path, threads: int, *, ranks: bool) -> None:
        import llama_cpp

        self._lib = llama_cpp
        self._ranks = ranks
        self._model = llama_cpp.llama_model_load_from_file(str(path).encode(), llama_cpp.llama_model_default_params())
        settings = llama_cpp.llama_context_default_params()
        settings.n_ctx = settings.n_batch = settings.n_ubatch = 2048
        settings.n_threads = settings.n_threads_batch = threads
        settings.n_seq_max = 1
        if ranks:
            settings.embeddings = True
            settings.pooling_type = llama_cpp.LLAMA_POOLING_TYPE_RANK
        self._context = llama_cpp.llama_init_from_model(self._model, settings)
        if not self._context:
            raise SystemExit(f"llama.cpp cannot open '{path}'")
        self.read(list(range(5, 37)), 0)

    def forget(self, keep: int = 0) -> None:
        """Drop all tokens but the first `keep`."""
        memory = self._lib.llama_get_memory(self._context)
        if memory:
            self._lib.llama_memory_seq_rm(memory, 0, keep, -1)

    def read(self, ids: Sequence[int], start: int) -> None:
        """Run tokens from position `start` on, and return the result of the last."""
        batch = self._lib.llama_batch_init(len(ids), 0, 1)
        batch.n_tokens = len(ids)
        for index, token in enumerate(ids):
            batch.token[index], batch.pos[index] = token, start + index
            batch.n_seq_id[index], batch.seq_id[index][0] = 1, 0
            batch.logits[index] = 1 if self._ranks or index == len(ids) - 1 else 0
        if self._lib.llama_decode(self._context, batch) != 0:
            raise SystemExit("llama.cpp failed to run")
        if self._ranks:
            self._lib.llama_get_embeddings_seq(self._context, 0)[0]
        else:
            np.ctypeslib.as_array(self._lib.llama_get_logits_ith(self._context, -1), (VOCAB,)).argmax()
        self._lib.llama_batch_free(batch)

    def close(self) -> None:
        """Free the memory."""
        self._lib.llama_free(self._context)
        self._lib.llama_model_free(self._model)


def _gguf(folder: Path, role: str, quantisation: str, layers: int) -> Path:
    """Return a quantised stand-in, made when it is missing."""
    import llama_cpp

    full = folder / "gguf" / f"{role}-{layers}-f16.gguf"
    target = folder / "gguf" / f"{role}-{layers}-{quantisation}.gguf"
    if target.exists():
        return target
    full.parent.mkdir(parents=True, exist_ok=True)
    if not full.exists():
        write_gguf(full, layers, ranks=role == "reranker")
    settings = llama_cpp.llama_model_quantize_default_params()
    settings.ftype = QUANTISATIONS[quantisation]
    partial = target.with_suffix(".partial")
    if llama_cpp.llama_model_quantize(str(full).encode(), str(partial).encode(), ctypes.byref(settings)) != 0:
        raise SystemExit("llama.cpp cannot quantise the stand-in")
    partial.rename(target)
    return target


def write_gguf(path: Path, layers: int, *, ranks: bool) -> None:
    """Qwen3-0.6B with random half-precision weights; a reranker has a head of two labels and rank pooling."""
    import gguf

    rng = np.random.default_rng(0)
    hidden, heads, kv_heads, head_size, ffn = 1024, 16, 8, 128, 3072

    def noise(*size: int) -> Any:
        return (rng.standard_normal(size, dtype=np.float32) * np.float32(0.02)).astype(np.float16)

    writer = gguf.GGUFWriter(str(path), "qwen3")
    writer.add_block_count(layers)
    writer.add_context_length(4096)
    writer.add_embedding_length(hidden)
    writer.add_feed_forward_length(ffn)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_key_length(head_size)
    writer.add_value_length(head_size)
    writer.add_rope_freq_base(1e6)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_file_type(1)
    _add_vocabulary(writer)
    if ranks:
        writer.add_pooling_type(gguf.PoolingType.RANK)
        writer.add_classifier_output_labels(["yes", "no"])
        writer.add_tensor("cls.output.weight", noise(2, hidden).astype(np.float32))
    writer.add_tensor("token_embd.weight", noise(VOCAB, hidden))
    writer.add_tensor("output_norm.weight", np.ones(hidden, np.float32))
    matrices = {
        "attn_q": (heads * head_size, hidden),
        "attn_k": (kv_heads * head_size, hidden),
        "attn_v": (kv_heads * head_size, hidden),
        "attn_output": (hidden, heads * head_size),
        "ffn_gate": (ffn, hidden),
        "ffn_up": (ffn, hidden),
        "ffn_down": (hidden, ffn),
    }
    norms = {"attn_norm": hidden, "ffn_norm": hidden, "attn_q_norm": head_size, "attn_k_norm": head_size}
    for index in range(layers):
        for name, size in norms.items():
            writer.add_tensor(f"blk.{index}.{name}.weight", np.ones(size, np.float32))
        for name, shape in matrices.items():
            writer.add_tensor(f"blk.{index}.{name}.weight", noise(*shape))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_vocabulary(writer: Any) -> None:
    """Add byte letters and numbered names: the library refuses a model without a vocabulary; no text is ever read."""
    letters = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters += [256 + index for index in range(256 - len(letters))]
    words = [*map(chr, letters)]
    words += [f"word{index}" for index in range(VOCAB - len(words))]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(words)
    writer.add_token_types([1] * (VOCAB - 10) + [3] * 10)
    writer.add_token_merges(["a b", "c d"])
    writer.add_eos_token_id(VOCAB - 1)
    writer.add_pad_token_id(VOCAB - 2)
    writer.add_bos_token_id(VOCAB - 2)
    writer.add_add_bos_token(False)
