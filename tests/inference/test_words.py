"""Words of the built-in model's vocabulary."""

from __future__ import annotations

import json

import pytest

from qmd.inference.models.builtin import is_word, locate_builtin


@pytest.mark.parametrize(
    "word",
    ["divorce", "decide", "Decided", "divorcing", "shopped", "happily", "elections", "1736", "café", "greediness"],
)
def test_a_word_of_the_vocabulary_and_its_inflections_are_words(word: str) -> None:
    assert is_word(word)


@pytest.mark.parametrize(
    "typed", ["reprsentative", "selction", "recieve", "happend", "##ing", 'ing":1', "", "kubernetes", "слово", "casz"]
)
def test_a_typing_error_and_a_piece_are_no_words(typed: str) -> None:
    assert not is_word(typed)


def test_every_whole_word_of_the_shipped_tokenizer_is_known() -> None:
    tokenizer = json.loads((locate_builtin() / "tokenizer.json").read_text(encoding="utf-8"))
    whole = [word for word in tokenizer["model"]["vocab"] if word.isascii() and word.isalpha()]
    assert len(whole) > 20_000
    assert all(map(is_word, whole[::500]))
