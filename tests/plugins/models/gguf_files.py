"""Small GGUF files in the layouts of users' files, with random weights, which are returned for references.

Written with the package `gguf`, llama.cpp's own. K-quants, which it cannot make, are blocks of random bits with scales
of the usual size.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
from gguf.quants import dequantize, quantize
from tokenizers import Tokenizer

from tests.inference.tiny_tokenizer import write_tokenizer

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_SIZE, FFN, VOCAB = 256, 3, 4, 2, 64, 512, 320
GEMMA_HEADS = 4
K_QUANTS = {"Q4_K": 144, "Q5_K": 176, "Q6_K": 210}
QUANTISED = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", *K_QUANTS)


def stored(rng: np.random.Generator, shape: tuple[int, ...], kind: str, spread: float = 0.12) -> npt.NDArray[Any]:
    """Return random weights as a file stores them: floats, or bytes of shape (rows, bytes of a row)."""
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
    """Return the weights of `stored`'s result, by llama.cpp's own arithmetic."""
    if held.dtype != np.uint8:
        return held.astype(np.float32)
    return np.asarray(dequantize(held, gguf.GGMLQuantizationType[kind]), np.float32)


def vocabulary(folder: Path) -> dict[str, list[Any]]:
    """Return tokens, types and merges of the tiny byte-level tokenizer, in the vocabulary's order."""
    write_tokenizer(folder)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    added = tokenizer.get_added_tokens_decoder()
    by_id = {index: token for token, index in tokenizer.get_vocab(with_added_tokens=True).items()}
    kinds = dict.fromkeys(by_id, gguf.TokenType.NORMAL)
    kinds |= {i: gguf.TokenType.CONTROL if one.special else gguf.TokenType.USER_DEFINED for i, one in added.items()}
    return {
        "tokens": [by_id.get(index, f"[PAD{index}]") for index in range(VOCAB)],
        "types": [kinds.get(index, gguf.TokenType.UNUSED) for index in range(VOCAB)],
        "merges": [" ".join(pair) for pair in merges],
    }


class _Weights:
    """Writer of random tensors that keeps their values."""

    def __init__(self, writer: Any, kinds: Mapping[str, str] | str, seed: int) -> None:
        self._writer = writer
        self._kinds = {"": kinds} if isinstance(kinds, str) else dict(kinds)
        self._rng = np.random.default_rng(seed)
        self.held: dict[str, Floats] = {}

    def norm(self, label: str, ours: str, size: int) -> None:
        self.held[ours] = (1 + 0.1 * self._rng.standard_normal(size)).astype(np.float32)
        self._writer.add_tensor(f"{label}.weight", self.held[ours])

    def matrix(self, label: str, ours: str, shape: tuple[int, int], spread: float = 0.12) -> None:
        kind = self._kinds.get(label.rpartition(".")[2], self._kinds.get("", "F32"))
        raw = stored(self._rng, shape, kind, spread)
        self.held[ours] = floats(kind, raw)
        is_raw = raw.dtype == np.uint8
        self._writer.add_tensor(f"{label}.weight", raw, raw_dtype=gguf.GGMLQuantizationType[kind] if is_raw else None)

    def layers(self, norms: Mapping[str, tuple[str, int]], heads: int, kv_heads: int) -> None:
        for index in range(LAYERS):
            block, ours = f"blk.{index}", f"layers.{index}"
            for label, (part, size) in norms.items():
                self.norm(f"{block}.{label}", f"{ours}.{part}", size)
            self.matrix(f"{block}.attn_q", f"{ours}.q", (heads * HEAD_SIZE, HIDDEN))
            self.matrix(f"{block}.attn_k", f"{ours}.k", (kv_heads * HEAD_SIZE, HIDDEN))
            self.matrix(f"{block}.attn_v", f"{ours}.v", (kv_heads * HEAD_SIZE, HIDDEN))
            self.matrix(f"{block}.attn_output", f"{ours}.o", (HIDDEN, heads * HEAD_SIZE))
            self.matrix(f"{block}.ffn_gate", f"{ours}.gate", (FFN, HIDDEN))
            self.matrix(f"{block}.ffn_up", f"{ours}.up", (FFN, HIDDEN))
            self.matrix(f"{block}.ffn_down", f"{ours}.down", (HIDDEN, FFN))


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
    """Write a Qwen3 network; return its weights, by qmd's names.

    Args:
        kinds: Number format of all matrices, or by the part of the name (`attn_v`, `token_embd`), `""` for the rest.
        classes: Add a head of the labels yes and no.
        settings: Added or changed settings.
    """
    writer = gguf.GGUFWriter(str(path), "qwen3")
    _sizes(writer, name, HEADS, KV_HEADS)
    if pooling is not None:
        writer.add_pooling_type(pooling)
    if classes:
        writer.add_classifier_output_labels(["yes", "no"])
    words = vocabulary(path.parent / f"{path.stem}-tokenizer")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(words["tokens"])
    writer.add_token_types(words["types"])
    writer.add_token_merges(words["merges"])
    writer.add_eos_token_id(words["tokens"].index("<|endoftext|>" if pooling else "<|im_end|>"))
    writer.add_pad_token_id(words["tokens"].index("<|endoftext|>"))
    writer.add_add_bos_token(False)
    for key, value in (settings or {}).items():
        writer.add_key_value(key, value, gguf.GGUFValueType.get_type(value))
    weights = _Weights(writer, kinds, seed)
    # Small in comparison with the layers' sums: with a large table a tied network only repeats its input.
    weights.matrix("token_embd", "embed", (VOCAB, HIDDEN), 0.05)
    weights.norm("output_norm", "norm", HIDDEN)
    if not tied:
        weights.matrix("output", "head", (VOCAB, HIDDEN), 0.3)
    if classes:
        labels = np.random.default_rng(seed).standard_normal((2, HIDDEN)).astype(np.float32) * np.float32(0.1)
        writer.add_tensor("cls.output.weight", labels)
        weights.held["score"] = labels[:1] - labels[1:]
    norms = {"attn_norm": ("in_norm", HIDDEN), "ffn_norm": ("post_norm", HIDDEN)}
    norms |= {f"attn_{part}_norm": (f"{part}_norm", HEAD_SIZE) for part in "qk"}
    weights.layers(norms, HEADS, KV_HEADS)
    finish(writer)
    return weights.held


