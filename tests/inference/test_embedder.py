"""The embedder's contract, over the built-in model."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qmd.errors import ModelError
from qmd.inference.engines import embedder as embedder_module
from qmd.inference.engines.embedder import OnnxEmbedder, foreign_share, load_embedder
from qmd.inference.models.builtin import MINILM, locate_builtin
from qmd.inference.runtime.sessions import Session, open_session
from qmd.inference.runtime.tokenization import load_tokenizer
from qmd.plugins.models.formats.sentence_transformers import describe_folder

TEXTS = ("Reset a forgotten password in the settings.", "Bread.", "The borrow checker forbids aliased mutation. " * 9)


def test_a_vector_does_not_depend_on_the_number_of_threads(embedder: OnnxEmbedder) -> None:
    alone = load_embedder(locate_builtin(), MINILM, threads=1)
    assert np.array_equal(alone.embed_documents(TEXTS * 5), embedder.embed_documents(TEXTS * 5))


def test_an_empty_text_has_a_vector(embedder: OnnxEmbedder) -> None:
    assert np.isfinite(embedder.embed_documents([""])).all()


def test_a_question_is_closest_to_its_answer(embedder: OnnxEmbedder) -> None:
    question = embedder.embed_queries(["how do I change my password"])
    assert (question @ embedder.embed_documents(TEXTS).T).argmax() == 0


def test_text_beyond_the_context_is_cut_at_its_end(embedder: OnnxEmbedder) -> None:
    long = "word " * 400
    assert np.array_equal(*embedder.embed_documents([long, long + "password reset " * 50]))


def test_a_lone_surrogate_does_not_raise(embedder: OnnxEmbedder) -> None:
    assert np.isfinite(embedder.embed_documents(["before \udcff after"])).all()
    assert len(embedder.token_starts("a \udcff b")) >= 2


@given(st.text(max_size=200))
@settings(max_examples=60)
def test_token_starts_ascend_inside_the_text(text: str) -> None:
    starts = TOKENIZER.token_starts(text)
    assert list(starts) == sorted(starts)
    assert all(0 <= start < len(text) for start in starts)


TOKENIZER = load_tokenizer(locate_builtin() / "tokenizer.json")


def test_token_starts_are_code_points_past_the_first_plane() -> None:
    assert list(TOKENIZER.token_starts("😀 bread and butter")) == [0, 2, 8, 12]


def test_a_long_text_has_the_tokens_of_its_parts_each_at_its_place() -> None:
    line = "bread and butter 😀\n"
    starts = list(TOKENIZER.token_starts(line * 40_000))
    assert starts == [n * len(line) + start for n in range(40_000) for start in (0, 6, 10, 17)]


def test_no_text_is_cut_or_padded_by_the_tokenizer_itself() -> None:
    assert len(TOKENIZER.encode("word " * 1000).ids) == 1002
    assert len(TOKENIZER.encode("word").ids) == 3


def test_cutting_keeps_both_special_tokens() -> None:
    tokens = TOKENIZER.encode("one two three four five", 4)
    assert (len(tokens.ids), tokens.is_special) == (4, (True, False, False, True))


@pytest.mark.parametrize(
    ("query", "trust"),
    [
        ("how do I reset my password", 1.0),
        ("naïve Bayes", 1.0),
        ("404", 1.0),
        ("", 1.0),
        ("std::unordered_map", 1.0),
        ("was ist eine Abhängigkeit und wie installiere ich sie", 0.5),
        ("comment réinitialiser le mot de passe", 0.5),
        ("如何重置密码", 0.0),
        ("パスワードを再設定する", 0.0),
        ("비밀번호 재설정", 0.0),
        ("сбросить пароль", 0.0),
        ("إعادة تعيين كلمة المرور", 0.0),
        ("επαναφορά κωδικού", 0.0),
        ("รีเซ็ตรหัสผ่าน", 0.0),
    ],
)
def test_trust_follows_what_an_english_model_can_read(embedder: OnnxEmbedder, query: str, trust: float) -> None:
    assert embedder.query_trust(query) == trust


def test_a_few_foreign_letters_cost_little_trust(embedder: OnnxEmbedder) -> None:
    assert 0.8 < embedder.query_trust("what does the word 密码 mean in this context") < 1.0


def test_chunks_mostly_in_another_script_are_not_embedded(embedder: OnnxEmbedder) -> None:
    assert not embedder.embeds("密码重置的方法 API")
    assert embedder.embeds("Call the reset endpoint 密码")
    assert embedder.embeds("1.2.3 | ---")


def test_a_model_of_all_scripts_trusts_every_letter() -> None:
    assert foreign_share("密码 пароль", ()) == 0.0


def test_fingerprint_is_the_same_for_a_copy_and_another_for_other_weights(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(locate_builtin(), copy)
    original = load_embedder(locate_builtin(), MINILM).fingerprint
    assert load_embedder(copy, MINILM).fingerprint == original
    with (copy / "tokenizer.json").open("a", encoding="utf-8") as stream:
        stream.write("\n")
    assert load_embedder(copy, MINILM).fingerprint != original
    assert len(original) == 16


def test_a_folder_outside_the_catalogue_embeds_like_the_model_it_holds(tmp_path: Path, embedder: OnnxEmbedder) -> None:
    (tmp_path / "onnx").mkdir()
    shutil.copy(locate_builtin() / "model.onnx", tmp_path / "onnx" / "model_quantized.onnx")
    shutil.copy(locate_builtin() / "tokenizer.json", tmp_path)
    (tmp_path / "config.json").write_text('{"max_position_embeddings": 128}')
    record = describe_folder(tmp_path)
    other = load_embedder(tmp_path, record)
    assert (record.context, other.dim, other.description.format) == (128, 384, "int8")
    # The runtime fuses this graph once more, which moves the last digits.
    assert (other.embed_queries(TEXTS[:1]) @ embedder.embed_queries(TEXTS[:1]).T).item() > 0.999


@pytest.mark.parametrize("has_byte_products", [True, False])
def test_sums_are_widened_only_where_the_processor_would_saturate_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_byte_products: bool
) -> None:
    folder = tmp_path / "own-model"
    shutil.copytree(locate_builtin(), folder)
    monkeypatch.setattr(embedder_module, "has_byte_products", lambda: has_byte_products)
    opened: list[Mapping[str, str]] = []

    def noting(path: Path, *, options: Mapping[str, str], **others: Any) -> Session:
        opened.append(options)
        return open_session(path, options=options, **others)

    monkeypatch.setattr(embedder_module, "open_session", noting)
    load_embedder(folder, describe_folder(folder))
    load_embedder(locate_builtin(), MINILM)
    assert opened == [{} if has_byte_products else {"session.x64quantprecision": "1"}, {}]


_PIECE = {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 9}
_MARKED = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "x", "type_id": 0}}], "pair": []}


@pytest.mark.parametrize(
    "changes",
    [
        {"model": {}},
        # The library panics, which is no `Exception`.
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": {}}},
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}},
        {"post_processor": {**_MARKED, "special_tokens": {}}},
        {},
    ],
    ids=str,
)
def test_a_damaged_tokenizer_is_one_line(tmp_path: Path, changes: dict[str, object]) -> None:
    content = {"version": "1.0", "added_tokens": [], "model": {**_PIECE, "vocab": {"a": 0}}, **changes}
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(ModelError, match="tokenizer") as caught:
        load_tokenizer(tmp_path / "tokenizer.json").encode("other letters")
    assert "\n" not in caught.value.message
    assert caught.value.hint


def test_an_empty_folder_says_what_was_expected(tmp_path: Path) -> None:
    with pytest.raises(ModelError) as caught:
        describe_folder(tmp_path)
    assert "model_quantized.onnx" in (caught.value.hint or "")


def test_a_folder_that_holds_safetensors_alone_is_sent_to_the_import(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(ModelError) as caught:
        describe_folder(tmp_path)
    assert caught.value.hint == f"qmd models import {tmp_path}"
