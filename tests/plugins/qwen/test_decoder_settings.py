"""Settings that users of llama.cpp know: each acts on the engine that runs, or reports why not."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from qmd.errors import ModelError
from qmd.inference.models.catalogue import QWEN_EXPANDER, QWEN_RERANKER
from qmd.inference.models.stored_types import Network, read_network
from qmd.inference.settings import EngineSettings
from qmd.plugins.models.formats.importing import import_weights
from qmd.plugins.qwen.cross_encoder import QwenReranker, SharedPrefixRunner, load_cross_encoder
from qmd.plugins.qwen.expansion import QwenExpander, load_expander
from qmd.plugins.qwen.kv_context import InPlaceContext
from tests.inference.exported_graphs import ExportForm
from tests.inference.tiny_models import PUBLISHED, SHAPE, random_weights, write_model
from tests.inference.tiny_tokenizer import write_tokenizer
from tests.plugins.models.gguf_files import write_qwen3
from tests.program import Qmd

OWN = ExportForm(linear="q8", table="q8", block=32)
HELD = SHAPE.max_positions


def expander(folder: Path, options: Mapping[str, str], env: Mapping[str, str] | None = None) -> QwenExpander:
    write_tokenizer(folder)
    write_model(folder / "model.onnx", OWN, random_weights())
    settings = EngineSettings(folder, options=options, env=env or {}, allow_gpu=False, threads=1)
    return load_expander(folder, QWEN_EXPANDER, settings)


def reranker(folder: Path, options: Mapping[str, str], env: Mapping[str, str] | None = None) -> QwenReranker:
    write_tokenizer(folder)
    write_model(folder / "model.onnx", replace(OWN, head="score"), random_weights())
    settings = EngineSettings(folder, options=options, env=env or {}, allow_gpu=False, threads=1)
    return load_cross_encoder(folder, QWEN_RERANKER, settings)


@pytest.mark.parametrize("by", ["configuration", "environment"])
def test_the_context_of_an_expander_is_the_room_of_its_cache_and_bounds_the_query(tmp_path: Path, by: str) -> None:
    usual = expander(tmp_path / "usual", {})
    asked = str(usual.context - 100)
    options = {"generate.context": asked} if by == "configuration" else {}
    small = expander(tmp_path / "small", options, {} if options else {"QMD_EXPAND_CONTEXT_SIZE": asked})
    longest = []
    for engine in (usual, small):
        engine.expand("word " * 500, is_cancelled=lambda: True)
        context = engine._context
        assert isinstance(context, InPlaceContext)
        assert context.capacity == context._arrays[0].shape[2] == engine.context
        longest.append(context.lengths[0])
    assert longest[1] == longest[0] - 100 == small.context - (usual.context - longest[0])


def test_the_context_of_a_reranker_bounds_its_longest_prompt_and_cache(tmp_path: Path) -> None:
    wide = reranker(tmp_path / "wide", {"rerank.context": "1000"})
    small = reranker(tmp_path / "small", {}, {"QMD_RERANK_CONTEXT_SIZE": "760"})
    assert reranker(tmp_path / "own", {"rerank.context": "760"}).prompt == small.prompt
    text = "word " * 1000
    for engine, least in ((wide, 900), (small, 700)):
        assert least < len(engine.prompt.prefix(text, text)) + len(engine.prompt.ending(text)) <= engine.context
        engine.score(text, [text], intent=text)
        assert isinstance(engine._runner, SharedPrefixRunner)
    assert (wide.context, small.context) == (1000, 760)
    assert [engine._runner._capacity for engine in (wide, small)] == [1024, 768]  # type: ignore[attr-defined]


@pytest.mark.parametrize("value", ["12", str(HELD + 1), "many", "-1", "1" * 5000])
def test_a_context_that_the_graph_does_not_hold_is_one_line_with_what_it_holds(tmp_path: Path, value: str) -> None:
    with pytest.raises(
        ModelError, match=rf"^'generate.context' is '{value[:20]}.*', expected \d+ to {HELD}$"
    ) as caught:
        expander(tmp_path, {"generate.context": value})
    assert caught.value.hint == "correct models.generate.context in index.yml"
    with pytest.raises(ModelError) as caught:
        reranker(tmp_path, {}, {"QMD_RERANK_CONTEXT_SIZE": value})
    assert caught.value.hint == "correct QMD_RERANK_CONTEXT_SIZE" and len(caught.value.message) < 200
    assert expander(tmp_path, {"generate.context": str(HELD)}).context == HELD


def test_the_tokens_of_all_lines_are_shared_out_as_usual(tmp_path: Path) -> None:
    usual, half = expander(tmp_path, {}), expander(tmp_path, {"generate.max_tokens": "54"})
    budgets = [[branch.max_tokens for branch in engine._options.branches] for engine in (usual, half)]
    assert budgets == [[16, 16, 28, 48], [8, 8, 14, 24]]
    letters = []
    for engine in (usual, half):
        engine._grammar._open[sorted(engine._grammar.end_ids)] = False  # no line ends before its budget
        found = engine.expand("first query")
        texts = [item.text for item in found.subqueries] + [text for text, _ in found.dropped]
        letters.append(sum(map(len, texts)))
    assert letters[1] < 0.7 * letters[0]
    with pytest.raises(ModelError, match=r"'generate.max_tokens' is '9', expected 32 to 512"):
        expander(tmp_path, {"generate.max_tokens": "9"})


def test_threads_are_those_of_the_configuration_and_the_embedders_its_own() -> None:
    settings = EngineSettings(Path(), options={"threads": "3"}, env={"QMD_EMBED_PARALLELISM": "2"})
    assert [settings.threads_for(role) for role in ("embed", "rerank", "expand")] == [2, 3, 3]
    assert EngineSettings(Path(), options={"embed.threads": "5"}, env=settings.env).threads_for("embed") == 5
    with pytest.raises(ModelError, match="'threads' is '0', expected 1 to 256"):
        EngineSettings(Path(), options={"threads": "0"}).threads_for("expand")


def test_the_threads_asked_for_are_those_of_the_session(tmp_path: Path) -> None:
    opened = expander(tmp_path, {"threads": "2"}).session.ort
    assert opened.get_session_options().intra_op_num_threads == 2


@pytest.mark.parametrize(
    ("options", "env", "is_allowed"),
    [
        ({"gpu_layers": "0"}, {}, False),
        ({"gpu_layers": "12"}, {}, True),
        ({"gpu_layers": "all"}, {}, True),
        ({"gpu_layers": "-1"}, {"QMD_LLAMA_GPU": "cuda"}, True),
        ({}, {"QMD_LLAMA_GPU": "off"}, False),
        ({}, {"QMD_LLAMA_GPU": "vulkan"}, True),
    ],
)
def test_layers_are_put_on_the_gpu_all_or_none(options: dict[str, str], env: dict[str, str], is_allowed: bool) -> None:
    assert EngineSettings(Path(), options=options, env=env).gpu_allowed is is_allowed


def test_a_number_of_layers_that_is_none_is_refused() -> None:
    with pytest.raises(ModelError, match="'gpu_layers' is 'some', expected 0 to 9999"):
        _ = EngineSettings(Path(), options={"gpu_layers": "some"}).gpu_allowed


@pytest.mark.parametrize(
    ("form", "bits"),
    [
        (PUBLISHED, 32.0),
        (replace(PUBLISHED, linear="q4"), 9.75),
        (replace(PUBLISHED, activations="fp16", linear="q4"), 6.5),
        (OWN, 9.1),
        (replace(OWN, linear="i16w8"), 10.2),
        (replace(OWN, linear="i16w16"), 15.2),
    ],
    ids=["fp32", "q4", "q4f16", "q8", "i16w8", "i16w16"],
)
def test_sizes_and_parameters_of_a_network_are_in_its_graph(tmp_path: Path, form: ExportForm, bits: float) -> None:
    weights = random_weights()
    write_model(tmp_path / "model.onnx", form, weights, external=True)
    (tmp_path / "config.json").write_text('{"rope_theta": 1e6, "hidden_size": 7}')
    found = read_network(tmp_path / "model.onnx", tmp_path)
    sizes = (found.layers, found.heads, found.kv_heads, found.width, found.positions, found.rope_base)
    assert sizes == (SHAPE.layers, SHAPE.heads, SHAPE.kv_heads, SHAPE.hidden, HELD, 1_000_000)
    n_parameters = sum(weight.size for name, weight in weights.items() if name != "score")
    assert found.parameters == pytest.approx(n_parameters, rel=0.01)
    assert found.bits_per_weight == pytest.approx(bits, abs=0.5)


def test_an_import_keeps_what_its_file_held(tmp_path: Path) -> None:
    write_qwen3(tmp_path / "m.gguf", "Q8_0")
    made = import_weights(tmp_path / "m.gguf", tmp_path / "models")
    assert made.model.number_formats[0] == "Q8_0"
    assert read_network(made.folder / "model.onnx", made.folder).rope_base == 1_000_000


@pytest.mark.parametrize("config", ["[]", '{"rope_theta": "x"}', '{"hidden_size": 1e400}', "{" * 9999])
def test_nothing_a_stranger_writes_into_a_config_breaks_it(tmp_path: Path, config: str) -> None:
    (tmp_path / "config.json").write_text(config)
    (tmp_path / "model.onnx").write_bytes(b"")
    assert read_network(tmp_path / "model.onnx", tmp_path) == Network()


def test_a_graph_of_absurd_sizes_and_missing_inputs_is_read_in_bounds(tmp_path: Path) -> None:
    from qmd.inference.onnx_files import encode
    from qmd.plugins.onnx.model import Graph, Model, Node, Tensor, attribute

    tensors = tuple(Tensor(name=f"t{n}.w", dims=(2**62, 2**62, -1 if n else 2**62), data_type=2) for n in range(3))
    kinds = ("MatMulNBits", "GroupQueryAttention", "GatherBlockQuantized", "LayerNormalization")
    nodes = tuple(Node(op_type=kind, input=("t0.w",), attribute=(attribute("bits", -7),)) for kind in kinds)
    (tmp_path / "model.onnx").write_bytes(encode(Model(graph=Graph(node=nodes, initializer=tensors))))
    found = read_network(tmp_path / "model.onnx", tmp_path)
    assert found.parameters is not None and found.parameters <= 8 << 48


def settings_of(qmd: Qmd, tmp_path: Path, written: str) -> dict[str, Any]:
    config = tmp_path / "config" / "qmd" / "index.yml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(f"models: {{{written}}}\n")
    found = qmd("doctor", "--json").json
    return {row["name"]: row["overruled_by"] for row in (*found["settings"], *found["variables"])}


def test_a_setting_without_effect_here_says_so(qmd: Qmd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QMD_RERANK_CONTEXT_SIZE", "900")
    said = settings_of(qmd, tmp_path, "generate: {max_tokens: 60}, threads: 1, embed: {model: built-in, threads: 1}")
    assert said["models.generate.max_tokens"] == said["QMD_RERANK_CONTEXT_SIZE"] == "no decoder runs here in this role"
    assert said["models.threads"] is said["models.embed.threads"] is None


def test_a_context_that_holds_is_shown_with_its_cache_and_a_wrong_one_with_its_bounds(qmd: Qmd, tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "qmd" / "models" / QWEN_EXPANDER.folder
    write_tokenizer(folder)
    write_model(folder / QWEN_EXPANDER.formats[1].weights.path, OWN, random_weights())
    assert settings_of(qmd, tmp_path, "generate: {context: 1000}")["models.generate.context"] is None
    (row,) = [row for row in qmd("doctor", "--json").json["engines"] if row["role"] == "expand"]
    assert (row["context_tokens"], row["kv_bytes"]) == (1000, 1000 * row["kv_bytes_per_token"])
    assert (row["heads"], row["kv_heads"], row["width"], row["kv_type"]) == (4, 2, 64, "float32")
    settings_of(qmd, tmp_path, "generate: {context: 5}")
    assert "'generate.context' is '5', expected" in (said := qmd("doctor").out)
    assert f" to {HELD}; correct models.generate.context in index.yml\n" in said
