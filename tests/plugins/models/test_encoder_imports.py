"""Encoders of GGUF files and safetensors folders: vectors, vocabularies, prompts and refusals."""

import json
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from tokenizers import Tokenizer

from qmd.errors import ModelError, UsageError
from qmd.inference.engines.embedder import OnnxEmbedder, load_embedder
from qmd.inference.engines.encoder_graph import BatchRuns
from qmd.inference.models.builtin import locate_builtin
from qmd.inference.models.folders import read_manifest
from qmd.inference.models.prepared import ImportForm
from qmd.inference.onnx_files import read_model
from qmd.inference.runtime.tokenization import QuickTokenizer, load_tokenizer
from qmd.plugins.models.formats.gguf import GgufFile
from qmd.plugins.models.formats.importing import import_weights
from qmd.plugins.models.formats.vocabulary import tokenizer_json
from qmd.plugins.onnx.model import Model
from tests.plugins.models.encoder_files import (
    MARKS,
    PIECES,
    WORD_PIECES,
    charsmap,
    encoder_vectors,
    write_builtin,
    write_encoder,
)
from tests.plugins.models.gguf_files import LAYERS, Doubles, Floats, write_qwen3
from tests.plugins.models.safetensors_files import write_safetensors

TEXTS = ("", "the sea", "The searching OTHER things, 世界! " * 6)
HOSTILE = (
    *(
        "",
        " ",
        "Ünïcödé é e\u0301 ﬁ ½ İ ß",
        "世界 你好。カタカナ ﾊﾝｶｸ 안녕하세요 мир مرحبا नमस्ते ไทย",
        "🙂👩‍👩‍👧 a\u200d\u0300b",
    ),
    *("\0a\x01\x7f\x80\u200b\ufeff\u2028b\ufffd", "x" * 300, "a" * 99 + " " + "b" * 101, "[CLS] x [SEP] [unused1] <s>"),
    *("C++ $100 «q» it's\r\n\ttab\u00a0nbsp\u3000wide", "\U00020000𝕬𝖇𝖈 ▁ ▁▁ x▁y"),
)


def _imported(tmp_path: Path, source: Path, form: ImportForm | None = None) -> OnnxEmbedder:
    report = import_weights(source, tmp_path / "models", form=form)
    return load_embedder(report.folder, report.model.record, allow_gpu=False)


def _cosines(embedder: OnnxEmbedder, held: Mapping[str, Floats]) -> list[float]:
    def expected(text: str) -> Doubles:
        rows = encoder_vectors(held, embedder.encoder.tokenizer.encode(embedder.record.document_prompt + text).ids)
        vector = rows[0] if embedder.record.pooling == "first" else rows.mean(axis=0)
        return np.asarray(vector / np.linalg.norm(vector))

    return [float(ours @ expected(text)) for ours, text in zip(embedder.embed_documents(TEXTS), TEXTS, strict=True)]


@pytest.mark.parametrize("kind", ["F32", "F16", "Q8_0", "Q4_K"])
@pytest.mark.parametrize("layout", ["bert", "nomic-bert", "t5"])
def test_an_encoder_computes_what_the_files_weights_say(tmp_path: Path, layout: str, kind: str) -> None:
    pooling = gguf.PoolingType.CLS if layout == "bert" else gguf.PoolingType.MEAN
    tokens, architecture = (PIECES, "bert") if layout == "t5" else (WORD_PIECES, layout)
    held = write_encoder(tmp_path / "m.gguf", kind, architecture=architecture, tokens=tokens, pooling=pooling)
    embedder = _imported(tmp_path, tmp_path / "m.gguf", "q4" if kind == "Q4_K" else "q8")
    record = embedder.record
    assert (record.role, record.pooling) == ("embed", "first" if layout == "bert" else "mean")
    assert (record.context, record.max_tokens) == (128, 96)
    assert min(_cosines(embedder, held)) > 0.9995


@pytest.mark.parametrize("kind", ["F32", "Q4_K"])
@pytest.mark.parametrize("layout", ["bert", "nomic-bert", "t5"])
def test_an_encoder_in_bytes_computes_nearly_what_the_files_weights_say(tmp_path: Path, layout: str, kind: str) -> None:
    tokens, architecture = (PIECES, "bert") if layout == "t5" else (WORD_PIECES, layout)
    held = write_encoder(tmp_path / "m.gguf", kind, architecture=architecture, tokens=tokens)
    embedder = _imported(tmp_path, tmp_path / "m.gguf")
    assert embedder.record.formats[0].name == "int8"
    assert min(_cosines(embedder, held)) > 0.995