def write_gemma(
    path: Path,
    kinds: Mapping[str, str] | str = "F32",
    *,
    window: int = 8,
    dense: bool = True,
    period: int = 2,
    seed: int = 6,
) -> dict[str, Floats]:
    """Write an EmbeddingGemma network with a small window, every second layer of which attends to all tokens."""
    writer = gguf.GGUFWriter(str(path), "gemma-embedding")
    _sizes(writer, "tiny gemma", GEMMA_HEADS, 1)
    writer.add_sliding_window(window)
    writer.add_sliding_window_pattern(period)
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType.MEAN)
    pieces = sentence_pieces()
    writer.add_tokenizer_model("llama")
    writer.add_token_list([piece for piece, _, _ in pieces])
    writer.add_token_scores([score for _, score, _ in pieces])
    writer.add_token_types([kind for _, _, kind in pieces])
    for key, index in (("pad", 0), ("eos", 1), ("bos", 2), ("unk", 3)):
        getattr(writer, f"add_{key}_token_id")(index)
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(True)
    writer.add_add_space_prefix(False)
    weights = _Weights(writer, kinds, seed)
    weights.matrix("token_embd", "embed", (len(pieces), HIDDEN), 0.05)
    weights.norm("output_norm", "norm", HIDDEN)
    if dense:
        writer.add_dense_features_dims("dense_2", HIDDEN, 2 * HIDDEN)
        writer.add_dense_features_dims("dense_3", 2 * HIDDEN, HIDDEN)
        weights.matrix("dense_2", "dense_2", (2 * HIDDEN, HIDDEN))
        weights.matrix("dense_3", "dense_3", (HIDDEN, 2 * HIDDEN))
    norms = {
        "attn_norm": ("in_norm", HIDDEN),
        "post_attention_norm": ("attended_norm", HIDDEN),
        "ffn_norm": ("post_norm", HIDDEN),
        "post_ffw_norm": ("fed_norm", HIDDEN),
    }
    norms |= {f"attn_{part}_norm": (f"{part}_norm", HEAD_SIZE) for part in "qk"}
    weights.layers(norms, GEMMA_HEADS, 1)
    finish(writer)
    return weights.held


