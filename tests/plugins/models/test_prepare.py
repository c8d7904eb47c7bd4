import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from qmd.errors import ModelError, UsageError
from qmd.inference.models import prepared
from qmd.inference.models.builtin import MINILM
from qmd.inference.models.catalogue import QWEN_EXPANDER, QWEN_RERANKER
from qmd.inference.models.prepared import form_to_make, forms_for, has_byte_products, prepared_forms, prepared_notes
from qmd.inference.models.weights_choice import choose_weights, form_note
from qmd.inference.records import ModelRecord
from qmd.inference.runtime.sessions import byte_sums_are_exact
from qmd.inference.settings import EngineSettings
from qmd.plugins.models.formats.graph_weights import GraphWeights
from qmd.plugins.models.formats.preparing import prepare_model
from qmd.plugins.models.formats.quantize import FINER, quantize_blocks, quantize_rows
from qmd.plugins.models.formats.self_check import Agreement, compare_logits, compare_scores
from qmd.plugins.qwen.cross_encoder import load_cross_encoder
from qmd.plugins.qwen.expansion import load_expander
from tests.inference.exported_graphs import ExportForm, PlainWriter, PublishedWriter
from tests.inference.tiny_models import PUBLISHED, SHAPE, dequantize_blocks, random_weights, write_model
from tests.inference.tiny_tokenizer import write_tokenizer

PUBLISHED_SCORE = replace(PUBLISHED, head="score", past=False, positions=False)
FORMS: dict[str, tuple[ExportForm, type[PublishedWriter]]] = {
    "fp32": (PUBLISHED, PublishedWriter),
    "fp16": (replace(PUBLISHED, activations="fp16"), PlainWriter),
    "score": (PUBLISHED_SCORE, PublishedWriter),
}


def _folder(path: Path, record: ModelRecord, form: ExportForm) -> Path:
    write_tokenizer(path)
    source = next(item for item in record.formats if item.name == "fp16")
    write_model(path / source.weights.path, form, random_weights())
    return path


