"""Folders of tiny embedding models laid out as published ones, and an independent numpy reference."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import tokenizers
from msgspec import Struct
from onnx import TensorProto, helper, numpy_helper
from tokenizers import models, pre_tokenizers, processors

from qmd.inference.base import Embedder
from qmd.inference.engines.embedder import OnnxEmbedder
from qmd.inference.loader import load_engines
from qmd.inference.settings import EngineSettings

TEXT = "Bread and butter"
VOCAB, DIM, POSITIONS = 300, 24, 600
Array = npt.NDArray[np.float32]
_SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "<|endoftext|>")
_TRANSFORMER = "sentence_transformers.models.Transformer"
_POOLING = "sentence_transformers.models.Pooling"
_NORMALIZE = "sentence_transformers.models.Normalize"


class TinyGraph(Struct, frozen=True):
    """Inputs and outputs of a tiny encoder's graph."""

    inputs: tuple[str, ...] = ("input_ids", "attention_mask", "token_type_ids")
    tokens: str | None = "last_hidden_state"
    """Output with token vectors; None for none."""
    pooled: str | None = None
    """Output with one vector a text, which differs from pooled token vectors."""


def tiny_weights(seed: int = 7) -> dict[str, Array]:
    """Return tables of tokens, positions and segments, the matrix that mixes tokens, and that of a pooled output."""
    rng = np.random.default_rng(seed)
    sizes = {"token": VOCAB, "position": POSITIONS, "segment": 2, "mix": DIM, "head": DIM}
    return {name: rng.standard_normal((rows, DIM)).astype(np.float32) * 0.5 for name, rows in sizes.items()}


def write_graph(path: Path, form: TinyGraph) -> None:
    """Write a graph of each token's vector plus a product of the unmasked mean: a vector depends on its text."""
    weights = tiny_weights()
    nodes: list[onnx.NodeProto] = []

    def op(kind: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(kind, list(inputs), [output], **attributes))
        return output

    x = op("Gather", ["token", "input_ids"], "t0", axis=0)
    for table, name in (("segment", "token_type_ids"), ("position", "position_ids")):
        if name in form.inputs:
            x = op("Add", [x, op("Gather", [table, name], f"{name}_rows", axis=0)], f"{name}_sum")
    x = op("Tanh", [x], "hidden")
    mask = op("Unsqueeze", [op("Cast", ["attention_mask"], "mask", to=TensorProto.FLOAT), "last"], "mask3")
    total = op("ReduceSum", [op("Mul", [x, mask], "masked"), "middle"], "total", keepdims=1)
    mean = op("Div", [total, op("ReduceSum", [mask, "middle"], "count", keepdims=1)], "mean")
    outputs = []
    tokens = op("Add", [x, op("MatMul", [mean, "mix"], "mixed")], form.tokens or "tokens")
    if form.tokens:
        outputs.append(helper.make_tensor_value_info(form.tokens, TensorProto.FLOAT, ["batch", "sequence", DIM]))
    if form.pooled:
        top = op("ReduceMax", [op("MatMul", [tokens, "head"], "heads"), "middle"], form.pooled, keepdims=0)
        outputs.append(helper.make_tensor_value_info(top, TensorProto.FLOAT, ["batch", DIM]))
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "sequence"]) for name in form.inputs]
    constants = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    constants += [numpy_helper.from_array(np.array([axis]), name) for name, axis in (("last", -1), ("middle", 1))]
    graph = helper.make_graph(nodes, "tiny", inputs, outputs, constants)
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), str(path))


def token_vectors(ids: Sequence[int], form: TinyGraph = TinyGraph()) -> Array:
    """Return the graph's token vectors of one text, shape (n, DIM)."""
    weights = tiny_weights()
    x = weights["token"][list(ids)]
    x = x + weights["segment"][0] if "token_type_ids" in form.inputs else x
    x = x + weights["position"][: len(ids)] if "position_ids" in form.inputs else x
    x = np.tanh(x)
    return np.asarray(x + x.mean(axis=0) @ weights["mix"], np.float32)


