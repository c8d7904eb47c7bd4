"""Encoders as a stranger may send them: GGUF files and folders of the whole BERT family, with their vocabularies.

A case is a network of one small layer, right but for a few values, shapes, names or bytes; packed as `foreign_models`.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable
from typing import Any

from tests.plugins.models.encoder_files import MARKS, PIECES, WORD_PIECES, charsmap
from tests.robustness.foreign_models import (
    VALUES,
    Entry,
    Tensors,
    change_tensors,
    hostile_json,
    pack,
    spoilt,
    write_gguf,
    write_safetensors,
)
from tests.robustness.generators import Dice, mutate

HIDDEN, HEADS, FFN, POSITIONS, TYPES = 32, 4, 64, 72, 2
_PADDED = 2
"""Rows of positions before that of the first token, in folders of RoBERTa's kind."""

_WORDS = [token if token in MARKS else token[2:] if token.startswith("##") else f"▁{token}" for token in WORD_PIECES]
_CHARSMAP = charsmap({"Ａ": "A", "ﬁ": "fi", **dict.fromkeys("\n\t\r", " ")})

_FAMILIES = ("bert", "roberta", "xlm-roberta", "camembert", "nomic_bert")
_BERT = {
    "token_embd": "embeddings.word_embeddings", "position_embd": "embeddings.position_embeddings",
    "token_types": "embeddings.token_type_embeddings", "token_embd_norm": "embeddings.LayerNorm",
    "attn_q": "attention.self.query", "attn_k": "attention.self.key", "attn_v": "attention.self.value",
    "attn_output": "attention.output.dense", "attn_output_norm": "attention.output.LayerNorm",
    "ffn_up": "intermediate.dense", "ffn_down": "output.dense", "layer_output_norm": "output.LayerNorm",
}  # fmt: skip
_NOMIC = {
    **_BERT, "token_embd_norm": "emb_ln", "attn_qkv": "attn.Wqkv", "attn_output": "attn.out_proj",
    "attn_output_norm": "norm1", "ffn_up": "mlp.fc11", "ffn_gate": "mlp.fc12", "ffn_down": "mlp.fc2",
    "layer_output_norm": "norm2",
}  # fmt: skip
"""A GGUF file's name of a tensor → the makers'."""

_CHARACTERS = ("", "\0", "a" * 1_025, "a" * 2_000_000, "\ud800", "[UNK]", "▁", "##", "\n", "<s>", "é", "\u202e")


def encoders(dice: Dice) -> bytes:
    """A GGUF file, or a folder of safetensors with its tokenizer and its configurations."""
    return _gguf(dice) if dice.random() < 0.5 else _folder(dice)


# --- tensors --------------------------------------------------------------------------------------


def _shapes(vocab: int, positions: int, *, is_nomic: bool) -> dict[str, tuple[int, ...]]:
    """Shapes by the names of a GGUF file."""
    square = (HIDDEN, HIDDEN)
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (vocab, HIDDEN), "token_types.weight": (TYPES, HIDDEN)}
    if not is_nomic:
        shapes["position_embd.weight"] = (positions, HIDDEN)
    for norm in ("token_embd_norm", "blk.0.attn_output_norm", "blk.0.layer_output_norm"):
        shapes |= {f"{norm}.weight": (HIDDEN,), f"{norm}.bias": (HIDDEN,)}
    parts = {"attn_output": square, "ffn_up": (FFN, HIDDEN), "ffn_down": (HIDDEN, FFN)}
    more = {"attn_qkv": (3 * HIDDEN, HIDDEN), "ffn_gate": (FFN, HIDDEN)}
    parts |= more if is_nomic else dict.fromkeys(("attn_q", "attn_k", "attn_v"), square)
    for name, shape in parts.items():
        shapes[f"blk.0.{name}.weight"] = shape
        shapes |= {} if is_nomic else {f"blk.0.{name}.bias": shape[:1]}
    return shapes


