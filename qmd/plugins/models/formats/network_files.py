"""Network settings and tensors of a GGUF file or a folder with safetensors, under common names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from qmd.errors import ModelError
from qmd.foreign import file_below, short
from qmd.inference.models.catalogue import Family, find_family
from qmd.inference.models.folders import read_pooling, read_prompts
from qmd.inference.records import Pooling, Role
from qmd.inference.runtime.tokenization import read_json
from qmd.plugins.models.formats.gguf import GgufFile
from qmd.plugins.models.formats.safetensors import read_file, read_safetensors
from qmd.plugins.models.formats.stored_weights import StoredTensor

Architecture = Literal["qwen3", "gemma-embedding", "bert", "nomic-bert"]
_ARCHITECTURES: Mapping[str, Architecture] = {
    "qwen3": "qwen3",
    "gemma-embedding": "gemma-embedding",
    "gemma3_text": "gemma-embedding",
    "bert": "bert",
    "xlm-roberta": "bert",
    "roberta": "bert",
    "camembert": "bert",
    "nomic-bert": "nomic-bert",
    "nomic_bert": "nomic-bert",
}
"""By the name in a GGUF file, or the `model_type` of a configuration."""

SUPPORTED = "Qwen3 (expansion, reranking, embedding), EmbeddingGemma, and encoders: BERT, XLM-RoBERTa, nomic-bert v1"
_POOLINGS: Mapping[int, Pooling] = {1: "mean", 2: "first", 3: "last"}
_RANK = 4
"""Values of `pooling_type`."""


def _parse_pairs(pairs: str) -> Mapping[str, str]:
    """Return values by keys; for tensors qmd's names by the file's, without the layer and `.weight`."""
    return dict(pair.split("=") for pair in pairs.split())


_GGUF_NAMES = _parse_pairs("""
    token_embd=embed output_norm=norm output=head cls.output=labels dense_2=dense_2 dense_3=dense_3
    attn_q=q attn_k=k attn_v=v attn_output=o attn_q_norm=q_norm attn_k_norm=k_norm ffn_gate=gate ffn_up=up ffn_down=down
    attn_norm=in_norm post_attention_norm=attended_norm ffn_norm=post_norm post_ffw_norm=fed_norm
    position_embd=positions token_types=types token_embd_norm=embed_norm attn_qkv=qkv
    attn_output_norm=attended_norm layer_output_norm=fed_norm
""")
_HF_NAMES = _parse_pairs("""
    embed_tokens=embed norm=norm lm_head=head score=labels
    self_attn.q_proj=q self_attn.k_proj=k self_attn.v_proj=v self_attn.o_proj=o
    self_attn.q_norm=q_norm self_attn.k_norm=k_norm mlp.gate_proj=gate mlp.up_proj=up mlp.down_proj=down
    input_layernorm=in_norm post_attention_layernorm=post_norm
    pre_feedforward_layernorm=post_norm post_feedforward_layernorm=fed_norm
    embeddings.word_embeddings=embed embeddings.position_embeddings=positions embeddings.token_type_embeddings=types
    embeddings.LayerNorm=embed_norm attention.self.query=q attention.self.key=k attention.self.value=v
    attention.output.dense=o intermediate.dense=up output.dense=down emb_ln=embed_norm
    attention.output.LayerNorm=attended_norm output.LayerNorm=fed_norm
    attn.Wqkv=qkv attn.out_proj=o norm1=attended_norm mlp.fc11=up mlp.fc12=gate mlp.fc2=down norm2=fed_norm
""")
_SYNONYMS = _parse_pairs("""
    n_layer=num_hidden_layers n_head=num_attention_heads n_positions=max_position_embeddings
    layer_norm_eps=rms_norm_eps layer_norm_epsilon=rms_norm_eps rotary_emb_base=rope_theta
""")
"""Keys of a configuration → other keys of the same meaning."""
_NAME = re.compile(r"(?:(?:model|bert|roberta)\.)?(?:(?:blk|layers|encoder\.layers?)\.(\d+)\.)?(.+)\.(weight|bias)")
_UNUSED = re.compile(r"(bert\.|roberta\.)?(pooler|cls\.(predictions|seq_relationship)|lm_head)\.")
"""Tensors of encoders that token vectors do not need."""
_EXPECTED = _parse_pairs(
    "hidden_act=gelu activation_function=swiglu prenorm=False rotary_emb_interleaved=False rotary_emb_fraction=1.0"
)
"""Supported values of keys in an encoder's configuration."""