@pytest.mark.parametrize("architecture", ["bert", "nomic-bert"])
def test_a_layer_in_bytes_rounds_each_input_once(tmp_path: Path, architecture: str) -> None:
    write_encoder(tmp_path / "m.gguf", "Q8_0", architecture=architecture)
    graph = read_model(import_weights(tmp_path / "m.gguf", tmp_path / "models").folder / "model.onnx", Model).graph
    assert graph is not None
    kinds = Counter(node.op_type for node in graph.node)
    # Queries, keys and values are one product, as are gate and up; that of `down` has a scale a token.
    assert kinds["DynamicQuantizeMatMul"] == 3 * LAYERS
    assert kinds["MatMulIntegerToFloat"] == LAYERS
    assert not kinds["MatMul"] + kinds["MatMulNBits"]
    assert [one.name for one in graph.input] == ["input_ids"]


def test_a_token_with_huge_values_spoils_no_other_in_bytes(tmp_path: Path) -> None:
    held = write_encoder(tmp_path / "plain.gguf")
    # The vector of one token is a pattern of signs, which eight coordinates of the feed-forward half find.
    signs = np.sign(held["token_embd.weight"][5])
    held["token_embd.weight"][5] = 3 * signs
    held["blk.0.ffn_up.weight"][:8] = 2_000 * signs / len(signs)
    held["blk.0.ffn_up.bias"][:8] = -1_000
    write_encoder(tmp_path / "m.gguf", weights=held)
    ids = [2, 9, 5, 11, 12, 3]
    session = _imported(tmp_path, tmp_path / "m.gguf").encoder.session
    ours, expected = session.run(["last_hidden_state"], {"input_ids": [ids]})[0][0], encoder_vectors(held, ids)
    cosines = (ours * expected).sum(1) / np.linalg.norm(ours, axis=1) / np.linalg.norm(expected, axis=1)
    assert cosines.min() > 0.99


def test_an_import_keeps_its_form_until_another_is_asked_for(tmp_path: Path) -> None:
    source, models = tmp_path / "m.gguf", tmp_path / "models"
    write_encoder(source, "Q4_0")
    blocks = import_weights(source, models, form="q4")
    before = (blocks.folder / "model.onnx").read_bytes()
    again = import_weights(source, models)
    assert (again.is_new, again.model) == (False, blocks.model)
    made = import_weights(source, models, form="int8")
    assert (made.is_new, made.model.record.formats[0].name) == (True, "int8")
    assert not import_weights(source, models).is_new
    assert import_weights(source, models, form="q4").is_new
    assert (blocks.folder / "model.onnx").read_bytes() == before


@pytest.mark.parametrize("form", ["q4", "int8"])
def test_a_form_that_a_network_lacks_is_refused_with_those_it_has(tmp_path: Path, form: ImportForm) -> None:
    (write_encoder if form == "q4" else write_qwen3)(tmp_path / "m.gguf", "Q8_0")
    with pytest.raises(UsageError, match=f"no form '{form}'") as caught:
        import_weights(tmp_path / "m.gguf", tmp_path / "models", form=form)
    assert "q8" in (caught.value.hint or "")


_ROWS: dict[str, Callable[[Floats], None]] = {
    "zeros": lambda weight: weight.fill(0),
    "the least numbers": lambda weight: weight.fill(1e-45),
    "an outlier": lambda weight: weight[0].fill(1e8),
}


@pytest.mark.parametrize("case", _ROWS)
@pytest.mark.filterwarnings("error")
def test_strange_weights_in_bytes_give_numbers(tmp_path: Path, case: str) -> None:
    held = write_encoder(tmp_path / "plain.gguf")
    for part in ("attn_v", "attn_output", "ffn_up", "ffn_down"):
        _ROWS[case](held[f"blk.1.{part}.weight"])
    write_encoder(tmp_path / "m.gguf", weights=held)
    assert np.isfinite(_imported(tmp_path, tmp_path / "m.gguf").embed_documents(TEXTS)).all()


