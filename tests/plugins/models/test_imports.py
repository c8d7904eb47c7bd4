"""Models made from files of other programs: they compute with the file's weights, and are complete or absent."""

import json
import shlex
import shutil
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt
import onnx
import pytest
from msgspec import Struct

from qmd.errors import BusyError, ModelError, NotFoundError, UsageError
from qmd.files import exclusive_lock
from qmd.inference.engines.embedder import load_embedder
from qmd.inference.loader import choose_model, identify_embedder, load_engines
from qmd.inference.models.catalogue import JINA_ZH
from qmd.inference.models.imported import find_imported
from qmd.inference.records import Role
from qmd.inference.runtime.sessions import open_session
from qmd.inference.settings import EngineSettings
from qmd.plugins.models.fetch.archives import export_model, import_model
from qmd.plugins.models.formats.graph_writer import Qwen3Shape
from qmd.plugins.models.formats.importing import import_weights
from qmd.plugins.models.formats.network_files import guess_role
from qmd.plugins.models.formats.sources import (
    find_cached_file,
    find_files,
    find_ollama,
    import_sources,
    importable_files,
    model_name,
)
from qmd.plugins.models.inventory import list_models, remove_model, verify_model
from qmd.plugins.qwen.cross_encoder import load_cross_encoder
from qmd.plugins.qwen.decoding import Decoder
from qmd.plugins.qwen.expansion import load_expander
from tests.inference.tiny_models import reference_logits
from tests.inference.tiny_tokenizer import write_tokenizer
from tests.plugins.models.gguf_files import (
    FFN,
    HEAD_SIZE,
    HEADS,
    HIDDEN,
    KV_HEADS,
    LAYERS,
    VOCAB,
    Floats,
    finish,
    gemma_vectors,
    write_gemma,
    write_qwen3,
)
from tests.plugins.models.safetensors_files import QWEN3_PARTS, write_safetensors

SHAPE = Qwen3Shape(
    layers=LAYERS, hidden=HIDDEN, heads=HEADS, kv_heads=KV_HEADS, head_size=HEAD_SIZE, ffn=FFN, vocab=VOCAB
)
Q4_K_M = {"": "Q4_K", "attn_v": "Q6_K", "ffn_down": "Q6_K", "token_embd": "Q6_K"}
"""llama.cpp's mix of formats under that name."""
LOCAL = EngineSettings(Path(), allow_gpu=False, threads=1)
TOBI = "hf:tobil/qmd-query-expansion-1.7B-gguf/qmd-query-expansion-1.7B-q4_k_m.gguf"
TOBI_FILE = "hf_tobil_qmd-query-expansion-1.7B-q4_k_m.gguf"


def _cosine(a: npt.NDArray[np.floating], b: npt.NDArray[np.floating]) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def _with_head(held: dict[str, Floats]) -> dict[str, Floats]:
    """Return weights whose logits are the last hidden state."""
    return held | {"head": np.eye(HIDDEN, dtype=np.float32)}


class Decoding(Struct, frozen=True):
    """Comparison of a graph with the reference, at every step of one text given to both."""

    distinct: int
    """Tokens that the reference prefers somewhere: a network with a constant answer would agree with anything."""
    worst_miss: float
    """Largest distance below the reference's best logit of a token that the graph prefers, in standard deviations."""
    worst_correlation: float


TEXT = np.random.default_rng(1).permutation(VOCAB)[:37].tolist()


def _decode(path: Path, held: dict[str, Floats]) -> Decoding:
    """Read five tokens of the text at once, then one by one."""
    session = open_session(path, format="q8", threads=1, allow_gpu=False)
    context = Decoder(session).open_context(len(TEXT))
    steps = [TEXT[:5], *([token] for token in TEXT[5:])]
    answers = np.array([np.asarray(context.append([step]))[0] for step in steps])
    expected = reference_logits(held, TEXT, SHAPE)[4:]
    miss = [(row.max() - row[got.argmax()]) / row.std() for row, got in zip(expected, answers, strict=True)]
    correlations = [np.corrcoef(got, row)[0, 1] for row, got in zip(expected, answers, strict=True)]
    return Decoding(len(set(expected.argmax(axis=1))), float(max(miss)), float(min(correlations)))


