"""Ten well-known embedding models on tiny folders of their layouts, against plain numpy.

The expected rules are written here a second time, from the models' cards, and not read from the table.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from msgspec import Struct

from qmd.errors import ModelError
from qmd.inference.engines.embedder import load_embedder
from qmd.inference.models.catalogue import FAMILIES, Family, find_family
from qmd.plugins.models.formats.sentence_transformers import describe_folder
from tests.inference.embedder_folders import (
    TEXT,
    Array,
    TinyGraph,
    ids_of,
    make_folder,
    opened,
    pooled_vector,
    sentence_transformer,
    token_vectors,
    unit,
    vectors_of,
)

PASSAGES = "Represent this sentence for searching relevant passages: "
INSTRUCTION = "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:"
POOLED = TinyGraph(inputs=("input_ids", "attention_mask"), tokens="last_hidden_state", pooled="sentence_embedding")
NO_SEGMENTS = TinyGraph(inputs=("input_ids", "attention_mask"))
POSITIONS = TinyGraph(inputs=("input_ids", "attention_mask", "position_ids"))
XLM = {"model_type": "xlm-roberta", "max_position_embeddings": 514, "pad_token_id": 1}

MEAN: Callable[[Array], Array] = lambda rows: np.asarray(rows.mean(axis=0))  # noqa: E731
FIRST: Callable[[Array], Array] = lambda rows: rows[0]  # noqa: E731
LAST: Callable[[Array], Array] = lambda rows: rows[-1]  # noqa: E731


class Case(Struct, frozen=True):
    """A model: the layout of its repository, and its makers' rules."""

    name: str
    files: Mapping[str, object]
    """Files of sentence-transformers, without those common to all."""
    config: Mapping[str, object]
    pooling: Callable[[Array], Array] | None
    """None if the graph pools."""
    length: int
    query: str = ""
    document: str = ""
    form: TinyGraph = TinyGraph()
    ends: str | None = "[SEP]"
    begins: str | None = "[CLS]"
    is_ended: bool = False
    """The tokenizer's file does not add the end token `<|endoftext|>`."""


def prompts(**texts: str) -> dict[str, object]:
    """Return the file with prompts."""
    return {"config_sentence_transformers.json": {"prompts": texts, "default_prompt_name": None}}


def at_most(tokens: int) -> dict[str, object]:
    """Return the file that limits a text."""
    return {"sentence_bert_config.json": {"max_seq_length": tokens, "do_lower_case": False}}


CASES = (
    Case(
        "multilingual-e5-small",
        {**sentence_transformer("mean_tokens"), **at_most(512)},
        XLM,
        MEAN,
        512,
        "query: ",
        "passage: ",
        NO_SEGMENTS,
    ),
    Case("bge-small-en-v1.5", {**sentence_transformer("cls_token"), **at_most(512)}, {}, FIRST, 512, PASSAGES),
    Case(
        "bge-m3",
        {**sentence_transformer("cls_token"), **at_most(8192)},
        {**XLM, "max_position_embeddings": 8194},
        FIRST,
        1024,
        form=NO_SEGMENTS,
    ),
    Case(
        "nomic-embed-text-v1.5",
        {**sentence_transformer("mean_tokens"), **at_most(8192)},
        {"model_type": "nomic_bert", "n_positions": 8192, "max_position_embeddings": None},
        MEAN,
        1024,
        "search_query: ",
        "search_document: ",
    ),
    Case(
        "embeddinggemma-300m-ONNX",
        {
            **sentence_transformer("mean_tokens", "Dense", "Dense"),
            **prompts(query="task: search result | query: ", document="title: none | text: ", STS="task: similarity"),
            **at_most(2048),
        },
        {"model_type": "gemma3_text", "architectures": ["Gemma3TextModel"], "max_position_embeddings": 2048},
        None,
        1024,
        "task: search result | query: ",
        "title: none | text: ",
        POOLED,
    ),
    Case(
        "Qwen3-Embedding-0.6B-ONNX",
        {**sentence_transformer("lasttoken", include_prompt=True), **prompts(query=INSTRUCTION, document="")},
        {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "max_position_embeddings": 32768},
        LAST,
        1024,
        INSTRUCTION,
        "",
        POSITIONS,
        ends=None,
        begins=None,
        is_ended=True,
    ),
    Case(
        "snowflake-arctic-embed-m-v1.5",
        {**sentence_transformer("cls_token"), **prompts(query=PASSAGES), **at_most(512)},
        {},
        FIRST,
        512,
        PASSAGES,
    ),
    Case("gte-small", {**sentence_transformer("mean_tokens"), **at_most(512)}, {}, MEAN, 512),
    Case(
        "jina-embeddings-v2-base-en",
        {**sentence_transformer("mean_tokens"), **at_most(8192)},
        {"max_position_embeddings": 8192},
        MEAN,
        1024,
    ),
    Case(
        "mxbai-embed-large-v1",
        {**sentence_transformer("cls_token"), **prompts(query=PASSAGES, passage=""), **at_most(512)},
        {},
        FIRST,
        512,
        PASSAGES,
    ),
    Case("all-MiniLM-L12-v2", {**sentence_transformer("mean_tokens"), **at_most(128)}, {}, MEAN, 128),
    Case(
        "snowflake-arctic-embed-l-v2.0",
        {**sentence_transformer("cls_token"), **prompts(query="query: "), **at_most(8192)},
        {**XLM, "max_position_embeddings": 8194},
        FIRST,
        1024,
        "query: ",
        "",
        TinyGraph(("input_ids", "attention_mask"), tokens="token_embeddings"),
    ),
)


