"""The index of a Unigram vocabulary: the tokens of the whole tokenizer, and no use of it where it is damaged."""

import json
import struct
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import AddedToken, models, normalizers, pre_tokenizers, processors, trainers

from qmd.inference.runtime.pieces import index_pieces
from qmd.inference.runtime.tokenization import QuickTokenizer, Tokenizer, load_tokenizer, read_tokenizer
from tests.benchmarks.check_tokens import token_text

MARKS = ["<s>", "<pad>", "</s>", "<unk>"]
CANONICAL = Path(__file__).resolve().parents[2] / "models" / "multilingual" / "canonical.json"
SENTENCES = [entry["text"] for entry in json.loads(CANONICAL.read_text("utf-8"))]
WORDS = tuple(" ".join(SENTENCES).split())
TEXT = "Wann fährt die letzte Fähre?"


@pytest.fixture(scope="module")
def trained() -> tokenizers.Tokenizer:
    """Train a small XLM-R on sentences in sixteen languages."""
    made = tokenizers.Tokenizer(models.Unigram())
    made.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC()])
    made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    made.train_from_iterator(
        [*SENTENCES, '"quoted" \\ ["a",-1.0] [['] * 3,
        trainers.UnigramTrainer(vocab_size=900, special_tokens=[*MARKS, "<mask>"], unk_token="<unk>"),
    )
    made.add_special_tokens([AddedToken("<mask>", lstrip=True, normalized=True)])
    made.post_processor = processors.TemplateProcessing("<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    made.enable_truncation(20)
    return made


def _write(place: Path, made: tokenizers.Tokenizer, *, pretty: bool = False) -> Path:
    path = place / "tokenizer.json"
    made.save(str(path), pretty=pretty)
    index = index_pieces(path.read_bytes())
    assert index is not None
    path.with_suffix(".pieces").write_bytes(index)
    return path


@pytest.fixture
def path(tmp_path: Path, trained: tokenizers.Tokenizer) -> Path:
    return _write(tmp_path, trained)


def _is_parsed(tokenizer: Tokenizer) -> bool:
    return not isinstance(tokenizer, QuickTokenizer) or "_inner" in vars(tokenizer)


@pytest.mark.parametrize("pretty", [False, True])
def test_texts_of_thirty_scripts_have_the_tokens_of_the_whole_tokenizer(
    tmp_path: Path, trained: tokenizers.Tokenizer, pretty: bool
) -> None:
    path = _write(tmp_path, trained, pretty=pretty)
    quick, whole = load_tokenizer(path), Tokenizer(read_tokenizer(path))
    for text in (token_text(seed, WORDS) for seed in range(1500)):
        assert quick.encode(text) == whole.encode(text), text
        assert quick.encode(text, 9) == whole.encode(text, 9), text
        assert quick.unknown_share(text) == whole.unknown_share(text), text
    assert not _is_parsed(quick)


def test_threads_get_the_tokens_that_one_gets_alone(path: Path) -> None:
    quick, texts = load_tokenizer(path), [token_text(seed, WORDS) for seed in range(60)]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(quick.encode, texts)) == list(map(quick.encode, texts))
    assert not _is_parsed(quick)


def test_an_unknown_letter_has_its_score_by_the_lowest_of_the_whole_vocabulary(tmp_path: Path) -> None:
    # By the lowest of the text's own pieces, an unknown x before "yzw" would be better than the three others.
    scores = {"<unk>": 0.0, "xy": -10.0, "z": -10.0, "w": -10.0, "yzw": -1.0, "elsewhere": -40.0}
    path = _write(tmp_path, tokenizers.Tokenizer(models.Unigram(list(scores.items()), 0, False)))
    assert load_tokenizer(path).encode("xyzw").ids == Tokenizer(read_tokenizer(path)).encode("xyzw").ids == (1, 2, 3)


