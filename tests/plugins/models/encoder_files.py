"""Small GGUF files of encoders, as llama.cpp's converter names and spells things, and what they compute."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import onnx

from qmd.inference.models.builtin import locate_builtin
from tests.plugins.models.gguf_files import FFN, HIDDEN, LAYERS, Doubles, Floats, finish, floats, stored

HEADS, POSITIONS, EPS = 8, 128, 1e-5
MARKS = {"[PAD]": "padding", "[UNK]": "unknown", "[CLS]": "cls", "[SEP]": "seperator", "[MASK]": "mask"}
_WORDS = "the sea search other thing 世 界 é x , . ! ##s ##ing ##er ##é the## [unused0]"
WORD_PIECES = [*MARKS, *_WORDS.split(), *"abcdefghijklmnopqrstuvwyz", *(f"##{letter}" for letter in "abcdefghijklmnop")]
_PIECES = "▁the ▁sea ▁search ▁other ▁thing ing er s ▁ 世界 世 界 é , . ! fi A x"
PIECES = ["<s>", "<pad>", "</s>", "<unk>", *_PIECES.split(), *"abcdefghijklmnopqrtuvwyz"]


def encoder_shapes(architecture: str, vocab: int) -> dict[str, tuple[int, ...]]:
    """Shapes of an encoder's weights, by the names of a GGUF file."""
    is_nomic, square = architecture == "nomic-bert", (HIDDEN, HIDDEN)
    parts = {"attn_output": square, "ffn_up": (FFN, HIDDEN), "ffn_down": (HIDDEN, FFN)}
    more = {"attn_qkv": (3 * HIDDEN, HIDDEN), "ffn_gate": (FFN, HIDDEN)}
    parts |= more if is_nomic else dict.fromkeys(("attn_q", "attn_k", "attn_v"), square)
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (vocab, HIDDEN), "token_types.weight": (2, HIDDEN)}
    shapes |= {} if is_nomic else {"position_embd.weight": (POSITIONS, HIDDEN)}
    norms = [f"blk.{layer}.{norm}_norm" for layer in range(LAYERS) for norm in ("attn_output", "layer_output")]
    shapes |= {f"{norm}.{end}": (HIDDEN,) for norm in ("token_embd_norm", *norms) for end in ("weight", "bias")}
    for name, shape in ((f"blk.{layer}.{part}", shape) for layer in range(LAYERS) for part, shape in parts.items()):
        shapes |= {f"{name}.weight": shape} if is_nomic else {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    return shapes


def charsmap(replaced: Mapping[str, str]) -> bytes:
    """Return a normalisation as SentencePiece compiles it: each node of the trie has 256 places of its own."""
    prefixes = dict.fromkeys(letters.encode()[:n] for letters in replaced for n in range(len(letters.encode()) + 1))
    own = {raw: 256 * (index + 1) for index, raw in enumerate(prefixes)}
    units = np.zeros(256 * (len(own) + 1), np.uint32)
    units[0] = own[b""] << 10
    for raw in filter(None, own):
        at = own[raw[:-1]] ^ raw[-1]
        units[at] = raw[-1] | (at ^ own[raw]) << 10
    texts = b""
    for raw, text in ((letters.encode(), text) for letters, text in replaced.items()):
        units[own[raw[:-1]] ^ raw[-1]] |= 256
        units[own[raw]] = len(texts) | 1 << 31
        texts += text.encode() + b"\0"
    return units.nbytes.to_bytes(4, "little") + units.tobytes() + texts


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
) -> dict[str, Floats]:
    """Write an encoder and return its weights.

    Args:
        kind: Number format of its matrices.
        tokens: Word pieces of BERT, or those of a Unigram vocabulary, which begin with `<s>`.
        settings: Added or changed settings; None removes one.
        shapes: Changed shapes of tensors; None removes one.
        weights: All of them, instead of random ones.
    """
    writer, rng = gguf.GGUFWriter(str(path), architecture), np.random.default_rng(5)
    is_words = tokens[0] != "<s>"
    keys: dict[str, Any] = {"block_count": LAYERS, "context_length": POSITIONS, "attention.head_count": HEADS}
    keys |= {"attention.layer_norm_epsilon": EPS, "rope.freq_base": 1000.0, "pooling_type": pooling and int(pooling)}
    keys |= {"embedding_length": HIDDEN, "feed_forward_length": FFN, "attention.causal": False}
    own: dict[str, Any] = {"model": "bert" if is_words else "t5", "token_type_count": 2}
    own |= {"token_type": [3 if token in MARKS or token[:1] == "<" else 1 for token in tokens]}
    own |= {f"{name}_token_id": list(tokens).index(mark) for mark, name in MARKS.items() if mark in tokens}
    own |= {
        "bos_token_id": own.get("cls_token_id"),
        "tokens": list(map(_phantom, tokens)) if is_words else list(tokens),
    }
    if not is_words:
        own |= dict.fromkeys(("add_bos_token", "add_eos_token", "add_space_prefix", "remove_extra_whitespaces"), True)
        own |= {"scores": [-float(index) / 8 for index in range(len(tokens))], "unknown_token_id": 3}
        own |= {"bos_token_id": 0, "eos_token_id": 2}
        own |= {"precompiled_charsmap": charsmap({"Ａ": "A", "ﬁ": "fi", **dict.fromkeys("\n\t\r", " ")})}
    named = {f"{architecture}.{key}": value for key, value in keys.items()}
    named |= {f"tokenizer.ggml.{key}": value for key, value in own.items()}
    for key, value in {**named, **settings}.items():
        if isinstance(value, bytes):
            writer.add_array(key, value)
        elif value is not None:
            kind_of = gguf.GGUFValueType.UINT32 if type(value) is int else gguf.GGUFValueType.get_type(value)
            writer.add_key_value(key, value, kind_of)
    held = dict(weights)
    for name, shape in {**encoder_shapes(architecture, len(tokens)), **shapes}.items() if not weights else ():
        if shape is not None:
            is_matrix = len(shape) == 2 and name not in ("position_embd.weight", "token_types.weight")
            raw = stored(rng, shape, kind if is_matrix else "F32", 0.05)
            raw = raw + np.float32("norm.weight" in name) if raw.dtype == np.float32 else raw
            held[name] = floats(kind if is_matrix else "F32", raw)
            writer.add_tensor(name, raw, raw_dtype=gguf.GGMLQuantizationType[kind] if raw.dtype == np.uint8 else None)
    for name, weight in weights.items():
        writer.add_tensor(name, weight)
    finish(writer)
    return held


