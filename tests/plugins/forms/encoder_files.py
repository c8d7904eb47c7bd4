"""Small GGUF files of encoders, as llama.cpp's converter names and spells things, and what they compute."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import onnx

from qmd.inference.models.builtin import locate_builtin
from tests.plugins.forms.gguf_files import FFN, HIDDEN, LAYERS, Doubles, Floats, finish, floats, stored

HEADS, POSITIONS, EPS = 8, 128, 1e-5
_NAMES = """
    token_embd=embed position_embd=positions token_types=types token_embd_norm=embed_norm
    attn_q=q attn_k=k attn_v=v attn_qkv=qkv attn_output=o attn_output_norm=attended_norm
    ffn_gate=gate ffn_up=up ffn_down=down layer_output_norm=fed_norm
"""
_OURS = dict(pair.split("=") for pair in _NAMES.split())
MARKS = {"[PAD]": "padding", "[UNK]": "unknown", "[CLS]": "cls", "[SEP]": "seperator", "[MASK]": "mask"}
_WORDS = "the sea search other thing 世 界 é x , . ! ##s ##ing ##er ##é the## [unused0]"
WORD_PIECES = [*MARKS, *_WORDS.split(), *"abcdefghijklmnopqrstuvwyz", *(f"##{letter}" for letter in "abcdefghijklmnop")]
_PIECES = "▁the ▁sea ▁search ▁other ▁thing ing er s ▁ 世界 世 界 é , . ! fi A x"
PIECES = ["<s>", "<pad>", "</s>", "<unk>", *_PIECES.split(), *"abcdefghijklmnopqrtuvwyz"]


def encoder_shapes(architecture: str, vocab: int) -> dict[str, tuple[int, ...]]:
    """Shapes of an encoder's weights, by the names of a GGUF file."""
    is_nomic = architecture == "nomic-bert"
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (vocab, HIDDEN), "token_types.weight": (2, HIDDEN)}
    shapes |= {} if is_nomic else {"position_embd.weight": (POSITIONS, HIDDEN)}
    for norm in (
        "token_embd_norm",
        *(f"blk.{i}.{n}_norm" for i in range(LAYERS) for n in ("attn_output", "layer_output")),
    ):
        shapes |= {f"{norm}.weight": (HIDDEN,), f"{norm}.bias": (HIDDEN,)}
    square = (HIDDEN, HIDDEN)
    parts = (
        {"attn_q": square, "attn_k": square, "attn_v": square} if not is_nomic else {"attn_qkv": (3 * HIDDEN, HIDDEN)}
    )
    parts |= {"attn_output": square, "ffn_up": (FFN, HIDDEN), "ffn_down": (HIDDEN, FFN)}
    parts |= {"ffn_gate": (FFN, HIDDEN)} if is_nomic else {}
    for layer in range(LAYERS):
        for part, shape in parts.items():
            shapes[f"blk.{layer}.{part}.weight"] = shape
            shapes |= {} if is_nomic else {f"blk.{layer}.{part}.bias": shape[:1]}
    return shapes


def our_name(name: str) -> str:
    """What we call a tensor of a GGUF file."""
    *layer, stem, end = name.split(".")
    ours = f"layers.{layer[1]}.{_OURS[stem]}" if layer else _OURS[stem]
    return ours if end == "weight" else f"{ours}.bias"


def phantom(token: str) -> str:
    """A word piece as llama.cpp's converter spells it."""
    return token if token in MARKS else token[2:] if token.startswith("##") else f"▁{token}"


