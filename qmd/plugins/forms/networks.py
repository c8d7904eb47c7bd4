"""What network a GGUF file or a folder with safetensors holds: architecture, sizes, role, tensors by our names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from qmd.errors import ModelError
from qmd.foreign import file_below, short
from qmd.inference.records import Pooling, Role
from qmd.inference.runtime.tokenization import read_json
from qmd.plugins.forms.gemma_graph import GemmaShape
from qmd.plugins.forms.gguf import GgufFile
from qmd.plugins.forms.graph_writer import Qwen3Shape
from qmd.plugins.forms.number_formats import Floats
from qmd.plugins.forms.safetensors import read_file, read_safetensors
from qmd.plugins.forms.stored_weights import StoredTensor

Architecture = Literal["qwen3", "gemma-embedding"]
_ARCHITECTURES: Mapping[str, Architecture] = {
    "qwen3": "qwen3",
    "gemma-embedding": "gemma-embedding",
    "gemma3_text": "gemma-embedding",
}
"""By the name in a GGUF file, or the `model_type` of a configuration."""

ARE_READ = "Qwen3 (expansion, reranking, embedding) and EmbeddingGemma"
_MAX_POSITIONS = 4096
_POOLINGS: Mapping[int, Pooling] = {1: "mean", 2: "first", 3: "last"}
_RANK = 4
"""Values of `pooling_type`."""
_ST_POOLINGS: Mapping[str, Pooling] = {
    "pooling_mode_lasttoken": "last",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "first",
}
"""Keys of `1_Pooling/config.json`."""
_YES = ("yes", "relevant", "true", "label_1")
_QWEN_QUERY = "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:"
_GEMMA_PERIOD = 6
"""Every sixth layer of Gemma 3 looks at all tokens."""

_GGUF_PARTS = {
    "attn_norm": "in_norm",
    "attn_q": "q",
    "attn_k": "k",
    "attn_v": "v",
    "attn_output": "o",
    "attn_q_norm": "q_norm",
    "attn_k_norm": "k_norm",
    "post_attention_norm": "attended_norm",
    "ffn_norm": "post_norm",
    "ffn_gate": "gate",
    "ffn_up": "up",
    "ffn_down": "down",
    "post_ffw_norm": "fed_norm",
}
_GGUF_WHOLE = {
    "token_embd.weight": "embed",
    "output_norm.weight": "norm",
    "output.weight": "head",
    "cls.output.weight": "labels",
    "dense_2.weight": "dense_2",
    "dense_3.weight": "dense_3",
}
_HF_PARTS = {
    "input_layernorm": "in_norm",
    "self_attn.q_proj": "q",
    "self_attn.k_proj": "k",
    "self_attn.v_proj": "v",
    "self_attn.o_proj": "o",
    "self_attn.q_norm": "q_norm",
    "self_attn.k_norm": "k_norm",
    "post_attention_layernorm": "post_norm",
    "pre_feedforward_layernorm": "post_norm",
    "post_feedforward_layernorm": "fed_norm",
    "mlp.gate_proj": "gate",
    "mlp.up_proj": "up",
    "mlp.down_proj": "down",
}
_HF_WHOLE = {"embed_tokens.weight": "embed", "norm.weight": "norm", "lm_head.weight": "head", "score.weight": "labels"}


class Network(Struct, frozen=True):
    """A network as a file stores it. `made` are weights computed from others: `score`, `dense`, shifted norms."""

    source: Path
    role: Role
    sizes: Qwen3Shape
    tensors: Mapping[str, StoredTensor]
    made: Mapping[str, Floats]
    pooling: Pooling = "none"
    gemma: GemmaShape | None = None
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


class _Source(Struct, frozen=True):
    """What a file or a folder says of its network, whatever words it has for that."""

    path: Path
    architecture: Architecture
    role: Role
    tensors: dict[str, StoredTensor]
    """By our names; `labels`, `dense_2` and `dense_3` are those that others are made of."""
    layers: int
    theta: float
    eps: float
    pooling: Pooling
    labels: Sequence[str]
    """Of a reranker that sorts into classes."""
    yes_no: Mapping[str, int]
    """The tokens by which one without classes answers."""
    window: int
    local: Any
    """Which layers of Gemma look at the tokens around alone: a list, every how many one does not, or nothing."""
    local_theta: float
    prompts: tuple[str, str] | None = None
    """Before queries and documents."""
    gguf: GgufFile | None = None


def guess_role(settings: Mapping[str, Any], file_name: str) -> Role:
    """The role a GGUF file is for, by its pooling and its names: a decoder that says nothing else is an expander."""
    architecture = str(settings.get("general.architecture", ""))
    pooling = settings.get(f"{architecture}.pooling_type")
    words = [file_name, *(str(settings.get(f"general.{key}", "")) for key in ("name", "basename"))]
    words += [str(tag) for tag in settings.get("general.tags", ())]
    text = " ".join(words).lower()
    if pooling == _RANK or "rerank" in text or "text-ranking" in text:
        return "rerank"
    if pooling in _POOLINGS or "embed" in f"{text} {architecture}" or "feature-extraction" in text:
        return "embed"
    return "expand"


def architecture_of(name: str, file_name: str) -> Architecture:
    """The architecture of a name.

    Raises:
        ModelError: It is not one of ours.
    """
    if name not in _ARCHITECTURES:
        hint = f"read are {ARE_READ}; others: qmd models list --available"
        raise ModelError(f"'{file_name}' is of architecture '{short(name)}', which is not read here", hint)
    return _ARCHITECTURES[name]


def read_network(path: Path, role: Role | None = None, name: str | None = None) -> Network:
    """The network of a GGUF file, or of a folder with `config.json` and safetensors.

    Args:
        role: What it is to do; None tells it from the file.
        name: What the file is called where its own name says nothing, as a blob's.

    Raises:
        ModelError: The file is damaged, or not of an architecture that is read.
    """
    source = _read_folder(path, role) if path.is_dir() else _read_gguf(path, role, name or path.stem)
    return (_gemma if source.architecture == "gemma-embedding" else _qwen3)(source, _sizes(source))


def _read_gguf(path: Path, role: Role | None, name: str) -> _Source:
    file = GgufFile(path)
    architecture = architecture_of(file.architecture, path.name)
    scaling = file.setting("rope.scaling.type", "none")
    if scaling != "none":
        raise ModelError(f"'{path.name}' scales its rotary positions ('{short(scaling)}'), which is not read here")
    role = role or guess_role(file.settings, name)
    tokens = file.settings.get("tokenizer.ggml.tokens") or []
    return _Source(
        path,
        architecture,
        role,
        _renamed(path.name, file.tensors, _GGUF_PARTS, _GGUF_WHOLE, r"blk\.(\d+)\.(\w+)\.weight"),
        layers=int(file.setting("block_count", 0)),
        theta=float(file.setting("rope.freq_base", 1e6)),
        eps=float(file.setting("attention.layer_norm_rms_epsilon", 1e-6)),
        pooling=_POOLINGS.get(file.setting("pooling_type", 0), "last"),
        labels=[str(label).lower() for label in file.setting("classifier.output_labels", ())],
        yes_no={word: tokens.index(word) for word in ("yes", "no") if role == "rerank" and word in tokens},
        window=int(file.setting("attention.sliding_window", 512)),
        local=file.setting("attention.sliding_window_pattern"),
        local_theta=float(file.setting("rope.freq_base_swa", 1e4)),
        gguf=file,
    )


def _read_folder(folder: Path, role: Role | None) -> _Source:
    config = read_json(folder / "config.json")
    architecture = architecture_of(str(config.get("model_type", "")), folder.name)
    theta = _rotary_base(folder, config)
    role = role or _folder_role(folder, config)
    kinds = config.get("layer_types")
    vocabulary = read_json(folder / "tokenizer.json").get("model", {}).get("vocab", {}) if role == "rerank" else {}
    modes = read_json(folder / "1_Pooling" / "config.json")
    prompts = read_json(folder / "config_sentence_transformers.json").get("prompts") or {}
    return _Source(
        folder,
        architecture,
        role,
        _folder_tensors(folder, architecture, is_tied=bool(config.get("tie_word_embeddings"))),
        layers=int(config.get("num_hidden_layers", 0)),
        theta=theta,
        eps=float(config.get("rms_norm_eps", 1e-6)),
        pooling=next((name for key, name in _ST_POOLINGS.items() if modes.get(key)), "last"),
        labels=[str(label).lower() for _, label in sorted((config.get("id2label") or {}).items())],
        yes_no={word: int(vocabulary[word]) for word in ("yes", "no") if word in vocabulary},
        window=int(config.get("sliding_window") or 512),
        local=[kind == "sliding_attention" for kind in kinds] if kinds else None,
        local_theta=float(config.get("rope_local_base_freq") or 1e4),
        prompts=(str(prompts["query"]), str(prompts.get("document", ""))) if "query" in prompts else None,
    )


def _rotary_base(folder: Path, config: Mapping[str, Any]) -> float:
    """The base of rotary positions; of Gemma that of the layers which look at all tokens."""
    rope: Mapping[str, Any] = config.get("rope_parameters") or {}
    scaling = config.get("rope_scaling") or (rope if rope.get("rope_type", "default") != "default" else None)
    if scaling and "full_attention" not in rope:
        raise ModelError(f"'{folder.name}' scales its rotary positions, which is not read here")
    by_layer: Mapping[str, Any] = rope.get("full_attention", {})
    return float(config.get("rope_theta") or rope.get("rope_theta") or by_layer.get("rope_theta", 1e6))


def _folder_role(folder: Path, config: Mapping[str, Any]) -> Role:
    architectures = " ".join(config.get("architectures") or ())
    name = folder.resolve().name.lower()
    if "SequenceClassification" in architectures or "rerank" in name:
        return "rerank"
    return "embed" if (folder / "modules.json").is_file() or "embed" in name else "expand"


def _folder_tensors(folder: Path, architecture: Architecture, *, is_tied: bool) -> dict[str, StoredTensor]:
    is_gemma = architecture == "gemma-embedding"
    parts = {**_HF_PARTS, "post_attention_layernorm": "attended_norm"} if is_gemma else _HF_PARTS
    pattern = r"(?:model\.)?layers\.(\d+)\.([\w.]+)\.weight"
    tensors = _renamed(folder.name, read_safetensors(folder), parts, _HF_WHOLE, pattern)
    if is_tied:
        tensors.pop("head", None)
    for path in sorted(folder.glob("[23]_Dense/model.safetensors")) if is_gemma else ():
        place = file_below(folder, path.relative_to(folder).as_posix(), folder.name)
        (tensors[f"dense_{path.parent.name[0]}"],) = read_file(place).values()
    return tensors


def _renamed(
    source: str, tensors: Mapping[str, StoredTensor], parts: Mapping[str, str], whole: Mapping[str, str], layer: str
) -> dict[str, StoredTensor]:
    """Tensors by our names; one that our graphs do not have says that the network is another."""
    found: dict[str, StoredTensor] = {}
    for name, tensor in tensors.items():
        match = re.fullmatch(layer, name)
        label = whole.get(name.removeprefix("model."))
        if match and match[2] in parts:
            label = f"layers.{int(match[1])}.{parts[match[2]]}"
        if label is None:
            raise ModelError(
                f"tensor '{short(name)}' of type '{tensor.type}' in '{source}' is of a network that is not read here",
                f"read are {ARE_READ}",
            )
        found[label] = tensor
    return found


def _sizes(source: _Source) -> Qwen3Shape:
    tensors, name, layers = source.tensors, source.path.name, source.layers
    needed = ("embed", "norm", *(f"layers.0.{part}" for part in ("q", "k", "gate", "q_norm")))
    missing = next((one for one in (*needed, f"layers.{layers - 1}.down") if one not in tensors), None)
    if missing is not None:
        raise ModelError(f"weight '{missing}' is not found in '{name}'")
    vocab, hidden = (*tensors["embed"].shape, 0)[:2]
    head_size = tensors["layers.0.q_norm"].shape[0]
    rows = {part: tensors[f"layers.0.{part}"].shape[0] for part in ("q", "k", "gate")}
    shape = Qwen3Shape(
        layers=layers,
        hidden=hidden,
        heads=rows["q"] // head_size,
        kv_heads=rows["k"] // head_size,
        head_size=head_size,
        ffn=rows["gate"],
        vocab=vocab,
        rope_theta=source.theta,
        eps=source.eps,
        max_positions=_MAX_POSITIONS,
    )
    _check_shapes(name, tensors, shape)
    return shape


def _check_shapes(source: str, tensors: Mapping[str, StoredTensor], shape: Qwen3Shape) -> None:
    """Refuse tensors that do not fit together: the runtime would compute nonsense, or end the process."""
    hidden, head, ffn = shape.hidden, shape.head_size, shape.ffn
    queries, keys = shape.heads * head, shape.kv_heads * head
    inputs = {"o": queries, "down": ffn}
    outputs = {"embed": shape.vocab, "head": shape.vocab, "gate": ffn, "up": ffn, "q": queries, "k": keys, "v": keys}
    for name, tensor in tensors.items():
        part = name.rpartition(".")[2]
        fitting: tuple[int, ...] = (outputs.get(part, hidden), inputs.get(part, hidden))
        if part.endswith("norm"):
            fitting = (head if part in ("q_norm", "k_norm") else hidden,)
        is_whole = tensor.shape == fitting and (len(fitting) == 1 or fitting[1] % tensor.format.run == 0)
        if not is_whole and part not in ("labels", "dense_2", "dense_3"):
            listed = short(" x ".join(map(str, tensor.shape)))
            raise ModelError(f"weight '{name}' of '{source}' has the shape '{listed}', which does not fit the others")
    sane = 0 < shape.eps < 1 and 1 <= shape.rope_theta < 1e12 and head % 8 == 0
    if not sane or not shape.kv_heads or shape.heads % shape.kv_heads:
        raise ModelError(f"'{source}' has settings that no network of its kind has", "get the file again")


def _qwen3(source: _Source, sizes: Qwen3Shape) -> Network:
    of_labels = source.tensors.pop("labels", None)
    made = {"score": _score(source, of_labels, sizes)} if source.role == "rerank" else {}
    network = Network(source.path, source.role, sizes, source.tensors, made, gguf=source.gguf)
    if source.role != "embed":
        return network
    query, document = source.prompts or (_QWEN_QUERY, "")
    return replace(network, pooling=source.pooling, query_prompt=query, document_prompt=document)


def _score(source: _Source, of_labels: StoredTensor | None, sizes: Qwen3Shape) -> Floats:
    """The row whose product with the last token is the logit of P(yes), shape (1, hidden).

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


def _gemma(source: _Source, sizes: Qwen3Shape) -> Network:
    """EmbeddingGemma. Its makers store norms less one; GGUF files hold them as they are applied."""
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
    """Which layers look at the tokens around alone: a list says, or every how many one does not."""
    if pattern is not None and not isinstance(pattern, int):
        if len(pattern) != layers:
            raise ValueError(f"it says of {len(pattern)} layers what they look at, and has {layers}")
        return tuple(bool(item) for item in pattern)
    period = pattern or _GEMMA_PERIOD
    return tuple((index + 1) % period != 0 for index in range(layers))
