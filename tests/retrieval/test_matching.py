"""Places of terms in a text: at the start of words, in linear time, and a limited number.

Spans of the text itself come from the analysis that searched.
"""

import re
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qmd.analysis.query import analyze_query, parse_lex
from qmd.records import LexicalTerm, Scope
from qmd.retrieval.matching import MAX_SPANS, WeightedTerm, find_occurrences, find_spans, fold
from tests.note_index import NoteIndex


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


def found(text: str, query: str) -> list[str]:
    return [text[start:end] for start, end in find_spans(text, parse_lex(query))]


def test_a_word_is_not_found_inside_another_one() -> None:
    terms = analyze_query("how do I link to a block?")
    text = "This shows how blocks are linked; unlinked ones have no link."
    assert [text[a:b] for a, b in find_spans(text, terms)] == ["blocks", "linked", "link"]


@pytest.mark.parametrize(
    ("query", "text", "expected"),
    [
        ("recherche", "Les RECHERCHES réussies", ["RECHERCHES"]),
        ("résumé", "a resume, a résumé, a re\u0301sume\u0301!", ["resume", "résumé", "re\u0301sume\u0301"]),
        ("strasse", "Die Straße endet", ["Straße"]),
        ("file", "der Dateiname \ufb01le.txt", ["\ufb01le"]),
        ('"daily note"', "one Daily\n notes and one note daily", ["Daily\n notes"]),
        ("发布检查", "关于发布检查清单的说明", ["发布检查"]),
        ("auth*", "authentication of author", ["authentication", "author"]),
        ("notes listed", "Do not forget. It is not listed, a note.", ["listed", "note"]),
        ("use of probability", "uses any probable and probably user", ["uses", "probable", "probably"]),
        ('"note kept"', "notable notes keep; notes kept", ["notes kept"]),
        ("мой", "мои, мой", ["мой"]),
        ("hyphenation", "hyphen\u00adation", ["hyphen\u00adation"]),
        ("API", "このAPIを呼ぶ", ["API"]),
        ("C++", "C++ and C, c++17", ["C++", "c++"]),
        (".NET", "a .NET network", [".NET"]),
        ("high-speed", "a high speed train, high-speed", ["high speed", "high-speed"]),
        ("-draft plan", "draft plans", ["plans"]),
    ],
)
def test_a_term_is_found_in_the_form_that_the_text_has(query: str, text: str, expected: list[str]) -> None:
    terms = [term for term in parse_lex(query) if not term.excluded]
    assert [text[a:b] for a, b in find_spans(text, terms)] == expected


OTHER_LANGUAGES = """Überfahrt überfahren Straße strasse résumé résumés resume naïve naïveté Ёлка елка мой мои моделей
модели настройка настройки İstanbul Việt łódź Ελλάδα ελλαδα 发布检查 发布了API文档 このAPIを API 설정을 설정 ｆｕｌｌ
ﬁle x² 1st can't l'homme e-mail snake_case index.html v1.2.3 C++ .NET don’t co\u00adopt coopt cre\u0301me crème"""


def test_a_word_is_marked_exactly_where_the_index_finds_it() -> None:
    """Words that begin alike, from our documents and of other languages, each as text and as query."""
    text = Path(__file__).parents[2].joinpath("docs", "tutorial.md").read_text(encoding="utf-8")
    words = [*OTHER_LANGUAGES.split(), *sorted(set(re.findall("[a-z]{3,}", text)))[::2]]
    index = NoteIndex()
    texts = {index.add(f"{number}.txt", word).id: word for number, word in enumerate(words)}
    for term in {
        term for word in words for term in analyze_query(word) if not re.match(r'"(\d+|txt|notes?)"', term.fts)
    }:
        in_index = {texts[one.document_id] for one in index.search_lexical([term], len(words), Scope())}
        assert (term.fts, {word for word in words if find_spans(word, [term])}) == (term.fts, in_index)


@given(text=st.text(max_size=200), query=st.text(max_size=40))
def test_spans_lie_in_the_text_and_apart_from_each_other(text: str, query: str) -> None:
    spans = find_spans(text, parse_lex(query))
    borders = [0, *(border for span in spans for border in span), len(text)]
    assert borders == sorted(borders)
    assert all(start < end for start, end in spans)


@given(before=st.text(alphabet="aé\u0301ß发ﬁ\u00a0İ \n", max_size=80))
def test_text_before_a_word_does_not_shift_its_place(before: str) -> None:
    assert found(f"{before} needle.", "needle") == ["needle"]


def test_a_text_full_of_a_word_gives_a_bounded_number_of_spans() -> None:
    assert len(find_spans("word " * 100_000, [LexicalTerm("word", '"word"')])) == MAX_SPANS


def test_a_long_text_in_another_script_takes_time_that_follows_its_length() -> None:
    def cost(n: int) -> float:
        begun = time.process_time()
        find_spans("ß\u0301" * n, parse_lex("needle"))
        return time.process_time() - begun

    assert cost(20_000) < 8 * cost(5_000) + 0.1
