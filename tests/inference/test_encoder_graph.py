"""Inputs and outputs of encoder graphs, on graphs as exporters write them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from msgspec.structs import replace

from qmd.inference.engines.pooling import pool
from tests.inference.embedder_folders import (
    TEXT,
    TinyGraph,
    ids_of,
    make_folder,
    opened,
    pooled_vector,
    refused,
    token_vectors,
    unit,
    vectors_of,
)
from tests.inference.exported_graphs import ExportForm, PlainWriter, PublishedWriter
from tests.inference.tiny_models import PUBLISHED, SHAPE, Weights, random_weights, reference_logits, write_model
from tests.inference.tiny_tokenizer import write_tokenizer


@pytest.mark.parametrize("name", ["sentence_embedding", "text_embeds", "dense_vecs"])
def test_outputs_with_one_vector_a_text_are_taken_by_name(tmp_path: Path, name: str) -> None:
    form = TinyGraph(pooled=name)
    folder = make_folder(tmp_path / "x", form=form)
    assert np.allclose(vectors_of(opened(folder))[0], unit(pooled_vector(ids_of(folder, TEXT), form)), atol=1e-5)


def test_the_pooler_of_a_bert_model_is_no_embedding(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "x", form=TinyGraph(pooled="pooler_output"))
    assert np.allclose(vectors_of(opened(folder))[0], unit(token_vectors(ids_of(folder, TEXT)).mean(axis=0)), atol=1e-5)


@pytest.mark.parametrize("is_pooled", [False, True])
def test_an_output_whose_shape_is_not_stated_goes_by_its_name(tmp_path: Path, is_pooled: bool) -> None:
    form = TinyGraph(pooled="sentence_embedding" if is_pooled else None)
    folder = make_folder(tmp_path / "x", form=form)
    path = str(folder / "onnx" / "model.onnx")
    model = onnx.load(path)
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
    onnx.save(model, path)
    graph = opened(folder).encoder.graph
    assert (graph.output, graph.is_pooled) == (form.pooled or form.tokens, is_pooled)


def test_a_graph_without_a_known_output_is_refused_naming_what_it_has(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "x", form=TinyGraph(tokens="logits", pooled="labels"))
    assert "it has 'logits', 'labels'" in refused(folder)


def test_an_input_that_is_not_known_is_refused_by_name(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "x")
    model = onnx.load(str(folder / "onnx" / "model.onnx"))
    model.graph.input.append(onnx.helper.make_tensor_value_info("task_id", onnx.TensorProto.INT64, []))
    onnx.save(model, str(folder / "onnx" / "model.onnx"))
    assert "unexpected input 'task_id'" in refused(folder)


def write_decoder(folder: Path, writer: type[PublishedWriter], form: ExportForm) -> Weights:
    """Write a decoder with its last hidden state as output, by a head that copies it; return its weights."""
    write_tokenizer(folder)
    (folder / "config.json").write_text('{"architectures": ["Qwen3ForCausalLM"], "max_position_embeddings": 1024}')
    copying = {**random_weights(tied=False), "head": np.eye(SHAPE.vocab, SHAPE.hidden, dtype=np.float32)}
    path = folder / "onnx" / "model.onnx"
    stored = write_model(path, form, copying, writer=writer)
    model = onnx.load(str(path))
    for node in model.graph.node:
        node.output[:] = ["last_hidden_state" if name == "logits" else name for name in node.output]
    next(one for one in model.graph.output if one.name == "logits").name = "last_hidden_state"
    onnx.save(model, str(path))
    return stored


def padded(rows: Sequence[Sequence[int]], *, is_left: bool) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return tokens and mask of a batch, shape (batch, longest)."""
    width = max(map(len, rows))
    gaps = [[0] * (width - len(row)) for row in rows]
    ids = [[*gap, *row] if is_left else [*row, *gap] for gap, row in zip(gaps, rows, strict=True)]
    mask = [
        [*gap, *[1] * len(row)] if is_left else [*[1] * len(row), *gap] for gap, row in zip(gaps, rows, strict=True)
    ]
    return np.array(ids), np.array(mask)


@pytest.mark.parametrize("activations", ["fp32", "fp16"])
@pytest.mark.parametrize(
    ("writer", "sides"), [(PublishedWriter, (False,)), (PlainWriter, (False, True))], ids=["fused", "plain"]
)
def test_a_decoder_that_takes_positions_and_past_keys_embeds_by_its_last_token_padded_or_not(
    tmp_path: Path, writer: type[PublishedWriter], sides: Sequence[bool], activations: Literal["fp32", "fp16"]
) -> None:
    folder = tmp_path / "Qwen3-Embedding-0.6B-ONNX"
    stored = write_decoder(folder, writer, replace(PUBLISHED, activations=activations))
    embedder = opened(folder)
    graph = embedder.encoder.graph
    assert len(graph.past) == 2 * SHAPE.layers and "position_ids" in graph.types
    texts = [TEXT, "Tea"]
    rows = [[*ids_of(folder, text), *ids_of(folder, "<|endoftext|>")] for text in texts]
    expected = [unit(reference_logits(stored, ids)[-1].astype(np.float32)) for ids in rows]
    tolerance = 1e-4 if activations == "fp32" else 1e-2
    assert np.allclose(embedder.embed_documents(texts), expected, atol=tolerance)
    # Fused attention counts a row's tokens from its start: its batches are padded only on the right.
    for is_left in sides:
        ids, mask = padded(rows, is_left=is_left)
        found = embedder.session.run([graph.output], graph.feeds(ids, mask))[0]
        found_rows = zip(found.astype(np.float32), mask.astype(bool), strict=True)
        assert np.allclose([pool(row[own], "last") for row, own in found_rows], expected, atol=tolerance)
