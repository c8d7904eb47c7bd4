"""Small GGUF files of the layouts that users have, with random weights, and what they hold, for references.

Written with the package `gguf`, llama.cpp's own. K-quants, which it cannot make, are blocks of random bits with scales
of the usual size.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
from gguf.quants import dequantize, quantize
from tokenizers import Tokenizer

from tests.inference.tiny_tokenizer import write_tokenizer

Floats = npt.NDArray[np.float32]
HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_SIZE, FFN = 256, 2, 4, 2, 64, 512
K_QUANTS = {"Q4_K": 144, "Q5_K": 176, "Q6_K": 210}
QUANTISED = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", *K_QUANTS)


def stored(rng: np.random.Generator, shape: tuple[int, ...], kind: str, spread: float = 0.06) -> npt.NDArray[Any]:
    """Random weights as a file holds them: floats, or bytes of shape (rows, bytes of a row)."""
    if kind in K_QUANTS:
        return _k_blocks(rng, shape, kind, spread)
    values = (rng.standard_normal(shape) * spread).astype(np.float32)
    if kind == "F32":
        return values
    if kind == "F16":
        return values.astype(np.float16)
    return np.asarray(quantize(values, gguf.GGMLQuantizationType[kind]))


def _k_blocks(rng: np.random.Generator, shape: tuple[int, ...], kind: str, spread: float) -> npt.NDArray[np.uint8]:
    size = K_QUANTS[kind]
    blocks = rng.integers(0, 256, (shape[0], shape[1] // 256, size), dtype=np.uint8)
    # The mean of a run's 6-bit scale is 32, of 4-bit levels 7.5: this centres weights around zero.
    levels = {"Q4_K": 8, "Q5_K": 16, "Q6_K": 1}[kind]
    scale = spread / {"Q4_K": 32 * 6, "Q5_K": 32 * 12, "Q6_K": 70 * 18}[kind]
    halves = np.array([scale, scale * levels], np.float16).view(np.uint8)
    if kind == "Q6_K":
        blocks[..., 208:] = halves[:2]
    else:
        blocks[..., :4] = halves
    return blocks.reshape(shape[0], -1)


def floats(kind: str, held: npt.NDArray[Any]) -> Floats:
    """The weights behind what `stored` gave, by llama.cpp's own arithmetic."""
    if held.dtype != np.uint8:
        return held.astype(np.float32)
    return np.asarray(dequantize(held, gguf.GGMLQuantizationType[kind]), np.float32)


def vocabulary(folder: Path) -> tuple[list[str], list[int], list[str], Tokenizer]:
    """Tokens, types and merges of the tiny byte-level tokenizer, and the tokenizer."""
    write_tokenizer(folder)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    import json

    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    added = tokenizer.get_added_tokens_decoder()
    by_id = {index: token for token, index in tokenizer.get_vocab(with_added_tokens=True).items()}
    tokens = [by_id.get(index, f"[PAD{index}]") for index in range(320)]
    kinds = [
        (3 if added[index].special else 4) if index in added else (1 if index in by_id else 5) for index in range(320)
    ]
    return tokens, kinds, [" ".join(pair) for pair in merges], tokenizer


def write_qwen3(
    path: Path,
    kinds: Mapping[str, str] | str = "F32",
    *,
    pooling: gguf.PoolingType | None = None,
    classes: bool = False,
    tied: bool = True,
    name: str = "tiny",
    seed: int = 5,
    settings: Mapping[str, Any] | None = None,
) -> dict[str, Floats]:
    """A Qwen3 network; the weights it holds, by our names.

    Args:
        kinds: Number format of all matrices, or by the part of the name (`attn_v`, `token_embd`), `""` for the rest.
        classes: Whether there is a head of the labels yes and no.
    """
    by_part = {"": kinds} if isinstance(kinds, str) else dict(kinds)
    rng = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(str(path), "qwen3")
    tokens, types, merges, tokenizer = vocabulary(path.parent / f"{path.stem}-tokenizer")
    writer.add_name(name)
    writer.add_block_count(LAYERS)
    writer.add_context_length(2048)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HEAD_SIZE)
    writer.add_value_length(HEAD_SIZE)
    writer.add_rope_freq_base(1e6)
    writer.add_layer_norm_rms_eps(1e-6)
    if pooling is not None:
        writer.add_pooling_type(pooling)
    if classes:
        writer.add_classifier_output_labels(["yes", "no"])
    for key, value in (settings or {}).items():
        writer.add_key_value(key, value, gguf.GGUFValueType.get_type(value))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(merges)
    writer.add_eos_token_id(tokenizer.token_to_id("<|im_end|>" if pooling is None else "<|endoftext|>"))
    writer.add_pad_token_id(tokenizer.token_to_id("<|endoftext|>"))
    writer.add_add_bos_token(False)
    held: dict[str, Floats] = {}

    def add(label: str, ours: str, shape: tuple[int, ...], spread: float = 0.06) -> None:
        if len(shape) == 1:
            values = (1 + 0.1 * rng.standard_normal(shape)).astype(np.float32)
            held[ours] = values
            writer.add_tensor(f"{label}.weight", values)
            return
        kind = by_part.get(label.rpartition(".")[2], by_part.get("", "F32"))
        raw = stored(rng, shape, kind, spread)
        held[ours] = floats(kind, raw)
        is_raw = raw.dtype == np.uint8
        writer.add_tensor(f"{label}.weight", raw, raw_dtype=gguf.GGMLQuantizationType[kind] if is_raw else None)

    add("token_embd", "embed", (len(tokens), HIDDEN), 0.5)
    add("output_norm", "norm", (HIDDEN,))
    if not tied:
        add("output", "head", (len(tokens), HIDDEN), 0.3)
    if classes:
        labels = rng.standard_normal((2, HIDDEN)).astype(np.float32)
        writer.add_tensor("cls.output.weight", labels)
        held["score"] = labels[:1] - labels[1:]
    for index in range(LAYERS):
        block, ours = f"blk.{index}", f"layers.{index}"
        add(f"{block}.attn_norm", f"{ours}.in_norm", (HIDDEN,))
        add(f"{block}.attn_q_norm", f"{ours}.q_norm", (HEAD_SIZE,))
        add(f"{block}.attn_k_norm", f"{ours}.k_norm", (HEAD_SIZE,))
        add(f"{block}.ffn_norm", f"{ours}.post_norm", (HIDDEN,))
        add(f"{block}.attn_q", f"{ours}.q", (HEADS * HEAD_SIZE, HIDDEN))
        add(f"{block}.attn_k", f"{ours}.k", (KV_HEADS * HEAD_SIZE, HIDDEN))
        add(f"{block}.attn_v", f"{ours}.v", (KV_HEADS * HEAD_SIZE, HIDDEN))
        add(f"{block}.attn_output", f"{ours}.o", (HIDDEN, HEADS * HEAD_SIZE))
        add(f"{block}.ffn_gate", f"{ours}.gate", (FFN, HIDDEN))
        add(f"{block}.ffn_up", f"{ours}.up", (FFN, HIDDEN))
        add(f"{block}.ffn_down", f"{ours}.down", (HIDDEN, FFN))
    _finish(writer)
    return held


def _finish(writer: Any) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