@pytest.mark.parametrize("architecture", ["bert", "nomic-bert"])
def test_padded_rows_of_an_encoder_change_nothing(tmp_path: Path, architecture: str) -> None:
    write_encoder(tmp_path / "m.gguf", "Q8_0", architecture=architecture)
    encoder = _imported(tmp_path, tmp_path / "m.gguf", "q8").encoder
    rows = [[2, 5, 6, 3], [2, 7, 8, 9, 3]]
    for index, vectors in BatchRuns(encoder.session).run(rows):
        mask = np.ones((1, len(rows[index])), np.int64)
        alone = encoder.session.run(["last_hidden_state"], {"input_ids": [rows[index]], "attention_mask": mask})[0][0]
        assert np.abs(vectors - alone).max() < 1e-4


def test_the_built_in_model_in_a_gguf_file_gives_the_vectors_of_its_makers(tmp_path: Path) -> None:
    write_builtin(tmp_path / "all-MiniLM-L6-v2-ggml-model-f32.gguf")
    embedder = _imported(tmp_path, tmp_path / "all-MiniLM-L6-v2-ggml-model-f32.gguf")
    entries = json.loads((locate_builtin() / "canonical.json").read_text("utf-8"))
    ours = embedder.embed_documents([entry["text"] for entry in entries])
    assert (ours * np.array([entry["vector"] for entry in entries])).sum(axis=1).min() > 0.99
    assert embedder.record.context == 256


_NAMES = """
    token_embd=embeddings.word_embeddings position_embd=embeddings.position_embeddings
    token_types=embeddings.token_type_embeddings token_embd_norm=embeddings.LayerNorm
    attn_q=attention.self.query attn_k=attention.self.key attn_v=attention.self.value
    attn_output=attention.output.dense attn_output_norm=attention.output.LayerNorm
    ffn_up=intermediate.dense ffn_down=output.dense layer_output_norm=output.LayerNorm
"""
_THEIRS = dict(pair.split("=") for pair in _NAMES.split())


