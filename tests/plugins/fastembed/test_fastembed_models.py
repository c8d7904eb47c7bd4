"""fastembed's models: its catalogue, and the same results as fastembed with the same files."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastembed import LateInteractionTextEmbedding, TextEmbedding
from fastembed.common.model_description import ModelSource, PoolingType
from fastembed.rerank.cross_encoder import TextCrossEncoder
from msgspec.structs import replace

from qmd.errors import ModelError
from qmd.inference.base import Engines, Reranker
from qmd.inference.loader import load_engines
from qmd.inference.records import EmbedOverrides, Role
from qmd.inference.settings import ENV_STEMS, EngineSettings
from qmd.plugins.fastembed.catalogue import FastembedModel, fastembed_models, fastembed_record, find_fastembed
from qmd.plugins.fastembed.embedders import FastembedEmbedder
from qmd.plugins.fastembed.models import batches_by_length, open_fastembed
from qmd.plugins.fastembed.rerankers import FastembedReranker, late_scorer, pair_scorer
from qmd.plugins.models.fetch.downloads import pull_model
from tests.plugins.fastembed.tiny_fastembed import CROSS_ENCODER, EMBEDDER, LATE, STATIC, place_fastembed

TEXTS = (
    "Reset a forgotten password in the settings of the account, then restore the backup.",
    "Bread.",
    "The borrow checker forbids aliased mutation.",
)
QUERY = "how to reset a password"
_BGE_PROMPT = "Represent this sentence for searching relevant passages: "


@pytest.fixture(scope="module")
def models_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    for name in (EMBEDDER, CROSS_ENCODER, LATE, STATIC):
        place_fastembed(name, folder)
    return folder


@pytest.fixture(scope="module")
def engines(models_dir: Path) -> Engines:
    return load_engines(EngineSettings(models_dir, embed=EMBEDDER, rerank=CROSS_ENCODER), ("embed", "rerank"))


def _settings(models_dir: Path, role: Role, name: str) -> EngineSettings:
    return EngineSettings(models_dir, env={f"{ENV_STEMS[role]}_MODEL": name})


def _scores(reranker: Reranker | None, passages: Sequence[str], intent: str | None = None) -> list[float]:
    assert reranker is not None
    return [-9.0 if score is None else score for score in reranker.score(QUERY, passages, intent=intent)]


def _direct(kind: Any, name: str, models_dir: Path) -> Any:
    record = fastembed_record(name)
    options = {} if name == STATIC else {"providers": ["CPUExecutionProvider"]}
    return kind(name.removeprefix("fastembed:"), specific_model_path=str(models_dir / record.folder), **options)


def test_every_model_of_fastembed_is_listed_with_what_is_known_of_it() -> None:
    models = fastembed_models()
    kinds = {kind: [one for one in models if one.kind == kind] for kind in {one.kind for one in models}}
    assert len(kinds["embedder"]) >= 39
    assert len(kinds["cross-encoder"]) == len(TextCrossEncoder.list_supported_models())
    assert len(kinds["late interaction"]) == len(LateInteractionTextEmbedding.list_supported_models())
    assert all(one.size_bytes > 1_000_000 and one.record.licence and one.record.repository for one in models)
    assert len({one.record.folder for one in models}) == len(models)


def test_every_model_that_wants_prompts_has_them() -> None:
    for model in fastembed_models():
        text = model.description
        wants = "queries/documents: necessary" in text or "`" in text
        assert not wants or model.record.query_prompt, model.own_name
    e5 = fastembed_record("fastembed:intfloat/multilingual-e5-large")
    assert (e5.query_prompt, e5.document_prompt) == ("query: ", "passage: ")


@pytest.mark.parametrize(
    ("name", "languages", "scripts"),
    [
        (EMBEDDER, ("en",), ("LATIN",)),
        ("fastembed:BAAI/bge-small-zh-v1.5", ("zh",), ("CJK", "LATIN")),
        ("fastembed:jinaai/jina-embeddings-v2-base-de", ("en", "de"), ("LATIN",)),
        ("fastembed:intfloat/multilingual-e5-large", ("*",), ()),
        (CROSS_ENCODER, (), ()),
    ],
)
def test_languages_are_read_as_they_are_given(name: str, languages: tuple[str, ...], scripts: tuple[str, ...]) -> None:
    record = fastembed_record(name)
    assert (record.languages, record.scripts) == (languages, scripts)


def test_a_model_that_embeds_queries_alone_is_refused() -> None:
    with pytest.raises(ModelError, match="queries alone"):
        find_fastembed("fastembed:Qdrant/constella-nano")


def test_a_name_is_found_in_any_case() -> None:
    assert fastembed_record("FastEmbed:baai/BGE-small-en-v1.5") == fastembed_record(EMBEDDER)


def test_documents_get_fastembeds_vectors_and_queries_those_with_a_prompt(engines: Engines, models_dir: Path) -> None:
    embedder, direct = engines.embedder, _direct(TextEmbedding, EMBEDDER, models_dir)
    assert embedder is not None and not engines.notes
    expected = np.array(list(direct.passage_embed(list(TEXTS))))
    assert np.allclose(embedder.embed_documents(TEXTS), expected, atol=1e-6)
    prompted = np.array(list(direct.query_embed([_BGE_PROMPT + QUERY])))
    assert np.allclose(embedder.embed_queries([QUERY]), prompted, atol=1e-6)
    assert (embedder.dim, embedder.max_tokens) == (384, 512 - 32)
    assert embedder.description.model == EMBEDDER


def test_the_users_prompts_and_size_go_before_the_makers(models_dir: Path, engines: Engines) -> None:
    options = {
        "embed.query_prompt": "",
        "embed.document_prompt": "note: ",
        "embed.dim": "100",
        "embed.max_tokens": "64",
    }
    settings = EngineSettings(models_dir, embed=EMBEDDER, options=options)
    embedder = load_engines(settings, ["embed"]).embedder
    assert embedder is not None and engines.embedder is not None
    assert embedder.fingerprint != engines.embedder.fingerprint
    assert embedder.max_tokens == 64
    direct = _direct(TextEmbedding, EMBEDDER, models_dir)
    expected = np.array(list(direct.embed([f"note: {TEXTS[0]}", QUERY])))[:, :100]
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    found = np.concatenate([embedder.embed_documents(TEXTS[:1]), embedder.embed_queries([QUERY])])
    assert np.allclose(found, expected, atol=1e-6)
    assert "your settings" in embedder.handling[1]  # type: ignore[attr-defined]


def test_a_table_of_token_vectors_embeds_as_in_fastembed(models_dir: Path) -> None:
    embedder = load_engines(EngineSettings(models_dir, embed=STATIC), ["embed"]).embedder
    assert embedder is not None
    texts = ["reset the password", "bread", "restore the backup"] * 100
    expected = np.array(list(_direct(TextEmbedding, STATIC, models_dir).passage_embed(texts)))
    seen: list[int] = []
    assert np.allclose(embedder.embed_documents(texts, seen.append), expected, atol=1e-6)
    assert seen == [256, 300]


def test_a_cross_encoder_scores_as_in_fastembed(engines: Engines, models_dir: Path) -> None:
    logits = np.array(list(_direct(TextCrossEncoder, CROSS_ENCODER, models_dir).rerank(QUERY, list(TEXTS))))
    scores = _scores(engines.reranker, [*TEXTS, TEXTS[0]])
    assert np.allclose(scores, [*(1 / (1 + np.exp(-logits))), scores[0]], atol=1e-5)
    assert np.argmax(scores) == 0


def test_a_late_interaction_model_scores_by_the_best_match_of_each_query_token(models_dir: Path) -> None:
    reranker = load_engines(EngineSettings(models_dir, rerank=LATE), ["rerank"]).reranker
    assert reranker is not None and reranker.description.model == LATE
    direct = _direct(LateInteractionTextEmbedding, LATE, models_dir)
    (query,) = direct.query_embed(QUERY)
    query = query / np.linalg.norm(query, axis=1, keepdims=True)
    expected = [(query @ passage.T).max(axis=1).mean() for passage in direct.embed(list(TEXTS))]
    assert np.allclose(_scores(reranker, TEXTS), expected, atol=1e-5)
    assert not np.allclose(_scores(reranker, TEXTS, "baking"), expected, atol=1e-3)


def test_on_a_gpu_texts_share_padded_runs_and_get_the_same_vectors_and_scores(models_dir: Path) -> None:
    """The session only claims to be on a GPU."""
    texts = [*TEXTS, "restore " * 300, "bread " * 200]
    models = {}
    for name in (EMBEDDER, CROSS_ENCODER, LATE):
        record = fastembed_record(name)
        model = open_fastembed(models_dir / record.folder, record, EngineSettings(models_dir))
        assert model.session is not None
        models[name] = (model, replace(model, session=replace(model.session, got="cuda"), threads=1))
    here, there = models[EMBEDDER]
    assert [len(run) for run in here.runs(texts)] == [1] * 5
    assert list(there.runs(texts)) == [[3, 4, 0, 2, 1]]
    vectors = [FastembedEmbedder(model, "0", EmbedOverrides()).embed_documents(texts) for model in (here, there)]
    assert np.allclose(vectors[0], vectors[1], atol=1e-5)
    for name, scorer in ((CROSS_ENCODER, pair_scorer), (LATE, late_scorer)):
        scores = [_scores(FastembedReranker(model, scorer), texts) for model in models[name]]
        assert np.allclose(scores[0], scores[1], atol=1e-4)


@pytest.mark.parametrize("name", [CROSS_ENCODER, LATE])
def test_a_caller_who_left_ends_the_reading(name: str, models_dir: Path) -> None:
    reranker = load_engines(EngineSettings(models_dir, rerank=name), ["rerank"]).reranker
    assert reranker is not None
    answers = iter([False, True])
    first, *rest = reranker.score(QUERY, TEXTS, is_cancelled=lambda: next(answers))
    assert first is not None and rest == [None, None]


def test_vectors_of_other_weights_or_another_tokenizer_are_told_apart(tmp_path: Path, engines: Engines) -> None:
    folder = place_fastembed(EMBEDDER, tmp_path)
    settings = EngineSettings(tmp_path, embed=EMBEDDER)
    assert engines.embedder is not None
    first = load_engines(settings, ["embed"]).embedder
    assert first is not None and first.fingerprint == engines.embedder.fingerprint
    weights = folder / "model_optimized.onnx"
    content = weights.read_bytes()
    weights.write_bytes(content[:100_000] + content[100_000:-100_000][::-1] + content[-100_000:])
    second = load_engines(settings, ["embed"]).embedder
    (folder / "tokenizer.json").write_text((folder / "tokenizer.json").read_text("utf-8") + " ", "utf-8")
    third = load_engines(settings, ["embed"]).embedder
    assert second is not None and third is not None
    assert len({first.fingerprint, second.fingerprint, third.fingerprint}) == 3


@pytest.mark.parametrize(
    ("name", "role", "parts"),
    [
        ("fastembed:BAAI/bge-small-en-v1.6", "embed", ("no such model", f"did you mean '{EMBEDDER}'", "--available")),
        ("fastembed:zzz", "rerank", ("no such model; see: qmd models list --available",)),
        (CROSS_ENCODER, "embed", ("a cross-encoder", "reranking", f"QMD_RERANK_MODEL={CROSS_ENCODER}")),
        (EMBEDDER, "rerank", ("an embedder", "embedding", f"QMD_EMBED_MODEL={EMBEDDER}")),
        (LATE, "expand", ("a late-interaction model", "not expansion")),
        (EMBEDDER, "embed", ("not on this machine", f"qmd models pull {EMBEDDER}")),
    ],
)
def test_a_name_that_cannot_serve_says_why(name: str, role: Role, parts: tuple[str, ...], tmp_path: Path) -> None:
    (failure,) = load_engines(_settings(tmp_path, role, name), [role]).failures
    assert all(part in failure for part in (name, *parts)), failure


@pytest.mark.parametrize("path", ["tokenizer_config.json", "model_optimized.onnx", "tokenizer.json"])
def test_a_damaged_folder_is_one_line_that_names_the_model(path: str, tmp_path: Path) -> None:
    (place_fastembed(EMBEDDER, tmp_path) / path).write_bytes(b"x")
    (failure,) = load_engines(EngineSettings(tmp_path, embed=EMBEDDER), ["embed"]).failures
    assert EMBEDDER in failure and "qmd models" in failure and "\n" not in failure


def test_opening_and_running_a_model_uses_no_network(models_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    def refuse(*args: object, **options: object) -> None:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    asked: tuple[tuple[Role, str], ...] = (("embed", EMBEDDER), ("rerank", CROSS_ENCODER), ("rerank", LATE))
    for role, name in asked:
        engines = load_engines(_settings(models_dir, role, name), [role])
        assert engines.failures == ()
        if engines.embedder is not None:
            engines.embedder.embed_documents(TEXTS)
        if engines.reranker is not None:
            engines.reranker.score(QUERY, TEXTS)


def test_a_model_outside_the_hub_is_refused_with_its_address(tmp_path: Path) -> None:
    TextEmbedding.add_custom_model(
        model="qmd-tests/elsewhere",
        pooling=PoolingType.MEAN,
        normalization=True,
        sources=ModelSource(url="https://example.org/model.tar.gz"),
        dim=384,
    )
    found = find_fastembed("fastembed:qmd-tests/elsewhere")
    assert isinstance(found, FastembedModel)
    with pytest.raises(ModelError, match=r"https://example\.org/model\.tar\.gz") as caught:
        pull_model(found.record, tmp_path, env={})
    assert "qmd models import" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("lengths", "budget", "expected"),
    [([2, 9, 3, 8], 18, [[1, 3], [2, 0]]), ([5], 1, [[0]]), ([], 10, []), ([4, 4, 4], 8, [[0, 1], [2]])],
)
def test_texts_of_about_one_length_share_a_run(lengths: list[int], budget: int, expected: list[list[int]]) -> None:
    assert list(batches_by_length(lengths, budget)) == expected