def _phantom(token: str) -> str:
    """Return a word piece as llama.cpp's converter spells it."""
    return token if token in MARKS else token[2:] if token.startswith("##") else f"▁{token}"


def encoder_vectors(held: Mapping[str, Floats], ids: Sequence[int]) -> Doubles:
    """Return token vectors of an encoder, (tokens, hidden), by an independent implementation."""
    value = {name: array.astype(np.float64) for name, array in held.items()}
    gelu = np.vectorize(lambda x: 0.5 * x * (1 + math.erf(x / math.sqrt(2))))

    def norm(x: Doubles, name: str) -> Doubles:
        scaled = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + EPS)
        return np.asarray(scaled * value[f"{name}.weight"] + value[f"{name}.bias"])

    def product(x: Doubles, name: str) -> Doubles:
        return np.asarray(x @ value[f"{name}.weight"].T + value.get(f"{name}.bias", 0))

    def rotate(x: Doubles) -> Doubles:
        angles = np.arange(len(ids))[:, None, None] / 1000 ** (np.arange(0, x.shape[-1], 2) / x.shape[-1])
        first, second = np.split(x, 2, -1)
        cos, sin = np.cos(angles), np.sin(angles)
        return np.concatenate([first * cos - second * sin, second * cos + first * sin], -1)

    x = value["token_embd.weight"][list(ids)] + value["token_types.weight"][0]
    x = norm(x + value.get("position_embd.weight", np.zeros((len(ids), 1)))[: len(ids)], "token_embd_norm")
    for layer in (f"blk.{index}" for index in range(LAYERS)):
        is_nomic = f"{layer}.ffn_gate.weight" in value
        joined = [product(x, f"{layer}.attn_{part}") for part in (["qkv"] if is_nomic else "qkv")]
        q, k, v = (part.reshape(len(ids), HEADS, -1) for part in np.split(np.hstack(joined), 3, -1))
        q, k = (rotate(q), rotate(k)) if is_nomic else (q, k)
        scores = np.exp(np.einsum("ihd,jhd->hij", q, k) / np.sqrt(q.shape[-1]))
        mixed = np.einsum("hij,jhd->ihd", scores / scores.sum(-1, keepdims=True), v).reshape(len(ids), -1)
        x = norm(x + product(mixed, f"{layer}.attn_output"), f"{layer}.attn_output_norm")
        gate, up = (product(x, f"{layer}.ffn_{part}") for part in ("gate" if is_nomic else "up", "up"))
        inner = gate / (1 + np.exp(-gate)) * up if is_nomic else gelu(up)
        x = norm(x + product(inner, f"{layer}.ffn_down"), f"{layer}.layer_output_norm")
    return x


def write_builtin(path: Path) -> None:
    """Write the built-in model as a GGUF file, with its vocabulary and its dequantised weights."""
    model = onnx.load(str(locate_builtin() / "model.onnx"))
    value = {one.name: onnx.numpy_helper.to_array(one).astype(np.float32) for one in model.graph.initializer}
    names = {
        "attention.self.query": "attn_qkv",
        "attention.output.dense": "attn_output",
        "intermediate.dense": "ffn_up",
    }
    names |= {"attention.output.LayerNorm": "attn_output_norm", "output.dense": "ffn_down"}
    names |= {"output.LayerNorm": "layer_output_norm"}
    found = {"token_embd.weight": value["words"] * value["word_scales"], "position_embd.weight": value["positions"]}
    pairs = [(f"encoder.layer.{i}.{theirs}", f"blk.{i}.{ours}") for i in range(6) for theirs, ours in names.items()]
    for theirs, ours in (("embeddings.LayerNorm", "token_embd_norm"), *pairs):
        is_norm = f"{theirs}.levels" not in value
        weight = value[f"{theirs}.weight"] if is_norm else (value[f"{theirs}.levels"] * value[f"{theirs}.scales"]).T
        found |= {f"{ours}.weight": weight, f"{ours}.bias": value[f"{theirs}.bias"]}
    keys = {"bert.block_count": 6, "bert.context_length": 512, "bert.attention.head_count": 12}
    vocabulary = json.loads((locate_builtin() / "tokenizer.json").read_text("utf-8"))["model"]["vocab"]
    write_encoder(path, tokens=sorted(vocabulary, key=vocabulary.__getitem__), settings=keys, weights=found)