def charsmap(replaced: Mapping[str, str]) -> bytes:
    """A normalisation as SentencePiece compiles it: each node of the trie has 256 places of its own."""
    texts = b"".join(text.encode() + b"\0" for text in replaced.values())
    places = {b"": 0}
    for raw in (letters.encode()[:length] for letters in replaced for length in range(1, 5)):
        places.setdefault(raw, 256 * len(places))
    units = np.zeros(256 * (len(places) + 1), np.uint32)
    units[0] = 256 << 10
    own = {raw: 256 * (index + 1) for index, raw in enumerate(places)}
    for raw in list(places)[1:]:
        at = own[raw[:-1]] ^ raw[-1]
        units[at] = raw[-1] | (at ^ own[raw]) << 10
    start = 0
    for letters, text in replaced.items():
        raw = letters.encode()
        units[own[raw[:-1]] ^ raw[-1]] |= 256
        units[own[raw]] = start | 1 << 31
        start += len(text.encode()) + 1
    return len(units.tobytes()).to_bytes(4, "little") + units.tobytes() + texts


def write_encoder(
    path: Path,
    kind: str = "F32",
    *,
    architecture: str = "bert",
    tokens: Sequence[str] = WORD_PIECES,
    pooling: gguf.PoolingType | None = gguf.PoolingType.MEAN,
    settings: Mapping[str, Any] = {},
    shapes: Mapping[str, tuple[int, ...] | None] = {},
    weights: Mapping[str, Floats] = {},
    heads: int = HEADS,
    eps: float = EPS,
) -> dict[str, Floats]:
    """An encoder; the weights it holds, by our names.

    Args:
        kind: Number format of its matrices.
        tokens: Word pieces of BERT, or those of a Unigram vocabulary, which begin with `<s>`.
        settings: More of them, or others; None leaves one out.
        shapes: Shapes of tensors that are otherwise; None leaves one out.
        weights: All of them, in place of random ones.
    """
    writer, rng = gguf.GGUFWriter(str(path), architecture), np.random.default_rng(5)
    is_words = tokens[0] != "<s>"
    kinds = [gguf.TokenType.CONTROL if token in MARKS or token[:1] == "<" else 1 for token in tokens]
    keys: dict[str, Any] = {"block_count": LAYERS, "context_length": POSITIONS, "attention.head_count": heads}
    keys |= {"attention.layer_norm_epsilon": eps, "rope.freq_base": 1000.0, "pooling_type": pooling and int(pooling)}
    own: dict[str, Any] = {"model": "bert" if is_words else "t5", "token_type": [int(one) for one in kinds]}
    own |= {"tokens": [phantom(token) for token in tokens] if is_words else list(tokens)}
    own |= {f"{name}_token_id": list(tokens).index(mark) for mark, name in MARKS.items() if mark in tokens}
    if not is_words:
        own |= {"scores": [-float(index) / 8 for index in range(len(tokens))], "unknown_token_id": 3}
        own |= {"bos_token_id": 0, "eos_token_id": 2, "precompiled_charsmap": charsmap({"Ａ": "A", "ﬁ": "fi"})}
    named = {f"{architecture}.{key}": value for key, value in keys.items()}
    named |= {f"tokenizer.ggml.{key}": value for key, value in own.items()}
    for key, value in {**named, **settings}.items():
        if isinstance(value, bytes):
            writer.add_array(key, value)
        elif value is not None:
            writer.add_key_value(key, value, gguf.GGUFValueType.get_type(value))
    held: dict[str, Floats] = {}
    for name, shape in {**encoder_shapes(architecture, len(tokens)), **shapes}.items() if not weights else ():
        if shape is not None:
            is_matrix = len(shape) == 2 and name not in ("position_embd.weight", "token_types.weight")
            raw = stored(rng, shape, kind if is_matrix else "F32", 0.05)
            raw = raw + np.float32("norm.weight" in name) if raw.dtype == np.float32 else raw
            held[our_name(name)] = floats(kind if is_matrix else "F32", raw)
            of = gguf.GGMLQuantizationType[kind] if raw.dtype == np.uint8 else None
            writer.add_tensor(name, raw, raw_dtype=of)
    for name, value in weights.items():
        writer.add_tensor(name, value)
    finish(writer)
    return held