@settings(max_examples=30)
@given(st.sampled_from([4, 8]), st.sampled_from([16, 32, 64]), st.integers(0, 2**32 - 1))
def test_blocks_come_back_within_a_few_steps(bits: int, block: int, seed: int) -> None:
    weight = np.random.default_rng(seed).standard_normal((5, 128)).astype(np.float32)
    held = quantize_blocks(weight, bits, block)
    back = dequantize_blocks(held.packed, held.scales, bits=bits, block=block, k=128)
    # At 4 bits a scale may be shrunk by 12 %: a value of level 8 then asks for level 9.1, and the largest is 7.
    step = np.abs(held.scales).repeat(block, axis=1)
    assert (np.abs(back - weight) <= 2.2 * step).all()
    assert held.packed.shape == (5, 128 // block, block * bits // 8)
    assert held.shape == (5, 128)


def test_four_bits_beat_plain_rounding_in_squared_error() -> None:
    weight = np.random.default_rng(0).standard_normal((64, 128)).astype(np.float32)
    held = quantize_blocks(weight, 4, 32)
    back = dequantize_blocks(held.packed, held.scales, bits=4, block=32, k=128)
    blocks = weight.reshape(64, 4, 32)
    scale = np.take_along_axis(blocks, np.abs(blocks).argmax(-1)[..., None], -1) / -8
    plain = np.clip(np.rint(blocks / scale), -8, 7) * scale
    assert np.square(back - weight).sum() < np.square(plain.reshape(64, 128) - weight).sum()


def test_zero_weights_stay_zero() -> None:
    held = quantize_blocks(np.zeros((2, 32), np.float32), 4, 32)
    assert not dequantize_blocks(held.packed, held.scales, bits=4, block=32, k=32).any()
    terms, scales = quantize_rows(np.zeros((2, 8), np.float32), 2)
    assert not np.any(terms) and (scales > 0).all()


@pytest.mark.parametrize(("terms", "steps"), [(1, 127), (2, 127 * FINER)])
def test_rows_come_back_within_half_a_step_of_their_last_term(terms: int, steps: int) -> None:
    weight = np.random.default_rng(1).standard_normal((7, 300)).astype(np.float32)
    values, scales = quantize_rows(weight, terms)
    assert [term.dtype for term in values] == [np.int8] * terms and np.abs(values).max() == 127
    back = sum(term * scales[:, None] / FINER**index for index, term in enumerate(values))
    assert (np.abs(back - weight) <= 0.501 * np.abs(weight).max(1, keepdims=True) / steps).all()


def test_a_block_that_does_not_divide_the_width_is_refused() -> None:
    with pytest.raises(ValueError, match="blocks of 32"):
        quantize_blocks(np.zeros((2, 48), np.float32), 4, 32)


@pytest.mark.parametrize("case", FORMS)
def test_weights_are_read_back_from_a_published_graph(tmp_path: Path, case: str) -> None:
    form, writer = FORMS[case]
    held = write_model(tmp_path / "model.onnx", form, random_weights(), writer=writer)
    weights = GraphWeights(tmp_path / "model.onnx")
    # The head is tied to the table in every case, and the score head exists only where it is asked for.
    expected = {name for name in held if name not in ("head", "score")} | ({"score"} if form.head == "score" else set())
    assert set(weights) == expected
    for name in expected:
        assert np.array_equal(weights[name], held[name]), name


def test_the_sizes_are_inferred_and_the_configuration_is_heard(tmp_path: Path) -> None:
    write_model(tmp_path / "onnx" / "model.onnx", PUBLISHED, random_weights())
    inferred = GraphWeights(tmp_path / "onnx" / "model.onnx").shape
    assert replace(inferred, max_positions=SHAPE.max_positions) == replace(SHAPE, eps=inferred.eps)
    assert inferred.eps == pytest.approx(1e-6)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen3", "rope_theta": 5e5}), "utf-8")
    assert GraphWeights(tmp_path / "onnx" / "model.onnx").shape.rope_theta == 5e5


def test_an_untied_head_is_kept(tmp_path: Path) -> None:
    held = write_model(tmp_path / "model.onnx", PUBLISHED, random_weights(tied=False))
    assert np.array_equal(GraphWeights(tmp_path / "model.onnx")["head"], held["head"])


def test_fused_projections_are_cut_apart(tmp_path: Path) -> None:
    class FusedNames(PublishedWriter):
        def node_name(self, index: int, part: str) -> str:
            return f"/model/layers.{index}/attn/{ {'q_k_v': 'qkv', 'gate_up': 'gate_up'}.get(part, part) }_proj/MatMul"

    form = replace(PUBLISHED, fused=True)
    held = write_model(tmp_path / "model.onnx", form, random_weights(), writer=FusedNames)
    weights = GraphWeights(tmp_path / "model.onnx")
    for name in ("layers.0.q", "layers.1.k", "layers.0.v", "layers.1.gate", "layers.0.up"):
        assert np.array_equal(weights[name], held[name])


def test_a_graph_of_another_kind_is_refused_in_one_line(tmp_path: Path) -> None:
    class Nameless(PublishedWriter):
        def node_name(self, index: int, part: str) -> str:
            return self.name("node")

    write_model(tmp_path / "model.onnx", PUBLISHED, random_weights(), writer=Nameless)
    with pytest.raises(ModelError, match="not found"):
        GraphWeights(tmp_path / "model.onnx")
    (tmp_path / "cut.onnx").write_bytes((tmp_path / "model.onnx").read_bytes()[:1000])
    with pytest.raises(ModelError) as caught:
        GraphWeights(tmp_path / "cut.onnx")
    assert "\n" not in caught.value.message


def test_another_architecture_is_refused(tmp_path: Path) -> None:
    write_model(tmp_path / "model.onnx", PUBLISHED, random_weights())
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}), "utf-8")
    with pytest.raises(ModelError, match="not a plain Qwen3"):
        GraphWeights(tmp_path / "model.onnx")


@pytest.mark.parametrize(("form", "difference"), [("q8", 2e-2), ("i16w8", 1e-2), ("i16w16", 4e-3), ("fp32", 4e-3)])
def test_a_prepared_reranker_is_taken_and_scores_as_published(tmp_path: Path, form: str, difference: float) -> None:
    if form not in forms_for(QWEN_RERANKER):
        pytest.skip("this processor's sums of bytes saturate")
    folder = _folder(tmp_path, QWEN_RERANKER, replace(PUBLISHED_SCORE, activations="fp16"))
    engine_settings = EngineSettings(tmp_path, allow_gpu=False, threads=1)
    passages = ["the first passage", "no", "a much longer third passage with other words"]
    before = load_cross_encoder(folder, QWEN_RERANKER, engine_settings)
    (made,) = prepare_model(QWEN_RERANKER, folder, forms=[form], threads=1)
    after = load_cross_encoder(folder, QWEN_RERANKER, engine_settings)
    assert made.reason is None
    assert (before.description.format, after.description.format) == ("fp16", form)
    assert after.score("query", passages) == pytest.approx(before.score("query", passages), abs=difference)
    manifest = json.loads((made.path / "manifest.json").read_text("utf-8"))
    assert len(manifest["source_sha256"]) == 64 and manifest["agreement"]["tau"] >= 0.9


