"""Network of a GGUF file or a folder with safetensors: architecture, sizes, role, tensors by qmd's names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from qmd.errors import ModelError
from qmd.foreign import short
from qmd.inference.models.catalogue import INSTRUCTION, MAX_CONTEXT, Family
from qmd.inference.records import Pooling, Role
from qmd.plugins.models.formats.gemma_graph import GemmaShape
from qmd.plugins.models.formats.gguf import GgufFile
from qmd.plugins.models.formats.graph_writer import Qwen3Shape, qwen3_shape
from qmd.plugins.models.formats.network_files import SUPPORTED, NetworkSource, read_folder, read_gguf
from qmd.plugins.models.formats.number_formats import Floats
from qmd.plugins.models.formats.stored_weights import StoredTensor

_YES = ("yes", "relevant", "true", "label_1")
_ANY = Family("", "", "mean", MAX_CONTEXT, "")
"""Defaults of an unknown encoder."""
_LEAST_CONTEXT = 64
"""Least tokens of a run: with fewer, prompt and title would leave no space for a text."""
_GEMMA_PERIOD = 6
"""Every sixth layer of Gemma 3 attends to all tokens."""


class Network(Struct, frozen=True):
    """A network as a file stores it. `made` are computed from its weights: `score`, `dense`, `start`, shifted norms."""

    source: Path
    role: Role
    sizes: Qwen3Shape
    tensors: Mapping[str, StoredTensor]
    made: Mapping[str, Floats]
    pooling: Pooling = "none"
    gemma: GemmaShape | None = None
    context: int = 0
    """Most tokens of an encoder; 0 for other networks, where qmd chooses."""
    query_prompt: str = ""
    document_prompt: str = ""
    gguf: GgufFile | None = None
    """The file, whose vocabulary becomes the tokenizer; None for a folder, which has one."""

    @property
    def number_formats(self) -> tuple[str, ...]:
        """Formats of its matrices, the most bytes first."""
        sizes: dict[str, int] = {}
        for tensor in self.tensors.values():
            if len(tensor.shape) == 2:
                sizes[tensor.type] = sizes.get(tensor.type, 0) + tensor.rows.nbytes
        return tuple(sorted(sizes, key=lambda kind: -sizes[kind]))


def read_network(path: Path, role: Role | None = None, name: str | None = None) -> Network:
    """Read the network of a GGUF file, or of a folder with `config.json` and safetensors.

    Args:
        role: The role to serve; None reads it from the file.
        name: Name of the file if its own name is meaningless, as a blob's.

    Raises:
        ModelError: The file is damaged, or of an unsupported architecture.
    """
    source = read_folder(path, role) if path.is_dir() else read_gguf(path, role, name or path.stem)
    if "bert" in source.architecture:
        return _encoder(source)
    return (_gemma if source.architecture == "gemma-embedding" else _qwen3)(source, _sizes(source))


def _sizes(source: NetworkSource) -> Qwen3Shape:
    needed = ("embed", "norm", *(f"layers.0.{part}" for part in ("q", "k", "gate", "q_norm")))
    _require(source, [*needed, f"layers.{source.layers - 1}.down"])
    shape = qwen3_shape(lambda name: source.tensors[name].shape, source.layers, source.theta, source.eps)
    _check_shapes(source.path.name, source.tensors, shape)
    return shape


def _require(source: NetworkSource, names: Iterable[str]) -> None:
    missing = next((one for one in names if one not in source.tensors), None)
    if missing is not None:
        raise ModelError(f"weight '{missing}' is not found in '{source.path.name}'")


def _check_shapes(source: str, tensors: Mapping[str, StoredTensor], shape: Qwen3Shape) -> None:
    """Refuse tensors that do not fit together: the runtime would compute nonsense, or end the process."""
    hidden, head, ffn = shape.hidden, shape.head_size, shape.ffn
    queries, keys = shape.heads * head, shape.kv_heads * head
    inputs = {"o": queries, "down": ffn}
    outputs = {"embed": shape.vocab, "head": shape.vocab, "gate": ffn, "up": ffn, "q": queries, "k": keys, "v": keys}
    outputs["qkv"] = queries + 2 * keys
    for name, tensor in tensors.items():
        part = name.removesuffix(".bias").rpartition(".")[2]
        fitting: tuple[int, ...] = (outputs.get(part, hidden), inputs.get(part, hidden))
        if part.endswith("norm"):
            fitting = (head if part in ("q_norm", "k_norm") else hidden,)
        elif name.endswith(".bias"):
            fitting = fitting[:1]
        is_whole = tensor.shape == fitting and (len(fitting) == 1 or fitting[1] % tensor.format.run == 0)
        if not is_whole and part not in ("labels", "dense_2", "dense_3"):
            listed = short(" x ".join(map(str, tensor.shape)))
            raise ModelError(f"weight '{name}' of '{source}' has the shape '{listed}', which does not fit the others")
    sane = 0 < shape.eps < 1 and 1 <= shape.rope_theta < 1e12 and head % 8 == 0
    if not sane or not shape.kv_heads or shape.heads % shape.kv_heads:
        raise ModelError(f"'{source}' has settings that no network of its kind has", "get the file again")


def _qwen3(source: NetworkSource, sizes: Qwen3Shape) -> Network:
    of_labels = source.tensors.pop("labels", None)
    made = {"score": _score(source, of_labels, sizes)} if source.role == "rerank" else {}
    network = Network(source.path, source.role, sizes, source.tensors, made, gguf=source.gguf)
    if source.role != "embed":
        return network
    query, document = source.prompts or (INSTRUCTION, "")
    return replace(network, pooling=source.pooling or "last", query_prompt=query, document_prompt=document)


def _score(source: NetworkSource, of_labels: StoredTensor | None, sizes: Qwen3Shape) -> Floats:
    """Return the row whose product with the last token is the logit of P(yes), shape (1, hidden).

    A softmax over two logits is the sigmoid of their difference, so two rows become one.
    """
    name, labels, yes_no = source.path.name, source.labels, source.yes_no
    if of_labels is not None:
        if of_labels.shape not in ((sizes.hidden,), (1, sizes.hidden), (2, sizes.hidden)):
            raise ModelError(f"'{name}' sorts into {of_labels.shape[0]} classes; a reranker has one or two")
        rows = of_labels.floats().reshape(-1, sizes.hidden)
        if len(rows) == 1:
            return rows
        yes = next((labels.index(label) for label in _YES if label in labels), 0)
        return rows[[yes]] - rows[[1 - yes]]
    if len(yes_no) != 2 or not all(0 <= row < sizes.vocab for row in yes_no.values()):
        raise ModelError(f"'{name}' has no tokens 'yes' and 'no', by which a reranker answers")
    head = source.tensors.get("head", source.tensors["embed"])
    yes_row, no_row = (head.floats_of([yes_no[word]]) for word in ("yes", "no"))
    return yes_row - no_row


def _gemma(source: NetworkSource, sizes: Qwen3Shape) -> Network:
    """Return an EmbeddingGemma network. Its makers store norms less one; GGUF files store the full values."""
    tensors, name = source.tensors, source.path.name
    made: dict[str, Floats] = {}
    tensors.pop("head", None)
    dense = [tensors.pop(part).floats() for part in ("dense_2", "dense_3") if part in tensors]
    if dense:
        made["dense"] = dense[1] @ dense[0] if len(dense) == 2 else dense[0]
        if made["dense"].shape != (sizes.hidden, sizes.hidden):
            raise ModelError(f"the dense layers of '{name}' do not fit the others", "get the file again")
    if source.gguf is None:
        norms = [part for part in tensors if part.endswith("norm")]
        made |= {part: tensors[part].floats() + np.float32(1.0) for part in norms}
    return Network(
        source.path,
        "embed",
        sizes,
        tensors,
        made,
        pooling="mean",
        gemma=GemmaShape(sizes, source.window, _local_layers(sizes.layers, source.local), source.local_theta),
        query_prompt="task: search result | query: ",
        document_prompt="title: none | text: ",
        gguf=source.gguf,
    )


def _local_layers(layers: int, pattern: Any) -> tuple[bool, ...]:
    """Return for each layer whether it attends to near tokens only, from a list or the period of the others."""
    if pattern is not None and not isinstance(pattern, int):
        if len(pattern) != layers:
            raise ValueError(f"it lists the attention of {len(pattern)} layers, and has {layers}")
        return tuple(bool(item) for item in pattern)
    period = pattern or _GEMMA_PERIOD
    return tuple((index + 1) % period != 0 for index in range(layers))


def _encoder(source: NetworkSource) -> Network:
    """Return a BERT-like network. The rows of positions and the first token type are added into one table."""
    tensors, name, family, first = source.tensors, source.path.name, source.family or _ANY, source.first_position
    if source.role != "embed":
        raise ModelError(f"'{name}' is an encoder, which only embeds here", "others: qmd models list --available")
    _require(source, _encoder_weights(source))
    other = min(tensors.keys() - {"types", *_encoder_weights(source)}, default=None)
    if other is not None:
        raise ModelError(f"weight '{other}' of '{name}' belongs to an unsupported network", f"supported: {SUPPORTED}")
    (vocab, hidden), heads = (*tensors["embed"].shape, 0)[:2], source.heads
    size, ffn = hidden // max(heads, 1), len(tensors["layers.0.up"].rows)
    positions, types = tensors.pop("positions", None), tensors.pop("types", None)
    rows = MAX_CONTEXT if positions is None else len(positions.rows) - first
    context = min(rows, source.context or MAX_CONTEXT, family.max_length, MAX_CONTEXT)
    shape = Qwen3Shape(source.layers, hidden, heads, heads, size, ffn, vocab, source.theta, source.eps, context)
    _check_shapes(name, tensors, shape)
    start = np.zeros((1, hidden), np.float32) if types is None else types.floats_of([0])
    if positions is not None:
        start = start + positions.floats_of(slice(first, first + context))
    n_tokens = len(source.gguf.settings.get("tokenizer.ggml.tokens", ())) if source.gguf else 0
    if context < _LEAST_CONTEXT or n_tokens > vocab or start.shape[1] != hidden:
        raise ModelError(f"'{name}' has {context} positions, and {vocab} vectors of tokens for {n_tokens}")
    query, document = source.prompts or (family.query_prompt, family.document_prompt)
    pooling, made = source.pooling or family.pooling, {"start": start}
    return Network(source.path, "embed", shape, tensors, made, pooling, None, context, query, document, source.gguf)


def _encoder_weights(source: NetworkSource) -> Iterator[str]:
    """Yield every weight of an encoder; the row of a token type may be missing."""
    is_nomic = source.architecture == "nomic-bert"
    products = ["qkv"] if "layers.0.qkv" in source.tensors else ["q", "k", "v"]
    products += ["o", "up", "down", *(["gate"] if is_nomic else [])]
    norms = ["attended_norm", "fed_norm"]
    parts = [*products, *norms, *(f"{part}.bias" for part in (norms if is_nomic else products + norms))]
    yield from ("embed", "embed_norm", "embed_norm.bias", *(() if is_nomic else ("positions",)))
    yield from (f"layers.{layer}.{part}" for layer in range(max(source.layers, 1)) for part in parts)