def test_an_added_token_outside_the_vocabulary_needs_the_whole_file(path: Path) -> None:
    content = json.loads(path.read_text("utf-8"))
    last = len(content["model"]["vocab"])
    content["added_tokens"].append({**content["added_tokens"][0], "id": last, "content": "Ferry", "normalized": True})
    quick = load_tokenizer(_write(path.parent, tokenizers.Tokenizer.from_str(json.dumps(content))))
    assert (last in quick.encode("A ferry.").ids, _is_parsed(quick)) == (False, False)
    assert (last in quick.encode("A Ferry.").ids, _is_parsed(quick)) == (True, True)


def test_indexing_and_long_texts_parse_the_file_once(path: Path) -> None:
    whole = Tokenizer(read_tokenizer(path))
    asks: list[Callable[[Tokenizer], object]] = [
        lambda one: one.token_starts(TEXT),
        lambda one: one.encode(TEXT * 20_000),
    ]
    for ask in asks:
        quick = load_tokenizer(path)
        assert (ask(quick), _is_parsed(quick)) == (ask(whole), True)
        parsed = vars(quick)["_inner"]
        assert (quick.encode(TEXT), vars(quick)["_inner"]) == (whole.encode(TEXT), parsed)


def test_lower_case_and_an_end_token_of_its_own_need_the_whole_file(path: Path) -> None:
    assert _is_parsed(load_tokenizer(path, is_lower_case=True))
    assert load_tokenizer(path, end_token="<mask>").encode(TEXT).ids[-1] == 4


def _with(**changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda content: content["model"].update(changes)


def _append(piece: str) -> Callable[[dict[str, Any]], None]:
    return lambda content: content["model"]["vocab"].append([piece, -9.0])


@pytest.mark.parametrize(
    "change",
    [
        _with(type="WordPiece"),
        _with(byte_fallback=True),
        _with(unk_id=None),
        _with(unk_id=0),
        _append("[UNK]"),
        _append("</s>"),
        _append("a" * 65),
    ],
)
def test_a_vocabulary_that_an_index_cannot_serve_has_none(path: Path, change: Callable[[Any], None]) -> None:
    content = json.loads(path.read_text("utf-8"))
    change(content)
    assert index_pieces(json.dumps(content).encode()) is None


@pytest.mark.parametrize("length", [0, 7, 8, 40, 48, 56, 999, -1, -8])
def test_a_damaged_index_is_not_used(path: Path, length: int) -> None:
    index = path.with_suffix(".pieces")
    raw = index.read_bytes()
    for damaged in (raw[:length], raw[:length] + b"?" + raw[length:][1:]):
        index.write_bytes(damaged)
        assert _is_parsed(load_tokenizer(path))


def test_an_index_of_another_file_is_not_used(path: Path) -> None:
    path.write_text(path.read_text("utf-8").replace('"lstrip":true', '"lstrip":false'), "utf-8")
    assert _is_parsed(load_tokenizer(path))


@pytest.mark.parametrize("number", [0, 5, 1 << 31, (1 << 32) - 1, 1 << 63, (1 << 64) - 1])
@pytest.mark.parametrize("place", [1, 2, 3, 4, 5, 6, -1, None])
def test_hostile_numbers_in_an_index_lead_to_the_whole_file_or_to_other_tokens(
    path: Path, place: int | None, number: int
) -> None:
    index, text = path.with_suffix(".pieces"), path.read_bytes()
    numbers = [one for (one,) in struct.iter_unpack("<Q", index.read_bytes())]
    numbers[6 if place is None else place : None if place is None else place + 1 or None] = [number] * (
        len(numbers) - 6 if place is None else 1
    )
    body = struct.pack(f"<{len(numbers) - 1}Q", *numbers[1:])
    check = zlib.crc32(body, zlib.crc32(text[: numbers[2]] + text[numbers[3] :]))
    index.write_bytes(struct.pack("<Q", check) + body)
    tokens = load_tokenizer(path).encode(TEXT)
    assert len(tokens.ids) == len(tokens.spans) and tokens.ids[-1] == 2