def _in_full_precision(path: Path) -> Path:
    """Write the same graph without rounding of inputs to 8 bits: only the weights remain different."""
    model = onnx.load(str(path), load_external_data=False)
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.name == "accuracy_level":
                attribute.i = 1
    target = path.with_name("exact.onnx")
    onnx.save(model, str(target))
    return target


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("kinds", ["Q8_0", "Q4_0", "Q4_1", "Q5_K", Q4_K_M], ids=str)
def test_a_decoder_goes_on_as_the_files_weights_say(tmp_path: Path, kinds: dict[str, str] | str, tied: bool) -> None:
    kinds = kinds if isinstance(kinds, dict) else {"": kinds, "token_embd": "Q8_0"}
    held = write_qwen3(tmp_path / "m.gguf", kinds, tied=tied)
    report = import_weights(tmp_path / "m.gguf", tmp_path / "models")
    assert (report.model.record.role, report.is_new) == ("expand", True)
    graph = report.folder / "model.onnx"
    exact = _decode(_in_full_precision(graph), held)
    assert exact.distinct > 12
    assert exact.worst_miss < 1e-4 and exact.worst_correlation > 0.999999
    rounded = _decode(graph, held)
    assert rounded.worst_miss < 0.15 and rounded.worst_correlation > 0.99


@pytest.mark.parametrize("classes", [True, False])
def test_a_reranker_scores_by_its_labels_or_by_yes_and_no(tmp_path: Path, classes: bool) -> None:
    pooling = gguf.PoolingType.RANK if classes else None
    held = write_qwen3(tmp_path / "qwen3-reranker.gguf", "Q8_0", pooling=pooling, classes=classes)
    report = import_weights(tmp_path / "qwen3-reranker.gguf", tmp_path / "models")
    record = report.model.record
    assert record.role == "rerank"
    passages = ["the search", "yes", "the other thing", "no 世界"]
    rounded = load_cross_encoder(report.folder, record, LOCAL).score("the sea", passages)
    _in_full_precision(report.folder / "model.onnx").replace(report.folder / "model.onnx")
    reranker = load_cross_encoder(report.folder, record, LOCAL)
    exact, prompt = reranker.score("the sea", passages), reranker.prompt
    if not classes:
        yes, no = (prompt.tokenizer.token_id(word) or 0 for word in ("yes", "no"))
        held["score"] = held["embed"][[yes]] - held["embed"][[no]]
    ids = [[*prompt.prefix("the sea"), *prompt.ending(passage)] for passage in passages]
    logits = np.array([reference_logits(held, row, SHAPE, score=True)[0] for row in ids])
    expected = 1 / (1 + np.exp(-logits))
    assert np.ptp(logits) > 0.1
    assert exact == pytest.approx(expected.tolist(), abs=1e-5)
    assert rounded == pytest.approx(expected.tolist(), abs=0.02)


@pytest.mark.parametrize("kinds", ["Q8_0", Q4_K_M], ids=str)
def test_an_embedder_of_qwen_takes_the_last_token_of_the_text(tmp_path: Path, kinds: dict[str, str] | str) -> None:
    held = write_qwen3(tmp_path / "e.gguf", kinds, pooling=gguf.PoolingType.LAST)
    report = import_weights(tmp_path / "e.gguf", tmp_path / "models")
    record = report.model.record
    assert (record.role, record.pooling, record.dim) == ("embed", "last", HIDDEN)
    embedder = load_embedder(report.folder, record, allow_gpu=False)
    for text in ("the sea", "yes the other thing"):
        ids = embedder.encoder.tokenizer.encode(text).ids
        assert ids[-1] == embedder.encoder.tokenizer.encode("<|endoftext|>").ids[0]
        expected = reference_logits(_with_head(held), ids, SHAPE)[-1]
        assert _cosine(embedder.embed_documents([text])[0], expected) > 0.999
        query = embedder.encoder.tokenizer.encode(record.query_prompt + text).ids
        expected = reference_logits(_with_head(held), query, SHAPE)[-1]
        assert _cosine(embedder.embed_queries([text])[0], expected) > 0.999


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize("kinds", ["F16", "Q8_0"])
def test_embeddinggemma_looks_both_ways_and_near_in_most_layers(tmp_path: Path, kinds: str, dense: bool) -> None:
    held = write_gemma(tmp_path / "g.gguf", kinds, dense=dense)
    report = import_weights(tmp_path / "g.gguf", tmp_path / "models")
    record = report.model.record
    assert (record.role, record.pooling) == ("embed", "mean")
    assert dense == (report.note is None)
    embedder = load_embedder(report.folder, record, allow_gpu=False)
    # Wider than the window of eight tokens.
    for text in ("the sea", "the searching other thing in the sea, 世界 the search " * 3):
        ids = embedder.encoder.tokenizer.encode(record.document_prompt + text).ids
        expected = gemma_vectors(held, ids).mean(axis=0)
        assert _cosine(embedder.embed_documents([text])[0], expected) > 0.999