class NetworkSource(Struct, frozen=True):
    """Settings and tensors of a network, as read from a file or a folder."""

    path: Path
    architecture: Architecture
    role: Role
    tensors: dict[str, StoredTensor]
    """By qmd's names; others are computed from `labels`, `dense_2` and `dense_3`."""
    layers: int
    theta: float
    eps: float
    pooling: Pooling | None
    labels: Sequence[str]
    """Labels of a reranker that classifies."""
    yes_no: Mapping[str, int]
    """The tokens by which a reranker without classes answers."""
    window: int
    local: Any
    """Layers of Gemma that attend to near tokens only: a list, the period of the others, or nothing."""
    local_theta: float
    prompts: tuple[str, str] | None = None
    """Before queries and documents."""
    heads: int = 0
    context: int = 0
    """Most tokens of a text, 0 for unknown."""
    first_position: int = 0
    """Row of the table of positions that the first token has."""
    family: Family | None = None
    gguf: GgufFile | None = None


def guess_role(settings: Mapping[str, Any], file_name: str) -> Role:
    """Return the role of a GGUF file by its pooling and its names: by default a decoder is an expander."""
    architecture = str(settings.get("general.architecture", ""))
    pooling = settings.get(f"{architecture}.pooling_type")
    words = [file_name, *(str(settings.get(f"general.{key}", "")) for key in ("name", "basename"))]
    words += [str(tag) for tag in settings.get("general.tags", ())]
    text = " ".join(words).lower()
    if pooling == _RANK or "rerank" in text or "text-ranking" in text:
        return "rerank"
    if pooling in _POOLINGS or re.search("embed|feature-extraction", text) or re.search("embed|bert", architecture):
        return "embed"
    return "expand"


def architecture_of(name: str, file_name: str) -> Architecture:
    """Return the architecture of a name.

    Raises:
        ModelError: It is not supported.
    """
    if name not in _ARCHITECTURES:
        hint = f"supported: {SUPPORTED}; others: qmd models list --available"
        raise ModelError(f"'{file_name}' is of architecture '{short(name)}', which is not supported", hint)
    return _ARCHITECTURES[name]


def read_gguf(path: Path, role: Role | None, name: str) -> NetworkSource:
    """Read the settings and tensors of a GGUF file; raise as `read_network`."""
    file = GgufFile(path)
    architecture = architecture_of(file.architecture, path.name)
    scaling = file.setting("rope.scaling.type", "none")
    if scaling != "none":
        raise ModelError(f"'{path.name}' scales its rotary positions ('{short(scaling)}'), which is not supported")
    role = role or guess_role(file.settings, name)
    tokens = file.settings.get("tokenizer.ggml.tokens") or []
    is_encoder = "bert" in architecture
    return NetworkSource(
        path,
        architecture,
        role,
        _rename_tensors(path.name, file.tensors, _GGUF_NAMES, is_encoder=is_encoder),
        layers=int(file.setting("block_count", 0)),
        theta=float(file.setting("rope.freq_base", 1e4 if is_encoder else 1e6)),
        eps=float(file.setting(f"attention.layer_norm{'_rms' * (not is_encoder)}_epsilon", 1e-6)),
        pooling=_POOLINGS.get(file.setting("pooling_type", 0)),
        labels=[str(label).lower() for label in file.setting("classifier.output_labels", ())],
        yes_no={word: tokens.index(word) for word in ("yes", "no") if role == "rerank" and word in tokens},
        window=int(file.setting("attention.sliding_window", 512)),
        local=file.setting("attention.sliding_window_pattern"),
        local_theta=float(file.setting("rope.freq_base_swa", 1e4)),
        heads=int(file.setting("attention.head_count", 0)),
        context=int(file.setting("context_length", 0)),
        # As `Bge Small En v1.5`.
        family=find_family([name, str(file.settings.get("general.name", "")).replace(" ", "-")], None),
        gguf=file,
    )