def _values(shape: tuple[int, ...], dice: Dice, kind: int) -> bytes:
    """Random numbers as F32 (0), F16 (1) or Q8_0 (8)."""
    count = shape[0] * (shape[1] if len(shape) > 1 else 1)
    if kind == 8:
        blocks = (struct.pack("<e", dice.uniform(-0.01, 0.01)) + dice.randbytes(32) for _ in range(count // 32))
        return b"".join(blocks)
    return struct.pack(f"<{count}{'fe'[kind]}", *(dice.uniform(-0.1, 0.1) for _ in range(count)))


def _tensors(dice: Dice, vocab: int, positions: int, kind: int, *, is_nomic: bool) -> tuple[Tensors, dict[str, int]]:
    """Return tensors, some of them changed, and the number formats of the right ones."""
    made: Tensors = {}
    kinds: dict[str, int] = {}
    for name, shape in _shapes(vocab, positions, is_nomic=is_nomic).items():
        own = kind if len(shape) == 2 and name not in ("position_embd.weight", "token_types.weight") else 0
        made[name], kinds[name] = (shape, _values(shape, dice, own)), own
    change_tensors(made, dice, dice.choice((0, 0, 0, 1, 2)))
    return made, kinds


# --- GGUF -----------------------------------------------------------------------------------------


def _gguf(dice: Dice) -> bytes:
    architecture = dice.choice(("bert", "bert", "nomic-bert"))
    is_words = dice.random() < 0.5 or architecture == "nomic-bert"
    tokens = list(_WORDS if is_words else PIECES)
    keys: dict[str, object] = {
        "block_count": 1, "context_length": POSITIONS, "attention.head_count": HEADS,
        "pooling_type": dice.choice((1, 2)),
        "attention.layer_norm_epsilon": 1e-5, "rope.freq_base": 1000.0, "embedding_length": HIDDEN,
    }  # fmt: skip
    own: dict[str, object] = {
        "model": "bert" if is_words else "t5",
        "tokens": tokens,
        "token_type": [3 if token in MARKS or token[:1] == "<" else 1 for token in tokens],
    }
    if is_words:
        own |= {f"{name}_token_id": tokens.index(mark) for mark, name in MARKS.items()}
    else:
        own |= {"scores": [-float(index) / 8 for index in range(len(tokens))], "precompiled_charsmap": _CHARSMAP}
        own |= {"bos_token_id": 0, "eos_token_id": 2, "unknown_token_id": 3, "add_space_prefix": True}
    for _ in range(dice.choice((0, 0, 1, 1, 2))):
        _change_vocabulary(own, dice)
    settings: dict[str, object] = {"general.architecture": architecture, "general.name": "Bge Small En v1.5"}
    settings |= {f"{architecture}.{key}": value for key, value in keys.items()}
    settings |= {f"tokenizer.ggml.{key}": value for key, value in own.items()}
    for _ in range(dice.choice((0, 0, 1, 2))):
        name = dice.choice((*settings, f"{architecture}.rope.scaling.type", "tokenizer.ggml.add_eos_token"))
        settings[name] = dice.choice((*VALUES, "bert", "llama", "gpt2", 2**40, 3, 1e-40))
    tensors, kinds = _tensors(dice, len(tokens), POSITIONS, dice.choice((0, 1, 8)), is_nomic=architecture != "bert")
    return pack([("m.gguf", "file", write_gguf(settings, tensors, dice, kinds))])


def _change_vocabulary(own: dict[str, object], dice: Dice) -> None:
    """Change one part of a vocabulary into one that does not fit the others."""
    kind, tokens = dice.randrange(6), own["tokens"]
    assert isinstance(tokens, list)
    if not tokens:
        return
    at = dice.randrange(len(tokens))
    if kind == 0:
        own["tokens"] = [*tokens[:at], dice.choice(_CHARACTERS), *tokens[at + 1 :]]
    elif kind == 1:
        own["tokens"] = dice.choice((tokens[:at], tokens * 2, [tokens[at]] * len(tokens), tokens[::-1]))
    elif kind == 2:
        own["token_type"] = [dice.choice((0, 1, 2, 3, 4, 5, 6, 7, 2**31)) for _ in tokens]
    elif kind == 3:
        own[dice.choice(("bos_token_id", "unknown_token_id", "cls_token_id", "seperator_token_id"))] = dice.choice(
            (0, 1, len(tokens), 2**31, -1)
        )
    elif kind == 4 and isinstance(scores := own.get("scores"), list):
        scores[at % len(scores)] = dice.choice((float("nan"), float("inf"), -float("inf"), 3e38, -3e38, 1e-45))
        own["scores"] = scores[: dice.choice((len(scores), len(scores), at))]
    elif isinstance(raw := own.get("precompiled_charsmap"), bytes):
        own["precompiled_charsmap"] = _spoilt_charsmap(raw, dice)


def _spoilt_charsmap(raw: bytes, dice: Dice) -> bytes:
    """A normalisation whose trie leads elsewhere: a changed node, size or text."""
    if dice.random() < 0.5:
        at = 4 * dice.randrange(len(raw) // 4)
        return (
            raw[:at]
            + struct.pack("<I", dice.choice((0, 2**32 - 1, 2**31, 256, 512, dice.getrandbits(32))))
            + raw[at + 4 :]
        )
    return mutate(raw, dice, 3)[: dice.choice((10**9, 3, 4, 5, 1_000))]


# --- folders --------------------------------------------------------------------------------------


def _folder(dice: Dice) -> bytes:
    family = dice.choice(_FAMILIES)
    is_nomic, is_words = family == "nomic_bert", family in ("bert", "nomic_bert")
    padded = 0 if is_words else _PADDED
    tensors, _ = _tensors(dice, len(_vocabulary(family)), POSITIONS + padded, 0, is_nomic=is_nomic)
    prefix = dice.choice(("", "", "bert.", "roberta.", "model."))
    named = {prefix + _theirs(name, is_nomic=is_nomic): tensor for name, tensor in tensors.items()}
    config: dict[str, object] = {
        "model_type": family, "num_hidden_layers": 1, "num_attention_heads": HEADS, "pad_token_id": 1,
        "max_position_embeddings": POSITIONS + padded, "layer_norm_eps": 1e-5, "hidden_act": "gelu",
    }  # fmt: skip
    if is_nomic:
        config = {"model_type": family, "n_layer": 1, "n_head": HEADS, "n_positions": POSITIONS}
        config |= {"activation_function": "swiglu", "rotary_emb_base": 1000, "rotary_emb_fraction": 1.0}
    for _ in range(dice.choice((0, 0, 1, 2))):
        more = ("architectures", "id2label", "rope_scaling", "prenorm", "_name_or_path", "layer_types", "pad_token_id")
        config[dice.choice((*config, *more))] = dice.choice((*VALUES, "bert", 2**40, -2, 70, 1e-40))
    tokenizer = _tokenizer(family)
    for _ in range(dice.choice((0, 0, 1, 2))):
        _change_node(tokenizer, dice)
    files = {
        "config.json": _json(config),
        "model.safetensors": write_safetensors(named, dice),
        "tokenizer.json": _json(tokenizer),
        "modules.json": b"[]",
    }
    if dice.random() < 0.3:
        pooling = {
            dice.choice(("pooling_mode_cls_token", "pooling_mode_mean_tokens", "x")): dice.choice((True, *VALUES))
        }
        files["1_Pooling/config.json"] = _json(pooling)
    if dice.random() < 0.2:
        prompts: dict[str, object] = {
            "prompts": {"query": dice.choice(("query: ", "x" * 3_000, 5)), "document": dice.choice(("", "\0", []))}
        }
        files["config_sentence_transformers.json"] = _json(prompts)
    if dice.random() < 0.15:
        name = dice.choice(list(files))
        files[name] = hostile_json(dice) if dice.random() < 0.5 else mutate(files[name], dice, 4)
    entries: list[Entry] = [(name, "file", content) for name, content in files.items()]
    return pack([spoilt(entry, dice) if dice.random() < 0.02 else entry for entry in entries])


def _theirs(name: str, *, is_nomic: bool) -> str:
    """The makers' name of a tensor; one that was changed stays."""
    *layer, stem, end = ["", *name.split(".")][-4:] if name.count(".") else ["", "", "", name]
    names = _NOMIC if is_nomic else _BERT
    if stem not in names or end not in ("weight", "bias") or layer not in ([""], ["blk", "0"]):
        return name
    before = ("encoder.layers.0." if is_nomic else "encoder.layer.0.") if len(layer) > 1 else ""
    return f"{before}{names[stem]}.{end}"


def _vocabulary(family: str) -> list[str]:
    if family in ("bert", "nomic_bert"):
        return list(WORD_PIECES)
    return [*PIECES, "<mask>"]


def _tokenizer(family: str) -> dict[str, Any]:
    """A `tokenizer.json` of WordPiece, Unigram or byte-level BPE, as each family's makers write it."""
    tokens = _vocabulary(family)
    if family in ("bert", "nomic_bert"):
        content: dict[str, Any] = {
            "normalizer": {
                "type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None,
                "lowercase": True,
            },
            "pre_tokenizer": {"type": "BertPreTokenizer"},
            "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
            "model": {
                "type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                "max_input_chars_per_word": 100,
                "vocab": {token: at for at, token in enumerate(tokens)},
            },
        }  # fmt: skip
    elif family == "roberta":
        level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
        content = {
            "normalizer": None, "pre_tokenizer": level, "decoder": level,
            "model": {
                "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "",
                "end_of_word_suffix": "",
                "fuse_unk": False, "byte_fallback": False, "vocab": {token: at for at, token in enumerate(tokens)},
                "merges": [["e", "r"]],
            },
        }  # fmt: skip
    else:
        space = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
        content = {
            "normalizer": {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(_CHARSMAP).decode()},
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, space]},
            "decoder": space,
            "model": {"type": "Unigram", "unk_id": 3, "vocab": [[token, -at / 8] for at, token in enumerate(tokens)]},
        }
    first, last = ("[CLS]", "[SEP]") if family in ("bert", "nomic_bert") else ("<s>", "</s>")
    one = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    marks = [{"id": tokens.index(mark), "content": mark, **one} for mark in (first, last)]
    pieces: list[dict[str, Any]] = [
        {"SpecialToken": {"id": first, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
        {"SpecialToken": {"id": last, "type_id": 0}},
    ]  # fmt: skip
    specials = {mark: {"id": mark, "ids": [tokens.index(mark)], "tokens": [mark]} for mark in (first, last)}
    second = {"Sequence": {"id": "B", "type_id": 0}}
    template = {"type": "TemplateProcessing", "single": pieces, "pair": [*pieces, second], "special_tokens": specials}
    head = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": marks}
    return {**head, **content, "post_processor": template}


def _change_node(tree: Any, dice: Dice) -> None:
    """Replace, double or remove one value somewhere in a tree of JSON."""
    places: list[tuple[Any, Any]] = []
    todo = [tree]
    while todo:
        node = todo.pop()
        for key in list(node) if isinstance(node, dict) else range(len(node)):
            places.append((node, key))
            if isinstance(node[key], dict | list):
                todo.append(node[key])
    # Of a vocabulary's hundred entries one, so that the settings have their turn.
    settings = [place for place in places if not (isinstance(place[0], list) or len(place[0]) > 30)]
    parent, key = dice.choice(settings if settings and dice.random() < 0.7 else places)
    changes: list[Callable[[], object]] = [
        lambda: dice.choice(VALUES), lambda: dice.choice(_CHARACTERS), lambda: -1, lambda: 2**32, lambda: 2**20,
        lambda: base64.b64encode(_spoilt_charsmap(_CHARSMAP, dice)).decode(),
        lambda: {"type": dice.choice(("Unigram", "WordPiece", "Replace", "Strip", "NFC", "Split", "Digits"))},
        lambda: {"type": "Replace", "pattern": {"Regex": "(a+)+$"}, "content": "a" * 1_000},
        lambda: {
            "type": "Split", "pattern": {"Regex": dice.choice(("(?:", "(a*)*b", "", "\\p{L}+"))},
            "behavior": "Isolated", "invert": False,
        },
    ]  # fmt: skip
    if isinstance(parent, dict) and dice.random() < 0.2:
        del parent[key]
    else:
        parent[key] = dice.choice(changes)()


def _json(value: object) -> bytes:
    return json.dumps(value).encode("utf-8", "surrogatepass")