def test_padded_rows_of_embeddinggemma_change_nothing(tmp_path: Path) -> None:
    write_gemma(tmp_path / "g.gguf", "Q8_0")
    report = import_weights(tmp_path / "g.gguf", tmp_path / "models")
    session = open_session(report.folder / "model.onnx", format="q8", threads=1, allow_gpu=False)
    ids = np.array([[2, 30, 40, 1, 0, 0]])
    mask = np.array([[1, 1, 1, 1, 0, 0]])
    padded = session.run(["last_hidden_state"], {"input_ids": ids, "attention_mask": mask})[0][0, :4]
    alone = session.run(["last_hidden_state"], {"input_ids": ids[:, :4], "attention_mask": mask[:, :4]})[0][0]
    assert np.abs(padded - alone).max() < 1e-4


def test_an_expander_writes_lines(tmp_path: Path) -> None:
    write_qwen3(tmp_path / "m.gguf", Q4_K_M)
    report = import_weights(tmp_path / "m.gguf", tmp_path / "models")
    expander = load_expander(report.folder, report.model.record, LOCAL)
    expansion = expander.expand("the sea")
    assert expansion.subqueries or expansion.dropped


def _folder(place: Path, held: dict[str, Floats], *, prefix: str = "model.", parts: int = 0, **config: object) -> None:
    named = {f"{prefix}embed_tokens.weight": held["embed"], f"{prefix}norm.weight": held["norm"]}
    for name, value in held.items():
        if name.startswith("layers."):
            _, index, part = name.split(".")
            named[f"{prefix}layers.{index}.{QWEN3_PARTS[part]}.weight"] = value
    write_safetensors(place, named, "F16", parts=parts)
    write_tokenizer(place)
    settings = {"model_type": "qwen3", "num_hidden_layers": LAYERS, "tie_word_embeddings": True, **config}
    (place / "config.json").write_text(json.dumps(settings))


@pytest.mark.parametrize("parts", [0, 3])
def test_a_folder_of_safetensors_becomes_the_same_decoder_as_a_gguf_file(tmp_path: Path, parts: int) -> None:
    held = write_qwen3(tmp_path / "m.gguf", "F16")
    _folder(tmp_path / "my-qwen", held, parts=parts)
    report = import_weights(tmp_path / "my-qwen", tmp_path / "models")
    assert (report.model.record.name, report.model.record.role) == ("my-qwen", "expand")
    decoded = _decode(report.folder / "model.onnx", held)
    assert decoded.distinct > 12 and decoded.worst_miss < 0.15 and decoded.worst_correlation > 0.99


