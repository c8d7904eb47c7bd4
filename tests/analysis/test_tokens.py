"""The estimate of tokens: never too low, at most 15 % too high, and in linear time."""

import random

import pytest

from qmd.analysis import tokens
from qmd.analysis.tokens import count_tokens

COUNTED = {
    "The rent is due on the first of the month, and unpaid rent is never forgotten by anybody. ": 401,
    "def count_tokens(text: str) -> int:\n    return sum(map(len, text.split()))  # not 0x1f\n": 560,
    "| name | price | 2026-11-23 |\n|---|--:|---|\n| Überfahrt | 12.50 € | #2c84f2 |\n": 760,
    "渡船什么时候开,票在码头买。天气不好的时候不开船。": 360,
    "フェリーはいつ出ますか。切符は港で買えます。": 340,
    '{"docid": "#2c84f2", "file": "notes/a b.md", "score": 0.83, "snippet": "12: eine Zeile\\n13: \\"noch\\""}\n': 880,
}
"""Texts, and the o200k_base tokens of twenty repetitions of each."""


@pytest.mark.parametrize(("text", "exactly"), COUNTED.items())
def test_prose_code_tables_cjk_and_json_are_never_counted_too_low(text: str, exactly: int) -> None:
    assert exactly <= count_tokens(text * 20) <= 1.15 * exactly


def test_nothing_costs_nothing_and_what_is_no_unicode_is_counted() -> None:
    assert count_tokens("") == 0 and count_tokens("a\ud800b") > 2


@pytest.mark.parametrize("letter", ["a", "𝕏", "é", "漢", "\n", " ", "'", "0"])
def test_a_piece_of_any_length_asks_for_few_strings_a_character(monkeypatch: pytest.MonkeyPatch, letter: str) -> None:
    rare = random.Random(1)
    text = "".join(letter + chr(0x4E00 + rare.randrange(9000)) * (letter == "漢") for _ in range(20_000))
    asked: list[int] = []
    is_token = tokens._is_token

    def count(piece: str) -> bool:
        asked.append(len(piece))
        return is_token(piece)

    tokens._count_short.cache_clear()
    monkeypatch.setattr(tokens, "_is_token", count)
    assert count_tokens(text) and len(asked) <= 17 * len(text) and max(asked) <= 128