def reference(folder: Path, case: Case, text: str) -> Array:
    """Return the vector of a prompted text in plain numpy."""
    ids = ids_of(folder, text)
    ids = [*ids, ids_of(folder, "<|endoftext|>")[0]] if case.is_ended else ids
    if case.pooling is None:
        return unit(pooled_vector(ids, case.form))
    return unit(case.pooling(token_vectors(ids, case.form)))


@pytest.mark.parametrize("is_bare", [False, True], ids=["as published", "graph and tokenizer alone"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_well_known_model_is_run_as_its_makers_mean(tmp_path: Path, case: Case, is_bare: bool) -> None:
    files = {**({} if is_bare else case.files), "config.json": {"max_position_embeddings": 512, **case.config}}
    folder = make_folder(tmp_path / case.name, files, case.form, ends=case.ends, begins=case.begins)
    embedder = opened(folder)
    query, document = vectors_of(embedder)
    assert np.allclose(query, reference(folder, case, case.query + TEXT), atol=1e-5)
    assert np.allclose(document, reference(folder, case, case.document + TEXT), atol=1e-5)
    assert embedder.encoder.context == case.length
    assert embedder.max_tokens <= case.length - 32


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_table_says_what_the_files_of_a_well_known_model_say(tmp_path: Path, case: Case) -> None:
    config = {"config.json": {"max_position_embeddings": 512, **case.config}}
    told = describe_folder(make_folder(tmp_path / "a" / case.name, {**case.files, **config}, case.form))
    known = describe_folder(make_folder(tmp_path / "b" / case.name, config, case.form))
    for name in ("pooling", "query_prompt", "document_prompt", "context", "max_tokens"):
        assert getattr(told, name) == getattr(known, name), name


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("intfloat/multilingual-e5-large-instruct", "E5 instruct"),
        ("Xenova/multilingual-e5-base", "E5"),
        ("BAAI/bge-large-zh-v1.5", "BGE Chinese"),
        ("Xenova--bge-small-en-v1.5", "BGE English"),
        ("nomic-ai/modernbert-embed-base", "Nomic"),
        ("google/embeddinggemma-300m-qat-q8_0-unquantized", "EmbeddingGemma"),
        ("Qwen3-Embedding-0.6B-ONNX-int8", "Qwen3-Embedding"),
        ("Alibaba-NLP/gte-multilingual-base", "GTE v1.5"),
        ("snowflake-arctic-embed-xs", "Arctic Embed"),
        ("sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2", "MiniLM L12"),
        ("someone/bge-reranker-base", None),
        ("my-notes-model", None),
    ],
)
def test_a_family_is_told_by_the_name_of_its_repository(name: str, family: str | None) -> None:
    found = find_family([name], None)
    assert (found.name if found else None) == family


def test_a_folder_in_the_hubs_cache_goes_by_its_repository(tmp_path: Path) -> None:
    folder = tmp_path / "models--Xenova--bge-small-en-v1.5" / "snapshots" / "0123abcd"
    assert describe_folder(make_folder(folder)).query_prompt == PASSAGES


def test_a_folder_of_another_name_goes_by_the_name_in_its_configuration(tmp_path: Path) -> None:
    files = {"config.json": {"_name_or_path": "intfloat/e5-base-v2", "max_position_embeddings": 512}}
    assert describe_folder(make_folder(tmp_path / "model", files)).document_prompt == "passage: "


def test_a_model_that_is_compared_by_dot_product_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="compared by 'dot'"):
        describe_folder(make_folder(tmp_path / "multi-qa-mpnet-base-dot-v1"))


def test_gemma_without_its_dense_layers_is_refused(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "embeddinggemma-300m", form=NO_SEGMENTS)
    with pytest.raises(ModelError, match="two dense layers") as caught:
        load_embedder(folder, describe_folder(folder))
    assert "sentence_embedding" in (caught.value.hint or "")


@pytest.mark.parametrize("known", FAMILIES, ids=lambda known: known.name)
def test_a_family_is_found_by_its_source(known: Family) -> None:
    assert find_family([known.source], None) is known
