"""Reading GGUF and safetensors: number formats, damaged files, vocabularies."""

import itertools
import json
import re
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf.quants import dequantize
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from qmd.errors import ModelError
from qmd.plugins.models.formats.gguf import GgufFile, is_gguf, read_head
from qmd.plugins.models.formats.number_formats import FORMATS
from qmd.plugins.models.formats.safetensors import read_safetensors
from qmd.plugins.models.formats.stored_weights import StoredTensor
from qmd.plugins.models.formats.vocabulary import tokenizer_json
from tests.inference.tiny_models import dequantize_blocks
from tests.plugins.models.gguf_files import QUANTISED, finish, sentence_pieces, stored, write_gemma, write_qwen3
from tests.plugins.models.safetensors_files import write_safetensors

TEXTS = (
    "the yes no lex: vec: ing",
    "Ünïcödé, 世界 你好 1234567 !? 🙂👩‍👩‍👧 \t tabs\n\n\n  and   spaces  ",
    "it's they'RE we'll  I'd\r\nnew line",
    "<|im_start|>user\nwhat?<|im_end|>\n<think>\n\n</think>\n\n",
    "e\u0301 and é",
    "",
)


def _rows(kind: str) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return a matrix of (6, 512) in a format, as bytes."""
    raw = stored(np.random.default_rng(1), (6, 512), kind)
    return np.ascontiguousarray(raw).view(np.uint8).reshape(6, -1)


def test_every_format_that_is_read_is_tested() -> None:
    assert set(QUANTISED) == set(FORMATS)


@pytest.mark.parametrize("kind", QUANTISED)
def test_every_format_gives_the_weights_that_llama_cpp_gives(kind: str) -> None:
    rows = _rows(kind)
    assert np.array_equal(FORMATS[kind].floats(rows), dequantize(rows, gguf.GGMLQuantizationType[kind]))


@pytest.mark.parametrize("kind", [kind for kind in QUANTISED if kind not in ("F32", "F16", "BF16")])
def test_blocks_of_our_graphs_hold_the_very_weights_of_the_file(kind: str) -> None:
    rows = _rows(kind)
    tensor = StoredTensor("w", (6, 512), kind, rows)
    blocks = tensor.blocks()
    back = dequantize_blocks(blocks.packed, blocks.scales, bits=blocks.bits, block=blocks.block, k=512)
    if blocks.offsets is not None:
        back = back + blocks.offsets.repeat(blocks.block, axis=1)
    # One rounding of float32 where an offset is added back.
    assert np.abs(back - FORMATS[kind].floats(rows)).max() <= 1e-6


@pytest.mark.parametrize("kind", QUANTISED)
def test_a_table_is_held_within_a_step_of_eight_bits(kind: str) -> None:
    rows = _rows(kind)
    table = StoredTensor("w", (6, 512), kind, rows).table()
    back = dequantize_blocks(table.packed, table.scales, bits=table.bits, block=table.block, k=512)
    step = np.abs(FORMATS[kind].floats(rows)).max() / 128
    assert np.abs(back - FORMATS[kind].floats(rows)).max() <= 1.01 * step


def test_settings_and_tensors_are_read_as_they_were_written(tmp_path: Path) -> None:
    held = write_qwen3(tmp_path / "m.gguf", {"": "Q4_K", "attn_v": "Q6_K"})
    file = GgufFile(tmp_path / "m.gguf")
    assert (file.architecture, file.setting("block_count")) == ("qwen3", 3)
    assert (file.tensors["blk.1.attn_v.weight"].type, file.tensors["blk.1.attn_q.weight"].type) == ("Q6_K", "Q4_K")
    assert np.array_equal(file.tensors["blk.1.attn_v.weight"].floats(), held["layers.1.v"])
    assert read_head(tmp_path / "m.gguf")["general.name"] == "tiny"
    assert not any(name.startswith("tokenizer.") for name in read_head(tmp_path / "m.gguf"))


@pytest.mark.parametrize("share", [0.0, 0.0001, 0.001, 0.01, 0.3, 0.9, 0.9999])
def test_a_file_that_was_cut_short_is_refused_in_one_line(tmp_path: Path, share: float) -> None:
    write_qwen3(tmp_path / "m.gguf", "Q8_0")
    whole = (tmp_path / "m.gguf").read_bytes()
    (tmp_path / "cut.gguf").write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(ModelError) as caught:
        GgufFile(tmp_path / "cut.gguf")
    assert "\n" not in caught.value.message and "cut.gguf" in caught.value.message


def test_a_cut_tensor_is_named_with_its_type(tmp_path: Path) -> None:
    write_qwen3(tmp_path / "m.gguf", "Q4_K")
    whole = (tmp_path / "m.gguf").read_bytes()
    (tmp_path / "m.gguf").write_bytes(whole[:-50_000])
    with pytest.raises(ModelError, match=r"tensor 'blk\.2\.ffn_\w+\.weight' of type 'Q4_K'"):
        GgufFile(tmp_path / "m.gguf")


def test_a_format_that_is_not_read_is_named_with_its_tensor(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(str(tmp_path / "m.gguf"), "qwen3")
    raw = np.zeros((4, 110), np.uint8)
    writer.add_tensor("blk.0.attn_q.weight", raw, raw_dtype=gguf.GGMLQuantizationType.Q3_K)
    finish(writer)
    with pytest.raises(ModelError, match=r"tensor 'blk\.0\.attn_q\.weight' .* type 'Q3_K'") as caught:
        GgufFile(tmp_path / "m.gguf")
    assert caught.value.hint is not None and "Q8_0" in caught.value.hint


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_damaged_head_is_always_one_line(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    whole, damaged = (tmp_path_factory.getbasetemp() / name for name in ("whole.gguf", "damaged.gguf"))
    if not whole.exists():
        write_qwen3(whole, "Q8_0")
    raw = bytearray(whole.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(4, 3000))] = data.draw(st.integers(0, 255))
    damaged.write_bytes(bytes(raw))
    try:
        GgufFile(damaged)
    except ModelError as error:
        assert "\n" not in error.message


@pytest.mark.parametrize("content", [b"", b"GG", b"PK\x03\x04 a zip file", b"GGUF\x01\x00\x00\x00" + bytes(40)])
def test_what_is_no_gguf_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(ModelError):
        GgufFile(tmp_path / "x")
    assert is_gguf(tmp_path / "x") is content.startswith(b"GGUF")


def test_one_part_of_a_split_file_is_refused(tmp_path: Path) -> None:
    write_qwen3(tmp_path / "m.gguf", settings={"split.count": 3})
    with pytest.raises(ModelError, match="one of 3 parts"):
        GgufFile(tmp_path / "m.gguf")


def _tokenizer(path: Path, **options: bool) -> Tokenizer:
    return Tokenizer.from_str(json.dumps(tokenizer_json(GgufFile(path), **options)))


def test_a_byte_level_vocabulary_gives_the_tokens_of_a_tokenizer_built_directly(tmp_path: Path) -> None:
    from tokenizers import Regex, normalizers, pre_tokenizers

    write_qwen3(tmp_path / "m.gguf")
    direct = Tokenizer.from_file(str(tmp_path / "m-tokenizer" / "tokenizer.json"))
    direct.normalizer = normalizers.NFC()
    split = Regex(
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    direct.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(split, "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    made = _tokenizer(tmp_path / "m.gguf")
    for text in TEXTS:
        assert made.encode(text).ids == direct.encode(text).ids, text
        assert made.decode(made.encode(text).ids, skip_special_tokens=False) == _composed(text)


def _composed(text: str) -> str:
    import unicodedata

    return unicodedata.normalize("NFC", text)


@pytest.mark.parametrize(
    ("said", "by_default", "ends"), [(None, True, True), (None, False, False), (False, True, False)]
)
def test_an_end_token_follows_where_the_file_says_so_or_says_nothing(
    tmp_path: Path, said: bool | None, by_default: bool, ends: bool
) -> None:
    key = {} if said is None else {"tokenizer.ggml.add_eos_token": said}
    write_qwen3(tmp_path / "m.gguf", pooling=gguf.PoolingType.LAST, settings=key)
    tokenizer = _tokenizer(tmp_path / "m.gguf", ends_by_default=by_default)
    last = tokenizer.encode("the sea").ids[-1]
    assert (last == tokenizer.token_to_id("<|endoftext|>")) is ends


def test_an_older_file_of_an_embedder_ends_texts_as_its_makers_did_not_as_a_chat(tmp_path: Path) -> None:
    # Without pooling the writer names <|im_end|>, as converters did for Qwen3-Embedding until June 2025.
    write_qwen3(tmp_path / "old.gguf")
    tokenizer = _tokenizer(tmp_path / "old.gguf", ends_by_default=True)
    assert tokenizer.encode("the sea").ids[-1] == tokenizer.token_to_id("<|endoftext|>")
    write_qwen3(tmp_path / "said.gguf", settings={"tokenizer.ggml.add_eos_token": True})
    tokenizer = _tokenizer(tmp_path / "said.gguf", ends_by_default=True)
    assert tokenizer.encode("the sea").ids[-1] == tokenizer.token_to_id("<|im_end|>")


def _sentence_piece(text: str) -> list[str]:
    """Split by SentencePiece's own algorithm, slowly: join the neighbours whose union has the best score, the first
    ones of equals, until there are none."""
    pieces = {piece: score for piece, score, kind in sentence_pieces() if kind == gguf.TokenType.NORMAL}
    own = sorted((piece for piece, _, kind in sentence_pieces() if kind == gguf.TokenType.USER_DEFINED), key=len)
    found: list[str] = []
    for part in re.split(f"({'|'.join(map(re.escape, reversed(own)))})", text):
        if part in own:
            found.append(part)
            continue
        letters = list(part.replace(" ", "▁"))
        while True:
            joined = [(pieces.get(a + b), -at) for at, (a, b) in enumerate(itertools.pairwise(letters))]
            best = max(((score, at) for score, at in joined if score is not None), default=None)
            if best is None:
                break
            at = -best[1]
            letters[at : at + 2] = [letters[at] + letters[at + 1]]
        for letter in letters:
            found += [letter] if letter in pieces else [f"<0x{byte:02X}>" for byte in letter.encode()]
    return found


@settings(max_examples=200, deadline=None)
@given(st.text(st.sampled_from("thesearching 世界你é\n🙂 .,<"), max_size=24))
def test_scores_give_the_tokens_of_sentencepiece(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.getbasetemp() / "gemma.gguf"
    if not path.exists():
        write_gemma(path)
    tokenizer = _tokenizer(path)
    assert tokenizer.encode(text, add_special_tokens=False).tokens == _sentence_piece(text)
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_gemmas_texts_begin_and_end_with_their_marks(tmp_path: Path) -> None:
    write_gemma(tmp_path / "m.gguf")
    tokens = _tokenizer(tmp_path / "m.gguf").encode("the sea<start_of_turn>").tokens
    assert (tokens[0], tokens[-2], tokens[-1]) == ("<bos>", "<start_of_turn>", "<eos>")


@pytest.mark.parametrize(("key", "value"), [("tokenizer.ggml.pre", "llama-bpe"), ("tokenizer.ggml.model", "rwkv")])
def test_a_vocabulary_of_another_kind_is_named(tmp_path: Path, key: str, value: str) -> None:
    write_qwen3(tmp_path / "m.gguf")
    file = GgufFile(tmp_path / "m.gguf")
    file.settings[key] = value
    with pytest.raises(ModelError, match=value):
        tokenizer_json(file)


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16"])
def test_safetensors_are_read_in_one_file_or_several(tmp_path: Path, kind: str) -> None:
    weights = {"a.weight": np.arange(6, dtype=np.float32).reshape(2, 3), "b.weight": np.ones(4, np.float32)}
    write_safetensors(tmp_path / "one", weights, kind)
    write_safetensors(tmp_path / "two", weights, kind, parts=2)
    for folder in ("one", "two"):
        found = read_safetensors(tmp_path / folder)
        floats = {name: tensor.floats().tolist() for name, tensor in found.items()}
        assert floats == {name: value.tolist() for name, value in weights.items()}


@pytest.mark.parametrize("cut", [0, 5, 20, 100, -3])
def test_safetensors_cut_short_are_refused_in_one_line(tmp_path: Path, cut: int) -> None:
    write_safetensors(tmp_path, {"a.weight": np.ones((8, 8), np.float32)}, "F32")
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(ModelError) as caught:
        read_safetensors(tmp_path)
    assert "\n" not in caught.value.message


def test_a_type_of_safetensors_that_is_not_read_is_named_with_its_tensor(tmp_path: Path) -> None:
    write_safetensors(tmp_path, {"a.weight": np.ones((8, 8), np.float32)}, "F32")
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes().replace(b'"F32"', b'"I64"'))
    with pytest.raises(ModelError, match=r"'a\.weight' .* 'I64'"):
        read_safetensors(tmp_path)


def test_an_index_of_safetensors_cannot_reach_out_of_its_folder(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "in", {"a.weight": np.ones(4, np.float32)}, "F32", parts=1)
    index = {"weight_map": {"a.weight": "../out.safetensors"}}
    (tmp_path / "in" / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelError, match="not a file in its folder"):
        read_safetensors(tmp_path / "in")
