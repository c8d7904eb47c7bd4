"""Passages: right lines, right numbers, never too long."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from qmd.analysis.query import analyze_query
from qmd.retrieval.matching import WeightedTerm
from qmd.retrieval.snippets import best_passage

TEXT = "# Notes\n\nintro\n\nThe limiter slides.\nAuth token flow\nend one\nend two\n"


def query_terms(text: str) -> list[WeightedTerm]:
    """Terms of `text`, all of the same weight."""
    return [WeightedTerm(term, 1.0) for term in analyze_query(text)]


def test_the_best_line_has_one_line_before_and_two_after() -> None:
    passage = best_passage(TEXT, query_terms("auth tokens"))
    assert passage.text == "The limiter slides.\nAuth token flow\nend one\nend two"
    assert (passage.start_line, passage.end_line, passage.line) == (5, 8, 6)
    assert (passage.lines_before, passage.lines_after) == (4, 0)


def test_inflected_words_match() -> None:
    assert best_passage("a\nb\nHe configured it.\n", query_terms("configuration")).line == 3


def test_part_of_another_word_does_not_match() -> None:
    assert best_passage("concatenate\nthe cat\n", query_terms("cat")).line == 2


def test_chinese_pairs_match() -> None:
    assert best_passage("前言\n\n连接数据库的方法\n", query_terms("数据库")).line == 3


def test_accents_do_not_hide_a_word() -> None:
    assert best_passage("x\nUn café noir\n", query_terms("cafe")).line == 2


def test_the_line_is_looked_for_inside_the_chunk() -> None:
    text = "token here\n\nfiller\n\nsecond token\n"
    start = text.index("second")
    assert best_passage(text, query_terms("token"), chunk=(start, len(text))).line == 5


def test_a_chunk_that_matched_by_meaning_is_shown_from_its_start() -> None:
    text = "# A\n\none\n\n## B\n\nautomobile engines\n"
    start = text.index("## B")
    assert best_passage(text, query_terms("car"), chunk=(start, len(text))).line == 5


def test_a_long_line_is_cut_around_the_match() -> None:
    text = "filler " * 200 + "needle " + "filler " * 200
    passage = best_passage(text, query_terms("needle"), max_chars=120)
    assert "needle" in passage.text
    assert len(passage.text) <= 120


def test_an_empty_document_has_an_empty_passage() -> None:
    passage = best_passage("", query_terms("x"))
    assert (passage.text, passage.start_line, passage.line) == ("", 1, 1)


@given(st.text(alphabet="ab \n\ré中ß", max_size=200), st.text(alphabet="ab é中", max_size=10), st.integers(10, 100))
def test_line_numbers_are_those_of_the_file(text: str, query: str, max_chars: int) -> None:
    passage = best_passage(text, query_terms(query), max_chars=max_chars)
    lines = text.split("\n")
    assert len(passage.text) <= max_chars
    assert 1 <= passage.start_line <= passage.line <= passage.end_line <= len(lines)
    assert passage.lines_before == passage.start_line - 1
    if "..." not in passage.text:
        shown = [line.removesuffix("\r") for line in lines[passage.start_line - 1 : passage.end_line]]
        assert passage.text.split("\n")[: len(shown)] == shown


@given(st.text(max_size=80), st.text(max_size=20), st.integers(0, 90), st.integers(0, 90))
def test_any_chunk_span_is_survived(text: str, query: str, start: int, length: int) -> None:
    best_passage(text, query_terms(query), chunk=(start, start + length))


def test_a_declaration_is_shown_rather_than_an_equally_good_use() -> None:
    text = "from door import unlock\n\nunlock(1)\n\n\ndef unlock(number):\n    return number\n"
    terms = query_terms("unlock")
    assert best_passage(text, terms, path="door.py").line == 6
    assert best_passage(text, terms).line == 1