def read_folder(folder: Path, role: Role | None) -> NetworkSource:
    """Read the settings and tensors of a folder with `config.json` and safetensors; raise as `read_network`."""
    config = {_SYNONYMS.get(key, key): value for key, value in read_json(folder / "config.json").items()}
    architecture = architecture_of(str(config.get("model_type", "")), folder.name)
    is_encoder = "bert" in architecture
    role = role or _folder_role(folder, config, is_encoder=is_encoder)
    kinds = config.get("layer_types")
    vocabulary = read_json(folder / "tokenizer.json").get("model", {}).get("vocab", {}) if role == "rerank" else {}
    query, document, _ = read_prompts(read_json(folder / "config_sentence_transformers.json"))
    # RoBERTa-like models count positions from behind the padding token's number.
    first = int(config.get("pad_token_id", 1)) + 1 if architecture == "bert" != config["model_type"] else 0
    return NetworkSource(
        folder,
        architecture,
        role,
        _folder_tensors(folder, architecture, is_tied=bool(config.get("tie_word_embeddings"))),
        layers=int(config.get("num_hidden_layers", 0)),
        theta=_rotary_base(folder, config),
        eps=float(config.get("rms_norm_eps", 1e-6)),
        pooling=_pooling(folder, config, is_encoder=is_encoder),
        labels=[str(label).lower() for _, label in sorted((config.get("id2label") or {}).items())],
        yes_no={word: int(vocabulary[word]) for word in ("yes", "no") if word in vocabulary},
        window=int(config.get("sliding_window") or 512),
        local=[kind == "sliding_attention" for kind in kinds] if kinds else None,
        local_theta=float(config.get("rope_local_base_freq") or 1e4),
        prompts=(query, document) if query or document else None,
        heads=int(config.get("num_attention_heads", 0)),
        context=int(config.get("max_position_embeddings", 0)) - first,
        first_position=first,
        family=find_family([folder.resolve().name, str(config.get("_name_or_path", ""))], None),
    )


def _pooling(folder: Path, config: Mapping[str, Any], *, is_encoder: bool) -> Pooling | None:
    """Return the pooling that a file names; raise a ModelError for steps that the graphs do not compute."""
    modes = read_json(folder / "1_Pooling" / "config.json")
    pooling, named = read_pooling(modes) if modes else (None, "")
    other = [f"pools by '{short(named)}'"] if pooling == "none" else []
    if is_encoder:
        other += [f"has another '{key}'" for key, value in _EXPECTED.items() if str(config.get(key, value)) != value]
        other += ["has a dense layer behind its pooling" for _ in folder.glob("[0-9]_Dense")]
    if other:
        raise ModelError(f"'{folder.name}' {other[0]}, which is not supported")
    return pooling


def _rotary_base(folder: Path, config: Mapping[str, Any]) -> float:
    """Return the base of rotary positions; for Gemma that of the global layers."""
    rope: Mapping[str, Any] = config.get("rope_parameters") or {}
    scaling = config.get("rope_scaling") or (rope if rope.get("rope_type", "default") != "default" else None)
    if scaling and "full_attention" not in rope:
        raise ModelError(f"'{folder.name}' scales its rotary positions, which is not supported")
    by_layer: Mapping[str, Any] = rope.get("full_attention", {})
    return float(config.get("rope_theta") or rope.get("rope_theta") or by_layer.get("rope_theta", 1e6))


def _folder_role(folder: Path, config: Mapping[str, Any], *, is_encoder: bool) -> Role:
    architectures = " ".join(config.get("architectures") or ())
    name = folder.resolve().name.lower()
    if "SequenceClassification" in architectures or "rerank" in name:
        return "rerank"
    return "embed" if is_encoder or (folder / "modules.json").is_file() or "embed" in name else "expand"


def _folder_tensors(folder: Path, architecture: Architecture, *, is_tied: bool) -> dict[str, StoredTensor]:
    is_gemma = architecture == "gemma-embedding"
    names = {**_HF_NAMES, "post_attention_layernorm": "attended_norm"} if is_gemma else _HF_NAMES
    tensors = _rename_tensors(folder.name, read_safetensors(folder), names, is_encoder="bert" in architecture)
    if is_tied:
        tensors.pop("head", None)
    for path in sorted(folder.glob("[23]_Dense/model.safetensors")) if is_gemma else ():
        place = file_below(folder, path.relative_to(folder).as_posix(), folder.name)
        (tensors[f"dense_{path.parent.name[0]}"],) = read_file(place).values()
    return tensors


def _rename_tensors(
    source: str, tensors: Mapping[str, StoredTensor], names: Mapping[str, str], *, is_encoder: bool
) -> dict[str, StoredTensor]:
    """Return tensors by qmd's names; an unknown one means another network, which is a ModelError."""
    found: dict[str, StoredTensor] = {}
    for name, tensor in tensors.items():
        match = _NAME.fullmatch(name)
        if match and match[2] in names and (is_encoder or match[3] == "weight"):
            layer = "" if match[1] is None else f"layers.{int(match[1])}."
            found[layer + names[match[2]] + (".bias" if match[3] == "bias" else "")] = tensor
        elif not is_encoder or not _UNUSED.match(name):
            raise ModelError(
                f"tensor '{short(name)}' of type '{tensor.type}' in '{source}' belongs to an unsupported network",
                f"supported: {SUPPORTED}",
            )
    return found
