"""Engines on a CUDA device: placement proved node by node, results against the same references as on the CPU."""

import json
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from msgspec.structs import replace

from qmd.cli.app import main
from qmd.inference.engines.bulk_embedding import SAME_VECTORS, BulkEmbedder
from qmd.inference.engines.encoder_graph import BATCH_TOKENS, BatchRuns
from qmd.inference.loader import load_engines
from qmd.inference.models.builtin import locate_builtin
from qmd.inference.models.catalogue import QWEN_RERANKER
from qmd.inference.runtime.gpu_memory import GpuUse, memory_now
from qmd.inference.runtime.sessions import Session, cuda_verdict, cuda_works, open_session
from qmd.inference.settings import EngineSettings
from qmd.plugins.doctor.inspection import operators_on_cpu
from qmd.plugins.qwen.cross_encoder import load_cross_encoder
from qmd.plugins.qwen.decoding import Decoder
from tests.benchmarks import bench_cuda
from tests.benchmarks.bench_cuda import manual
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
    assert (session.preferred, session.got, session.note) == ("cuda", "cuda", None)
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


@pytest.fixture
def bulk(tmp_path: Path) -> BulkEmbedder:
    """Open the built-in model as every command opens it on this machine."""
    embedder = load_engines(EngineSettings(tmp_path), ["embed"]).embedder
    assert isinstance(embedder, BulkEmbedder)
    return embedder


def test_the_built_in_model_embeds_many_documents_on_the_device(bulk: BulkEmbedder) -> None:
    texts = manual(600)
    on_gpu = bulk.embed_documents(texts)
    assert (bulk.description.provider, bulk.description.note) == ("cuda", None)
    on_cpu = bulk.inner.embed_documents(texts[:300])
    cosines = (on_gpu[:300] * on_cpu).sum(axis=1)
    print(f"cosine of the GPU's vectors to the CPU's: mean {cosines.mean():.5f}, lowest {cosines.min():.5f}")
    assert cosines.mean() >= SAME_VECTORS
    assert cosines.min() >= 0.99


def test_every_product_of_the_batches_is_on_the_device(bulk: BulkEmbedder) -> None:
    bulk.open_now(manual(32))
    assert bulk.runs is not None and bulk.cosine >= SAME_VECTORS
    assert operators_on_cpu(bulk.runs.session) == {}


def test_a_half_precision_encoder_runs_on_the_device_and_on_the_cpu_with_the_same_vectors(tmp_path: Path) -> None:
    shutil.copy(locate_builtin() / "tokenizer.json", tmp_path)
    # A float graph with separate tensors replaces a model of the user's own.
    shutil.copy(locate_builtin() / "model.onnx", tmp_path / "model.onnx")
    shutil.copy(locate_builtin() / "model_batches.onnx", tmp_path / "model_fp16.onnx")
    (tmp_path / "config.json").write_text('{"max_position_embeddings": 256}')
    texts = manual(200)
    settings = EngineSettings(tmp_path, embed=str(tmp_path))
    on_gpu = load_engines(settings, ["embed"]).embedder
    on_cpu = load_engines(replace(settings, allow_gpu=False), ["embed"]).embedder
    assert on_gpu is not None and on_cpu is not None
    assert (on_gpu.description.provider, on_cpu.description.provider) == ("cuda", "cpu")
    assert on_gpu.fingerprint == on_cpu.fingerprint
    # CUDA rounds products of a float graph to 11 bits here; this graph, made of roundings, shows it most.
    assert (on_gpu.embed_documents(texts) * on_cpu.embed_documents(texts)).sum(axis=1).mean() >= 0.98


