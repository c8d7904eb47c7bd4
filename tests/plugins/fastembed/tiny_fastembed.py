"""Tiny models in the layouts that fastembed's descriptions ask for, with the built-in model's real BERT tokenizer.

Their token vectors are random ones, each moved a little by the mean of its text: equal words are near, and a wrong mask
shows; special tokens have none of their own. The cross-encoder scores how well a query's tokens are matched.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from qmd.inference.models.builtin import locate_builtin
from qmd.plugins.fastembed.catalogue import fastembed_record

EMBEDDER = "fastembed:BAAI/bge-small-en-v1.5"
CROSS_ENCODER = "fastembed:Xenova/ms-marco-MiniLM-L-6-v2"
LATE = "fastembed:answerdotai/answerai-colbert-small-v1"
STATIC = "fastembed:minishlab/potion-base-8M"

REPOSITORIES = {
    EMBEDDER: "Qdrant/bge-small-en-v1.5-onnx-Q",
    CROSS_ENCODER: "Xenova/ms-marco-MiniLM-L-6-v2",
    LATE: "answerdotai/answerai-colbert-small-v1",
    STATIC: "minishlab/potion-base-8M",
}

_VOCABULARY, _WIDTH = 30_522, 16


@cache
def files_of(name: str) -> dict[str, bytes]:
    """Return the files of a model's repository, by path."""
    if name == STATIC:
        return _static_files()
    if name == CROSS_ENCODER:
        weights, graph = "onnx/model.onnx", _cross_encoder()
    elif name == LATE:
        weights, graph = "vespa_colbert.onnx", _encoder(96)
    else:
        weights, graph = "model_optimized.onnx", _encoder(384)
    specials = {"cls_token": "[CLS]", "mask_token": "[MASK]", "pad_token": "[PAD]", "sep_token": "[SEP]"}
    return {
        weights: graph,
        "tokenizer.json": (locate_builtin() / "tokenizer.json").read_bytes(),
        "tokenizer_config.json": json.dumps({"model_max_length": 512, "pad_token": "[PAD]"}).encode(),
        "special_tokens_map.json": json.dumps(specials).encode(),
        "config.json": json.dumps({"pad_token_id": 0}).encode(),
    }


def _encoder(dim: int) -> bytes:
    projection = np.random.default_rng(5).standard_normal((_WIDTH, dim)).astype(np.float32)
    nodes = [*_token_vectors(), helper.make_node("MatMul", ["vectors", "projection"], ["last_hidden_state"])]
    return _model(nodes, {"projection": projection}, "last_hidden_state", ["batch", "length", dim])


def _cross_encoder() -> bytes:
    nodes = [
        *_token_vectors(),
        helper.make_node("Cast", ["token_type_ids"], ["is_passage"], to=TensorProto.FLOAT),
        helper.make_node("LpNormalization", ["vectors"], ["unit"], axis=-1, p=2),
        helper.make_node("Transpose", ["unit"], ["turned"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["unit", "turned"], ["cosines"]),
        helper.make_node("Mul", ["is_passage", "mask"], ["passage"]),
        helper.make_node("Unsqueeze", ["passage", "one"], ["columns"]),
        helper.make_node("Mul", ["cosines", "columns"], ["matches"]),
        helper.make_node("ReduceMax", ["matches", "two"], ["best"], keepdims=0),
        helper.make_node("Sub", ["mask", "passage"], ["query"]),
        helper.make_node("Mul", ["best", "query"], ["found"]),
        helper.make_node("ReduceSum", ["found", "one"], ["total"], keepdims=1),
        helper.make_node("ReduceSum", ["query", "one"], ["count"], keepdims=1),
        helper.make_node("Div", ["total", "count"], ["share"]),
        helper.make_node("Mul", ["share", "scale"], ["scaled"]),
        helper.make_node("Sub", ["scaled", "offset"], ["logits"]),
    ]
    more = {"two": np.array([2], np.int64), "scale": np.array(12, np.float32), "offset": np.array(8, np.float32)}
    return _model(nodes, more, "logits", ["batch", 1])


def place_fastembed(name: str, models_dir: Path) -> Path:
    """Write a model's files where a pull puts them; return the folder."""
    folder = models_dir / fastembed_record(name).folder
    for path, content in files_of(name).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    return folder


def _token_vectors() -> list[Any]:
    """`vectors`, shape (batch, length, width), of `input_ids` under the `attention_mask`."""
    return [
        helper.make_node("Gather", ["table", "input_ids"], ["own"]),
        helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["mask", "last"], ["rows"]),
        helper.make_node("Mul", ["own", "rows"], ["seen"]),
        helper.make_node("ReduceSum", ["seen", "one"], ["sum"], keepdims=1),
        helper.make_node("ReduceSum", ["rows", "one"], ["length"], keepdims=1),
        helper.make_node("Div", ["sum", "length"], ["mean"]),
        helper.make_node("Add", ["own", "mean"], ["vectors"]),
    ]


def _model(nodes: list[Any], more: dict[str, Any], output: str, shape: list[str | int]) -> bytes:
    table = np.random.default_rng(4).standard_normal((_VOCABULARY, _WIDTH)).astype(np.float32)
    table[[0, 100, 101, 102, 103]] = 0
    constants = {"table": table, "one": np.array([1], np.int64), "last": np.array([2], np.int64), **more}
    names = ["input_ids", "attention_mask", "token_type_ids"]
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "length"]) for name in names],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


def _static_files() -> dict[str, bytes]:
    words = ("[UNK]", "[PAD]", "restore", "the", "backup", "bread", "password", "reset")
    vectors = np.random.default_rng(6).standard_normal((len(words), 256)).astype(np.float32)
    header = json.dumps(
        {"embeddings": {"dtype": "F32", "shape": list(vectors.shape), "data_offsets": [0, vectors.nbytes]}}
    ).encode()
    vocabulary = {word: index for index, word in enumerate(words)}
    tokenizer = {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": {"type": "Lowercase"},
        "pre_tokenizer": {"type": "Whitespace"},
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"},
    }
    return {
        "model.safetensors": len(header).to_bytes(8, "little") + header + vectors.tobytes(),
        "tokenizer.json": json.dumps(tokenizer).encode(),
        "config.json": b"{}",
    }