def encoder_vectors(held: Mapping[str, Floats], ids: Sequence[int], heads: int = HEADS) -> Doubles:
    """Token vectors of an encoder, (tokens, hidden): an implementation of its own."""
    value = {name: array.astype(np.float64) for name, array in held.items()}
    gelu = np.vectorize(lambda x: 0.5 * x * (1 + math.erf(x / math.sqrt(2))))

    def norm(x: Doubles, name: str) -> Doubles:
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt(np.square(centred).mean(-1, keepdims=True) + EPS)
        return np.asarray(scaled * value[name] + value[f"{name}.bias"])

    def product(x: Doubles, name: str) -> Doubles:
        return np.asarray(x @ value[name].T + value.get(f"{name}.bias", 0))

    def rotate(x: Doubles) -> Doubles:
        angles = np.arange(len(ids))[:, None, None] / 1000 ** (np.arange(0, x.shape[-1], 2) / x.shape[-1])
        first, second = np.split(x, 2, -1)
        cos, sin = np.cos(angles), np.sin(angles)
        return np.concatenate([first * cos - second * sin, second * cos + first * sin], -1)

    x = value["embed"][list(ids)] + value["types"][0]
    x = norm(x + (value["positions"][: len(ids)] if "positions" in value else 0), "embed_norm")
    for layer in (f"layers.{index}" for index in range(LAYERS)):
        whole = f"{layer}.qkv" in value
        joined = product(x, f"{layer}.qkv") if whole else np.hstack([product(x, f"{layer}.{part}") for part in "qkv"])
        q, k, v = (part.reshape(len(ids), heads, -1) for part in np.split(joined, 3, -1))
        q, k = (rotate(q), rotate(k)) if whole else (q, k)
        scores = np.exp(np.einsum("ihd,jhd->hij", q, k) / np.sqrt(q.shape[-1]))
        mixed = np.einsum("hij,jhd->ihd", scores / scores.sum(-1, keepdims=True), v).reshape(len(ids), -1)
        x = norm(x + product(mixed, f"{layer}.o"), f"{layer}.attended_norm")
        inner = product(x, f"{layer}.up")
        if f"{layer}.gate" in value:
            gate = product(x, f"{layer}.gate")
            inner = gate / (1 + np.exp(-gate)) * inner
        else:
            inner = gelu(inner)
        x = norm(x + product(inner, f"{layer}.down"), f"{layer}.fed_norm")
    return x


def write_builtin(path: Path) -> None:
    """The built-in model as a GGUF file, with its vocabulary and the weights behind its whole numbers."""
    folder = locate_builtin()
    model = onnx.load(str(folder / "model.onnx"))
    value = {one.name: onnx.numpy_helper.to_array(one).astype(np.float32) for one in model.graph.initializer}
    vocabulary = json.loads((folder / "tokenizer.json").read_text("utf-8"))["model"]["vocab"]
    names = {
        "attention.self.query": "attn_qkv",
        "attention.output.dense": "attn_output",
        "intermediate.dense": "ffn_up",
    }
    names |= {"output.dense": "ffn_down", "attention.output.LayerNorm": "attn_output_norm"}
    names |= {"output.LayerNorm": "layer_output_norm"}

    def tensors() -> Iterator[tuple[str, Floats]]:
        yield "token_embd.weight", value["words"] * value["word_scales"]
        yield "position_embd.weight", value["positions"]
        for end in ("weight", "bias"):
            yield f"token_embd_norm.{end}", value[f"embeddings.LayerNorm.{end}"]
        for theirs, ours in ((f"encoder.layer.{i}.{a}", f"blk.{i}.{b}") for i in range(6) for a, b in names.items()):
            if "Norm" in theirs:
                yield f"{ours}.weight", value[f"{theirs}.weight"]
            else:
                yield f"{ours}.weight", (value[f"{theirs}.levels"] * value[f"{theirs}.scales"]).T
            yield f"{ours}.bias", value[f"{theirs}.bias"]

    keys = {"bert.block_count": 6, "bert.context_length": 512}
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    write_encoder(path, tokens=tokens, settings=keys, weights=dict(tensors()), heads=12, eps=1e-12)