def test_a_folder_of_sentence_transformers_is_pooled_and_prompted_as_it_says(tmp_path: Path) -> None:
    held = write_qwen3(tmp_path / "m.gguf", "F16")
    place = tmp_path / "my-embedding"
    _folder(place, held, prefix="")
    (place / "modules.json").write_text("[]")
    (place / "1_Pooling").mkdir()
    (place / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_mean_tokens": True}))
    (place / "config_sentence_transformers.json").write_text(json.dumps({"prompts": {"query": "q: ", "document": ""}}))
    report = import_weights(place, tmp_path / "models")
    record = report.model.record
    assert (record.role, record.pooling, record.query_prompt) == ("embed", "mean", "q: ")
    embedder = load_embedder(report.folder, record, allow_gpu=False)
    ids = embedder.encoder.tokenizer.encode("the sea").ids
    expected = reference_logits(_with_head(held), ids, SHAPE).mean(axis=0)
    assert _cosine(embedder.embed_documents(["the sea"])[0], expected) > 0.999


@pytest.mark.parametrize("architecture", ["llama", "modern-bert", "nomic-bert-moe", "qwen3moe"])
def test_another_architecture_is_named(tmp_path: Path, architecture: str) -> None:
    writer = gguf.GGUFWriter(str(tmp_path / "m.gguf"), architecture)
    writer.add_tensor("token_embd.weight", np.zeros((4, 4), np.float32))
    finish(writer)
    with pytest.raises(ModelError, match=f"architecture '{architecture}'"):
        import_weights(tmp_path / "m.gguf", tmp_path / "models")
    assert not list((tmp_path).glob("models/*"))


def test_a_tensor_that_our_graph_has_not_is_named(tmp_path: Path) -> None:
    held = write_qwen3(tmp_path / "m.gguf", "F16")
    _folder(tmp_path / "biased", held)
    write_safetensors(tmp_path / "biased", {"model.layers.0.self_attn.q_proj.bias": held["norm"]}, "F16")
    with pytest.raises(ModelError, match=r"q_proj\.bias"):
        import_weights(tmp_path / "biased", tmp_path / "models")


def test_scaled_rotary_positions_are_refused(tmp_path: Path) -> None:
    write_qwen3(tmp_path / "m.gguf", settings={"qwen3.rope.scaling.type": "yarn"})
    with pytest.raises(ModelError, match="yarn"):
        import_weights(tmp_path / "m.gguf", tmp_path / "models")


@pytest.mark.parametrize("name", ["Qwen3-0.6B", "a/b", ".hidden", ""])
def test_a_name_that_is_taken_or_no_name_is_refused(tmp_path: Path, name: str) -> None:
    write_qwen3(tmp_path / "m.gguf")
    with pytest.raises(UsageError, match="name"):
        import_weights(tmp_path / "m.gguf", tmp_path / "models", name=name or " ")


def test_a_failed_import_leaves_nothing_and_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_qwen3(tmp_path / "m.gguf", "Q8_0")
    report = import_weights(tmp_path / "m.gguf", tmp_path / "models")
    before = (report.folder / "model.onnx_data").read_bytes()
    write_qwen3(tmp_path / "m.gguf", "Q8_0", seed=9)
    # The disk fills up in the middle.
    monkeypatch.setattr(shutil, "disk_usage", lambda path: type("Usage", (), {"free": 1000})())
    with pytest.raises(ModelError, match="not enough space"):
        import_weights(tmp_path / "m.gguf", tmp_path / "models")
    monkeypatch.undo()
    assert (report.folder / "model.onnx_data").read_bytes() == before
    staging = tmp_path / "models" / ".staging"
    (staging / f"{report.folder.name}.importing" / "ready").mkdir(parents=True)
    # Of a model with a similar name, which another process is importing.
    (staging / f"{report.folder.name}-2.importing").mkdir()
    assert import_weights(tmp_path / "m.gguf", tmp_path / "models").is_new
    assert (report.folder / "model.onnx_data").read_bytes() != before
    assert [path.name for path in staging.glob("*.importing")] == [f"{report.folder.name}-2.importing"]


def test_the_same_file_is_not_imported_twice(tmp_path: Path) -> None:
    write_qwen3(tmp_path / "m.gguf", "Q8_0")
    first = import_weights(tmp_path / "m.gguf", tmp_path / "models")
    again = import_weights(tmp_path / "m.gguf", tmp_path / "models")
    assert not again.is_new and again.model == first.model
    (first.folder / "model.onnx_data").unlink()
    assert import_weights(tmp_path / "m.gguf", tmp_path / "models").is_new


def test_two_imports_of_one_model_do_not_run_at_once(tmp_path: Path) -> None:
    write_qwen3(tmp_path / "m.gguf", "Q8_0")
    (tmp_path / "models" / ".staging").mkdir(parents=True)
    with exclusive_lock(tmp_path / "models" / ".staging" / "imported--m.lock"), pytest.raises(BusyError):
        import_weights(tmp_path / "m.gguf", tmp_path / "models")


def test_progress_reaches_the_bytes_of_the_file(tmp_path: Path) -> None:
    write_qwen3(tmp_path / "m.gguf", Q4_K_M)
    seen: list[tuple[int, int]] = []
    import_weights(tmp_path / "m.gguf", tmp_path / "models", on_progress=lambda done, total: seen.append((done, total)))
    assert seen == sorted(seen)
    assert seen[-1][0] == seen[-1][1]


def test_an_imported_model_is_listed_checked_moved_and_removed(tmp_path: Path) -> None:
    write_qwen3(tmp_path / "m.gguf", "Q8_0")
    models = tmp_path / "models"
    record = import_weights(tmp_path / "m.gguf", models).model.record
    present = [state.record for state in list_models(models) if state.is_present]
    assert [one.name for one in present if one.tier != "built-in"] == ["m"]
    assert {check.status for check in verify_model(record, models)} == {"ok"}
    export_model(record, models, tmp_path / "m.tar")
    assert remove_model(record, models) > 0
    assert find_imported("m", models) is None
    assert import_model(tmp_path / "m.tar", models) == record
    assert {check.status for check in verify_model(record, models)} == {"ok"}
    assert find_imported("M", models) is not None


@pytest.mark.parametrize(
    ("settings", "name", "role"),
    [
        ({"qwen3.pooling_type": 4}, "m", "rerank"),
        ({"qwen3.pooling_type": 3}, "m", "embed"),
        ({"general.name": "Qwen3 Reranker 0.6B"}, "m", "rerank"),
        ({"general.tags": ["feature-extraction"]}, "m", "embed"),
        ({}, "Qwen3-Embedding-0.6B-Q8_0", "embed"),
        ({"general.architecture": "gemma-embedding"}, "m", "embed"),
        ({}, "qmd-query-expansion-1.7B-q4_k_m", "expand"),
    ],
)
def test_the_role_is_told_from_pooling_and_names(settings: dict[str, object], name: str, role: Role) -> None:
    assert guess_role({"general.architecture": "qwen3", **settings}, name) == role


def test_an_address_of_a_configuration_means_the_model_imported_from_that_file(tmp_path: Path) -> None:
    models = tmp_path / "models"
    models.mkdir()
    write_qwen3(models / TOBI_FILE, Q4_K_M)
    settings = EngineSettings(models, expand=TOBI, allow_gpu=False, threads=1)
    before = choose_model(settings, "expand")
    assert before.record is None and before.note is not None
    assert f"qmd models import {shlex.quote(str(models / TOBI_FILE))}" in before.note
    import_weights(models / TOBI_FILE, models)
    after = choose_model(settings, "expand")
    assert after.record is not None and after.note is None
    assert after.record.name == "qmd-query-expansion-1.7B-q4_k_m"
    engines = load_engines(settings, ["expand"])
    assert engines.notes == () and engines.expander is not None


def test_a_model_that_stands_in_for_a_gguf_address_is_said_to(tmp_path: Path) -> None:
    folder = tmp_path / JINA_ZH.folder
    for path in (JINA_ZH.formats[0].weights.path, "tokenizer.json"):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("x")
    asked = "hf:Qwen/Qwen3-Embedding-0.6B-GGUF/Qwen3-Embedding-0.6B-Q8_0.gguf"
    choice = choose_model(EngineSettings(tmp_path, embed=asked), "embed")
    assert choice.record is JINA_ZH
    assert choice.note is not None and JINA_ZH.name in choice.note and asked in choice.note


def test_a_gguf_model_that_no_import_reads_is_not_sent_to_one(tmp_path: Path) -> None:
    asked = "hf:gpustack/bge-m3-GGUF/bge-m3-Q8_0.gguf"
    unseen = choose_model(EngineSettings(tmp_path, embed=asked), "embed").note
    assert unseen is not None and "which reads Qwen3" in unseen and "XLM-RoBERTa" in unseen
    for kind in ("bert", "modern-bert"):
        writer = gguf.GGUFWriter(str(tmp_path / "bge-m3-Q8_0.gguf"), kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.close()
        for address in (asked, str(tmp_path / "bge-m3-Q8_0.gguf")):
            note = choose_model(EngineSettings(tmp_path, embed=address), "embed").note
            assert note is not None and ("architecture 'modern-bert'" in note) == (kind != "bert")
            assert ("qmd models list --available" in note) == (kind != "bert") != ("models import" in note)
    write_qwen3(tmp_path / "e.gguf", "Q8_0")
    note = choose_model(EngineSettings(tmp_path, embed=str(tmp_path / "e.gguf")), "embed").note
    assert note is not None and note.endswith(f"to use it: qmd models import {tmp_path / 'e.gguf'}")


def test_an_imported_embedder_is_told_from_its_files(tmp_path: Path) -> None:
    write_gemma(tmp_path / "g.gguf", "Q8_0")
    import_weights(tmp_path / "g.gguf", tmp_path / "models")
    settings = EngineSettings(tmp_path / "models", embed="g", allow_gpu=False, threads=1)
    opened = load_engines(settings, ["embed"]).embedder
    identity = identify_embedder(settings)
    assert opened is not None and identity is not None
    assert (identity.fingerprint, identity.description) == (opened.fingerprint, opened.description)


def test_models_of_other_programs_are_found_and_those_already_imported_are_not(tmp_path: Path) -> None:
    home, env = tmp_path / "home", {"OLLAMA_MODELS": str(tmp_path / "ollama")}
    models = home / ".cache" / "qmd" / "models"
    studio = home / ".lmstudio" / "models" / "publisher" / "model"
    blobs = tmp_path / "ollama" / "blobs"
    manifests = tmp_path / "ollama" / "manifests" / "registry.ollama.ai" / "library" / "qwen3"
    for folder in (models, studio, blobs, manifests):
        folder.mkdir(parents=True)
    write_qwen3(models / TOBI_FILE, "Q8_0")
    write_gemma(studio / "embeddinggemma-300M-Q8_0.gguf", "Q8_0")
    write_qwen3(blobs / "sha256-ab", "Q8_0")
    (studio / "mmproj.gguf").write_bytes(b"GGUF but not whole")
    layer = {"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:ab"}
    (manifests / "0.6b").write_text(json.dumps({"layers": [layer]}))
    (manifests / "broken").write_text("{")
    found = {item.file.name: item for item in importable_files(models, home, env)}
    assert {name: (item.file.owner, item.role) for name, item in found.items()} == {
        "qmd-query-expansion-1.7B-q4_k_m": ("tobi/qmd", "expand"),
        "ollama-qwen3-0.6b": ("Ollama", "expand"),
        "embeddinggemma-300M-Q8_0": ("LM Studio", "embed"),
    }
    assert len(find_files(models, home, env)) == 4
    assert found["ollama-qwen3-0.6b"].file.address == "ollama:qwen3:0.6b"
    only = find_ollama("ollama:qwen3", home, env)
    assert only is not None and only.path == blobs / "sha256-ab"
    (source,) = import_sources("ollama:qwen3:0.6b", models, home, env)
    import_weights(source.path, models, address=source.address, name=source.name)
    # Nor the same bytes under another name.
    assert {item.file.name for item in importable_files(models, home, env)} == {"embeddinggemma-300M-Q8_0"}
    assert find_imported("ollama:qwen3:0.6b", models, "expand") is not None


def test_what_is_asked_for_becomes_files_or_a_line(tmp_path: Path) -> None:
    models = tmp_path / "models"
    models.mkdir()
    write_qwen3(models / TOBI_FILE, "Q8_0")
    assert find_cached_file(TOBI, models) == models / TOBI_FILE
    assert model_name(models / TOBI_FILE) == "qmd-query-expansion-1.7B-q4_k_m"
    for asked in (TOBI, str(models), str(models / TOBI_FILE)):
        (source,) = import_sources(asked, models, tmp_path, {})
        assert (source.path, source.name) == (models / TOBI_FILE, "qmd-query-expansion-1.7B-q4_k_m")
    (tmp_path / "x.tar").write_bytes(b"tar")
    assert import_sources(str(tmp_path / "x.tar"), models, tmp_path, {}) == ()
    (tmp_path / "zero.gguf").write_bytes(bytes(4000))
    with pytest.raises(ModelError, match=r"'zero\.gguf' is not a GGUF file"):
        import_weights(import_sources(str(tmp_path / "zero.gguf"), models, tmp_path, {})[0].path, models)
    for missing in ("hf:a/b/c.gguf", "ollama:none", str(tmp_path / "none.gguf")):
        with pytest.raises(NotFoundError):
            import_sources(missing, models, tmp_path, {})
