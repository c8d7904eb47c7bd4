"""Places of terms in a text: found where words begin, in time that follows the text, and not more than are of use."""

from __future__ import annotations

import time

from qmd.analysis.query import parse_lex
from qmd.retrieval.matching import WeightedTerm, find_occurrences, fold


def terms(query: str) -> list[WeightedTerm]:
    return [WeightedTerm(term, 1.0) for term in parse_lex(query)]


def test_a_phrase_begins_where_a_word_begins() -> None:
    text = fold("note keys, keynote keys; NOTE-keys")
    assert [one.offset for one in find_occurrences(text, terms('"note keys"'))] == [0, 25]


def test_a_phrase_is_looked_for_once_in_a_line_of_equal_letters() -> None:
    """Run through from every letter, four times the text would take sixteen times as long."""

    def cost(n: int) -> float:
        begun = time.process_time()
        assert find_occurrences("x" * n, terms('"x y"')) == []
        return time.process_time() - begun

    assert cost(200_000) < 8 * cost(50_000) + 0.1


def test_a_word_that_fills_a_text_is_found_often_enough_and_no_oftener() -> None:
    assert len(find_occurrences("a " * 100_000, terms("a"))) == 20_000
