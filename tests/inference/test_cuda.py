"""Engines on a CUDA device: placement proved node by node, results against the same references as on the CPU."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from qmd.cli.app import main
from qmd.inference.engines.cross_encoder import load_cross_encoder
from qmd.inference.models.catalogue import QWEN_RERANKER
from qmd.inference.models.weights import locate_builtin
from qmd.inference.runtime.decoding import Decoder
from qmd.inference.runtime.sessions import Session, cuda_verdict, cuda_works, open_session
from qmd.inference.settings import EngineSettings
from tests.inference.tiny_models import PUBLISHED, SHAPE, Weights, random_weights, reference_logits, write_model
from tests.inference.tiny_tokenizer import write_tokenizer

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not cuda_works(), reason=f"needs a working CUDA device: {cuda_verdict()}"),
]

Q4F16 = replace(PUBLISHED, activations="fp16", linear="q4")
IDS = [int(i) for i in np.random.default_rng(0).integers(0, SHAPE.vocab, 12)]
TOLERANCE = 2e-2
"""Half precision; logits have a standard deviation of 0.65."""


@pytest.fixture
def decoder(tmp_path: Path) -> tuple[Decoder, Weights]:
    held = write_model(tmp_path / "model.onnx", Q4F16, random_weights())
    return Decoder(open_session(tmp_path / "model.onnx", format="q4f16")), held


def _operators_on(session: Session, provider: str) -> Counter[str]:
    subgraphs = session.ort.get_provider_graph_assignment_info()
    nodes = [node for one in subgraphs if one.ep_name == provider for node in one.get_nodes()]
    return Counter(node.op_type for node in nodes)


def test_every_product_and_attention_of_a_q4f16_decoder_is_on_the_device(decoder: tuple[Decoder, Weights]) -> None:
    session = decoder[0].session
    assert (session.asked, session.got, session.note) == ("cuda", "cuda", None)
    left = _operators_on(session, "CPUExecutionProvider")
    assert not {"MatMulNBits", "GroupQueryAttention", "MatMul", "Gather", "SimplifiedLayerNormalization"} & set(left)


def test_prefill_and_steps_on_the_device_equal_the_reference(decoder: tuple[Decoder, Weights]) -> None:
    engine, weights = decoder
    context = engine.open_context(32)
    logits = context.append([IDS[:6]])
    for position, token in enumerate(IDS[6:], start=6):
        assert np.abs(logits[0] - reference_logits(weights, IDS[:position])[-1]).max() < TOLERANCE
        logits = context.append([[token]])
    assert np.abs(logits[0] - reference_logits(weights, IDS)[-1]).max() < TOLERANCE


def test_branches_on_the_device_equal_single_rows(decoder: tuple[Decoder, Weights]) -> None:
    engine, weights = decoder
    context = engine.open_context(32)
    context.append([IDS])
    branches, _ = context.fork([[5], [6, 7]], 4)
    logits = branches.append([[8], [9]])
    for row, tail in enumerate(([5, 8], [6, 7, 9])):
        assert np.abs(logits[row] - reference_logits(weights, [*IDS, *tail])[-1]).max() < TOLERANCE


def test_a_half_precision_reranker_runs_on_the_device_in_batches(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    form = replace(PUBLISHED, head="score", past=False, positions=False, activations="fp16")
    weights = write_model(tmp_path / "model.onnx", form, random_weights())
    reranker = load_cross_encoder(tmp_path, QWEN_RERANKER, EngineSettings(tmp_path))
    assert reranker.description.provider == "cuda"
    passages = ["the first passage", "no", "a much longer third passage with other words"]
    for passage, score in zip(passages, reranker.score("query", passages), strict=True):
        ids = [*reranker.prompt.prefix("query"), *reranker.prompt.ending(passage)]
        expected = 1 / (1 + np.exp(-reference_logits(weights, ids, score=True)[0]))
        assert score == pytest.approx(float(expected), abs=TOLERANCE)


def test_dynamic_int8_stays_on_the_cpu() -> None:
    session = open_session(locate_builtin() / "model.onnx", format="int8")
    assert (session.got, set(session.nodes_by_provider())) == ("cpu", {"cpu"})


def test_doctor_says_that_cuda_works(capsys: pytest.CaptureFixture[str]) -> None:
    main(["doctor", "--json"])
    checks = {check["name"]: check for check in json.loads(capsys.readouterr().out)["checks"]}
    assert "works" in checks["CUDA"]["detail"]