def test_what_an_older_version_made_is_cleared_away_when_a_form_is_made(tmp_path: Path) -> None:
    folder = _folder(tmp_path, QWEN_RERANKER, PUBLISHED_SCORE)
    (folder / "prepared/w8a8").mkdir(parents=True)
    (folder / "prepared/w8a8/manifest.json").write_text('{"files": []}', "utf-8")
    prepare_model(QWEN_RERANKER, folder, forms=["q8"], threads=1)
    assert [path.name for path in (folder / "prepared").iterdir()] == ["q8"]


def test_a_prepared_decoder_expands_and_is_taken(tmp_path: Path) -> None:
    folder = _folder(tmp_path, QWEN_EXPANDER, replace(PUBLISHED, activations="fp16"))
    (made,) = prepare_model(QWEN_EXPANDER, folder, threads=1)
    assert made.reason is None
    expander = load_expander(folder, QWEN_EXPANDER, EngineSettings(tmp_path, allow_gpu=False, threads=1))
    assert expander.description.format == "q4"
    found = expander.expand("query")
    assert len(found.subqueries) + len(found.dropped) == 4


def test_preparing_again_replaces_the_form(tmp_path: Path) -> None:
    folder = _folder(tmp_path, QWEN_RERANKER, PUBLISHED_SCORE)
    prepare_model(QWEN_RERANKER, folder, forms=["q8"], threads=1)
    first = (folder / "prepared/q8/manifest.json").read_text("utf-8")
    prepare_model(QWEN_RERANKER, folder, forms=["q8"], threads=1)
    assert (folder / "prepared/q8/manifest.json").read_text("utf-8") == first
    assert [path.name for path in (folder / "prepared").iterdir()] == ["q8"]


def test_a_form_that_disagrees_is_not_kept(tmp_path: Path) -> None:
    # With a wrong rotary base in the configuration, the prepared graph computes something else.
    folder = _folder(tmp_path, QWEN_EXPANDER, PUBLISHED)
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen3", "rope_theta": 2.0}), "utf-8")
    (made,) = prepare_model(QWEN_EXPANDER, folder, forms=["q8"], threads=1)
    assert made.agreement.correlation < 0.98
    assert made.reason is not None
    assert [path.name for path in made.path.iterdir()] == ["manifest.json"]
    (held,) = prepared_forms(QWEN_EXPANDER, folder)
    assert held.fault == f"the self-check refused it: {made.reason}"
    assert choose_weights(folder, QWEN_EXPANDER, allow_gpu=False).format == "fp32"


def test_a_refused_form_is_not_tried_again_unasked_and_leaves_one_that_agreed_alone(tmp_path: Path) -> None:
    folder = _folder(tmp_path, QWEN_RERANKER, PUBLISHED_SCORE)
    wanted = form_to_make(QWEN_RERANKER, folder, has_cuda=False)
    assert wanted is not None and form_to_make(QWEN_RERANKER, folder, has_cuda=True) is None
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen3", "rope_theta": 2.0}), "utf-8")
    (made,) = prepare_model(QWEN_RERANKER, folder, forms=[wanted], threads=1)
    assert made.reason is not None
    assert form_to_make(QWEN_RERANKER, folder, has_cuda=False) is None
    (folder / "config.json").unlink()
    (made,) = prepare_model(QWEN_RERANKER, folder, forms=[wanted], threads=1)
    assert made.reason is None
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen3", "rope_theta": 2.0}), "utf-8")
    (refused,) = prepare_model(QWEN_RERANKER, folder, forms=[wanted], threads=1)
    assert refused.reason is not None
    assert choose_weights(folder, QWEN_RERANKER, allow_gpu=False).path == made.path / "model.onnx"


def test_a_refusal_by_another_version_of_qmd_or_of_another_file_holds_no_more(tmp_path: Path) -> None:
    folder = _folder(tmp_path, QWEN_RERANKER, PUBLISHED_SCORE)
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen3", "rope_theta": 2.0}), "utf-8")
    (made,) = prepare_model(QWEN_RERANKER, folder, threads=1)
    manifest = json.loads((made.path / "manifest.json").read_text("utf-8"))
    for change in ({"qmd": "0.0.1"}, {"source_bytes": 1}):
        (made.path / "manifest.json").write_text(json.dumps(manifest | change), "utf-8")
        assert form_to_make(QWEN_RERANKER, folder, has_cuda=False) == made.name


