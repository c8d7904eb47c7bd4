"""Embedding models in folders: run as their makers meant, or refused with the reason."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from qmd.inference.base import Embedder
from qmd.inference.engines.embedder import OnnxEmbedder
from qmd.inference.loader import load_engines
from qmd.inference.settings import EngineSettings
from tests.inference.embedder_folders import (
    Array,
    TinyGraph,
    ids_of,
    make_folder,
    pooled_vector,
    sentence_transformer,
    token_vectors,
    unit,
)

TEXT = "Bread and butter"


def opened(folder: Path, **env: str) -> OnnxEmbedder:
    """The embedder that a configuration naming the folder gets."""
    engines = load_engines(EngineSettings(folder.parent, embed=str(folder), env=env), ["embed"])
    assert engines.notes == ()
    assert isinstance(engines.embedder, OnnxEmbedder)
    return engines.embedder


def vectors_of(embedder: Embedder, text: str = TEXT) -> tuple[Array, Array]:
    """The vectors of a text as a query and as a document."""
    return embedder.embed_queries([text])[0], embedder.embed_documents([text])[0]


def test_a_model_of_last_token_pooling_is_not_run_as_mean(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "x", sentence_transformer("lasttoken"))
    vectors = token_vectors(ids_of(folder, TEXT))
    assert np.allclose(vectors_of(opened(folder))[0], unit(vectors[-1]), atol=1e-5)


def test_the_prompts_that_a_folder_holds_are_put_before_queries_and_documents(tmp_path: Path) -> None:
    prompts = {"prompts": {"query": "find: ", "document": "note: "}}
    files = {**sentence_transformer("mean_tokens"), "config_sentence_transformers.json": prompts}
    folder = make_folder(tmp_path / "x", files)
    query, document = vectors_of(opened(folder))
    assert np.allclose(query, unit(token_vectors(ids_of(folder, f"find: {TEXT}")).mean(axis=0)), atol=1e-5)
    assert np.allclose(document, unit(token_vectors(ids_of(folder, f"note: {TEXT}")).mean(axis=0)), atol=1e-5)


def test_the_embedding_that_a_graph_computes_itself_goes_before_pooling_its_token_vectors(tmp_path: Path) -> None:
    form = TinyGraph(pooled="sentence_embedding")
    folder = make_folder(tmp_path / "x", sentence_transformer("mean_tokens"), form)
    assert np.allclose(vectors_of(opened(folder))[0], unit(pooled_vector(ids_of(folder, TEXT), form)), atol=1e-5)