def test_every_point_of_the_table_passes_on_the_device(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = bench_cuda.Plan(tmp_path, is_tiny=True, texts=600, queries=5)
    bench_cuda.build(plan)
    rows = list(bench_cuda.measure(plan))
    with capsys.disabled():
        print(capsys.readouterr().out)
    assert [row for row in rows if not row.passes] == []


def test_the_driver_tells_the_memory_of_the_device() -> None:
    memory = memory_now(0)
    assert memory is not None
    assert 0 < memory.free_bytes <= memory.total_bytes


def test_a_session_keeps_to_its_share_and_a_batch_beyond_it_is_halved() -> None:
    """The limit excludes 16,384 padded tokens: the first halving, by the real allocator."""
    use = GpuUse("embed", all_roles_mib=1000, needs_fp32=True)
    session = open_session(locate_builtin() / "model_batches.onnx", format="fp32", fuse=False, gpu=use)
    assert session.got == "cuda", session.note
    runs = BatchRuns(session)
    ids = [[101, *range(2000, 2254), 102]] * 128
    assert len(list(runs.run(ids))) == 128
    assert runs.batch_tokens < BATCH_TOKENS


def test_a_limit_below_the_weights_leaves_the_model_to_the_cpu_with_the_reason() -> None:
    gpu = GpuUse("embed", all_roles_mib=20)
    session = open_session(locate_builtin() / "model_batches.onnx", format="fp32", fuse=False, gpu=gpu)
    assert session.got == "cpu"
    assert session.note is not None and "does not fit in the GPU's memory" in session.note


def test_an_impossible_allocation_is_out_of_memory_and_the_cpu_goes_on(bulk: BulkEmbedder) -> None:
    texts = manual(300)
    bulk.embed_documents(texts)
    assert bulk.runs is not None
    use = GpuUse("embed", all_roles_mib=300, needs_fp32=True)
    small = open_session(locate_builtin() / "model_batches.onnx", format="fp32", fuse=False, gpu=use)
    if small.got == "cpu":
        pytest.skip(f"the weights alone do not fit: {small.note}")
    bulk.runs = BatchRuns(small)
    assert np.isfinite(bulk.embed_documents(texts)).all()


def test_all_three_sessions_of_one_process_fit_side_by_side(tmp_path: Path) -> None:
    embedder = load_engines(EngineSettings(tmp_path), ["embed"]).embedder
    assert embedder is not None
    embedder.embed_documents(manual(300))
    for name, form in (("a", Q4F16), ("b", replace(PUBLISHED, head="score", past=False, positions=False))):
        write_model(tmp_path / name / "model.onnx", form, random_weights())
    decoder = Decoder(open_session(tmp_path / "a" / "model.onnx", format="q4f16", gpu=GpuUse("expand")))
    scorer = open_session(tmp_path / "b" / "model.onnx", format="fp32", gpu=GpuUse("rerank"))
    assert (decoder.session.got, scorer.got) == ("cuda", "cuda")
    assert np.isfinite(decoder.open_context(32).append([IDS])).all()
    assert embedder.embed_documents(manual(120)).shape == (120, 384)


def test_key_value_memory_is_zero_before_the_first_token(decoder: tuple[Decoder, Weights]) -> None:
    engine, weights = decoder
    # A new context may get memory that another tensor filled with NaN and freed.
    garbage = np.full((1, 2, 4096, 32), np.nan, np.float16)
    value = onnxruntime.OrtValue.ortvalue_from_numpy(garbage, "cuda", 0)
    del value
    logits = engine.open_context(4096).append([IDS])
    assert np.abs(logits[0] - reference_logits(weights, IDS)[-1]).max() < TOLERANCE


def test_doctor_tells_memory_bulk_embedding_and_what_was_left_to_the_cpu(capsys: pytest.CaptureFixture[str]) -> None:
    main(["doctor", "--json"])
    found = json.loads(capsys.readouterr().out)
    checks = {check["name"]: check for check in found["checks"]}
    assert "MiB in use" in checks["CUDA"]["detail"]
    (embed,) = [row for row in found["engines"] if row["role"] == "embed"]
    assert "run on cuda" in embed["bulk"]
