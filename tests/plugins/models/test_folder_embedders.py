"""Embedding models in folders: run as their makers meant, or refused with the reason."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from qmd.errors import ModelError
from qmd.inference.engines.embedder import load_embedder
from qmd.inference.loader import choose_model, identify_embedder, load_engines
from qmd.inference.models.builtin import MINILM, locate_builtin
from qmd.inference.models.catalogue import JINA_ZH
from qmd.inference.models.weights import encoder_fingerprint
from qmd.inference.records import EmbedOverrides
from qmd.inference.settings import EngineSettings
from qmd.plugins.models.formats.sentence_transformers import describe_folder
from tests.inference.embedder_folders import (
    TEXT,
    Array,
    TinyGraph,
    ids_of,
    make_folder,
    opened,
    pooled_vector,
    refused,
    sentence_transformer,
    settings_of,
    token_vectors,
    unit,
    vectors_of,
)


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


@pytest.mark.parametrize(
    ("old", "new", "pooled"),
    [
        ("cls_token", "cls", lambda rows: rows[0]),
        ("mean_tokens", "mean", lambda rows: rows.mean(axis=0)),
        ("max_tokens", "max", lambda rows: rows.max(axis=0)),
        ("mean_sqrt_len_tokens", "mean_sqrt_len_tokens", lambda rows: rows.sum(axis=0) / len(rows) ** 0.5),
        ("weightedmean_tokens", "weightedmean", lambda rows: np.arange(1, len(rows) + 1) @ rows),
        ("lasttoken", "lasttoken", lambda rows: rows[-1]),
    ],
)
@pytest.mark.parametrize("is_new", [False, True], ids=["one key a pooling", "one key"])
def test_every_pooling_of_sentence_transformers_is_read(
    tmp_path: Path, old: str, new: str, pooled: Callable[[Array], Array], is_new: bool
) -> None:
    files = sentence_transformer(old)
    if is_new:
        files["1_Pooling/config.json"] = {"embedding_dimension": 24, "pooling_mode": new, "include_prompt": True}
    folder = make_folder(tmp_path / "x", files)
    assert np.allclose(vectors_of(opened(folder))[0], unit(pooled(token_vectors(ids_of(folder, TEXT)))), atol=1e-5)


def test_without_a_word_on_pooling_the_mean_is_taken(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "x")
    assert np.allclose(vectors_of(opened(folder))[0], unit(token_vectors(ids_of(folder, TEXT)).mean(axis=0)), atol=1e-5)


@pytest.mark.parametrize(
    ("pooling", "named"),
    [
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}, "'cls_token+mean_tokens'"),
        ({"pooling_mode": ["cls", "max"]}, "'cls+max'"),
        ({"pooling_mode": "attention"}, "'attention'"),
    ],
)
def test_an_unknown_pooling_is_refused_and_left_to_a_graph_that_does_it(
    tmp_path: Path, pooling: Mapping[str, object], named: str
) -> None:
    files = {**sentence_transformer("mean_tokens"), "1_Pooling/config.json": pooling}
    assert f"needs pooling {named} of '1_Pooling/config.json'" in refused(make_folder(tmp_path / "x", files))
    opened(make_folder(tmp_path / "y", files, TinyGraph(pooled="sentence_embedding")))


@pytest.mark.parametrize("module", ["Dense", "LSTM", "WordWeights"])
def test_a_module_behind_the_pooling_is_refused_by_name_without_a_graph_of_it(tmp_path: Path, module: str) -> None:
    files = sentence_transformer("mean_tokens", module)
    assert f"needs module '2_{module}'" in refused(make_folder(tmp_path / "x", files))
    opened(make_folder(tmp_path / "y", files, TinyGraph(pooled="sentence_embedding")))


def test_a_decoder_without_a_word_on_pooling_is_refused(tmp_path: Path) -> None:
    config = {"config.json": {"architectures": ["Qwen2ForCausalLM"], "max_position_embeddings": 512}}
    assert "needs a pooling that no file of the folder names" in refused(make_folder(tmp_path / "x", config))


@pytest.mark.parametrize("name", ["dot", "manhattan"])
def test_vectors_that_are_not_compared_by_angle_are_refused(tmp_path: Path, name: str) -> None:
    files = {"config_sentence_transformers.json": {"similarity_fn_name": name}}
    assert f"compared by '{name}'" in refused(make_folder(tmp_path / "x", files))


def test_the_dot_product_of_normalised_vectors_is_a_cosine(tmp_path: Path) -> None:
    files = {"config_sentence_transformers.json": {"similarity_fn_name": "dot"}}
    opened(make_folder(tmp_path / "x", {**sentence_transformer("mean_tokens"), **files}))


def test_a_prompt_that_the_makers_leave_out_of_the_pooling_is_left_out(tmp_path: Path) -> None:
    files = sentence_transformer("mean_tokens", include_prompt=False)
    prompts = {"prompts": {"query": "ask: "}}
    folder = make_folder(tmp_path / "x", {**files, "config_sentence_transformers.json": prompts})
    query, document = vectors_of(opened(folder))
    rows = token_vectors(ids_of(folder, f"ask: {TEXT}"))
    # The first token and the five of the prompt.
    assert np.allclose(query, unit(rows[6:].mean(axis=0)), atol=1e-5)
    assert np.allclose(document, unit(token_vectors(ids_of(folder, TEXT)).mean(axis=0)), atol=1e-5)


def test_a_graph_that_pools_a_prompt_which_its_makers_leave_out_is_refused(tmp_path: Path) -> None:
    files = sentence_transformer("mean_tokens", include_prompt=False)
    files["config_sentence_transformers.json"] = {"prompts": {"query": "ask: "}}
    folder = make_folder(tmp_path / "x", files, TinyGraph(pooled="sentence_embedding"))
    assert "pools its prompt's tokens" in refused(folder)


@pytest.mark.parametrize(
    ("prompts", "query", "document"),
    [
        ({"query": "q", "passage": "p"}, "q", "p"),
        ({"query": "q", "document": "d", "corpus": "c"}, "q", "d"),
        ({"s2p_query": "q", "s2s_query": "s"}, "q", ""),
        ({"retrieval.query": "q", "retrieval.passage": "p", "separation": "s"}, "q", "p"),
        ({"query": "", "document": ""}, "", ""),
        ({"query": "q", "standard": "s"}, "q", "s"),
    ],
)
def test_prompts_are_taken_by_the_names_that_makers_give_them(
    tmp_path: Path, prompts: Mapping[str, str], query: str, document: str
) -> None:
    default = "standard" if "standard" in prompts else None
    files = {"config_sentence_transformers.json": {"prompts": prompts, "default_prompt_name": default}}
    record = describe_folder(make_folder(tmp_path / "x", files))
    assert (record.query_prompt, record.document_prompt) == (query, document)


def test_prompts_of_which_none_is_for_searching_are_refused_until_the_user_chooses(tmp_path: Path) -> None:
    files = {"config_sentence_transformers.json": {"prompts": {"classification": "x: ", "sts": "y: "}}}
    folder = make_folder(tmp_path / "x", files)
    line = refused(folder)
    assert "'classification', 'sts'" in line and "QMD_EMBED_QUERY_PROMPT" in line
    assert opened(folder, QMD_EMBED_QUERY_PROMPT="y: ").embed_queries([TEXT]).shape == (1, 24)


def test_the_users_prompts_go_before_the_models_and_an_empty_one_means_none(tmp_path: Path) -> None:
    files = {"config_sentence_transformers.json": {"prompts": {"query": "q: ", "document": "d: "}}}
    folder = make_folder(tmp_path / "x", files)
    query, document = vectors_of(opened(folder, QMD_EMBED_QUERY_PROMPT="ask: ", QMD_EMBED_DOCUMENT_PROMPT=""))
    assert np.allclose(query, unit(token_vectors(ids_of(folder, f"ask: {TEXT}")).mean(axis=0)), atol=1e-5)
    assert np.allclose(document, unit(token_vectors(ids_of(folder, TEXT)).mean(axis=0)), atol=1e-5)


def test_the_users_prompts_hold_for_a_folder_that_is_called_like_a_model_of_the_catalogue(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / JINA_ZH.name)
    assert opened(folder, QMD_EMBED_QUERY_PROMPT="ask: ").handling[1].startswith("prompts: query 'ask: '")


def test_the_configurations_prompt_goes_before_the_environments() -> None:
    env = {"QMD_EMBED_QUERY_PROMPT": "environment", "QMD_EMBED_DIM": "12"}
    settings = EngineSettings(Path(), options={"embed.query_prompt": "configuration"}, env=env)
    assert settings.embed_overrides == EmbedOverrides("configuration", None, 12)


def test_the_prompts_of_a_server_are_set_by_the_same_words(tmp_path: Path) -> None:
    options = {"embed.query_prompt": "ask: ", "embed.dim": "8"}
    settings = EngineSettings(tmp_path, embed="http://127.0.0.1:9/v1#m", options=options)
    embedder = load_engines(settings, ["embed"]).embedder
    other = load_engines(replace(settings, options={"embed.dim": "8"}), ["embed"]).embedder
    assert embedder is not None and other is not None
    assert embedder.dim == 8
    assert embedder.fingerprint != other.fingerprint


@pytest.mark.parametrize(
    ("files", "context"),
    [
        ({}, 512),
        ({"sentence_bert_config.json": {"max_seq_length": 256}}, 256),
        ({"sentence_bert_config.json": {"max_seq_length": 900}}, 512),
        ({"tokenizer_config.json": {"model_max_length": 200}}, 200),
        ({"tokenizer_config.json": {"model_max_length": 1e30}}, 512),
        (
            {"sentence_bert_config.json": {"max_seq_length": 256}, "tokenizer_config.json": {"model_max_length": 64}},
            256,
        ),
        ({"config.json": {"model_type": "xlm-roberta", "max_position_embeddings": 514, "pad_token_id": 1}}, 512),
        ({"config.json": {"max_position_embeddings": 32768}}, 1024),
        ({"config.json": {}}, 512),
    ],
)
def test_a_text_has_at_most_the_tokens_allowed(tmp_path: Path, files: Mapping[str, object], context: int) -> None:
    assert describe_folder(make_folder(tmp_path / "x", files)).context == context


def test_what_exceeds_the_length_is_cut_and_the_last_special_token_kept(tmp_path: Path) -> None:
    files = {**sentence_transformer("lasttoken"), "sentence_bert_config.json": {"max_seq_length": 20}}
    folder = make_folder(tmp_path / "x", files)
    ids = ids_of(folder, "word " * 30)
    expected = unit(token_vectors([*ids[:19], ids[-1]])[-1])
    assert np.allclose(opened(folder).embed_documents(["word " * 30])[0], expected, atol=1e-5)


def test_texts_are_put_into_small_letters_where_the_makers_do(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "x", {"sentence_bert_config.json": {"max_seq_length": 99, "do_lower_case": True}})
    upper, lower = opened(folder).embed_documents(["BREAD", "bread"])
    assert np.array_equal(upper, lower)


def test_an_end_token_is_added_where_the_tokenizers_settings_ask_for_it(tmp_path: Path) -> None:
    eos = {"add_eos_token": True, "eos_token": {"content": "<|endoftext|>"}}
    files = {**sentence_transformer("lasttoken"), "tokenizer_config.json": eos}
    folder = make_folder(tmp_path / "x", files, ends=None, begins=None)
    ids = [*ids_of(folder, TEXT), *ids_of(folder, "<|endoftext|>")]
    assert np.allclose(vectors_of(opened(folder))[0], unit(token_vectors(ids)[-1]), atol=1e-5)


def test_an_end_token_that_the_vocabulary_lacks_is_refused(tmp_path: Path) -> None:
    files = {"tokenizer_config.json": {"add_eos_token": True, "eos_token": "</s>"}}
    assert "no token '</s>'" in refused(make_folder(tmp_path / "x", files))


def test_vectors_are_cut_to_the_size_asked_for(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "x")
    embedder = opened(folder, QMD_EMBED_DIM="8")
    assert embedder.dim == 8
    expected = unit(token_vectors(ids_of(folder, TEXT)).mean(axis=0)[:8])
    assert np.allclose(vectors_of(embedder)[0], expected, atol=1e-5)


@pytest.mark.parametrize(
    ("dim", "said"),
    [("25", "has 24 dimensions, not 25"), ("many", "'many', expected 1 to 65536"), ("0", "'0', expected")],
)
def test_a_size_that_the_model_does_not_have_is_refused(tmp_path: Path, dim: str, said: str) -> None:
    assert said in refused(make_folder(tmp_path / "x"), QMD_EMBED_DIM=dim)


@pytest.mark.parametrize(("asked", "got"), [("64", 64), ("9000", 480)])
def test_chunks_have_the_length_asked_for_as_far_as_the_model_reads_them(tmp_path: Path, asked: str, got: int) -> None:
    assert opened(make_folder(tmp_path / "x"), QMD_EMBED_MAX_TOKENS=asked).max_tokens == got


@pytest.mark.parametrize("asked", ["15", "many", "1.5"])
def test_a_length_of_chunks_that_makes_no_sense_is_refused(tmp_path: Path, asked: str) -> None:
    assert f"'{asked}', expected 16 to 65536" in refused(make_folder(tmp_path / "x"), QMD_EMBED_MAX_TOKENS=asked)


def test_a_folder_called_like_a_model_of_the_catalogue_stays_that_model_with_other_chunks(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / JINA_ZH.name)
    choices = [choose_model(settings_of(folder, **env), "embed") for env in ({}, {"QMD_EMBED_MAX_TOKENS": "64"})]
    assert [choice.record for choice in choices] == [JINA_ZH] * 2


def test_the_fingerprints_of_the_catalogues_models_stay_what_they_were(tmp_path: Path) -> None:
    builtin = locate_builtin()
    assert encoder_fingerprint(builtin, MINILM, builtin / "model.onnx") == "1e8f9a6f91ee0dac"
    for name in ("tokenizer.json", "weights"):
        (tmp_path / name).write_text("x")
    assert encoder_fingerprint(tmp_path, JINA_ZH, tmp_path / "weights") == "f90554ed774d9f23"


def test_whatever_changes_a_vector_changes_the_fingerprint(tmp_path: Path) -> None:
    plain = sentence_transformer("mean_tokens")
    variants: tuple[tuple[Mapping[str, object], dict[str, str]], ...] = (
        (plain, {}),
        (sentence_transformer("lasttoken"), {}),
        (sentence_transformer("mean_tokens", include_prompt=False), {}),
        ({**plain, "config_sentence_transformers.json": {"prompts": {"query": "q"}}}, {}),
        ({**plain, "config_sentence_transformers.json": {"prompts": {"document": "q"}}}, {}),
        ({**plain, "sentence_bert_config.json": {"max_seq_length": 300}}, {}),
        ({**plain, "sentence_bert_config.json": {"max_seq_length": 512, "do_lower_case": True}}, {}),
        ({**plain, "tokenizer_config.json": {"add_eos_token": True, "eos_token": "<|endoftext|>"}}, {}),
        (plain, {"QMD_EMBED_DIM": "8"}),
        (plain, {"QMD_EMBED_QUERY_PROMPT": "other"}),
        (plain, {"QMD_EMBED_MAX_TOKENS": "64"}),
    )
    found = set()
    for number, (files, env) in enumerate(variants):
        settings = settings_of(make_folder(tmp_path / f"{number}" / "x", files), **env)
        identity, embedder = identify_embedder(settings), load_engines(settings, ["embed"]).embedder
        assert embedder is not None
        assert identity is None or identity.fingerprint == embedder.fingerprint
        found.add(embedder.fingerprint)
    assert len(found) == len(variants)


def test_damaged_modules_are_one_line_that_names_the_file(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "x")
    (folder / "modules.json").write_text("{")
    with pytest.raises(ModelError, match=re.escape(str(folder / "modules.json"))):
        describe_folder(folder)


def test_how_a_folders_model_is_run_is_told_with_who_says_so(tmp_path: Path) -> None:
    bare = opened(make_folder(tmp_path / "e5-small-v2", {"config.json": {}}))
    assert bare.handling == (
        "pooling: mean (known as E5)",
        "prompts: query 'query: ', document 'passage: ' (known as E5)",
        "length: 512 tokens (known as E5)",
    )
    folder = make_folder(tmp_path / "x", sentence_transformer("lasttoken"))
    told = opened(folder, QMD_EMBED_QUERY_PROMPT="ask: ", QMD_EMBED_DIM="8").handling
    assert told == (
        "pooling: last (1_Pooling/config.json), the first 8 dimensions",
        "prompts: query 'ask: ', document '' (your settings, else no file names one)",
        "length: 512 tokens (config.json)",
    )
    files = {"sentence_bert_config.json": {"max_seq_length": 8192}, "config.json": {}}
    long = opened(make_folder(tmp_path / "y", files))
    assert long.handling[2] == "length: 1024 tokens (sentence_bert_config.json allows 8192)"
    assert load_embedder(locate_builtin(), MINILM).handling == (
        "pooling: mean (its record)",
        "prompts: none (its record)",
        "length: 256 tokens (its record)",
    )