def _folder(place: Path, held: Mapping[str, Floats], **config: object) -> Path:
    """Write a folder with the names of XLM-RoBERTa's makers: two rows of positions are those of padding."""
    named = {"pooler.dense.weight": held["token_embd.weight"]}
    for name, value in held.items():
        *layer, stem, end = name.split(".")
        theirs = f"{f'encoder.layer.{layer[1]}.' if layer else ''}{_THEIRS[stem]}.{end}"
        named[theirs] = np.vstack([value[:2] * 9, value]) if stem == "position_embd" else value
    write_safetensors(place, named, "F32")
    settings = {"model_type": "xlm-roberta", "num_hidden_layers": LAYERS, "num_attention_heads": 8, "pad_token_id": 1}
    settings |= {"max_position_embeddings": 130, "layer_norm_eps": 1e-5, "hidden_act": "gelu", **config}
    (place / "config.json").write_text(json.dumps(settings))
    (place / "1_Pooling").mkdir()
    (place / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_cls_token": True}))
    return place


@pytest.mark.parametrize("model_type", ["xlm-roberta", "camembert"])
def test_a_folder_of_an_encoder_is_read_as_its_makers_say(tmp_path: Path, model_type: str) -> None:
    held = write_encoder(tmp_path / "m.gguf", tokens=PIECES)
    place = _folder(tmp_path / "multilingual-e5-small", held, model_type=model_type)
    (place / "tokenizer.json").write_text(json.dumps(tokenizer_json(GgufFile(tmp_path / "m.gguf"))))
    embedder = _imported(tmp_path, place, "q8")
    record = embedder.record
    assert (record.pooling, record.context, record.query_prompt) == ("first", 128, "query: ")
    assert min(_cosines(embedder, held)) > 0.9995


@pytest.mark.parametrize("tokens", [PIECES, WORD_PIECES])
def test_only_a_unigram_vocabulary_gets_an_index(tmp_path: Path, tokens: list[str]) -> None:
    write_encoder(tmp_path / "m.gguf", tokens=tokens)
    embedder, folder = _imported(tmp_path, tmp_path / "m.gguf"), tmp_path / "models" / "imported--m"
    manifest = read_manifest(folder)
    assert manifest is not None
    has_index = "tokenizer.pieces" in [file.path for file in manifest.files]
    assert (has_index, isinstance(embedder.encoder.tokenizer, QuickTokenizer)) == (tokens == PIECES,) * 2
    assert ("_inner" in vars(embedder.encoder.tokenizer)) == (tokens != PIECES)


@pytest.mark.parametrize("name", ["bge-small-en-v1.5-q8_0", "ollama-blob"])
def test_prompts_and_pooling_are_those_of_the_makers_where_the_file_is_silent(tmp_path: Path, name: str) -> None:
    write_encoder(tmp_path / f"{name}.gguf", pooling=None, settings={"general.name": "Bge Small En v1.5"})
    record = import_weights(tmp_path / f"{name}.gguf", tmp_path / "models").model.record
    assert (record.pooling, record.document_prompt) == ("first", "")
    assert record.query_prompt.startswith("Represent this sentence")


def _tokenizer(tmp_path: Path, **options: Any) -> Tokenizer:
    write_encoder(tmp_path / "v.gguf", **options)
    return Tokenizer.from_str(json.dumps(tokenizer_json(GgufFile(tmp_path / "v.gguf"))))


@pytest.mark.parametrize("typed", [True, False])
def test_word_pieces_cut_texts_as_their_makers_do(tmp_path: Path, typed: bool) -> None:
    own = load_tokenizer(locate_builtin() / "tokenizer.json")
    tokens = list(json.loads((locate_builtin() / "tokenizer.json").read_text("utf-8"))["model"]["vocab"])
    # The first converters marked no token as special.
    untyped = {"tokenizer.ggml.token_type": None, "tokenizer.ggml.cls_token_id": None}
    found = _tokenizer(tmp_path, tokens=tokens, settings={} if typed else untyped)
    texts = HOSTILE if typed else [text for text in HOSTILE if "[" not in text]
    assert [tuple(found.encode(text).ids) for text in texts] == [own.encode(text).ids for text in texts]


def test_a_cased_vocabulary_keeps_capitals(tmp_path: Path) -> None:
    found = _tokenizer(tmp_path, tokens=[*WORD_PIECES, "The", "Sea", "É", "Aa", "Bb", "Cc"])
    assert found.encode("The sea É").tokens == ["[CLS]", "The", "sea", "É", "[SEP]"]


def test_unigram_pieces_are_the_likeliest_of_a_normalised_text(tmp_path: Path) -> None:
    found = _tokenizer(tmp_path, tokens=PIECES)
    assert found.encode("  the  searching ﬁ\nＡ 世界🙂").tokens == [
        *("<s>", "▁the", "▁search", "ing", "▁", "fi", "▁", "A", "▁", "世界", "🙂", "</s>")
    ]
    assert found.token_to_id("<unk>") in found.encode("🙂").ids


_BROKEN_MAP = charsmap({"Ａ": "A"})
_REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a bias is missing": ({"shapes": {"blk.1.attn_k.bias": None}}, r"layers\.1\.k\.bias"),
    "a bias too short": ({"shapes": {"blk.1.attn_k.bias": (9,)}}, "shape '9'"),
    "no gate": ({"architecture": "nomic-bert", "shapes": {"blk.0.ffn_gate.weight": None}}, "gate"),
    "a gate too many": ({"shapes": {"blk.0.ffn_gate.weight": (512, 256)}}, "gate"),
    "no positions": ({"shapes": {"position_embd.weight": None}}, "positions"),
    "narrow positions": ({"shapes": {"position_embd.weight": (128, 64)}}, "m.gguf"),
    "few positions": ({"shapes": {"position_embd.weight": (9, 256)}}, "9 positions"),
    "types of another width": ({"shapes": {"token_types.weight": (1 << 16, 9)}}, "m.gguf"),
    "a down that does not fit": ({"shapes": {"blk.2.ffn_down.weight": (256, 256)}}, "down"),
    "a layer less": ({"settings": {"bert.block_count": LAYERS - 1}}, "layers.2"),
    "layers without end": ({"settings": {"bert.block_count": (1 << 31) - 1}}, "not found"),
    "heads without end": ({"settings": {"bert.attention.head_count": (1 << 31) - 1}}, "shape"),
    "no heads": ({"settings": {"bert.attention.head_count": 0}}, "shape"),
    "heads that do not divide": ({"settings": {"bert.attention.head_count": 7}}, "shape"),
    "a rank": ({"pooling": gguf.PoolingType.RANK}, "only embeds"),
    "tokens without vectors": ({"shapes": {"token_embd.weight": (9, 256)}}, "9 vectors"),
    "no beginning": ({"tokens": [one for one in WORD_PIECES if one != "[CLS]"]}, r"\[CLS\]"),
    "no end": ({"tokens": [one for one in WORD_PIECES if one != "[SEP]"]}, r"\[SEP\]"),
    "nothing for unknown words": ({"tokens": [one for one in WORD_PIECES if one != "[UNK]"]}, r"\[UNK\]"),
    "a mark beyond the end": ({"settings": {"tokenizer.ggml.cls_token_id": (1 << 31) - 1}}, r"\[CLS\]"),
    "a token without end": ({"tokens": [*WORD_PIECES, "a" * 1_025]}, "whole vocabulary"),
    "few scores": ({"tokens": PIECES, "settings": {"tokenizer.ggml.scores": [0.5]}}, "scores"),
    "scores of nothing": ({"tokens": PIECES, "settings": {"tokenizer.ggml.scores": [np.nan] * len(PIECES)}}, "scores"),
}
_MAPS = {
    "cut": _BROKEN_MAP[:300],
    "a trie larger than all": b"\xff" * 900,
    "a node that leads out": _BROKEN_MAP[:4] + (1 << 29 | 512).to_bytes(4, "little") + _BROKEN_MAP[8:],
    "a replacement beyond the end": _BROKEN_MAP.replace((1 << 31).to_bytes(4, "little"), b"\xff\xff\xff\xff"),
    "half a letter": charsmap({"Ａ": "é"}).replace(
        (1 << 31).to_bytes(4, "little"), (1 << 31 | 1).to_bytes(4, "little")
    ),
    "a letter that becomes a book": charsmap({"Ａ": "A" * 300}),
    "no text": _BROKEN_MAP[:-2] + b"\xff\0",
}
_REFUSED["an unknown token that is unused"] = (
    {"settings": {"tokenizer.ggml.token_type": [5 if token == "[UNK]" else 1 for token in WORD_PIECES]}},
    "tokenizer cannot read a text",
)
_REFUSED |= {
    f"normalisation: {name}": ({"tokens": PIECES, "settings": {"tokenizer.ggml.precompiled_charsmap": raw}}, "damaged")
    for name, raw in _MAPS.items()
}


