"""Every model qmd knows by name, as frozen records: where it lives, what it holds, how it is fed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from qmd.inference.base import Tier

Role = Literal["embed", "rerank", "expand"]
Pooling = Literal["mean", "first", "last", "none"]
Device = Literal["cpu", "cuda"]


class ModelFile(Struct, frozen=True):
    """One file of a model: its path in the repository, and its size and sha256 where they are known."""

    path: str
    size_bytes: int | None = None
    sha256: str | None = None


class ModelFormat(Struct, frozen=True):
    """One set of weights: a key of `sessions.PROVIDER_BY_FORMAT`, the file, and the device it is meant for."""

    name: str
    weights: ModelFile
    device: Device


class ModelRecord(Struct, frozen=True):
    """A model: identity, files, and everything that changes what it computes."""

    name: str
    role: Role
    tier: Tier
    repository: str
    revision: str
    """Commit of the repository, or `main` where none is pinned."""
    licence: str
    languages: tuple[str, ...]
    """ISO codes the model was trained on; `*` for a hundred or more."""
    scripts: tuple[str, ...]
    """Unicode scripts it reads, as the first word of a character's Unicode name; empty = all."""
    formats: tuple[ModelFormat, ...]
    """Best first within one device."""
    files: tuple[ModelFile, ...]
    """Files every format needs."""
    context: int
    """Tokens in one run, special tokens included."""
    max_tokens: int
    """Token budget of one chunk's body."""
    dim: int | None = None
    pooling: Pooling = "none"
    document_prompt: str = ""
    query_prompt: str = ""
    is_fused: bool = False
    """The graph was written fused; the runtime only folds constants."""

    @property
    def folder(self) -> str:
        """Name of its folder under the models folder."""
        return self.repository.replace("/", "--") if self.tier == "full" else self.name.lower()

    def format_for(self, device: Device) -> ModelFormat:
        """The format meant for `device`, else the first one."""
        return next((item for item in self.formats if item.device == device), self.formats[0])


MINILM = ModelRecord(
    name="all-MiniLM-L6-v2",
    role="embed",
    tier="built-in",
    repository="sentence-transformers/all-MiniLM-L6-v2",
    revision="main",
    licence="Apache-2.0",
    languages=("en",),
    scripts=("LATIN",),
    formats=(
        ModelFormat(
            "int8",
            ModelFile("model.onnx", 23_497_827, "6c0e9feafc8e5ab9d0248ab73afaf3ec713dc65a19b63c509ae92e6b2b304b36"),
            "cpu",
        ),
    ),
    files=(ModelFile("tokenizer.json", 466_082, "3ad857958ba886d154a5a852119fb31a0dd549d03d8a3fc20e33f2336272cc19"),),
    context=256,
    # Trained on texts of 128 tokens; yet 110 in its place or beside it lost on three collections and won on one vault.
    max_tokens=240,
    dim=384,
    pooling="mean",
    is_fused=True,
)

JINA_ZH = ModelRecord(
    name="jina-embeddings-v2-base-zh",
    role="embed",
    tier="full",
    repository="Xenova/jina-embeddings-v2-base-zh",
    revision="main",
    licence="Apache-2.0",
    languages=("zh", "en"),
    scripts=("LATIN", "CJK"),
    formats=(
        ModelFormat("int8", ModelFile("onnx/model_quantized.onnx"), "cpu"),
        ModelFormat("fp16", ModelFile("onnx/model_fp16.onnx"), "cuda"),
    ),
    files=(
        ModelFile("tokenizer.json"),
        ModelFile("tokenizer_config.json"),
        ModelFile("config.json"),
        ModelFile("special_tokens_map.json"),
    ),
    # The model reads 8,192 tokens; longer windows blur what one passage says and cost time by the square.
    context=1024,
    max_tokens=480,
    dim=768,
    pooling="mean",
)

QWEN_RERANKER = ModelRecord(
    name="Qwen3-Reranker-0.6B",
    role="rerank",
    tier="full",
    repository="zhiqing/Qwen3-Reranker-0.6B-seq-cls-ONNX",
    revision="main",
    licence="Apache-2.0",
    languages=("*",),
    scripts=(),
    # Called FP32 where it is published; its size, two bytes per parameter, says FP16.
    formats=(ModelFormat("fp16", ModelFile("model.onnx"), "cuda"),),
    files=(ModelFile("tokenizer.json"), ModelFile("tokenizer_config.json"), ModelFile("config.json")),
    context=1024,
    max_tokens=800,
)

QWEN_EXPANDER = ModelRecord(
    name="Qwen3-0.6B",
    role="expand",
    tier="full",
    repository="onnx-community/Qwen3-0.6B-ONNX",
    revision="da1453100cf3ff33ef56d17983fc7a8648706db6",
    licence="Apache-2.0",
    languages=("*",),
    scripts=(),
    formats=(
        ModelFormat("q4f16", ModelFile("onnx/model_q4f16.onnx"), "cuda"),
        ModelFormat("q4", ModelFile("onnxruntime/cpu_and_mobile/cpu-int4-kld-block-128/model.onnx"), "cpu"),
    ),
    files=(
        ModelFile("tokenizer.json"),
        ModelFile("tokenizer_config.json"),
        ModelFile("config.json"),
        ModelFile("generation_config.json"),
    ),
    context=2048,
    max_tokens=2048,
)

MODELS: tuple[ModelRecord, ...] = (MINILM, JINA_ZH, QWEN_RERANKER, QWEN_EXPANDER)
"""All of them, built-in first."""

MAXSIM_NAME = "all-MiniLM-L6-v2 MaxSim"
"""What the built-in reranker is called: the built-in embedding model's token vectors."""

_GGUF_PREFIXES: Mapping[str, ModelRecord] = {
    "hf:ggml-org/embeddinggemma-300m-gguf/": JINA_ZH,
    "hf:qwen/qwen3-embedding-0.6b-gguf/": JINA_ZH,
    "hf:ggml-org/qwen3-reranker-0.6b-q8_0-gguf/": QWEN_RERANKER,
    "hf:tobil/qmd-query-expansion-": QWEN_EXPANDER,
}


def full_model(role: Role) -> ModelRecord:
    """The full tier's model for a role."""
    return next(model for model in MODELS if model.role == role and model.tier == "full")


def find_model(name: str, role: Role | None = None) -> ModelRecord | None:
    """The model a user means by `name`, or None.

    Takes the name or the repository in any case, `hf:` in front of a repository, and the GGUF addresses that a
    configuration of tobi/qmd may hold, which name the same job in a format that is not read here.
    """
    wanted = name.strip().lower()
    gguf = next((model for prefix, model in _GGUF_PREFIXES.items() if wanted.startswith(prefix)), None)
    wanted = wanted.removeprefix("hf:")
    found = gguf or next((model for model in MODELS if wanted in (model.name.lower(), model.repository.lower())), None)
    if found is None or (role is not None and found.role != role):
        return None
    return found


def is_gguf_address(name: str) -> bool:
    """True for an address or file of a GGUF model, which ONNX Runtime cannot open."""
    return name.strip().lower().endswith(".gguf")