def test_a_form_made_of_quantised_weights_by_an_older_version_is_used_no_more(tmp_path: Path) -> None:
    folder = _folder(tmp_path, QWEN_EXPANDER, replace(PUBLISHED, activations="fp16"))
    (made,) = prepare_model(QWEN_EXPANDER, folder, threads=1)
    old = next(item.weights.path for item in QWEN_EXPANDER.formats if item.name == "q4f16")
    (folder / QWEN_EXPANDER.formats[-1].weights.path).rename(folder / old)
    manifest = json.loads((made.path / "manifest.json").read_text("utf-8"))
    (made.path / "manifest.json").write_text(json.dumps(manifest | {"source": old}), "utf-8")
    assert choose_weights(folder, QWEN_EXPANDER, allow_gpu=False).path == folder / old
    assert choose_weights(folder, QWEN_EXPANDER, allow_gpu=False, form="q4").path == folder / old
    assert "made of quantised weights" in (form_note(folder, QWEN_EXPANDER, "q4") or "")
    assert prepared_notes(QWEN_EXPANDER, folder) == ()


def test_no_form_is_made_of_quantised_weights(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    for name in ("q4", "q4f16"):
        path = next(item.weights.path for item in QWEN_EXPANDER.formats if item.name == name)
        write_model(tmp_path / path, replace(PUBLISHED, linear="q4"), random_weights())
    with pytest.raises(ModelError, match=r"quantised already \(q4f16, q4\)") as caught:
        prepare_model(QWEN_EXPANDER, tmp_path, threads=1)
    assert "\n" not in caught.value.message and "prepare" not in (caught.value.hint or "")
    assert not (tmp_path / "prepared").exists()


def test_a_file_that_says_it_is_exact_and_is_not_is_refused(tmp_path: Path) -> None:
    folder = _folder(tmp_path, QWEN_EXPANDER, replace(PUBLISHED, linear="q4"))
    with pytest.raises(ModelError, match="are quantised"):
        prepare_model(QWEN_EXPANDER, folder, threads=1)


def test_progress_is_reported_as_steps_that_count_up(tmp_path: Path) -> None:
    folder = _folder(tmp_path, QWEN_RERANKER, PUBLISHED_SCORE)
    told: list[tuple[str, int, int]] = []
    prepare_model(
        QWEN_RERANKER, folder, forms=["q8"], threads=1, on_progress=lambda what, done, of: told.append((what, done, of))
    )
    steps = list(dict.fromkeys(what for what, _, _ in told))
    assert steps == ["running the published", "writing q8", "checking q8"]
    for step in steps:
        done = [(count, total) for what, count, total in told if what == step]
        assert done == sorted(done) and done[-1][0] == done[-1][1]


def test_an_unknown_form_and_a_model_without_forms_are_wrong_usage(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        prepare_model(QWEN_RERANKER, tmp_path, forms=["q4"])
    assert all(name in (caught.value.hint or "") for name in ("q8", "fp32"))
    with pytest.raises(UsageError):
        prepare_model(MINILM, tmp_path, forms=["q8"])


def test_a_folder_without_the_published_file_names_the_command(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    with pytest.raises(ModelError) as caught:
        prepare_model(QWEN_RERANKER, tmp_path)
    assert "models pull" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("cpuinfo", "expected"),
    [
        ("processor\t: 0\nflags\t\t: fpu avx2 avx512_vnni\n", [True, True]),
        ("flags\t\t: fpu avx avx2\n", [False, False]),
        # If no file states it, a product is tried.
        ("Features\t: fp asimd asimddp\n", [True, False]),
        (None, [True, False]),
    ],
)
def test_a_processor_without_vnni_is_recognised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cpuinfo: str | None, expected: list[bool]
) -> None:
    if cpuinfo is not None:
        (tmp_path / "cpuinfo").write_text(cpuinfo)
    found = []
    for is_exact in (True, False):
        monkeypatch.setattr(prepared, "byte_sums_are_exact", lambda value=is_exact: value)
        found.append(has_byte_products(tmp_path / "cpuinfo"))
    assert found == expected


@pytest.mark.skipif(not Path("/proc/cpuinfo").exists(), reason="no file tells the processor's features here")
def test_what_is_tried_agrees_with_what_the_processor_says() -> None:
    assert byte_sums_are_exact() == has_byte_products()


def test_agreement_of_scores_is_perfect_with_itself_and_refused_when_reversed() -> None:
    scores = np.linspace(-2, 2, 10, dtype=np.float32)[:, None]
    same = compare_scores(scores, scores)
    assert same == Agreement(same.correlation, 1.0, None)
    assert same.correlation == pytest.approx(1.0)
    reversed_ = compare_scores(scores, scores[::-1])
    assert reversed_.tau == -1.0
    assert reversed_.refusal("q8") is not None


def test_numbers_that_are_none_are_refused() -> None:
    logits = np.full((3, 5), np.nan, np.float32)
    assert compare_logits(np.ones((3, 5), np.float32), logits).refusal("q4") is not None