@pytest.mark.parametrize("case", _REFUSED)
def test_an_encoder_that_does_not_hold_together_is_refused_in_one_line(tmp_path: Path, case: str) -> None:
    options, words = _REFUSED[case]
    write_encoder(tmp_path / "m.gguf", **options)
    with pytest.raises(ModelError, match=words) as caught:
        import_weights(tmp_path / "m.gguf", tmp_path / "models")
    assert "\n" not in caught.value.message and len(caught.value.message) < 300
    assert not [path for path in (tmp_path / "models").rglob("*") if path.is_file() and path.suffix != ".lock"]


@pytest.mark.parametrize(
    "changes",
    [
        *({"hidden_act": "relu"}, {"prenorm": True}, {"pad_token_id": 1 << 40}),
        *({"pad_token_id": -9}, {"num_attention_heads": []}, {"layer_norm_eps": 0}, {"model_type": "modernbert"}),
    ],
    ids=str,
)
def test_a_folder_that_computes_otherwise_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    place = _folder(tmp_path / "in", write_encoder(tmp_path / "m.gguf", tokens=PIECES), **changes)
    with pytest.raises(ModelError):
        import_weights(place, tmp_path / "models")


@pytest.mark.parametrize("file", ["2_Dense/config.json", "1_Pooling/config.json"])
def test_what_lies_behind_the_vectors_of_tokens_is_computed_or_refused(tmp_path: Path, file: str) -> None:
    place = _folder(tmp_path / "in", write_encoder(tmp_path / "m.gguf", tokens=PIECES))
    (place / file).parent.mkdir(exist_ok=True)
    (place / file).write_text(json.dumps({"pooling_mode": ["cls", "max"]}))
    with pytest.raises(ModelError, match=r"dense layer|cls\+max"):
        import_weights(place, tmp_path / "models")
    assert set(MARKS) < set(WORD_PIECES)