def pooled_vector(ids: Sequence[int], form: TinyGraph) -> Array:
    """Return the graph's pooled vector of one text, shape (DIM,)."""
    return np.asarray((token_vectors(ids, form) @ tiny_weights()["head"]).max(axis=0))


def write_tokenizer(folder: Path, *, ends: str | None = "[SEP]", begins: str | None = "[CLS]") -> None:
    """Write a byte-level `tokenizer.json` that puts the named special tokens around a text."""
    vocabulary = {token: i for i, token in enumerate([*_SPECIALS, *sorted(pre_tokenizers.ByteLevel.alphabet())])}
    tokenizer = tokenizers.Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.add_special_tokens(list(_SPECIALS))
    around = [token for token in (begins, "$A", ends) if token]
    specials = [(token, vocabulary[token]) for token in (begins, ends) if token]
    tokenizer.post_processor = processors.TemplateProcessing(single=" ".join(around), special_tokens=specials)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))


def ids_of(folder: Path, text: str) -> list[int]:
    """Return the tokens of a text by the folder's own tokenizer."""
    return list(tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json")).encode(text).ids)


def write_files(folder: Path, files: Mapping[str, object]) -> None:
    """Write JSON files by their relative paths."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps(content), "utf-8")


def sentence_transformer(mode: str, *further: str, **pooling: object) -> dict[str, object]:
    """Return `modules.json` and the pooling's configuration, as sentence-transformers wrote them before version 6.

    Args:
        mode: The pooling, as its key ends: `cls_token`, `mean_tokens`, `lasttoken`.
        further: Class names of modules between pooling and normalisation.
        pooling: Further keys of the pooling's configuration.
    """
    kinds = [_TRANSFORMER, _POOLING, *(f"sentence_transformers.models.{name}" for name in further), _NORMALIZE]
    modules = [
        {"idx": place, "name": str(place), "path": f"{place}_{kind.rsplit('.')[-1]}" if place else "", "type": kind}
        for place, kind in enumerate(kinds)
    ]
    modes = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")
    config = {"word_embedding_dimension": DIM, **{f"pooling_mode_{name}": name == mode for name in modes}, **pooling}
    return {"modules.json": modules, "1_Pooling/config.json": config}


def make_folder(
    folder: Path,
    files: Mapping[str, object] | None = None,
    form: TinyGraph = TinyGraph(),
    *,
    weights: str = "onnx/model.onnx",
    ends: str | None = "[SEP]",
    begins: str | None = "[CLS]",
) -> Path:
    """Write a whole model folder and return it."""
    write_tokenizer(folder, ends=ends, begins=begins)
    write_files(folder, {"config.json": {"model_type": "bert", "max_position_embeddings": 512}, **(files or {})})
    write_graph(folder / weights, form)
    return folder


def unit(vector: Array) -> Array:
    """Return the vector at length one."""
    return np.asarray(vector / np.linalg.norm(vector), np.float32)


def settings_of(folder: Path, **env: str) -> EngineSettings:
    """Return a configuration that names the folder."""
    return EngineSettings(folder.parent, embed=str(folder), env=env)


def opened(folder: Path, **env: str) -> OnnxEmbedder:
    """Open the embedder of a configuration that names the folder."""
    engines = load_engines(settings_of(folder, **env), ["embed"])
    assert engines.notes == ()
    assert isinstance(engines.embedder, OnnxEmbedder)
    return engines.embedder


def vectors_of(embedder: Embedder, text: str = TEXT) -> tuple[Array, Array]:
    """Return the vectors of a text as a query and as a document."""
    return embedder.embed_queries([text])[0], embedder.embed_documents([text])[0]


def refused(folder: Path, **env: str) -> str:
    """Return why the folder's model is not used: one line that ends in a remedy."""
    engines = load_engines(settings_of(folder, **env), ["embed"])
    assert engines.embedder is None
    (line,) = engines.failures
    assert str(folder) in line and ";" in line and "\n" not in line
    return line
