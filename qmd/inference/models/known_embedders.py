"""Well-known embedding models: what their makers say where the files of a folder are silent."""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec import Struct

from qmd.inference.records import Pooling

_RELEVANT_PASSAGES = "Represent this sentence for searching relevant passages: "
_INSTRUCTION = "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:"


class KnownEmbedder(Struct, frozen=True):
    """A family of models by the names of its repositories."""

    name: str
    pattern: str
    """Regular expression for the end of a repository's name in small letters, without what exporters add."""
    pooling: Pooling
    max_length: int
    """Tokens that the makers let a text have."""
    source: str
    """Repository whose card says so."""
    query_prompt: str = ""
    document_prompt: str = ""
    end_token: str | None = None
    model_type: str | None = None
    """`model_type` of `config.json` that no other family has."""
    only_in_graph: str | None = None
    """What the makers compute behind the pooling."""
    is_dot_product: bool = False
    """Vectors are compared with their lengths."""


KNOWN_EMBEDDERS: tuple[KnownEmbedder, ...] = (
    KnownEmbedder(
        "E5 instruct",
        r"e5-(small|base|large)-instruct",
        "mean",
        512,
        "intfloat/multilingual-e5-large-instruct",
        f"{_INSTRUCTION} ",
    ),
    KnownEmbedder("E5", r"e5-(small|base|large)(-v2)?", "mean", 512, "intfloat/e5-base-v2", "query: ", "passage: "),
    KnownEmbedder("BGE-M3", r"bge-m3", "first", 8192, "BAAI/bge-m3"),
    KnownEmbedder(
        "BGE English",
        r"bge-(small|base|large)-en(-v1\.5)?",
        "first",
        512,
        "BAAI/bge-base-en-v1.5",
        _RELEVANT_PASSAGES,
    ),
    KnownEmbedder(
        "BGE Chinese",
        r"bge-(small|base|large)-zh(-v1\.5)?",
        "first",
        512,
        "BAAI/bge-base-zh-v1.5",
        "为这个句子生成表示以用于检索相关文章：",
    ),
    KnownEmbedder(
        "Nomic",
        r"nomic-embed-text-v1(\.5)?|modernbert-embed-(base|large)",
        "mean",
        8192,
        "nomic-ai/nomic-embed-text-v1.5",
        "search_query: ",
        "search_document: ",
    ),
    KnownEmbedder(
        "Nomic v2",
        r"nomic-embed-text-v2-moe",
        "mean",
        512,
        "nomic-ai/nomic-embed-text-v2-moe",
        "search_query: ",
        "search_document: ",
    ),
    KnownEmbedder(
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
    KnownEmbedder(
        "Qwen3-Embedding",
        r"qwen3-embedding-[0-9.]+b",
        "last",
        32768,
        "Qwen/Qwen3-Embedding-0.6B",
        _INSTRUCTION,
        end_token="<|endoftext|>",
    ),
    KnownEmbedder(
        "Arctic Embed 2",
        r"arctic-embed-[ml]-v2\.0",
        "first",
        8192,
        "Snowflake/snowflake-arctic-embed-l-v2.0",
        "query: ",
    ),
    KnownEmbedder(
        "Arctic Embed",
        r"arctic-embed-(xs|s|m|l)(-v1\.5|-long)?",
        "first",
        512,
        "Snowflake/snowflake-arctic-embed-m-v1.5",
        _RELEVANT_PASSAGES,
    ),
    KnownEmbedder("GTE", r"gte-(small|base|large)", "mean", 512, "thenlper/gte-base"),
    KnownEmbedder(
        "GTE v1.5",
        r"gte-(base|large)-en-v1\.5|gte-(multilingual|modernbert)-base",
        "first",
        8192,
        "Alibaba-NLP/gte-modernbert-base",
    ),
    KnownEmbedder("Jina v2", r"jina-embeddings-v2-[a-z-]+", "mean", 8192, "jinaai/jina-embeddings-v2-base-en"),
    KnownEmbedder(
        "mxbai",
        r"mxbai-embed-(2d-)?large-v1",
        "first",
        512,
        "mixedbread-ai/mxbai-embed-large-v1",
        _RELEVANT_PASSAGES,
    ),
    KnownEmbedder("UAE", r"uae-large-v1", "first", 512, "WhereIsAI/UAE-Large-V1", _RELEVANT_PASSAGES),
    KnownEmbedder(
        "Stella v5",
        r"stella[-_]en[-_](400m|1\.5b)[-_]v5(-doc)?",
        "mean",
        512,
        "NovaSearch/stella_en_400M_v5",
        "Instruct: Given a web search query, retrieve relevant passages that answer the query.\nQuery: ",
        only_in_graph="a dense layer behind the pooling",
    ),
    KnownEmbedder("MiniLM L6", r"all-minilm-l6-v2", "mean", 256, "sentence-transformers/all-MiniLM-L6-v2"),
    KnownEmbedder(
        "MiniLM L12",
        r"all-minilm-l12-v[12]|paraphrase-multilingual-(minilm-l12|mpnet-base)-v2",
        "mean",
        128,
        "sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2",
    ),
    KnownEmbedder("MPNet", r"all-mpnet-base-v2", "mean", 384, "sentence-transformers/all-mpnet-base-v2"),
    KnownEmbedder(
        "dot-product models",
        r"(multi-qa|msmarco)-[a-z0-9-]+-dot-v[0-9]+",
        "first",
        512,
        "sentence-transformers/multi-qa-mpnet-base-dot-v1",
        is_dot_product=True,
    ),
)
"""First match wins."""

_EXPORT = re.compile(r"([-_.](onnx|int8|uint8|q|q4|q8|fp16|fp32|quantized|o[1-4]))+$")
"""What exporters add to the name of the model that they write."""


def find_known(names: Iterable[str], model_type: str | None) -> KnownEmbedder | None:
    """The family of a model, by the names that it may go by, first name first, then by its type; None if unknown."""
    for name in names:
        last = _EXPORT.sub("", re.split(r"/|--", name.strip().lower())[-1])
        for known in KNOWN_EMBEDDERS:
            if re.fullmatch(rf"(.*[-_])?({known.pattern})", last):
                return known
    return next((known for known in KNOWN_EMBEDDERS if model_type and known.model_type == model_type), None)