def sentence_pieces() -> list[tuple[str, float, int]]:
    """Return a vocabulary of SentencePiece: (piece, score, type), as Gemma's, a thousandth of its size."""
    kind = gguf.TokenType
    pieces = [("<pad>", kind.CONTROL), ("<eos>", kind.CONTROL), ("<bos>", kind.CONTROL), ("<unk>", kind.UNKNOWN)]
    # Makers' own tokens contain blanks and breaks as in a text.
    pieces += [(text, kind.USER_DEFINED) for text in ("\n\n", "  ", "    ", "<start_of_turn>")]
    pieces += [(f"<0x{byte:02X}>", kind.BYTE) for byte in range(256)]
    joined = ["▁t", "▁th", "▁the", "he", "in", "ing", "▁se", "▁sea", "rch", "▁a", "er", "re", "世界", "▁search", "é"]
    letters = sorted(set("".join(joined)) | set("abcdefghijklmnopqrstuvwxyz,.!?0123456789你好"))
    pieces += [(piece, kind.NORMAL) for piece in [*joined, *(letter for letter in letters if letter not in joined)]]
    return [(piece, -float(index), int(kind)) for index, (piece, kind) in enumerate(pieces)]


def gemma_vectors(held: Mapping[str, Floats], ids: Sequence[int], *, window: int = 8, period: int = 2) -> Doubles:
    """Return token vectors of an EmbeddingGemma network before pooling, (tokens, hidden), independently computed."""
    value = {name: array.astype(np.float64) for name, array in held.items()}
    places = np.arange(len(ids))
    apart = np.abs(places[:, None] - places[None])

    def norm(x: Doubles, weight: Doubles) -> Doubles:
        return np.asarray(x / np.sqrt(np.square(x).mean(-1, keepdims=True) + 1e-6) * weight)

    def rotate(x: Doubles, theta: float) -> Doubles:
        angles = places[:, None, None] / theta ** (np.arange(0, HEAD_SIZE, 2) / HEAD_SIZE)
        first, second = x[..., : HEAD_SIZE // 2], x[..., HEAD_SIZE // 2 :]
        cos, sin = np.cos(angles), np.sin(angles)
        return np.concatenate([first * cos - second * sin, second * cos + first * sin], -1)

    x = value["embed"][list(ids)] * HIDDEN**0.5
    for layer in range(LAYERS):
        weight = {name.split(".", 2)[2]: array for name, array in value.items() if name.startswith(f"layers.{layer}.")}
        is_local = (layer + 1) % period != 0
        y = norm(x, weight["in_norm"])
        parts = {part: (y @ weight[part].T).reshape(len(ids), -1, HEAD_SIZE) for part in "qkv"}
        q, k = (rotate(norm(parts[part], weight[f"{part}_norm"]), 1e4 if is_local else 1e6) for part in "qk")
        scores = np.einsum("ihd,jd->hij", q, k[:, 0]) / np.sqrt(HEAD_SIZE)
        scores = np.where(apart > window // 2, -np.inf, scores) if is_local else scores
        attention = np.exp(scores - scores.max(-1, keepdims=True))
        attention /= attention.sum(-1, keepdims=True)
        attended = np.einsum("hij,jd->ihd", attention, parts["v"][:, 0]).reshape(len(ids), -1) @ weight["o"].T
        x = x + norm(attended, weight["attended_norm"])
        y = norm(x, weight["post_norm"])
        gate = y @ weight["gate"].T
        gelu = 0.5 * gate * (1 + np.tanh(np.sqrt(2 / np.pi) * (gate + 0.044715 * gate**3)))
        x = x + norm((gelu * (y @ weight["up"].T)) @ weight["down"].T, weight["fed_norm"])
    x = norm(x, value["norm"])
    return np.asarray(x @ value["dense_2"].T @ value["dense_3"].T) if "dense_2" in value else x


def _sizes(writer: Any, name: str, heads: int, kv_heads: int) -> None:
    writer.add_name(name)
    writer.add_block_count(LAYERS)
    writer.add_context_length(2048)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_key_length(HEAD_SIZE)
    writer.add_value_length(HEAD_SIZE)
    writer.add_rope_freq_base(1e6)
    writer.add_layer_norm_rms_eps(1e-6)


def finish(writer: Any) -> None:
    """Write the writer's contents."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
