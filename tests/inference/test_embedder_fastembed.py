"""fastembed behind the same protocol: the same files give the same vectors."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from fastembed import TextEmbedding
from fastembed.common.model_description import ModelSource, PoolingType

from qmd.errors import ModelError
from qmd.inference.engines.embedder import load_embedder
from qmd.inference.engines.fastembed_bulk import FastembedEmbedder, load_fastembed, wrap_fastembed
from qmd.inference.loader import load_engines
from qmd.inference.models.catalogue import MINILM
from qmd.inference.models.weights import locate_builtin
from qmd.inference.settings import EngineSettings

NAME = "qmd-tests/minilm"
TEXTS = ("Reset a forgotten password in the settings.", "Bread.", "The borrow checker forbids aliased mutation.")


@pytest.fixture(scope="module")
def embedder(tmp_path_factory: pytest.TempPathFactory) -> FastembedEmbedder:
    folder = tmp_path_factory.mktemp("fastembed") / "model"
    shutil.copytree(locate_builtin(), folder)
    (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 256, "pad_token": "[PAD]"}))
    (folder / "config.json").write_text(json.dumps({"pad_token_id": 0}))
    TextEmbedding.add_custom_model(
        model=NAME,
        pooling=PoolingType.MEAN,
        normalization=True,
        sources=ModelSource(hf=NAME),
        dim=384,
        model_file="model.onnx",
        additional_files=["tokenizer.json"],
    )
    return wrap_fastembed(
        NAME, TextEmbedding(NAME, specific_model_path=str(folder), providers=["CPUExecutionProvider"])
    )


def test_fastembed_gives_the_vectors_of_our_own_embedder(embedder: FastembedEmbedder) -> None:
    ours = load_embedder(locate_builtin(), MINILM)
    cosines = (embedder.embed_documents(TEXTS) * ours.embed_documents(TEXTS)).sum(axis=1)
    # fastembed lets the runtime fuse the graph once more, which moves the last digits.
    assert cosines.min() > 0.999
    assert np.allclose(embedder.embed_queries(TEXTS[:1]), embedder.embed_documents(TEXTS[:1]), atol=1e-5)


def test_fastembed_windows_leave_room_for_the_title(embedder: FastembedEmbedder) -> None:
    assert embedder.max_tokens == 256 - 32
    assert len(embedder.token_starts("word " * 1000)) == 1000


def test_an_unknown_fastembed_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no-such-model"):
        load_fastembed("no-such-model", tmp_path)


def test_a_fastembed_model_that_is_not_fetched_is_a_failure_that_names_it(tmp_path: Path) -> None:
    name = "fastembed:BAAI/bge-small-en-v1.5"
    engines = load_engines(EngineSettings(tmp_path, embed=name), ["embed"])
    assert engines.embedder is None
    assert name in engines.failures[0]
