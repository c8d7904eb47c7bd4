"""Every model qmd knows by name, as frozen records: where it lives, what it holds, how it is fed."""

from __future__ import annotations

from collections.abc import Mapping

from qmd.inference.records import UNPINNED, ModelFile, ModelFormat, ModelRecord, Role

MINILM = ModelRecord(
    name="all-MiniLM-L6-v2",
    role="embed",
    tier="built-in",
    repository="sentence-transformers/all-MiniLM-L6-v2",
    revision=UNPINNED,
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
    batches=ModelFile(
        "model_batches.onnx", 105_261, "aa4631044e89b4da45c36308c1f8b2534291ed45adf38c6ba882a94a932f42c4"
    ),
)

JINA_ZH = ModelRecord(
    name="jina-embeddings-v2-base-zh",
    role="embed",
    tier="full",
    repository="Xenova/jina-embeddings-v2-base-zh",
    revision=UNPINNED,
    licence="Apache-2.0",
    languages=("zh", "en"),
    scripts=("LATIN", "CJK"),
    formats=(
        # As two repositories and the maker's own publish it; of the others no digest is publicly known.
        ModelFormat(
            "int8",
            ModelFile(
                "onnx/model_quantized.onnx",
                161_565_239,
                "0a221ee9e6a6647ccc59cee7bdd26a7b8cf0c0cd3481a65f358d9585a23f02f4",
            ),
            "cpu",
        ),
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
    revision=UNPINNED,
    licence="Apache-2.0",
    languages=("*",),
    scripts=(),
    # Called FP32 where it is published; its size, two bytes per parameter, says FP16.
    formats=(ModelFormat("fp16", ModelFile("model.onnx"), "cuda"),),
    files=(ModelFile("tokenizer.json"), ModelFile("tokenizer_config.json"), ModelFile("config.json")),
    context=1024,
    max_tokens=800,
    network="qwen3",
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
        ModelFormat(
            "q4f16",
            ModelFile(
                "onnx/model_q4f16.onnx",
                569_789_750,
                "9e33a5911974174761d0dfdcc0bec975d9c45af0eae5e9eb647b8ba9442a8f91",
            ),
            "cuda",
        ),
        ModelFormat(
            "q4",
            ModelFile(
                "onnxruntime/cpu_and_mobile/cpu-int4-kld-block-128/model.onnx",
                524_589_133,
                "35fe34321ea9b1eaa43dfa648dd199903d01d93f97dc2b24fe1d16079ebea957",
            ),
            "cpu",
        ),
        # Exact weights, for those who make forms of their own.
        ModelFormat("fp16", ModelFile("onnx/model_fp16.onnx"), "cuda"),
    ),
    files=(
        ModelFile("tokenizer.json", 9_117_040, "e7a95fce95bf5b0946d0ddb3f9d7caa030b7e850bbe92b0edb26bcf563e9f3d5"),
        ModelFile("tokenizer_config.json", 9_705, "b0a8115cf05a7002cbe2575058c0139c1dee3f06f221c05717c3444947d78b9f"),
        ModelFile("config.json", 912, "8a04114ba59cc42b47d804d35d1d5c61d746ae4634f41f796768c6e302d39b9e"),
        ModelFile("generation_config.json", 219, "9e9e031ae8bca36eefcdcdd0b35d83c61baa01e31d68d5f5a961c9ca1a4b95bf"),
    ),
    context=2048,
    max_tokens=2048,
    network="qwen3",
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
    configuration of tobi/qmd may have, which name the same job in a format that is not read here.
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
